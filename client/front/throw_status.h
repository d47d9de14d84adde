// The lines where a Status, or the end of the heap, becomes an exception of include/ramspan/errors.h, and where calls
// are refused. None of them needs heap.
#pragma once

#include <new>

#include "common/program_code.h"
#include "common/status.h"

namespace ramspan {

// REQUIRES: not OK.
[[noreturn]] void ThrowStatus(const Status& status);

// OutOfMemory with the remedy for a process that is given no more.
[[noreturn]] void ThrowNoHeap();

// What a program calls throws what include/ramspan/errors.h says and nothing else: std::bad_alloc of the library's own is OutOfMemory.
template <typename F>
decltype(auto) AsPublicCall(const F& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    ThrowNoHeap();
  }
}

// Throws Error where the calling thread runs code of the program's that Ramspan has called, for calls that could wait for its end, or
// need a lock that stands around it. `call`: a name for people.
[[noreturn]] void ThrowWithinProgramCode(const char* call);
inline void RefuseWithinProgramCode(const char* call) {
  if (__builtin_expect(ProgramCode::running() != ProgramCode::Of::kNobody, 0)) ThrowWithinProgramCode(call);
}
inline void RefuseWithinPolicy(const char* call) {
  if (ProgramCode::running() == ProgramCode::Of::kPolicy) ThrowWithinProgramCode(call);
}

}  // namespace ramspan
