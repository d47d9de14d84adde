// TracePolicy: a policy that does what another one does, and writes down what it hears (RAMSPAN_TRACE). It wants to hear of
// touches whatever the other one wants, so epochs are short while a program is traced.
//
// A short epoch clears kReferenced often. A policy that looks at that bit by itself (Interests::references) finds it set nevertheless for each chunk
// that was touched since the policy cleared it.
//
// Thread-safety: as CachePolicy says. The file outlives it, and may serve others at other times.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/chunk/chunk_table.h"
#include "client/policy/policy.h"
#include "client/policy/trace_file.h"

namespace ramspan {

class TracePolicy final : public CachePolicy {
 public:
  // From one epoch to the next, at least. Half of it: twice as many touches are heard of a chunk that is in use all the time, each for
  // a slow pin and a byte or two; twice: of a chunk touched twice in 2 ms only one touch is heard. Misses are all heard.
  static constexpr std::chrono::milliseconds kEpochEvery{1};

  TracePolicy(std::unique_ptr<CachePolicy> inner, const ChunkTable* chunks, TraceFile* file, std::chrono::microseconds epoch_every = kEpochEvery)
      : inner_(std::move(inner)), inner_wants_(inner_->interests()), chunks_(chunks), file_(file), epoch_every_(epoch_every) {}

  Interests interests() const override { return {.touches = true, .costs = inner_wants_.costs, .references = inner_wants_.references}; }
  void SetCosts(const TierCosts* costs) override { inner_->SetCosts(costs); }
  Memory memory() const override { return inner_->memory(); }
  void BeginSearch() override { inner_->BeginSearch(); }
  void FitLimit(uint64_t memory_bytes) noexcept override { inner_->FitLimit(memory_bytes); }
  uint64_t FixedWith(uint64_t memory_bytes) const override { return inner_->FixedWith(memory_bytes); }
  void SettleLimit() noexcept override { inner_->SettleLimit(); }
  void FitChunks(uint32_t ids) noexcept override { inner_->FitChunks(ids); }
  uint64_t FixedBeside(uint32_t ids) const override { return inner_->FixedBeside(ids); }
  void Reserve(uint32_t ids) override { inner_->Reserve(ids); }
  bool WantsEpoch() const override;
  void OnEpoch(uint32_t epoch) override;
  void OnTouch(Chunk* chunk, const Touch& touch) override;
  void OnCreate(Chunk* chunk) override;
  void OnFree(Chunk* chunk) override;
  void OnMiss(Chunk* chunk, uint32_t thread) override;
  void OnPrefetchHit(Chunk* chunk) override;
  void OnPrefetchWasted(Chunk* chunk) override { inner_->OnPrefetchWasted(chunk); }
  void OnPrefetchIssued(Chunk* chunk) override;
  void SetLimits(uint64_t memory_bytes, uint64_t swapped_bytes) override { inner_->SetLimits(memory_bytes, swapped_bytes); }
  size_t PickVictims(uint64_t bytes, std::span<Chunk*> out) override;
  void OnPinned(Chunk* chunk) override { inner_->OnPinned(chunk); }
  void OnDone(Chunk* chunk) override { inner_->OnDone(chunk); }
  uint64_t SpareBytes() const override { return inner_->SpareBytes(); }
  bool WantsReadAhead() const override { return inner_->WantsReadAhead(); }
  size_t PickReadAhead(std::span<Chunk*> out) override { return inner_->PickReadAhead(out); }
  uint64_t preemptive_bytes() const override { return inner_->preemptive_bytes(); }
  std::string Describe() const override { return inner_->Describe(); }
  bool IsValid() const override { return inner_->IsValid(); }

 private:
  void PutTouch(Chunk* chunk, uint32_t thread, bool write);
  void NoteUsed(const Chunk* chunk, bool used);
  size_t PickByReferences(uint64_t bytes, std::span<Chunk*> out);

  const std::unique_ptr<CachePolicy> inner_;
  const Interests inner_wants_;
  const ChunkTable* const chunks_;
  TraceFile* const file_;
  const std::chrono::microseconds epoch_every_;
  std::chrono::steady_clock::time_point epoch_began_{};
  bool touched_ = false;     // in this epoch: else another one would tell nothing
  uint32_t thread_ = 0;      // the current one of the trace
  std::vector<bool> used_;   // by id, where inner_ looks at the bits: touched since it cleared the bit
};

}  // namespace ramspan
