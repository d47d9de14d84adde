// How the arguments of the application travel through mpiexec, whose own parsing ends a program's arguments at ":",
// loses control characters and breaks beyond 1000 arguments. A plain argument travels as it is; any other as a word
// "=HEX", the hexadecimal of one or more arguments with a zero byte between each two ("=" alone is one empty argument).
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace ramspan {

// More arguments than this are packed into few words.
inline constexpr size_t kPlainArgumentsMax = 500;

std::vector<std::string> EncodeArguments(const std::vector<std::string>& arguments);

// kInvalidArgument where a word begins with "=" and is not such a code.
Result<std::vector<std::string>> DecodeArguments(const std::vector<std::string>& words);

}  // namespace ramspan
