// Arena: the frames. One range of addresses, reserved at start and many times larger than the budget, is cut by a buddy
// allocator; addresses are free, physical pages are what the budget counts. A frame's physical size is its chunk's,
// rounded up to a page: the power of two above it costs only addresses, so the budget is exact for every size.
// A frame that comes back stays committed in a cache by size class and goes to the next load without a page fault
// (1.9 us a page here); when another class needs the room, cached frames are given back to the kernel.
// Thread-safety: none of its own; guarded by the engine's mutex.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "client/arena/budget.h"
#include "common/buddy_allocator.h"

namespace ramspan {

class Arena {
 public:
  // With `guard` (debug mode) the addresses of a frame that came back stay unmapped for as long as there are others: a
  // pointer that is still used ends in a segmentation fault, which is explained on standard error.
  explicit Arena(Budget* budget, bool guard = false);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A page-aligned frame with room for `bytes`, or nullptr when the budget has none (the caller evicts and asks again).
  void* TryTake(size_t bytes);
  void Put(void* frame, size_t bytes);  // `bytes` as at TryTake
  // Gives cached frames back to the kernel until committed() <= target or none is left.
  void Trim(uint64_t target);

  uint64_t in_use() const { return in_use_; }
  uint64_t committed() const { return in_use_ + cached_; }  // physical bytes that can be resident
  uint64_t peak() const { return peak_; }  // of committed() and metadata together: I1 says never above the limit
  void CountPeak();                        // for when metadata has grown
  uint64_t available() const;  // bytes that TryTake could still give, sizes permitting

 private:
  struct Cached {
    uint64_t offset;
    uint64_t bytes;
  };
  static constexpr int kClasses = 40;

  static int ClassOf(uint64_t bytes);
  bool MakeRoomFor(uint64_t bytes);
  void* TakeCached(int size_class, uint64_t bytes);
  void GiveBack(uint64_t offset, uint64_t bytes);
  void Quarantine(uint64_t offset, uint64_t bytes);
  void Release(const Cached& quarantined);

  Budget* const budget_;
  const bool guard_;
  std::deque<Cached> quarantine_;  // unmapped, the oldest first
  char* base_ = nullptr;
  uint64_t reserved_ = 0;
  BuddyAllocator* addresses_ = nullptr;
  std::array<std::vector<Cached>, kClasses> cache_;
  uint64_t in_use_ = 0;
  uint64_t cached_ = 0;
  uint64_t peak_ = 0;
};

}  // namespace ramspan
