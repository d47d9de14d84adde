// For threads that belong to the library and not to the program.
#pragma once

#include <fenv.h>

#include <thread>
#include <utility>

#include "common/log.h"
#include "common/signals_blocked.h"

namespace ramspan {

// How many threads of this process take signals: all but the library's own, and those of what it has loaded. At least 1. Reads /proc; std::bad_alloc.
int ThreadsOfProgram();

// Runs `body` on a new thread that takes no part in what the program has arranged for its own:
// - All signals are blocked, because the program's handlers run on the program's threads (SignalsBlocked).
// - Its messages do not block it (common/log.h).
// - Rounding, flush-to-zero and traps are the default ones. It would inherit those of the thread that called, whichever of
//   the program's used Ramspan first; with a trap on inexact results the library's first division would end the program.
// Throws std::system_error when there can be no more threads.
template <class Body>
std::thread StartOwnThread(Body&& body) {
  const SignalsBlocked blocked;
  return std::thread([body = std::forward<Body>(body)]() mutable {
    fesetenv(FE_DFL_ENV);
    LogWithoutWaiting();
    body();
  });
}

}  // namespace ramspan
