// EngineCall: a PublicCall of a program's that may wait for the engine's locks. A signal handler that has interrupted one, and comes to another, would
// wait for its own thread for ever: the process ends instead, with the reason. Calls that begin within one, of code of the program's that Ramspan
// has called, are refused elsewhere (throw_status.h), or need no such lock. None begins within another one of Ramspan's own.
#pragma once

#include "common/last_words.h"
#include "common/program_code.h"
#include "common/public_call.h"

namespace ramspan {

class EngineCall {
 public:
  // Whether the calling thread runs a signal handler that has interrupted such a call.
  static bool IsInterrupted() { return __builtin_expect(is_in_, 0) && ProgramCode::running() == ProgramCode::Of::kNobody; }

  // It is about to throw, and holds no lock: where nobody catches that, the program's terminate handler runs before the call ends.
  static void EndsByException() { is_in_ = false; }

  EngineCall() : interrupted_(is_in_) {
    if (IsInterrupted()) {
      EndProcessSaying(
          "ramspan: a signal handler that has interrupted Ramspan makes or pulls a managedPtr, and would wait for ever; let it set a flag, and do that where the program goes on\n");
    }
    is_in_ = true;
  }
  ~EngineCall() { is_in_ = interrupted_; }
  EngineCall(const EngineCall&) = delete;
  EngineCall& operator=(const EngineCall&) = delete;

 private:
  static inline thread_local constinit bool is_in_ __attribute__((tls_model("initial-exec"))) = false;
  const PublicCall call_;  // before it, where its handlers are put off there is nothing to find
  const bool interrupted_;
};

}  // namespace ramspan
