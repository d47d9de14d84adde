#include "common/public_call.h"

#include <pthread.h>

namespace ramspan {

namespace detail {
__thread int t_inside_ramspan = 0;
}  // namespace detail

std::atomic<bool> PublicCall::put_off_{false};

namespace {
// Not on the stack, which may be memory that is away when the kernel looks.
sigset_t put_off_signals;
__thread sigset_t t_before __attribute__((tls_model("initial-exec")));
}  // namespace

void PublicCall::PutHandlersOff() {
  sigset_t all;
  sigfillset(&all);
  for (const int own : {SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&all, own);
  put_off_signals = all;
  put_off_.store(true, std::memory_order_release);
}

void PublicCall::Block() {
  std::atomic_thread_fence(std::memory_order_acquire);  // put_off_ was seen
  pthread_sigmask(SIG_BLOCK, &put_off_signals, &t_before);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_before_);
}

void PublicCall::Unblock() {
  pthread_setcancelstate(cancel_before_, nullptr);
  pthread_sigmask(SIG_SETMASK, &t_before, nullptr);
}

}  // namespace ramspan
