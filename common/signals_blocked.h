// SignalsBlocked: as long as it lives, the calling thread blocks all signals, and threads that are started meanwhile are born with that
// mask. For calls that start threads of the library's or of libfabric's: the handlers of the program run on the program's threads. A
// thread that blocked signals by itself could get one before it does so.
//
// A signal that comes meanwhile waits, so the calls have to be short: MPI_Init is not, which waits for other processes; SIGKILL and SIGSTOP cannot be blocked. Thread-safety: the mask
// is the thread's own.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace ramspan {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace ramspan
