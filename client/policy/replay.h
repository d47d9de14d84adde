// Replay: the policy that plays what is best when the future is known (Belady's MIN: who is used farthest in the future leaves), because most
// of the future of a program that iterates is its past. UseHistory finds the place of the sequence that is being repeated and says when a chunk
// comes again; NextUseQueue has the chunks by that time. Chunks that do not come when they should are taken for dead where most come in time,
// and leave first; where few do, by how long they have not been used, which is what is left when nothing repeats itself. A chunk that has
// been used once only is expected last of all, the latest first: a first pass over more than memory holds leaves its beginning there. Of the chunks
// that were used last, some leave after all others: few where the expectations are right, as many as memory holds (LRU) where they are not.
//
// Read-ahead follows each thread's repeated sequence, and on a first pass its steps through the chunks in the order of their making.
//
// A chunk that is pinned when it should leave is set aside, so that searches do not find it in front for as long as the pin lasts; one of those
// is looked at in each step of a search, and more while those that are looked at turn out to be free: pins that move on, as a sweep's do, leave
// behind what should have left first.
//
// It hears of every use that is not among the thread's last few, because it clears kReferenced of what was used some uses ago; only while
// something is swapped out, and not for so long after an arrival that the history would hold nothing else.
//
// Thread-safety: as CachePolicy says.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <vector>

#include "client/chunk/chunk_table.h"
#include "client/policy/next_use_queue.h"
#include "client/policy/policy.h"
#include "client/policy/use_history.h"

namespace ramspan {

class ReplayPolicy final : public CachePolicy {
 public:
  explicit ReplayPolicy(const ChunkTable* chunks);

  Interests interests() const override { return {.touches = true}; }
  Memory memory() const override;
  void FitLimit(uint64_t memory_bytes) noexcept override;
  uint64_t FixedWith(uint64_t memory_bytes) const override;
  void SettleLimit() noexcept override { uses_for_chunks_ = std::min(uses_for_chunks_, history_.uses()); }
  void FitChunks(uint32_t ids) noexcept override;
  uint64_t FixedBeside(uint32_t ids) const override;
  void Reserve(uint32_t ids) override;
  bool WantsEpoch() const override { return wants_epoch_; }
  void OnEpoch(uint32_t) override { wants_epoch_ = false; }
  void OnTouch(Chunk* chunk, const Touch& touch) override { Use(chunk, touch.thread); }
  void OnCreate(Chunk* chunk) override;
  void OnFree(Chunk* chunk) override;
  void OnMiss(Chunk* chunk, uint32_t thread) override;
  void OnPrefetchHit(Chunk* chunk) override;
  void OnPrefetchWasted(Chunk* chunk) override;
  void OnPrefetchIssued(Chunk* chunk) override;
  void SetLimits(uint64_t memory_bytes, uint64_t swapped_bytes) override;
  void BeginSearch() override;
  void OnPinned(Chunk* chunk) override;
  void OnDone(Chunk* chunk) override;
  size_t PickVictims(uint64_t bytes, std::span<Chunk*> out) override;
  uint64_t SpareBytes() const override;
  bool WantsReadAhead() const override;
  size_t PickReadAhead(std::span<Chunk*> out) override;

  uint64_t preemptive_bytes() const override { return preemptive_bytes_; }
  std::string Describe() const override;
  bool IsValid() const override;

 private:
  // The numbers by which it plays; `ramspan bench policy` shows what others do (docs/benchmarks.md).
  static constexpr size_t kHeardAfter = 2;      // uses ago that a chunk has to be used anew to be heard of
  static constexpr uint32_t kFollowAfter = 3;   // uses in a row that were foreseen before the next ones are fetched ahead
  static constexpr size_t kMaxAhead = 256;      // chunks fetched ahead at one time
  static constexpr uint64_t kWindowPart = 10;   // of the limit, at most, are fetched ahead, ...
  static constexpr uint64_t kSwappedPart = 16;  // ... and of what is swapped out: it is room that others could have kept
  static constexpr int32_t kWasteCosts = 20, kCreditMost = 256;
  static constexpr uint32_t kOne = 1 << 16;     // parts of it: of the latest uses, the last 256 mostly
  static constexpr uint32_t kTrusted = kOne / 10 * 7;  // come in time where those are dead that do not
  static constexpr uint32_t kYoungLeast = 2;    // how soon the chunks of the latest uses come again may be new; one for each thread, which holds it
  static constexpr uint32_t kThreadsLately = 1024;  // uses, in which who goes on is heard of
  static constexpr int64_t kAwayMost = 1 << 20;
  static constexpr uint64_t kSparePart = 32;
  static constexpr uint32_t kAgainMost = 8;     // chunks that were set aside are looked at in a step
  static constexpr uint32_t kSlacks = NextUseQueue::kSlackLeast - NextUseQueue::kSlackMost + 1;

  struct Stepper {  // a thread's steps from id to id
    uint32_t last = 0;
    int32_t step = 0;
    uint32_t run = 0;
  };
  struct Place {  // where the search in one of the queue's lists goes on
    uint32_t at = NextUseQueue::kNobody;
    bool ended = false;
  };
  struct Places {
    Place overdue, unknown, farthest, young, aside;
  };
  class OrderChange;
  struct Ahead {
    uint32_t chunk, thread, steps;
  };

  Chunk* At(uint32_t id) const { return chunks_->At(id); }
  Stepper& StepperOf(uint32_t thread) { return steppers_[thread % UseHistory::kThreads]; }
  const Stepper& StepperOf(uint32_t thread) const { return steppers_[thread % UseHistory::kThreads]; }
  void Arrive(Chunk* chunk);
  void Weigh(uint32_t id);
  void Judge(uint32_t id);
  void Use(Chunk* chunk, uint32_t thread);
  void HearOfThread(uint32_t place);
  void HearAgain(uint32_t id);
  bool IsQuiet() const { return quiet_uses_ > history_.uses() / 2; }
  using Walk = uint32_t (NextUseQueue::*)(uint32_t) const;
  Chunk* Peek(Place* place, Walk next);
  Chunk* NextVictim();
  void NameAgain(uint64_t bytes, std::span<Chunk*> out, size_t* n, uint64_t* sum);
  uint32_t LeaveWindow(Chunk* chunk);
  uint32_t Threads() const { return static_cast<uint32_t>(std::max(std::popcount((threads_now_ | threads_before_) & ~uint64_t{1}), 1)); }
  uint32_t YoungLeast() const { return std::max(kYoungLeast, Threads() + 1); }
  bool Take(uint32_t id, std::span<Chunk*> out, size_t* n, uint64_t* bytes) const;
  void SetWindow(uint64_t bytes);
  void Earn(int32_t credit);
  bool Follows(uint32_t thread) const;

  const ChunkTable* const chunks_;
  UseHistory history_;
  NextUseQueue queue_;
  // By the places of threads; 0 is of those whom nobody knows. Their numbers have gaps where faults of pages are served by a thread, and threads end.
  uint32_t threads_end_ = 0;                          // behind the last one of whom it has ever heard
  uint64_t threads_now_ = 0, threads_before_ = 0;     // a bit for each of whom it has heard since some uses ago, and in as many before that
  std::array<Stepper, UseHistory::kThreads> steppers_;
  std::array<uint32_t, kHeardAfter> latest_{};  // a ring of ids
  size_t latest_at_ = 0;
  uint32_t latest_id_ = UINT32_MAX;
  bool wants_epoch_ = false;
  uint32_t quiet_uses_ = 0;  // heard since the last arrival
  uint64_t memory_bytes_ = 0, swapped_bytes_ = 0;
  uint64_t fitted_limit_;         // what the history was made for, ...
  uint64_t uses_for_chunks_ = 0;  // ... and what chunks have of it, or would have of a limit in which that is more than the usual part; a higher one adds nothing: there may be no room

  // Of kOne: which part of the latest uses came in time, by how much they may be late; with the slack that is in force.
  std::array<uint32_t, kSlacks> in_time_{};
  uint32_t trust_ = 0;
  uint32_t young_ = kYoungLeast;  // chunks of the latest uses that leave last

  // For SpareBytes: the part of the latest uses whose chunks were not in memory or had been fetched ahead; how long those that left lately are
  // expected to be away.
  uint32_t arrivals_ = 0;
  uint32_t arrived_bytes_ = 0;  // of the last one
  int64_t away_ = kAwayMost;
  Places places_;  // of the search for victims, as long as nothing is used
  uint32_t search_ = 1;
  IdTable<uint32_t> named_;  // by id: in which search it was named last
  std::array<uint32_t, kAgainMost> again_{};  // ids: had been set aside, and were named by the last step
  uint32_t again_count_ = 0, again_most_ = 1;
  bool again_pinned_ = false;                 // one of them still was

  uint64_t preemptive_bytes_ = 0, window_bytes_ = 0;
  int32_t credit_ = 0;
  bool all_ahead_ = false;     // there was nothing to fetch, and no thread that is followed has gone on since
  std::vector<Ahead> ahead_;   // fetched ahead and not yet touched
  std::vector<Ahead> picked_;  // by the last PickReadAhead
};

}  // namespace ramspan
