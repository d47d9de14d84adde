// libramspan-pages, eighth part: calls that wait for descriptors, and answer into the program's memory; some wait with other signals blocked.
// Nothing of it is kept at home while they wait. Where SIGBUS brings pages none of them blocks it (signals.cc).
// Thread-safety, cancellation, signals: as the calls that they replace.
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <time.h>

#include <climits>

#include "client/preload/beside.h"

namespace ramspan::preload {
namespace {

// What the kernel writes of it.
void CopyAnswers(pollfd* to, const pollfd* from, nfds_t count) {
  for (nfds_t i = 0; i < count; ++i) to[i].revents = from[i].revents;
}

// wait(descriptors): the call.
template <typename Wait>
int Polled(pollfd* descriptors, nfds_t count, const Wait& wait) {
  if (count > INT_MAX || !IsPlain(descriptors, count * sizeof(pollfd))) return wait(descriptors);
  const Beside beside(count * sizeof(pollfd));
  if (beside.begin() == nullptr) return errno = ENOMEM, -1;
  auto* const own = static_cast<pollfd*>(memcpy(beside.begin(), descriptors, count * sizeof(pollfd)));
  const int ready = wait(own);
  if (ready >= 0) CopyAnswers(descriptors, own, count);
  return ready;
}

// wait(in, out, failed): the call. Of each set the kernel reads and writes whole words of what `count` says, and of larger counts as much as there are descriptors: those sets are kept
// at home. Of the words what has not changed is not written: it may be behind the set.
template <typename Wait>
int Selected(int count, fd_set* in, fd_set* out, fd_set* failed, const Wait& wait) {
  fd_set* const theirs[] = {in, out, failed};
  const size_t bytes = (static_cast<size_t>(std::max(count, 0)) + 63) / 64 * 8;
  if (std::none_of(theirs, theirs + 3, [bytes](fd_set* set) { return IsPlain(set, bytes); })) return wait(in, out, failed);
  if (count > FD_SETSIZE) {
    const Pinned pinned_in(in, bytes), pinned_out(out, bytes), pinned_failed(failed, bytes);
    return wait(in, out, failed);
  }
  struct Sets {
    fd_set before[3], now[3];
  };
  Own<Sets> own;
  fd_set *const before = own->before, *const now = own->now, *sets[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (theirs[i] == nullptr) continue;
    memcpy(before + i, theirs[i], bytes);
    sets[i] = static_cast<fd_set*>(memcpy(now + i, before + i, bytes));
  }
  const int ready = wait(sets[0], sets[1], sets[2]);
  for (size_t i = 0; i < 3; ++i) {
    if (ready < 0 || theirs[i] == nullptr) continue;
    for (size_t word = 0; word < bytes / sizeof(long); ++word) {
      const auto& answer = reinterpret_cast<const long*>(now + i)[word];
      if (answer != reinterpret_cast<const long*>(before + i)[word]) reinterpret_cast<long*>(theirs[i])[word] = answer;
    }
  }
  return ready;
}

// wait(events): the call.
template <typename Wait>
int WaitedFor(epoll_event* events, int count, const Wait& wait) {
  if (count <= 0 || !IsPlain(events, static_cast<size_t>(count) * sizeof(epoll_event))) return wait(events);
  const Beside beside(static_cast<size_t>(count) * sizeof(epoll_event));
  if (beside.begin() == nullptr) return errno = ENOMEM, -1;
  const int ready = wait(reinterpret_cast<epoll_event*>(beside.begin()));
  if (ready > 0) memcpy(events, beside.begin(), static_cast<size_t>(ready) * sizeof(epoll_event));
  return ready;
}

}  // namespace
}  // namespace ramspan::preload

using ramspan::preload::CopyOf;
using ramspan::preload::Overflow;
using ramspan::preload::Polled;
using ramspan::preload::Selected;
using ramspan::preload::Unblockable;
using ramspan::preload::WaitedFor;

RS_LIBC(poll, int (*)(pollfd*, nfds_t, int))
RS_LIBC(ppoll, int (*)(pollfd*, nfds_t, const timespec*, const sigset_t*))
RS_LIBC(select, int (*)(int, fd_set*, fd_set*, fd_set*, timeval*))
RS_LIBC(pselect, int (*)(int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*))
RS_LIBC(epoll_wait, int (*)(int, epoll_event*, int, int))
RS_LIBC(epoll_pwait, int (*)(int, epoll_event*, int, int, const sigset_t*))
RS_LIBC(epoll_pwait2, int (*)(int, epoll_event*, int, const timespec*, const sigset_t*))
RS_LIBC(eventfd_read, int (*)(int, eventfd_t*))

extern "C" {

RAMSPAN_API int poll(pollfd* descriptors, nfds_t count, int timeout) {
  return Polled(descriptors, count, [&](pollfd* own) { return real_poll(own, count, timeout); });
}
RAMSPAN_API int ppoll(pollfd* descriptors, nfds_t count, const timespec* timeout, const sigset_t* set) {
  sigset_t mask;
  CopyOf<const sigset_t> wanted(set);
  const sigset_t* const unblocked = Unblockable(wanted.get(), &mask);
  return Polled(descriptors, count, [&](pollfd* own) { return real_ppoll(own, count, timeout, unblocked); });
}

RAMSPAN_API int select(int count, fd_set* in, fd_set* out, fd_set* failed, timeval* timeout) {
  return Selected(count, in, out, failed, [&](fd_set* i, fd_set* o, fd_set* f) { return real_select(count, i, o, f, timeout); });
}
RAMSPAN_API int pselect(int count, fd_set* in, fd_set* out, fd_set* failed, const timespec* timeout, const sigset_t* set) {
  sigset_t mask;
  CopyOf<const sigset_t> wanted(set);
  const sigset_t* const unblocked = Unblockable(wanted.get(), &mask);
  return Selected(count, in, out, failed, [&](fd_set* i, fd_set* o, fd_set* f) { return real_pselect(count, i, o, f, timeout, unblocked); });
}

RAMSPAN_API int epoll_wait(int fd, epoll_event* events, int count, int timeout) {
  return WaitedFor(events, count, [&](epoll_event* own) { return real_epoll_wait(fd, own, count, timeout); });
}
RAMSPAN_API int epoll_pwait(int fd, epoll_event* events, int count, int timeout, const sigset_t* set) {
  sigset_t mask;
  CopyOf<const sigset_t> wanted(set);
  const sigset_t* const unblocked = Unblockable(wanted.get(), &mask);
  return WaitedFor(events, count, [&](epoll_event* own) { return real_epoll_pwait(fd, own, count, timeout, unblocked); });
}
RAMSPAN_API int epoll_pwait2(int fd, epoll_event* events, int count, const timespec* timeout, const sigset_t* set) {
  sigset_t mask;
  CopyOf<const sigset_t> wanted(set);
  const sigset_t* const unblocked = Unblockable(wanted.get(), &mask);
  CopyOf<const timespec> most(timeout);
  return WaitedFor(events, count, [&](epoll_event* own) { return real_epoll_pwait2(fd, own, count, most.get(), unblocked); });
}

RAMSPAN_API int eventfd_read(int fd, eventfd_t* count) {
  CopyOf<eventfd_t> own(count);
  const int result = real_eventfd_read(fd, own.get());
  if (result == 0) own.Answer();
  return result;
}

// ---- What _FORTIFY_SOURCE makes of them ----

RAMSPAN_API int __poll_chk(pollfd* descriptors, nfds_t count, int timeout, size_t room) {
  if (count > room / sizeof(pollfd)) Overflow();
  return poll(descriptors, count, timeout);
}
RAMSPAN_API int __ppoll_chk(pollfd* descriptors, nfds_t count, const timespec* timeout, const sigset_t* set, size_t room) {
  if (count > room / sizeof(pollfd)) Overflow();
  return ppoll(descriptors, count, timeout, set);
}

}  // extern "C"
