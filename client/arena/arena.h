// Arena: the frames. One range of addresses, reserved at start and many times larger than the budget, is cut by a buddy
// allocator; addresses are free, physical pages are what the budget counts. A frame's physical size is its chunk's,
// rounded up to a page: the power of two above it costs only addresses, so the budget is exact for every size.
// A frame that comes back stays committed in a cache by size class and goes to the next load without a page fault
// (1.9 us a page here); when another class needs the room, a larger cached frame is cut, or cached frames are given back to the kernel.
// Small frames are cut from regions as large as a huge page, of which all bytes are committed from the start, so that the system may back each by one.
// Nothing here allocates from the heap: the lists of cached frames are linked through the frames themselves.
// Thread-safety: none of its own; guarded by the engine's mutex, and so are Frame and Reservation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "client/arena/budget.h"
#include "common/buddy_allocator.h"

namespace ramspan {

class Arena;

// A frame that no chunk has taken over yet. Goes back to the arena when it is destroyed. Move-only.
class Frame {
 public:
  Frame() = default;
  Frame(Frame&& other) noexcept
      : arena_(other.arena_), at_(std::exchange(other.at_, nullptr)), bytes_(other.bytes_) {}
  Frame& operator=(Frame&& other) noexcept {
    std::swap(arena_, other.arena_);
    std::swap(at_, other.at_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  inline ~Frame();

  explicit operator bool() const { return at_ != nullptr; }
  void* get() const { return at_; }
  size_t bytes() const { return bytes_; }  // as asked for
  // The caller owns it from now on, and brings it back by Arena::Own.
  void* release() { return std::exchange(at_, nullptr); }

 private:
  friend class Arena;
  Frame(Arena* arena, void* at, size_t bytes) : arena_(arena), at_(at), bytes_(bytes) {}
  Arena* arena_ = nullptr;
  void* at_ = nullptr;
  size_t bytes_ = 0;
};

// Memory that its owner may take whenever he likes: nobody else gets it meanwhile. Move-only.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept : arena_(other.arena_), bytes_(std::exchange(other.bytes_, 0)) {}
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(arena_, other.arena_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  inline ~Reservation();

  explicit operator bool() const { return bytes_ > 0; }
  uint64_t bytes() const { return bytes_; }  // in granules

 private:
  friend class Arena;
  Reservation(Arena* arena, uint64_t bytes) : arena_(arena), bytes_(bytes) {}
  Arena* arena_ = nullptr;
  uint64_t bytes_ = 0;
};

struct ArenaOptions {
  // Debug mode: the addresses of a frame that came back stay unmapped for as long as there are others, so that a
  // pointer that is still used ends in a segmentation fault, which is explained on standard error.
  bool guard = false;
  // How many bytes of addresses to reserve. 0: many times the limit, less where the system refuses (ulimit -v).
  uint64_t addresses = 0;
  // Called right before the pages of a frame go back to the kernel, under whatever guards the arena: a network that has pinned
  // them must not use them for what comes to these addresses next.
  std::function<void(std::span<std::byte>)> before_pages_go;
};

class Arena {
 public:
  explicit Arena(Budget* budget, const ArenaOptions& options = {});
  ~Arena();  // REQUIRES: no Frame or Reservation is left
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A page-aligned frame with room for `bytes`, or an empty one when the budget has none, or no run of addresses is free
  // that is long enough (the caller evicts and asks again).
  Frame TryTake(size_t bytes);
  // The same out of what is reserved. On failure the reservation stays: no run of addresses is free, or metadata grew or the limit
  // fell so far that no more frames may be made.
  // REQUIRES: it was made for as many bytes.
  Frame TryTake(size_t bytes, Reservation* reservation);
  // Takes `bytes` from available(); empty when that has not as many.
  Reservation TryReserve(size_t bytes);
  // A frame that was released: owned again.
  Frame Own(void* frame, size_t bytes) { return Frame(this, frame, bytes); }
  // Gives cached frames back to the kernel until committed() <= target or none is left.
  void Trim(uint64_t target);
  // Gives some cached frames back to the kernel, `most` bytes or less: the largest ones first, and none that shares a huge page with others.
  // Returns how many bytes; 0: no other fits.
  uint64_t TrimSome(uint64_t most);
  // Gives back one cached frame that has more than `least` bytes and `most` or less, the first that is found. Returns its bytes, or 0.
  uint64_t TrimOneBetween(uint64_t least, uint64_t most);
  void IdleFrom() { idle_ = cached_; }  // now
  uint64_t idle() const { return std::min(idle_, cached_); }  // the least that was cached since then
  // From now on no frame below the size of a huge page lies on one: for who moves pages one by one.
  void LeaveHugePages();

  uint64_t in_use() const { return in_use_; }
  uint64_t reserved() const { return reserved_; }
  // Physical bytes that are resident, or will be when the reservations are taken (out of the cache, as far as it goes).
  uint64_t committed() const { return in_use_ + std::max(cached_, reserved_); }
  uint64_t peak() const { return peak_; }  // of committed() and metadata together: I1 says never above the limit
  void CountPeak();                        // for when metadata has grown
  uint64_t available() const;  // bytes that TryTake could still give, sizes and addresses permitting
  uint64_t addresses() const { return range_bytes_; }  // no limit above it can be used
  std::span<std::byte> range() const { return {reinterpret_cast<std::byte*>(base_), range_bytes_}; }  // in which all frames are
  // Frames that fit the limit may find no run of addresses: sizes are rounded up to powers of two, which takes up to twice the limit, and what is
  // pinned may lie so that as much again is of no use. Any thread, as addresses().
  bool has_few_addresses() const { return range_bytes_ / 4 < budget_->limit(); }

 private:
  friend class Frame;
  friend class Reservation;
  // At the start of each cached frame.
  struct Cached {
    Cached* next;
    uint64_t bytes;
  };
  // Small frames have a class for each size, so that programs which mix sizes find theirs; larger ones a class for each power of two granules.
  static constexpr int kExactClasses = 64;  // up to 256 KiB: a list's head each, 8 bytes
  static constexpr int kClasses = kExactClasses + 33;

  static int ClassOf(uint64_t bytes);
  Frame TakeRun(size_t exact, uint64_t bytes);
  void Put(void* frame, size_t bytes);  // `bytes` as at TryTake
  void Unreserve(uint64_t bytes) { reserved_ -= bytes; }
  bool MakeRoomFor(uint64_t bytes);
  void* TakeCached(int size_class, uint64_t bytes);
  void* CutCached(uint64_t bytes);
  void* CutRegion(uint64_t bytes);
  struct Region {
    char* at = nullptr;  // what is left of it, part of cached_
    uint64_t bytes = 0;  // 0: nothing, or it is not open
  };
  bool Open(Region* region);
  void Close(Region* region);
  void CloseRegions();
  void LeaveHugePage(size_t region, void* frame);
  bool GiveBackOne();
  void DropFirst(Cached** list);
  void DropPages(void* frame, uint64_t bytes);
  void GiveBack(void* frame, uint64_t bytes);
  void Quarantine(void* frame, uint64_t bytes);
  void ReleaseOldest();

  Budget* const budget_;
  const bool guard_;
  const std::function<void(std::span<std::byte>)> before_pages_go_;
  std::deque<std::pair<void*, uint64_t>> quarantine_;  // unmapped, the oldest first
  char* base_ = nullptr;
  uint64_t range_bytes_ = 0;
  BuddyAllocator* addresses_ = nullptr;
  std::array<Cached*, kClasses> cache_{};
  // By region of the range: kWhole: the system may back it by a huge page, for small frames. All of its bytes are in use or cached. kParts: some have gone back.
  enum class Huge : uint8_t { kNo, kWhole, kParts };
  std::vector<Huge> huge_;
  bool huge_pages_ = false;
  Region small_, large_;  // that are being cut: what is left of one for small frames would be too little for others
  uint64_t in_use_ = 0;
  uint64_t reserved_ = 0;
  uint64_t cached_ = 0;
  uint64_t idle_ = 0;  // the least that cached_ was when a frame was taken
  uint64_t peak_ = 0;
};

inline Frame::~Frame() {
  if (at_ != nullptr) arena_->Put(at_, bytes_);
}

inline Reservation::~Reservation() {
  if (bytes_ > 0) arena_->Unreserve(bytes_);
}

}  // namespace ramspan
