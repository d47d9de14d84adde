// Room: the account of what has to stay free in memory so that what is in swap can come back (room.cc says why, and where it is
// kept), and of swap that is full. ResidentSlots: chunks in memory whose slots others could have.
//
// Thread-safety: none of their own; guarded by the engine's mutex.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

#include "client/arena/budget.h"
#include "client/chunk/chunk.h"
#include "client/swap/swap_tier.h"
#include "common/status.h"

namespace ramspan {

class Room {
 public:
  // How often a thread asks for room in swap that others take before it can.
  static constexpr int kAttemptsMax = 16;

  // Of chunks, rounded to frames: none is larger than the largest, none but that one than the second.
  struct Sizes {
    uint64_t largest = 0, second = 0;
    bool mixed = false;  // not all are as large as the largest
    void Note(uint64_t bytes) {
      const uint64_t frame = RoundUpToGranule(bytes);
      mixed = mixed || (largest > 0 && frame != largest);
      second = std::max(second, std::min(frame, largest));
      largest = std::max(largest, frame);
    }
  };
  Sizes all;   // of all chunks that are or were there, and fit
  Sizes kept;  // of those with contents

  // `keep`: whether any room is kept. The budget must outlive it.
  Room(Budget* budget, bool keep) : budget_(*budget), keep_(keep) {}

  // A chunk of so many bytes that is in memory has no slot (any more).
  void CountSlotless(uint64_t bytes, bool more) { slotless_ += more ? RoundUpToGranule(bytes) : -RoundUpToGranule(bytes); }
  // One has a slot, wherever it is.
  void CountSlot(uint64_t bytes, bool more) { slotted_ += more ? RoundUpToGranule(bytes) : -RoundUpToGranule(bytes); }
  // One is in swap only.
  void CountSwapped(uint64_t bytes, bool more) {
    swapped_bytes_ += more ? bytes : -bytes;
    swapped_ += more ? RoundUpToGranule(bytes) : -RoundUpToGranule(bytes);
  }
  // Tells the budget what must not go to metadata, whenever that may have changed, and before metadata grows. By slots, not by what is in swap
  // now: what was let go while an object is in memory might not be there any more when it is to come back the next time.
  void Hold() {
    if (keep_) budget_.Hold(slotless_ + std::min(Needed(kept, For::kNewChunk), slotted_));
  }

  // No room is kept for chunks of more frames than this: the limit was lowered below them.
  void SetFitsUpTo(uint64_t bytes) { fits_up_to_ = bytes; }
  uint64_t fits_up_to() const { return fits_up_to_; }
  bool Fits(uint64_t bytes) const { return RoundUpToGranule(bytes) <= fits_up_to_; }
  // In bytes of frames, but for swapped_bytes: those are of data.
  uint64_t slotless() const { return slotless_; }
  uint64_t slotted() const { return slotted_; }
  uint64_t swapped() const { return swapped_; }
  uint64_t swapped_bytes() const { return swapped_bytes_; }

  // A slot in this part of swap has been given; slots are not exchanged between them.
  void NoteSpace(uint64_t space) { spaces_ |= uint64_t{1} << space; }
  void ForgetSpaces() { spaces_ = 0; }

  // What has to stay free of chunks without slots: where a new one comes, where one gives up its slot, or where it gives it to another one, so
  // that those without slots get no more.
  enum class For { kNewChunk, kSlotless, kExchange };
  uint64_t Needed(const Sizes& sizes, For use) const;
  // By how much chunks without slots are too many for so many bytes of frames, if there are `slotless` bytes of them and `leaving` bytes more
  // of data are swapped than now.
  uint64_t Excess(uint64_t slotless, uint64_t leaving, uint64_t needed, uint64_t frames) const {
    if (!keep_) return 0;
    const uint64_t taken = slotless + std::min(needed, swapped_ + leaving);
    return taken > frames ? taken - frames : 0;
  }

  // Swap has said that it is full for so many bytes, and is taken at its word for a moment: asking again costs a message to each
  // server, or a look at the disk. NoteFreed: not any more. ForgetFreed: what was freed since `before` is in use again.
  void NoteFull(uint64_t bytes);
  bool SeemsFull(uint64_t bytes) const { return bytes >= full_bytes_ && std::chrono::steady_clock::now() < full_until_; }
  void NoteFreed() { full_bytes_ = UINT64_MAX; }
  uint64_t full_bytes() const { return full_bytes_; }
  void ForgetFreed(uint64_t before) { full_bytes_ = before; }

 private:
  Budget& budget_;
  const bool keep_;
  uint64_t fits_up_to_ = UINT64_MAX;
  uint64_t slotless_ = 0, slotted_ = 0, swapped_ = 0, swapped_bytes_ = 0;
  uint64_t spaces_ = 0;        // a bit for each in which slots are or were
  uint64_t full_bytes_ = UINT64_MAX;
  std::chrono::steady_clock::time_point full_until_{};
};

// By id, in a ring. Some may have left, given theirs away, or be there twice: each is noted whenever it comes in.
class ResidentSlots {
 public:
  static constexpr uint32_t kMost = 64;
  static_assert(kMost <= SwapTier::kExchangeMax);
  static constexpr uint32_t kNone = UINT32_MAX;
  ResidentSlots() { Clear(); }

  // The newest is given up first: it leaves last.
  void Note(const Chunk* chunk) { ids_[next_++ % kMost] = chunk->id; }
  // REQUIRES: back < kMost; 0 is the newest. kNone: nobody.
  uint32_t& Newest(uint32_t back) { return ids_[(next_ - 1 - back) % kMost]; }
  void Clear() { ids_.fill(kNone); }

 private:
  std::array<uint32_t, kMost> ids_;
  uint32_t next_ = 0;
};

// What children of vfork, which have the process's memory, want of swap, and what the mover answers (Engine::RoomByMover).
struct RoomForChildren {
  uint64_t bytes = 0;  // the most that one wants
  bool may_wait = false;
  uint64_t asked = 0, answered = 0;  // turns
  Status answer;
};

}  // namespace ramspan
