// BlockCache: the blocks that a view of a vector holds pinned, found by their number. It begins with four and grows as long as blocks are missed
// that it has just let go (where elements are gathered at random, or all data may be held, as long as blocks are missed), up to all blocks of the vector: what sweeps through a vector holds four, for what was used last is what the default policy
// wants to leave first. The views of all threads together hold a quarter of the memory limit (seven eighths where all data is in memory, all where it is no more than these), in equal parts for
// each thread, and beside it those blocks of each that references may name (latest_, found_), so that `a[i] = a[j]` always has both. All but those
// are spare: they go, half of them and then half of the rest, when their thread would have to wait for pins, or another thread does.
// Private to Ramspan although installed (resident.h).
// Thread-safety: none; made, used and destroyed by one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ramspan/detail/object.h"

namespace ramspan::detail {

class RAMSPAN_API BlockCache {
 public:
  // Of a vector of so many blocks. `gathers`: values are taken at random, and no references, so that nothing is to be known of what is in use.
  BlockCache(size_t blocks, bool write, bool gathers) : blocks_(blocks), write_(write), gathers_(gathers) {}
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // The place of the block's first element if it is held; else null. *again, where the elements are used in runs: it has been found some times in a
  // row, and is the latest from here on, as if it had been entered.
  void* Find(size_t block, bool* again) const {
    void* place;
    if (void** const all = places(); all != nullptr) {
      place = all[block];
      if (__builtin_expect(place == nullptr, 0)) return nullptr;
    } else {
      const Entry* const entry = entries_ + (block & mask_);
      if (__builtin_expect(entry->block != block, 0)) return nullptr;
      place = entry->place;
    }
    // Whether one block is used twice in a row is not to be foreseen in random use, and a wrong guess costs more than the find.
    if (gathers_) return place;
    if (found_ != block) {
      found_before_ = std::exchange(found_, block);
      run_ = 0;
    } else if (++run_ == kRun) {
      *again = true;
      MakeLatest(block);
    }
    return place;
  }
  // As Find for who looks up table() himself: a reference into the block is in use.
  void NoteFound(size_t block) const {
    if (found_ != block) found_before_ = std::exchange(found_, block);
  }
  // The block, which is held, is the latest from here on, as if it had been entered.
  void MakeLatest(size_t block) const {
    if (latest_ != block) latest_before_ = std::exchange(latest_, block);
  }
  // The place of each block's first element, null where it is not held, once an eighth of all blocks have room; until then, null. Constant from then on.
  void* const* table() const { return places(); }
  // Pins a block that is not held. Its place, as one that was found, is valid at least until two others have been found or entered after it. Blocks
  // as a pull. Null: ThrowOfTry() (held_pin.h) throws what a pull does; OutOfMemory only where it has no room although this thread's views hold
  // nothing that they may spare.
  void* TryEnter(size_t block, Object object) noexcept;
  // Whether to hold one more, another one has to go.
  bool is_full() const { return is_full_; }
  // An element was read where no more can be held; after many of them one more is tried.
  void NoteRead(size_t block_bytes) noexcept;

  // Some thread waits for pins: views let spare blocks go when they come to another block.
  static void Call() noexcept { calls_.fetch_add(1, std::memory_order_relaxed); }
  bool IsCalled() const { return __builtin_expect(calls_.load(std::memory_order_relaxed) != heard_, 0); }
  void HearCalls() {
    if (IsCalled()) GiveWay();
  }
  static uint64_t HeldBytes() noexcept;  // by the calling thread's views
  // Half of what the calling thread's views hold goes, as far as it is spare. False: nothing is.
  static bool SpareHalf() noexcept;
  static void SpareAll() noexcept {
    while (SpareHalf()) {
    }
  }

 private:
  static constexpr uint32_t kRun = 8;  // to make a block the latest costs what some finds do, in vain where it is used at random
  static constexpr size_t kFirst = 4, kMost = size_t{1} << 16;  // entries
  struct Entry {
    size_t block = SIZE_MAX;  // its number; SIZE_MAX: none
    void* place = nullptr;    // of its first element; constant while pinned
    ChunkHead* chunk = nullptr;
    size_t gone = SIZE_MAX;   // the latest block that made way, of those whose number leads here (Gone)
  };
  struct OfThread;

  void Count(const ChunkHead* chunk, int sign);
  void LetGo(Entry* entry);
  void LetSpareOnesGo(uint64_t enough);
  void GiveWay() noexcept;
  void MakeRoom(size_t bytes);
  bool IsLatest(const Entry* entry) const {
    return entry->block == latest_ || entry->block == latest_before_ || entry->block == found_ || entry->block == found_before_;
  }
  size_t* Gone(size_t block) const;
  bool TakeTurns(size_t block);
  Entry* EntryFor(size_t block) const;
  void Enter(Entry* entry, const Entry& what);
  void* TakeBack();
  uint64_t TableBytes() const { return entries_ == first_ ? 0 : (mask_ + 1) * sizeof(Entry) + (places() == nullptr ? 0 : blocks_ * sizeof(void*)); }
  bool Grow(size_t least, bool in_turns) noexcept;  // entries; where blocks take turns, with a table of places
  static bool HasRoomForAll();
  // Of each block's first element, null where it is not held: what is looked up where there are entries for many of the blocks. Eight bytes each stay in
  // the first-level cache where entries would not. Null: there are fewer entries, and no blocks that take turns. Kept in what larger entries leave free, because programs that are compiled
  // already have this object in theirs, as it was without them. Those of before there were such tables look for entries by the last bits of a number still, and
  // enter again what they do not find there: right, and slow until they are compiled anew.
  void** places() const { return entries_ == first_ ? nullptr : static_cast<void**>(first_[0].place); }
  void SetPlace(size_t block, void* place) {
    if (void** const all = places(); all != nullptr && block < blocks_) all[block] = place;
  }

  static std::atomic<uint32_t> calls_;  // publishes nothing: a call that is heard late is heard at the next block
  uint32_t heard_ = 0;
  Entry first_[kFirst];
  Entry* entries_ = first_;
  size_t mask_ = kFirst - 1;
  const size_t blocks_;
  const bool write_, gathers_;
  bool is_full_ = false;
  uint32_t reads_ = 0;
  uint32_t replaced_ = 0;                    // since it has grown
  uint32_t hand_ = 0;                        // of a clock: who goes next where all memory is used, or there is a table of places
  uint64_t seen_ = 0;                        // a bit for each of those that were entered of late while there was no table of places (TakeTurns)
  size_t held_bytes_ = 0;
  // What references may name that are in use: the two blocks that were entered last, and the two that were found. The one that is entered next may
  // take the place of one of them, which stays pinned until it is the turn of another one.
  mutable size_t latest_ = SIZE_MAX, latest_before_ = SIZE_MAX;
  mutable size_t found_ = SIZE_MAX, found_before_ = SIZE_MAX;
  mutable uint32_t run_ = 0;  // how often found_ was found again
  uint32_t turns_ = 0;        // blocks that were entered where most had been just before
  Entry leaving_;
  OfThread* owner_ = nullptr;  // null: of nobody yet
  BlockCache *before_ = nullptr, *next_ = nullptr;  // in the list of those of the thread that hold something
  bool listed_ = false;
  uint8_t entered_ = 0, seen_again_ = 0;  // since seen_ was empty
};

}  // namespace ramspan::detail
