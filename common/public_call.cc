#include "common/public_call.h"

#include <pthread.h>

namespace ramspan {

namespace detail {
__thread int t_inside_ramspan = 0;
}  // namespace detail

std::atomic<bool> PublicCall::put_off_{false};

void PublicCall::Block() {
  sigset_t all;
  sigfillset(&all);
  for (const int own : {SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&all, own);
  pthread_sigmask(SIG_BLOCK, &all, &before_);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_before_);
}

void PublicCall::Unblock() {
  pthread_setcancelstate(cancel_before_, nullptr);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace ramspan
