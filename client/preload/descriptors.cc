// libramspan-pages, seventh part: descriptors. Those of Ramspan (its swap files, its way to memory servers) have numbers beyond the program's, and stay.
// Thread-safety: as the calls that they replace.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "client/preload/homes.h"

namespace ramspan::preload {

namespace {

// A bit for each number that is Ramspan's. A child that was forked has its own copy of the memory, and none of these. Relaxed: who closes a number that
// another thread makes just now does not know it.
constexpr unsigned kNumbers = 1 << 16;
std::atomic<uint64_t> ours[kNumbers / 64];

bool IsOurs(int fd) {
  const auto number = static_cast<unsigned>(fd);
  return number < kNumbers && (ours[number / 64].load(std::memory_order_relaxed) >> (number % 64) & 1) != 0;
}
// In a forked child the way to its copy of the parent's memory, as long as it has not gone it.
bool IsKept(int fd) {
  if (fd < 0 || detail::t_inside_ramspan != 0) return false;
  return is_forked.load(std::memory_order_relaxed) ? fd == detail::DescriptorOfCopy() : IsOurs(fd) && !detail::IsUnknownChild();
}
// The first that is kept, `last` + 1 where there is none.
uint64_t NextKept(uint64_t first, unsigned last) {
  if (is_forked.load(std::memory_order_relaxed)) {
    const int copy = detail::DescriptorOfCopy();
    return copy >= 0 && static_cast<uint64_t>(copy) >= first && static_cast<unsigned>(copy) <= last && IsKept(copy) ? static_cast<uint64_t>(copy) : uint64_t{last} + 1;
  }
  for (uint64_t fd = first; fd <= last && fd < kNumbers; ++fd) {
    if (fd % 64 == 0 && ours[fd / 64].load(std::memory_order_relaxed) == 0) fd += 63;
    else if (IsKept(static_cast<int>(fd))) return fd;
  }
  return uint64_t{last} + 1;
}
// Ramspan closes what it has made.
void Forget(int fd) {
  if (detail::t_inside_ramspan != 0 && IsOurs(fd)) ours[fd / 64].fetch_and(~(uint64_t{1} << (fd % 64)), std::memory_order_relaxed);
}

}  // namespace

void KeepOurs(int fd) {
  const auto number = static_cast<unsigned>(fd);
  if (fd > STDERR_FILENO && number < kNumbers) ours[number / 64].fetch_or(uint64_t{1} << (number % 64), std::memory_order_relaxed);
}

}  // namespace ramspan::preload

using ramspan::preload::BeyondProgramsIfOurs;
using ramspan::preload::Forget;
using ramspan::preload::IsKept;
using ramspan::preload::NextKept;

RS_LIBC(socket, int (*)(int, int, int))
RS_LIBC(epoll_create, int (*)(int))
RS_LIBC(epoll_create1, int (*)(int))
RS_LIBC(eventfd, int (*)(unsigned, int))
RS_LIBC(close, int (*)(int))
RS_LIBC(dup2, int (*)(int, int))
RS_LIBC(dup3, int (*)(int, int, int))
RS_LIBC(close_range, int (*)(unsigned, unsigned, int))

extern "C" {

RAMSPAN_API int socket(int family, int type, int protocol) noexcept { return BeyondProgramsIfOurs(real_socket(family, type, protocol)); }
RAMSPAN_API int epoll_create(int size) noexcept { return BeyondProgramsIfOurs(real_epoll_create(size)); }
RAMSPAN_API int epoll_create1(int flags) noexcept { return BeyondProgramsIfOurs(real_epoll_create1(flags)); }
RAMSPAN_API int eventfd(unsigned count, int flags) noexcept { return BeyondProgramsIfOurs(real_eventfd(count, flags)); }
RAMSPAN_API int close(int fd) {
  if (IsKept(fd)) return errno = EBADF, -1;
  Forget(fd);
  return real_close(fd);
}
RAMSPAN_API int dup2(int from, int to) noexcept {
  if (IsKept(to)) return errno = EBADF, -1;
  return real_dup2(from, to);
}
RAMSPAN_API int dup3(int from, int to, int flags) noexcept {
  if (IsKept(to)) return errno = EBADF, -1;
  return real_dup3(from, to, flags);
}
RAMSPAN_API int close_range(unsigned first, unsigned last, int flags) noexcept {
  if (first > last) return real_close_range(first, last, flags);
  for (uint64_t at = first; at <= last;) {
    const uint64_t kept = NextKept(at, last);
    if (kept > at && real_close_range(static_cast<unsigned>(at), static_cast<unsigned>(kept - 1), flags) != 0) return -1;
    at = kept + 1;
  }
  return 0;
}
RAMSPAN_API void closefrom(int first) noexcept {
  const unsigned from = static_cast<unsigned>(std::max(first, 0));
  if (close_range(from, ~0U, 0) == 0) return;
  for (int fd = static_cast<int>(from); fd < 65536; ++fd) close(fd);  // before Linux 5.9
}

}  // extern "C"
