// FailedWrites: whether writes to swap fail wherever they go. Those that were under way together say the same thing once: only
// what began after they had failed shows whether there is another place. So failures are counted in rounds, too.
// Thread-safety: none of its own; guarded by the engine's mutex.
#pragma once

#include <cstdint>

namespace ramspan {

class FailedWrites {
 public:
  // Failures in a row before a thread that needs a frame is told, and rounds in which they must have been: four rounds try four
  // tiers, because one that fails rests (tiered_swap.h).
  static constexpr uint32_t kMost = 64, kRoundsMost = 4;

  // Of a write that begins now.
  uint32_t round() const { return round_; }
  void NoteGood() { writes_ = rounds_ = 0; }
  void NoteFailed(uint32_t round) {
    ++writes_;
    if (round != round_) return;
    ++round_;
    ++rounds_;
  }
  // Whether to give up; then who comes next tries again.
  bool TooMany() {
    if (writes_ < kMost || rounds_ < kRoundsMost) return false;
    writes_ = kMost / 2;
    rounds_ = kRoundsMost / 2;
    return true;
  }

 private:
  uint32_t writes_ = 0;  // since the last good one
  uint32_t rounds_ = 0;  // of those, begun after the ones before had failed
  uint32_t round_ = 0;   // the number of the round that is on
};

}  // namespace ramspan
