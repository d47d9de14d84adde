// For threads that belong to the library and not to the program.
#pragma once

#include <fenv.h>
#include <pthread.h>
#include <signal.h>

namespace ramspan {

// The program's signal handlers run on the program's threads.
inline void BlockSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

// A thread inherits rounding, flush-to-zero and traps of the thread that starts it, here whichever thread of the program
// used Ramspan first. With a trap on inexact results the first division of the library's own would end the program.
inline void SetDefaultFpEnvironment() { fesetenv(FE_DFL_ENV); }

}  // namespace ramspan
