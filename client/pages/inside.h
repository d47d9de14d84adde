// Whether the calling thread runs code of Ramspan's: what that allocates must not be swapped by pages, for it is used while pages are brought.
// Read by the library that ramspan run --pages preloads. Thread-safety: the flag is the thread's own.
#pragma once

#include "ramspan/detail/resident.h"

namespace ramspan::detail {

extern RAMSPAN_API __thread int t_inside_ramspan __attribute__((tls_model("initial-exec")));

class Inside {
 public:
  Inside() { ++t_inside_ramspan; }
  ~Inside() { --t_inside_ramspan; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

}  // namespace ramspan::detail
