#include "common/public_call.h"

#include <pthread.h>

#include <cstdlib>

#include "common/log.h"

namespace ramspan {

namespace detail {
__thread int t_inside_ramspan = 0;
}  // namespace detail

std::atomic<bool> PublicCall::put_off_{false};
std::atomic<uintptr_t> PublicCall::pages_begin_{0}, PublicCall::pages_bytes_{0};

namespace {
// Not on the stack, which may be memory that is away when the kernel looks.
sigset_t put_off_signals;
__thread sigset_t t_before __attribute__((tls_model("initial-exec")));
}  // namespace

void PublicCall::BeginPages(const void* begin, uint64_t bytes) {
  sigset_t all;
  sigfillset(&all);
  for (const int own : {SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&all, own);
  put_off_signals = all;
  pages_begin_.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_relaxed);
  pages_bytes_.store(bytes, std::memory_order_release);
  put_off_.store(true, std::memory_order_release);
}

void PublicCall::EndOnSuchStack() {
  LogWarning("the process ends: a thread uses managedPtr, or another of Ramspan's own calls, on a stack that is swapped by pages (a coroutine's, or one that the program gave its thread), and would wait for "
             "that for ever. Let such stacks be malloc's: ramspan run --pages-above SIZE (RAMSPAN_PAGES_ABOVE) with more than a stack takes");
  std::abort();
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
