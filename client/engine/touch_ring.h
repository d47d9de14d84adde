// TouchRing: the first touches that one thread has noted and the policy has not heard yet. A pin that finds its chunk in
// memory must not take the engine's mutex for each of them, so it leaves a word here; whoever has that mutex for another
// reason (a miss, the mover) takes the words out, in the order in which this thread put them in.
//
// Thread-safety: one thread puts (the owner of the pin table that the ring belongs to), one takes (who holds the
// engine's mutex). Memory orders: `end_` is stored behind the entry and loaded by the taker, so the entry is whole; both are
// sequentially consistent for who announces that there is something (PinRegistry::PutTouch). `begin_` is stored with release
// behind the taker's last look at an entry and loaded with acquire by the owner, so the owner does not overwrite what is
// still being read. The owner's own `end_` needs no order. A table is
// handed to another thread by PinTable::owned (release, acquire), which orders the two owners.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "client/policy/policy.h"

namespace ramspan {

class TouchRing {
 public:
  // Touches; a full ring is emptied by its own thread where the engine's mutex is free at that moment. Half of it: that
  // happens twice as often (about 100 ns for 16 touches). Twice: the ring no longer fits behind the pins in their table.
  static constexpr uint32_t kCapacity = 32;

  // By the owner. False: full, nothing was put.
  bool Put(uint32_t chunk, bool write, uint32_t epoch) {
    const uint32_t end = end_.load(std::memory_order_relaxed);
    if (end - begin_.load(std::memory_order_acquire) == kCapacity) return false;
    words_[end % kCapacity].store(uint64_t{chunk} << 32 | uint64_t{epoch & kEpochMask} << 1 | (write ? 1 : 0),
                                  std::memory_order_relaxed);
    end_.store(end + 1, std::memory_order_seq_cst);
    return true;
  }
  // By the owner: a touch that found no place is lost, and counted.
  void CountDropped() { dropped_.fetch_add(1, std::memory_order_relaxed); }

  // By the taker. `thread` is the owner's index. Takes the oldest, at most out.size(); returns how many.
  size_t Take(uint32_t thread, std::span<Touch> out) {
    uint32_t begin = begin_.load(std::memory_order_relaxed);
    const uint32_t end = end_.load(std::memory_order_seq_cst);
    size_t n = 0;
    for (; begin != end && n < out.size(); ++begin) {
      const uint64_t word = words_[begin % kCapacity].load(std::memory_order_relaxed);
      out[n++] = {.chunk = static_cast<uint32_t>(word >> 32),
                  .thread = thread,
                  .epoch = static_cast<uint32_t>(word >> 1) & kEpochMask,
                  .write = (word & 1) != 0};
    }
    begin_.store(begin, std::memory_order_release);
    return n;
  }
  // Any thread; for statistics.
  uint32_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kEpochMask = kEpochMax;

  std::atomic<uint32_t> end_{0};    // counts on for ever; the owner's
  std::atomic<uint32_t> dropped_{0};
  // Chunk (32 bits), epoch (31), write (1). Atomic only so that a taker that is wrong about its turn reads an old word
  // and not a torn one; their order is that of end_ and begin_.
  std::array<std::atomic<uint64_t>, kCapacity> words_{};
  std::atomic<uint32_t> begin_{0};  // counts on for ever; the taker's
};

}  // namespace ramspan
