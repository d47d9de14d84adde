// EngineCall: a PublicCall of a program's that may wait for the engine's locks. A signal handler that has interrupted one, and comes to another, would
// wait for its own thread for ever: the process ends instead, with the reason. Calls that begin within one, of code of the program's that Ramspan
// has called, are refused elsewhere (throw_status.h), or need no such lock. None begins within another one of Ramspan's own.
#pragma once

#include <utility>

#include "common/last_words.h"
#include "common/program_code.h"
#include "common/public_call.h"

namespace ramspan {

class EngineCall {
 public:
  EngineCall() : interrupted_(std::exchange(is_in_, true)) {
    if (__builtin_expect(interrupted_, 0) && ProgramCode::running() == ProgramCode::Of::kNobody) {
      EndProcessSaying(
          "ramspan: a signal handler that has interrupted Ramspan makes or pulls a managedPtr, and would wait for ever; let it set a flag, and do that where the program goes on\n");
    }
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
