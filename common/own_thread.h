// For threads that belong to the library and not to the program.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace ramspan {

// The program's signal handlers run on the program's threads.
inline void BlockSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace ramspan
