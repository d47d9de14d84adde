// libramspan-pages, third part: signals, where pages are brought by a handler of SIGBUS (docs/pages.md, pageFaults = signal). That handler stays, and no thread of the
// program's blocks SIGBUS: else the next page that is away would end the process. A handler of SIGBUS of the program's own gets all others (FaultServer).
//
// Thread-safety, signals: as the calls that they replace.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <cerrno>

#include "client/preload/homes.h"

namespace ramspan::preload {
namespace {

bool IsOurs(int number) { return number == SIGBUS && in_signals.load(std::memory_order_relaxed) && detail::t_inside_ramspan == 0 && !is_forked.load(std::memory_order_relaxed); }

// `set` without SIGBUS, where it must not be blocked. Before the start, too: threads that begin then inherit it.
const sigset_t* Unblockable(const sigset_t* set, sigset_t* own) {
  if (set == nullptr || !MayComeBySignal() || detail::t_inside_ramspan != 0 || sigismember(set, SIGBUS) != 1) return set;
  *own = *set;
  sigdelset(own, SIGBUS);
  return own;
}

}  // namespace
}  // namespace ramspan::preload

using ramspan::preload::IsOurs;
using ramspan::preload::Unblockable;

RS_LIBC(sigaction, int (*)(int, const struct sigaction*, struct sigaction*))
RS_LIBC(signal, void (*(*)(int, void (*)(int)))(int))
RS_LIBC(__sysv_signal, void (*(*)(int, void (*)(int)))(int))
RS_LIBC(sigset, void (*(*)(int, void (*)(int)))(int))
RS_LIBC(pthread_sigmask, int (*)(int, const sigset_t*, sigset_t*))
RS_LIBC(sigprocmask, int (*)(int, const sigset_t*, sigset_t*))
RS_LIBC(pthread_attr_setsigmask_np, int (*)(pthread_attr_t*, const sigset_t*))
RS_LIBC(sigsuspend, int (*)(const sigset_t*))
RS_LIBC(pselect, int (*)(int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*))
RS_LIBC(ppoll, int (*)(pollfd*, nfds_t, const timespec*, const sigset_t*))
RS_LIBC(epoll_pwait, int (*)(int, epoll_event*, int, int, const sigset_t*))

namespace {

using Handler = void (*)(int);

Handler SetOfOthers(Handler handler, int flags) {
  struct sigaction action = {}, before = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ramspan::detail::ExchangeHandlerOfOthers(&action, &before);
  return before.sa_handler;
}

}  // namespace

extern "C" {

RAMSPAN_API int sigaction(int number, const struct sigaction* action, struct sigaction* before) noexcept {
  if (IsOurs(number)) {
    struct sigaction now = {};
    const struct sigaction next = action != nullptr ? *action : now;  // pages may come while they are read and written
    ramspan::detail::ExchangeHandlerOfOthers(action != nullptr ? &next : nullptr, &now);
    if (before != nullptr) *before = now;
    return 0;
  }
  if (action == nullptr) return real_sigaction(number, action, before);
  struct sigaction own = *action;
  static_cast<void>(Unblockable(&action->sa_mask, &own.sa_mask));
  return real_sigaction(number, &own, before);
}

RAMSPAN_API Handler signal(int number, Handler handler) noexcept { return IsOurs(number) ? SetOfOthers(handler, SA_RESTART) : real_signal(number, handler); }
RAMSPAN_API Handler bsd_signal(int number, Handler handler) noexcept __attribute__((alias("signal")));
RAMSPAN_API Handler ssignal(int number, Handler handler) noexcept __attribute__((alias("signal")));
RAMSPAN_API Handler __sysv_signal(int number, Handler handler) noexcept {
  return IsOurs(number) ? SetOfOthers(handler, static_cast<int>(SA_RESETHAND | SA_NODEFER)) : real___sysv_signal(number, handler);
}
RAMSPAN_API Handler sysv_signal(int number, Handler handler) noexcept __attribute__((alias("__sysv_signal")));
// To hold it is to block it, which it is not.
RAMSPAN_API Handler sigset(int number, Handler handler) noexcept {
  if (!IsOurs(number)) return real_sigset(number, handler);
  if (handler != SIG_HOLD) return SetOfOthers(handler, 0);
  struct sigaction before = {};
  ramspan::detail::ExchangeHandlerOfOthers(nullptr, &before);
  return before.sa_handler;
}

RAMSPAN_API int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) noexcept {
  sigset_t own;
  return real_pthread_sigmask(how, how == SIG_UNBLOCK ? set : Unblockable(set, &own), before);
}
RAMSPAN_API int sigprocmask(int how, const sigset_t* set, sigset_t* before) noexcept {
  sigset_t own;
  return real_sigprocmask(how, how == SIG_UNBLOCK ? set : Unblockable(set, &own), before);
}
RAMSPAN_API int pthread_attr_setsigmask_np(pthread_attr_t* attributes, const sigset_t* set) noexcept {
  sigset_t own;
  return real_pthread_attr_setsigmask_np(attributes, Unblockable(set, &own));
}
RAMSPAN_API int sigsuspend(const sigset_t* set) {
  sigset_t own;
  return real_sigsuspend(Unblockable(set, &own));
}
RAMSPAN_API int pselect(int count, fd_set* in, fd_set* out, fd_set* failed, const timespec* timeout, const sigset_t* set) {
  sigset_t own;
  return real_pselect(count, in, out, failed, timeout, Unblockable(set, &own));
}
RAMSPAN_API int ppoll(pollfd* descriptors, nfds_t count, const timespec* timeout, const sigset_t* set) {
  sigset_t own;
  return real_ppoll(descriptors, count, timeout, Unblockable(set, &own));
}
RAMSPAN_API int epoll_pwait(int fd, epoll_event* events, int count, int timeout, const sigset_t* set) {
  sigset_t own;
  return real_epoll_pwait(fd, events, count, timeout, Unblockable(set, &own));
}

}  // extern "C"
