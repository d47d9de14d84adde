// Where in the program a T* was pulled, for debug mode, which tells of those through which nothing was changed. Thread-safety: any thread. Neither call is
// on the path of a program that is not debugged: the one follows the stack, the other runs addr2line.
#pragma once

#include <string>

#include "client/engine/write_site.h"

namespace ramspan {

// The return addresses of the innermost calls on the way into this library that are not its own; none where the stack cannot be followed, or program and
// library are one file. Several, because the first ones may be functions of Ramspan's headers.
WriteSite CallersOfRamspan() noexcept;

// Of what that returned: "field.cc:34 in Step(Field&)", or as much of that as the program's debug information (-g) tells.
std::string DescribeSite(const WriteSite& site);

}  // namespace ramspan
