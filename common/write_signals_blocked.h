// WriteSignalsBlocked: for a scope in which the calling thread writes to a file or a pipe of the program's. Any thread; async-signal-safe.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace ramspan {

// A pipe without a reader or a limit of file sizes answers with a signal, which would end the program in place of the
// message. It is kept from this thread and taken away.
class WriteSignalsBlocked {
 public:
  WriteSignalsBlocked() {
    sigset_t pending;
    sigemptyset(&signals_);
    sigpending(&pending);
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      if (!sigismember(&pending, signal)) sigaddset(&signals_, signal);  // else it is the program's own
    }
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~WriteSignalsBlocked() {
    const timespec at_once{};
    while (sigtimedwait(&signals_, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t signals_, before_;
};

}  // namespace ramspan
