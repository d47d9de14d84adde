// Cyclic: Rambrain's strategy (arXiv 1510.06358, sections 3.1 and 3.2). All chunks form one cycle in the order in which
// they are expected to be used. `active_` is the last one that came in; behind the swapped ones that follow it, the hand
// (Rambrain's counteractive) stands at the oldest resident one, which leaves first. A miss elsewhere moves the chunk,
// and the run behind it that is fetched ahead, to the active place, so a new order is learned as it happens.
//
// Pre-emptive bytes (fetched ahead, not yet touched) are bounded by a window, which is at most a tenth of the memory
// limit. Decay: at each miss, if N pre-emptive chunks were touched since the last one, chance alone would have done that
// with probability P^N, P = L_pre / (L_ram + L_swap); below 1% the order is real, and twice what is free in the window
// (at least one chunk) of untouched ones is let go to make room for others.
//
// Beyond Rambrain: the window follows the order. Each hit that chance does not explain widens it by a quarter (a chunk at
// least); eight misses without order halve it, down to one chunk, which is replaced after 32 misses (or a sixteenth of
// all chunks) to find out whether there is an order again. With a window that stays at a tenth, random access had a
// tenth less memory and read 0.05 to 0.09 chunks more an access (docs/benchmarks.md).
#pragma once

#include <array>

#include "client/chunk/chunk_table.h"
#include "client/policy/policy.h"

namespace ramspan {

class CyclicPolicy final : public CachePolicy {
 public:
  explicit CyclicPolicy(const ChunkTable* chunks) : chunks_(chunks) {}

  void OnCreate(Chunk* chunk) override;
  void OnFree(Chunk* chunk) override;
  void OnMiss(Chunk* chunk, uint32_t thread) override;
  void OnPrefetchHit(Chunk* chunk) override;
  void OnPrefetchWasted(Chunk* chunk) override;
  void OnPrefetchIssued(Chunk* chunk) override;
  void SetLimits(uint64_t memory_bytes, uint64_t swapped_bytes) override;
  void OnDone(Chunk* chunk) override;
  size_t PickVictims(uint64_t bytes, std::span<Chunk*> out) override;
  bool WantsReadAhead() const override;
  size_t PickReadAhead(std::span<Chunk*> out) override;

  // The cycle is closed, counts agree. For tests.
  bool IsValid() const override;
  std::string Describe() const override;
  uint64_t preemptive_bytes() const override { return preemptive_bytes_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kMaxAhead = 256;  // chunks fetched ahead at one time
  // The numbers of the window of read-ahead. What happens at half and at twice of each: docs/benchmarks.md.
  static constexpr double kChanceMax = 0.01;         // hits that chance explains with less are an order (Rambrain's 1%)
  static constexpr uint64_t kWindowPart = 10;        // the window is at most this part of the limit (Rambrain's tenth)
  static constexpr uint64_t kWidenPart = 4;          // a hit in order widens the window by this part of it
  static constexpr uint64_t kRoomPart = 4;           // read-ahead waits until this part of the window is free: a batch
  static constexpr uint64_t kNarrowAfter = 8;        // misses without an order that halve the window
  static constexpr uint64_t kProbeAfterMin = 2;      // misses after which the last chunk of the window is replaced: a ...
  static constexpr uint64_t kProbeAfterPart = 16;    // ... sixteenth of all chunks, so that a probe meets each sweep, ...
  static constexpr uint64_t kProbeAfterMax = 32;     // ... but not more, so that random access to many finds an order soon
  static constexpr double kHitsOfOrder = 3;          // hits in a run of misses that are an order where the mover lags, ...
  static constexpr double kHitsOverChance = 3;       // ... beside so many times those that chance explains

  Chunk* At(uint32_t id) const { return chunks_->At(id); }
  Chunk* Next(const Chunk* c) const { return At(c->next); }
  void InsertAfter(Chunk* place, Chunk* chunk);
  void Remove(Chunk* chunk);
  void MoveRunToActive(Chunk* chunk);
  void LeaveWindow(Chunk* chunk);
  double Chance() const;
  bool IsOrdered() const;
  bool IsOrderedAllTheSame() const;
  void BeginRun(bool ordered);
  void Decay();
  void Narrow(uint64_t chunk_bytes);
  size_t PickPrefetched(uint64_t bytes, std::span<Chunk*> out);

  const ChunkTable* const chunks_;
  uint32_t active_ = kNone;
  uint32_t hand_ = kNone;
  uint64_t count_ = 0;

  uint64_t memory_bytes_ = 0, swapped_bytes_ = 0;
  uint64_t preemptive_bytes_ = 0;
  uint64_t preemptive_bytes_max_ = 0;
  uint64_t window_bytes_ = 0;  // at most the maximum
  uint64_t hits_since_miss_ = 0;
  bool ordered_ = false;  // the last verdict
  uint64_t misses_in_run_ = 0, hits_in_run_ = 0;  // since that verdict
  uint64_t decay_bytes_ = 0;  // of untouched pre-emptive chunks that should leave next
  // Those fetched ahead and not yet touched, oldest first; LeaveWindow takes them out, wherever they stand.
  std::array<uint32_t, kMaxAhead> ahead_{};
  size_t ahead_begin_ = 0, ahead_count_ = 0;
};

}  // namespace ramspan
