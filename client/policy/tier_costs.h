// TierCosts: what reading a chunk back has cost lately, by the tier (and, for servers, the side) where its slot is.
// Measured by the engine on the reads that threads wait for, and only while the policy wants it. A policy that knows that
// one chunk comes back in 5 us and another one in 500 us need not treat them alike.
// Thread-safety: none of its own; guarded by the engine's mutex.
#pragma once

#include <array>
#include <cstdint>

#include "common/slot_ref.h"

namespace ramspan {

struct TierCost {
  uint64_t read_ns = 0;     // of one read, from its submission to its end; 0: nothing has been read from there yet
  uint64_t read_bytes = 0;  // of one such read
};

class TierCosts {
 public:
  // A chunk without a slot costs nothing to bring in.
  TierCost Of(SlotRef slot) const { return slot ? costs_[IndexOf(slot)] : TierCost{}; }

  void Count(SlotRef slot, uint64_t ns, uint64_t bytes) {
    TierCost& cost = costs_[IndexOf(slot)];
    cost.read_ns = cost.read_bytes == 0 ? ns : Moved(cost.read_ns, ns);
    cost.read_bytes = cost.read_bytes == 0 ? bytes : Moved(cost.read_bytes, bytes);
  }

 private:
  // Reads that an average follows: it has gone 63% of the way to a new level after as many. At half a single slow read
  // counts twice as much; at twice a server that became busy is noticed only after 32 misses.
  static constexpr uint64_t kReadsToFollow = 16;

  static uint64_t Moved(uint64_t average, uint64_t now) { return (average * (kReadsToFollow - 1) + now) / kReadsToFollow; }
  static size_t IndexOf(SlotRef slot) { return 2 * slot_bits::TierPlusOne(slot) + (slot_bits::IsFar(slot) ? 1 : 0); }

  std::array<TierCost, 2 * (slot_bits::kTiersMax + 1)> costs_{};
};

}  // namespace ramspan
