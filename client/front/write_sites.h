// Where in the program a T* was pulled, for debug mode, which tells of those through which nothing was changed. Thread-safety: any thread. Neither call is
// on the path of a program that is not debugged: the one follows the stack, the other runs addr2line.
#pragma once

#include <string>

namespace ramspan {

// The return address of the innermost call that the program has made into this library; null where the stack cannot be followed, or program and
// library are one file.
const void* CallerOfRamspan() noexcept;

// Of what that returned: "field.cc:34 in Step(Field&)", or as much of that as the program's debug information (-g) tells.
std::string DescribeSite(const void* site);

}  // namespace ramspan
