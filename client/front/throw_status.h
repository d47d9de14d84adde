// The line where a Status becomes an exception of include/ramspan/errors.h, and where calls are refused.
#pragma once

#include "common/program_code.h"
#include "common/status.h"

namespace ramspan {

// REQUIRES: not OK.
[[noreturn]] void ThrowStatus(const Status& status);

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
