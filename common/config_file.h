// The syntax of configuration files: blocks, keys and values with their lines; knows no key. Pure, but for
// ReadConfigFile. Any thread.
//
//   [block]             begins a block; blanks around the name do not count
//   key = value         # a comment, at the start of a line or after a blank
//   key = "a # b"       quotes keep blanks and '#'; there are no escapes
//
// CRLF and a UTF-8 byte order mark are tolerated. Any other line is an error, in whatever block; in Rambrain's own files
// it is passed over, and there a '#' begins a comment wherever it stands (kRambrain). Boost's own file
// parser is not used: it forgets line numbers, cuts values at any '#' and merges blocks of one name.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace ramspan {

inline constexpr size_t kConfigFileMaxBytes = size_t{1} << 20;

struct ConfigEntry {
  std::string key;
  std::string value;  // without quotes
  int line = 0;       // from 1
};

struct ConfigBlock {
  std::string name;
  int line = 0;
  std::vector<ConfigEntry> entries;  // in the order of the file; keys may repeat
};

enum class ConfigDialect { kRamspan, kRambrain };

// The blocks of `text` in order (names may repeat). Errors are kInvalidArgument and begin with "<file>:<line>: ". In
// Rambrain's dialect a wrong line is none, but is described so in *passed_over.
Result<std::vector<ConfigBlock>> ParseConfigText(std::string_view text, const std::string& file,
                                                 ConfigDialect dialect = ConfigDialect::kRamspan,
                                                 std::vector<std::string>* passed_over = nullptr);

// The text of a file; nullopt when there is none. Never blocks: pipes, folders and sockets are refused, devices are
// read as far as they have bytes (/dev/null is an empty file). Stops a little after kConfigFileMaxBytes, which
// ParseConfigText then refuses.
Result<std::optional<std::string>> ReadConfigFile(const std::string& path);

// `text` made fit for a one-line message: cut, control characters replaced.
std::string Printable(std::string_view text);

}  // namespace ramspan
