// libramspan-pages, third part: signals, where pages are brought by a handler of SIGBUS (docs/pages.md, pageFaults = signal). That handler stays, and no thread of the
// program's blocks SIGBUS: else the next page that is away would end the process. A handler of SIGBUS of the program's own gets all others (FaultServer).
//
// Thread-safety, signals: as the calls that they replace.
#include <pthread.h>
#include <signal.h>

#include <cerrno>

#include "client/preload/homes.h"

namespace ramspan::preload {
namespace {

bool IsOurs(int number) { return number == SIGBUS && in_signals.load(std::memory_order_relaxed) && detail::t_inside_ramspan == 0 && !is_forked.load(std::memory_order_relaxed); }

// `set` without SIGBUS, where it must not be blocked.
const sigset_t* Unblockable(const sigset_t* set, sigset_t* own) {
  if (set == nullptr || !in_signals.load(std::memory_order_relaxed) || detail::t_inside_ramspan != 0 || sigismember(set, SIGBUS) != 1) return set;
  *own = *set;
  sigdelset(own, SIGBUS);
  return own;
}

}  // namespace
}  // namespace ramspan::preload

using ramspan::preload::IsOurs;
using ramspan::preload::Libc;
using ramspan::preload::Unblockable;

extern "C" {

RAMSPAN_API int sigaction(int number, const struct sigaction* action, struct sigaction* before) noexcept {
  static constinit Libc<int (*)(int, const struct sigaction*, struct sigaction*)> next("sigaction");
  if (IsOurs(number)) {
    ramspan::detail::ExchangeHandlerOfOthers(action, before);
    return 0;
  }
  if (action == nullptr) return next(number, action, before);
  struct sigaction own = *action;
  static_cast<void>(Unblockable(&action->sa_mask, &own.sa_mask));
  return next(number, &own, before);
}

RAMSPAN_API void (*signal(int number, void (*handler)(int)) noexcept)(int) {
  static constinit Libc<void (*(*)(int, void (*)(int)))(int)> next("signal");
  if (!IsOurs(number)) return next(number, handler);
  struct sigaction action = {}, before = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ramspan::detail::ExchangeHandlerOfOthers(&action, &before);
  return before.sa_handler;
}

RAMSPAN_API int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) noexcept {
  static constinit Libc<int (*)(int, const sigset_t*, sigset_t*)> next("pthread_sigmask");
  sigset_t own;
  return next(how, how == SIG_UNBLOCK ? set : Unblockable(set, &own), before);
}

RAMSPAN_API int sigprocmask(int how, const sigset_t* set, sigset_t* before) noexcept {
  static constinit Libc<int (*)(int, const sigset_t*, sigset_t*)> next("sigprocmask");
  sigset_t own;
  return next(how, how == SIG_UNBLOCK ? set : Unblockable(set, &own), before);
}

}  // extern "C"
