#include "common/public_call.h"

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
}

}  // namespace ramspan
