// Advised: what the engine remembers of the program's advice beside the bits in the chunks' words: which chunks are to be fetched, and which of
// those that are used once were used last. Bounded; needs no heap after construction. Thread-safety: guarded by the engine's mutex.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace ramspan {

class Advised {
 public:
  struct Wanted {
    uint32_t chunk, count, thread;  // chunks with ids from `chunk` on, as the blocks of an array have
  };

  // A chunk that is used once is used now. Returns the id of the one with which the program is done by that; kNone: of none yet. The latest ones
  // are in use still, one or a few in each thread, and each pin may be for one element only.
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t UseOnce(uint32_t chunk) {
    if (std::find(latest_.begin(), latest_.end(), chunk) != latest_.end()) return kNone;
    return std::exchange(latest_[next_++ % kLatest], chunk);
  }

  // Where there are too many, the latest ones are left to their pulls.
  void Want(uint32_t chunk, uint32_t thread) {
    if (Wanted& last = At(count_ - 1); count_ > 0 && last.chunk + last.count == chunk && last.thread == thread) {
      ++last.count;
    } else if (count_ < kWantedMost) {
      At(count_++) = {chunk, 1, thread};
    }
  }
  size_t wanted() const { return count_; }
  // REQUIRES: wanted() > 0.
  Wanted& first() { return At(0); }
  void DropFirst() {
    begin_ = (begin_ + 1) % kWantedMost;
    --count_;
  }
  // Others are tried before it comes to its turn again.
  void PutFirstLast() {
    const Wanted first = At(0);
    DropFirst();
    At(count_++) = first;
  }

 private:
  static constexpr size_t kLatest = 16;  // threads on a node's core times few; with less, threads would lose chunks that they use
  static constexpr size_t kWantedMost = 1024;

  static constexpr std::array<uint32_t, kLatest> Nobody() {
    std::array<uint32_t, kLatest> nobody{};
    nobody.fill(kNone);
    return nobody;
  }

  std::array<uint32_t, kLatest> latest_ = Nobody();
  size_t next_ = 0;
  Wanted& At(size_t i) { return wanted_[(begin_ + i) % kWantedMost]; }
  std::array<Wanted, kWantedMost> wanted_{};  // a ring
  size_t begin_ = 0, count_ = 0;
};

}  // namespace ramspan
