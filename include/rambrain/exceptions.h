// Rambrain's exceptions, thrown by everything in include/rambrain/. Each derives publicly from std::exception (by
// ramspan::Error, so a program may catch either family), and what() lives as long as the exception.
#pragma once

#include <new>
#include <string>

#include "rambrain/common.h"
#include "ramspan/detail/resident.h"
#include "ramspan/errors.h"

namespace rambrain {

class rambrainException : public ramspan::Error {
 public:
  using ramspan::Error::Error;
};

// A configuration that cannot work, a manager without a swap, a wrong order of calls.
class incompleteSetupException : public rambrainException {
 public:
  explicit incompleteSetupException(const std::string& details)
      : rambrainException("Incomplete setup of objects: " + details) {}
};

// More pinned than the limit allows, swap full, data lost: what ramspan::OutOfMemory, OutOfSwap, DataLost and
// SwapUnavailable say.
class memoryException : public rambrainException {
 public:
  explicit memoryException(const std::string& details) : rambrainException("Memory exception: " + details) {}
};

class unexpectedStateException : public rambrainException {
 public:
  explicit unexpectedStateException(const std::string& details)
      : rambrainException("Unexpected state detected: " + details) {}
};

// Never thrown here; for programs that catch it.
class unfinishedCodeException : public rambrainException {
 public:
  explicit unfinishedCodeException(const std::string& details)
      : rambrainException("Unfinished code section encountered: " + details) {}
};

namespace rambrain_detail {
// REQUIRES: called while a ramspan::Error is handled. Throws Rambrain's exception for it.
[[noreturn]] RAMSPAN_API void RethrowAsRambrain();

template <typename F>
auto Translated(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const ramspan::Error&) {
    RethrowAsRambrain();
  }
}

// memoryException with the remedy for a process that is given no more. Needs no heap.
[[noreturn]] RAMSPAN_API void ThrowNoHeap();

// As Translated, for code that is the library's alone: a std::bad_alloc of the program's own constructors is not the library's to change.
template <typename F>
auto TranslatedAll(F&& f) -> decltype(f()) {
  return Translated([&] {
    try {
      return f();
    } catch (const std::bad_alloc&) {
      ThrowNoHeap();
    }
  });
}
}  // namespace rambrain_detail

}  // namespace rambrain
