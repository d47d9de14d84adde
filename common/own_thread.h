// For threads that belong to the library and not to the program.
#pragma once

#include <fenv.h>

#include <atomic>
#include <thread>
#include <utility>

#include "common/signals_blocked.h"

namespace ramspan {

namespace detail {
inline std::atomic<int> own_threads{0};  // that run
struct OwnThreadCounted {
  OwnThreadCounted() { own_threads.fetch_add(1, std::memory_order_relaxed); }
  ~OwnThreadCounted() { own_threads.fetch_sub(1, std::memory_order_relaxed); }
};
}  // namespace detail

// How many threads this process has that StartOwnThread has not started, those of other libraries (MPI's) among them. At least 1.
int ThreadsOfProgram();

// Runs `body` on a new thread that takes no part in what the program has arranged for its own:
// - All signals are blocked, because the program's handlers run on the program's threads (SignalsBlocked).
// - Rounding, flush-to-zero and traps are the default ones. It would inherit those of the thread that called, whichever of
//   the program's used Ramspan first; with a trap on inexact results the library's first division would end the program.
// Throws std::system_error when there can be no more threads.
template <class Body>
std::thread StartOwnThread(Body&& body) {
  const SignalsBlocked blocked;
  return std::thread([body = std::forward<Body>(body)]() mutable {
    const detail::OwnThreadCounted counted;
    fesetenv(FE_DFL_ENV);
    body();
  });
}

}  // namespace ramspan
