// libramspan-pages, seventh part: descriptors. One is Ramspan's, and stays.
// Thread-safety: as the calls that they replace.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "client/preload/homes.h"

namespace ramspan::preload {

std::atomic<int> kept_descriptor{-1};

namespace {
// In a forked child the way to its copy of the parent's memory, as long as it has not gone it.
int Kept() { return is_forked.load(std::memory_order_relaxed) ? detail::DescriptorOfCopy() : kept_descriptor.load(std::memory_order_relaxed); }
bool IsKept(int fd) { return fd >= 0 && fd == Kept() && detail::t_inside_ramspan == 0; }
}  // namespace

}  // namespace ramspan::preload

using ramspan::preload::IsKept;
using ramspan::preload::Kept;

RS_LIBC(close, int (*)(int))
RS_LIBC(dup2, int (*)(int, int))
RS_LIBC(dup3, int (*)(int, int, int))
RS_LIBC(close_range, int (*)(unsigned, unsigned, int))

extern "C" {

RAMSPAN_API int close(int fd) {
  if (IsKept(fd)) return errno = EBADF, -1;
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
  const auto kept = static_cast<unsigned>(Kept());
  if (!IsKept(static_cast<int>(kept)) || kept < first || kept > last) return real_close_range(first, last, flags);
  const int below = first < kept ? real_close_range(first, kept - 1, flags) : 0;
  const int over = kept < last ? real_close_range(kept + 1, last, flags) : 0;
  return below != 0 ? below : over;
}
RAMSPAN_API void closefrom(int first) noexcept {
  const unsigned from = static_cast<unsigned>(std::max(first, 0));
  if (close_range(from, ~0U, 0) == 0) return;
  for (int fd = static_cast<int>(from); fd < 65536; ++fd) close(fd);  // before Linux 5.9
}

}  // extern "C"
