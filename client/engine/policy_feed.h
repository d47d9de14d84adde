// PolicyFeed: what the engine tells a policy beside misses and read-ahead: first touches, epochs, costs. Without the
// policy's interest in them, epoch() is 0, nothing clears kReferenced and no pin leaves a word.
//
// Thread-safety: guarded by the engine's mutex, but for epoch(), which any pin reads. Memory order of an epoch: it is
// stored before the bits are cleared (release), and a pin that finds a bit clear has loaded it with acquire; so a touch
// carries the epoch that cleared the bit, or a later one.
#pragma once

#include <atomic>
#include <cstdint>

#include "client/chunk/chunk_table.h"
#include "client/policy/policy.h"

namespace ramspan {

class PinScanner;

class PolicyFeed {
 public:
  PolicyFeed(const ChunkTable* chunks, PinScanner* pins) : chunks_(chunks), pins_(pins) {}

  // From now on `policy` hears. Touches of before are forgotten: they may be of chunks that are gone.
  void SetPolicy(CachePolicy* policy);

  // 0: nobody listens.
  uint32_t epoch() const { return epoch_.load(std::memory_order_relaxed); }

  // Sets kReferenced and `bits`; tells the policy if this is the first touch. For pins that come to the engine.
  void Touch(Chunk* chunk, uint64_t bits, bool write);
  // Tells the policy what the threads have noted, each thread's touches in their order. Called before all that may
  // depend on them: a miss, a search for victims, the end of a chunk (whose id would then mean another one).
  void Drain();
  // One step of an epoch: begins it when the policy wants one, or clears the bits of some more chunks. False: neither.
  bool StepEpoch();

  bool wants_costs() const { return wants_costs_; }
  void CountRead(SlotRef slot, uint64_t ns, uint64_t bytes) { costs_.Count(slot, ns, bytes); }

 private:
  // Chunks a step. It takes some 20 us under the engine's mutex; at half, an epoch of a million chunks takes twice as
  // many rounds of the mover (512), at twice, a miss may wait twice as long for the mutex.
  static constexpr uint32_t kChunksAStep = 4096;

  const ChunkTable* const chunks_;
  PinScanner* const pins_;
  CachePolicy* policy_ = nullptr;
  std::atomic<uint32_t> epoch_{0};
  uint32_t last_epoch_ = 0;            // of whatever policy: a late word of an old one is not taken for a new one's
  uint32_t clear_next_ = 0, clear_end_ = 0;  // ids whose bits are yet to be cleared; later ones came in this epoch
  bool wants_costs_ = false;
  TierCosts costs_;
};

}  // namespace ramspan
