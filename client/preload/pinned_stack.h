// The caller's stack stays at home during one of libc's calls.
// Thread-safety: none of its own; each object belongs to one call. Blocking: pages are brought.
#pragma once

#include <cstddef>

#include "client/preload/beside.h"

namespace ramspan::preload {

// libc blocks all signals while it starts a program or a thread, or sends a thread a signal, those by which pages come too: its stack, where that is swapped by pages, stays at home meanwhile.
class PinnedStack {
 public:
  PinnedStack() : PinnedStack(static_cast<const char*>(__builtin_frame_address(0))) {}

 private:
  static constexpr size_t kBelow = size_t{48} << 10, kAbove = size_t{4} << 10;  // what libc's calls use of it (what starts has another one), and who called them
  explicit PinnedStack(const char* here) : used_(here, kAbove), below_(here - Below(here), Below(here)) {}
  // As much of it as there is.
  static size_t Below(const char* here) {
    size_t below = NeedsPins(here) ? kBelow : 0;
    while (below > 0 && (!IsHome(here - below) || !detail::PagesAreUsed(here - below, below))) below /= 2;
    return below;
  }
  const Pinned used_, below_;  // the first block of either always finds room
};

}  // namespace ramspan::preload
