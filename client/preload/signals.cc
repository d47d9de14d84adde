// libramspan-pages, third part: signals, where pages are brought by a handler of SIGBUS (docs/pages.md, pageFaults = signal). That handler stays, and no thread of the
// program's blocks SIGBUS: else the next page that is away would end the process. A handler of SIGBUS of the program's own gets all others (FaultServer).
//
// Thread-safety, signals: as the calls that they replace.
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <ucontext.h>

#include <cerrno>
#include <cstring>

#include "client/preload/beside.h"
#include "client/preload/pinned_stack.h"

extern "C" {
void* __libc_malloc(size_t);
void __libc_free(void*);
}

namespace ramspan::preload {
namespace {

// As sigaction. A child of vfork has its parent's memory, but signals of its own, which end where it starts a program: it must not change what the parent's are, and is answered only.
void ExchangeHandlerOfOthers(const struct sigaction* action, struct sigaction* before) {
  detail::ExchangeHandlerOfOthers(HasMemoryOfParent() && !detail::IsUnknownChild() ? nullptr : action, before);
}

// In a forked child SIGSEGV brings the copy of its parent's memory.
bool IsOurs(int number) {
  if (detail::t_inside_ramspan != 0) return false;
  if (is_forked.load(std::memory_order_relaxed)) return number == SIGSEGV && homes.bytes > 0;
  return number != 0 && number == page_signal.load(std::memory_order_relaxed);
}

}  // namespace

const sigset_t* Unblockable(const sigset_t* set, sigset_t* own) {
  if (set == nullptr || !MayComeBySignal() || detail::t_inside_ramspan != 0 || (sigismember(set, SIGBUS) != 1 && sigismember(set, SIGSEGV) != 1)) return set;
  *own = *set;
  sigdelset(own, SIGBUS);
  sigdelset(own, SIGSEGV);
  return own;
}

}  // namespace ramspan::preload

using ramspan::preload::CopyOf;
using ramspan::preload::IsOurs;
using ramspan::preload::MayComeBySignal;
using ramspan::preload::NeedsPins;
using ramspan::preload::PinnedStack;
using ramspan::preload::Unblockable;

RS_LIBC(sigaction, int (*)(int, const struct sigaction*, struct sigaction*))
RS_LIBC(signal, void (*(*)(int, void (*)(int)))(int))
RS_LIBC(__sysv_signal, void (*(*)(int, void (*)(int)))(int))
RS_LIBC(sigset, void (*(*)(int, void (*)(int)))(int))
RS_LIBC(pthread_sigmask, int (*)(int, const sigset_t*, sigset_t*))
RS_LIBC(sigprocmask, int (*)(int, const sigset_t*, sigset_t*))
RS_LIBC(pthread_attr_setsigmask_np, int (*)(pthread_attr_t*, const sigset_t*))
RS_LIBC(sigsuspend, int (*)(const sigset_t*))
RS_LIBC(sighold, int (*)(int))
RS_LIBC(sigblock, int (*)(int))
RS_LIBC(sigsetmask, int (*)(int))
RS_LIBC(swapcontext, int (*)(ucontext_t*, const ucontext_t*))
RS_LIBC(setcontext, int (*)(const ucontext_t*))
RS_LIBC(timer_create, int (*)(clockid_t, sigevent*, timer_t*))

namespace {

using Handler = void (*)(int);
constexpr int kOurs = 1 << (SIGBUS - 1) | 1 << (SIGSEGV - 1);

// What a timer calls, on a thread of libc's with all signals blocked. Stays for ever: nobody says when the last call has begun.
struct Notified {
  void (*function)(sigval);
  sigval value;
};
void Notify(sigval notified) {
  const Notified what = *static_cast<Notified*>(notified.sival_ptr);
  ramspan::preload::MakeStackOfThisThread();
  what.function(what.value);
}

void Unblock(sigset_t* set) {
  sigdelset(set, SIGBUS);
  sigdelset(set, SIGSEGV);
}

template <typename Mask>
int Masked(int how, const sigset_t* set, sigset_t* before, const Mask& mask) {
  sigset_t own;
  CopyOf<const sigset_t> wanted(set);
  CopyOf<sigset_t> answer(before);
  const int result = mask(how, how == SIG_UNBLOCK ? wanted.get() : Unblockable(wanted.get(), &own), answer.get());
  if (result == 0) answer.Answer();
  return result;
}

Handler SetOfOthers(Handler handler, int flags) {
  struct sigaction action = {}, before = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ramspan::preload::ExchangeHandlerOfOthers(&action, &before);
  return before.sa_handler;
}

}  // namespace

extern "C" {

RAMSPAN_API int sigaction(int number, const struct sigaction* action, struct sigaction* before) noexcept {
  if (IsOurs(number)) {
    struct sigaction now = {};
    const struct sigaction next = action != nullptr ? *action : now;  // pages may come while they are read and written
    ramspan::preload::ExchangeHandlerOfOthers(action != nullptr ? &next : nullptr, &now);
    if (before != nullptr) *before = now;
    return 0;
  }
  const PinnedStack stack;
  if (action == nullptr) return real_sigaction(number, action, before);
  struct sigaction own = *action;
  if (ramspan::detail::t_inside_ramspan == 0) Unblock(&own.sa_mask);  // also where pages come by no signal: to a forked child they do
  return real_sigaction(number, &own, before);
}

RAMSPAN_API Handler signal(int number, Handler handler) noexcept {
  if (IsOurs(number)) return SetOfOthers(handler, SA_RESTART);
  const PinnedStack stack;
  return real_signal(number, handler);
}
RAMSPAN_API Handler bsd_signal(int number, Handler handler) noexcept __attribute__((alias("signal")));
RAMSPAN_API Handler ssignal(int number, Handler handler) noexcept __attribute__((alias("signal")));
RAMSPAN_API Handler __sysv_signal(int number, Handler handler) noexcept {
  if (IsOurs(number)) return SetOfOthers(handler, static_cast<int>(SA_RESETHAND | SA_NODEFER));
  const PinnedStack stack;
  return real___sysv_signal(number, handler);
}
RAMSPAN_API Handler sysv_signal(int number, Handler handler) noexcept __attribute__((alias("__sysv_signal")));
// To hold it is to block it, which it is not.
RAMSPAN_API Handler sigset(int number, Handler handler) noexcept {
  const PinnedStack stack;
  if (!IsOurs(number)) return real_sigset(number, handler);
  if (handler != SIG_HOLD) return SetOfOthers(handler, 0);
  struct sigaction before = {};
  ramspan::preload::ExchangeHandlerOfOthers(nullptr, &before);
  return before.sa_handler;
}

// Under other names, because a handler of a signal that is pending runs here, and may leave by pthread_exit: libc's headers say that nothing is thrown through them.
RAMSPAN_API int MaskOfThread(int how, const sigset_t* set, sigset_t* before) __asm__("pthread_sigmask");
int MaskOfThread(int how, const sigset_t* set, sigset_t* before) {
  return Masked(how, set, before, [](int h, const sigset_t* s, sigset_t* b) { return real_pthread_sigmask(h, s, b); });
}
RAMSPAN_API int MaskOfProcess(int how, const sigset_t* set, sigset_t* before) __asm__("sigprocmask");
int MaskOfProcess(int how, const sigset_t* set, sigset_t* before) {
  return Masked(how, set, before, [](int h, const sigset_t* s, sigset_t* b) { return real_sigprocmask(h, s, b); });
}
RAMSPAN_API int pthread_attr_setsigmask_np(pthread_attr_t* attributes, const sigset_t* set) {
  sigset_t own;
  return real_pthread_attr_setsigmask_np(attributes, Unblockable(set, &own));
}
RAMSPAN_API int sigsuspend(const sigset_t* set) {
  sigset_t own;
  CopyOf<const sigset_t> wanted(set);
  return real_sigsuspend(Unblockable(wanted.get(), &own));
}
RAMSPAN_API int sighold(int number) noexcept { return (number == SIGBUS || number == SIGSEGV) && MayComeBySignal() ? 0 : real_sighold(number); }
RAMSPAN_API int sigblock(int mask) noexcept { return real_sigblock(MayComeBySignal() ? mask & ~kOurs : mask); }
RAMSPAN_API int sigsetmask(int mask) noexcept { return real_sigsetmask(MayComeBySignal() ? mask & ~kOurs : mask); }
RAMSPAN_API int swapcontext(ucontext_t* before, const ucontext_t* next) noexcept {
  if (MayComeBySignal()) Unblock(const_cast<sigset_t*>(&next->uc_sigmask));
  return real_swapcontext(before, next);
}
RAMSPAN_API int setcontext(const ucontext_t* next) noexcept {
  if (MayComeBySignal()) Unblock(const_cast<sigset_t*>(&next->uc_sigmask));
  return real_setcontext(next);
}
RAMSPAN_API int timer_create(clockid_t clock, sigevent* event, timer_t* timer) noexcept {
  if (event == nullptr || event->sigev_notify != SIGEV_THREAD || !MayComeBySignal()) return real_timer_create(clock, event, timer);
  auto* const what = static_cast<Notified*>(__libc_malloc(sizeof(Notified)));
  if (what == nullptr) return errno = EAGAIN, -1;
  *what = {event->sigev_notify_function, event->sigev_value};
  sigevent own = *event;
  own.sigev_notify_function = Notify;
  own.sigev_value.sival_ptr = what;
  return real_timer_create(clock, &own, timer);
}

}  // extern "C"
