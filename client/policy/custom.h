// Custom: a program's own EvictionPolicy behind the engine's port. What it names is checked: only objects that can leave
// leave. Where it names too few, the table is swept, so a poor policy is slow but never ends a program.
//
// The program's code runs in Consult only, without the engine's mutex: what happens meanwhile is noted, and told it in order
// before the next question. What it knows may be a little old, which costs a bad choice at most.
// Thread-safety: as CachePolicy says. Does not own the program's policy.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "client/chunk/chunk_table.h"
#include "client/policy/policy.h"
#include "ramspan/extend.h"

namespace ramspan {

class CustomPolicy final : public CachePolicy, private EvictionPolicy::Objects {
 public:
  CustomPolicy(const ChunkTable* chunks, EvictionPolicy* policy) : chunks_(chunks), policy_(policy) {}

  void OnCreate(Chunk* chunk) override { Note(Event::kCreated, chunk); }
  void OnFree(Chunk* chunk) override { Note(Event::kFreed, chunk); }
  void OnMiss(Chunk* chunk, uint32_t thread) override;
  void OnPrefetchHit(Chunk* chunk) override;
  void OnPrefetchWasted(Chunk* chunk) override;
  void OnPrefetchIssued(Chunk* chunk) override { preemptive_bytes_ += chunk->bytes; }
  void SetLimits(uint64_t memory_bytes, uint64_t /*swapped_bytes*/) override { ahead_bytes_max_ = memory_bytes / 10; }
  size_t PickVictims(uint64_t bytes, std::span<Chunk*> out) override;
  bool WantsReadAhead() const override { return wants_ahead_ && preemptive_bytes_ <= ahead_bytes_max_ / 4 * 3; }
  size_t PickReadAhead(std::span<Chunk*> out) override;
  bool decides_in_consult() const override { return true; }
  Turn Consult(Ask ask, uint64_t bytes, size_t places) override;
  uint64_t preemptive_bytes() const override { return preemptive_bytes_; }
  std::string Describe() const override;

 private:
  // Objects that a policy may name at once, on the stack: more than are asked for, since what is pinned is passed over.
  static constexpr size_t kNamedMax = 2 * kVictimsMax;

  struct Event {
    enum Kind : uint8_t { kCreated, kFreed, kMissed, kAheadUsed } kind;
    uint32_t id;
    Chunk* chunk;
    uint64_t bytes;
  };
  void Note(Event::Kind kind, Chunk* chunk);
  void Tell();
  void Fail(const char* why);
  void TellOf(const Event& event);

  // What the program may ask in its turn: answered from what it was told and the chunk's state word, since the table and
  // the rest of a descriptor are the engine's.
  struct Heard {
    Chunk* chunk = nullptr;
    uint64_t bytes = 0;
  };
  const Heard& Of(uint32_t id) const;
  uint64_t Bytes(uint32_t id) const override { return Of(id).bytes; }
  bool InMemory(uint32_t id) const override { return Of(id).chunk != nullptr && PhaseOf(Of(id).chunk) == Phase::kResident; }
  bool InSwap(uint32_t id) const override;
  bool TestAndClearUsed(uint32_t id) const override;

  // What is handed to the engine: each chunk once, though the program may name it twice.
  struct Chosen {
    std::span<Chunk*> out;
    size_t n = 0;
    uint64_t bytes = 0;
    bool full() const { return n == out.size(); }
    bool Holds(const Chunk* chunk) const;
    void Add(Chunk* chunk);
  };
  void FillBySweep(uint64_t bytes, Chosen* chosen);
  void LeaveWindow(Chunk* chunk);

  bool Known(uint32_t id) const { return id < chunks_->ids() && PhaseOf(chunks_->At(id)) != Phase::kFreed; }
  bool MayLeave(uint32_t id) const {
    return Known(id) && PhaseOf(chunks_->At(id)) == Phase::kResident && !Has(chunks_->At(id), kDoomed);
  }

  const ChunkTable* const chunks_;
  EvictionPolicy* const policy_;

  Mutex events_mutex_{LockRank::kPolicyEvents};
  std::vector<Event> events_ RS_GUARDED_BY(events_mutex_);  // not told yet

  Mutex turn_{LockRank::kProgramPolicy};
  // With the turn:
  std::vector<Event> telling_;
  std::vector<Heard> heard_;  // by id
  std::array<uint32_t, kNamedMax> named_{};  // the answer, until it is picked
  size_t named_count_ = 0;
  bool told_of_exception_ = false;

  // With the engine's mutex:
  uint32_t sweep_ = 0;
  uint32_t last_first_ = UINT32_MAX;  // whom the policy named first, last time
  // Also read in Consult, where a number that has just changed does no harm: relaxed.
  std::atomic<uint64_t> ahead_bytes_max_{0};
  std::atomic<uint64_t> preemptive_bytes_{0};
  bool wants_ahead_ = false;  // something has been missed since it last named nobody
};

}  // namespace ramspan
