// For threads that belong to the library and not to the program.
#pragma once

#include <fenv.h>
#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace ramspan {

// Runs `body` on a new thread that takes no part in what the program has arranged for its own:
// - All signals are blocked, because the program's handlers run on the program's threads. They are blocked here for as long
//   as the thread takes to be made, which inherits the mask: if it blocked them itself, a signal could come before.
// - Rounding, flush-to-zero and traps are the default ones. It would inherit those of the thread that called, whichever of
//   the program's used Ramspan first; with a trap on inexact results the library's first division would end the program.
// Throws std::system_error when there can be no more threads.
template <class Body>
std::thread StartOwnThread(Body&& body) {
  class AllSignalsBlocked {
   public:
    AllSignalsBlocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

   private:
    sigset_t before_;
  };
  const AllSignalsBlocked blocked;
  return std::thread([body = std::forward<Body>(body)]() mutable {
    fesetenv(FE_DFL_ENV);
    body();
  });
}

}  // namespace ramspan
