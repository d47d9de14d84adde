// A policy that does what another one does, which clears no bits by itself, and keeps what it hears; it asserts what the port promises of each event: the
// chunk lives, the epoch is one that has begun, and nobody is told twice that a chunk was touched.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/policy/policy.h"

namespace ramspan {

// What the policy heard. It belongs to the test, since the engine owns the policy. Guarded by the engine's mutex (a test with threads
// looks when they are done) but for the atomics.
struct PolicyRecord {
  enum class Kind { kMiss, kHit, kTouch };
  struct Event {
    Kind kind;
    uint32_t chunk, thread, epoch;
    bool write;
  };
  std::vector<Event> events;
  const TierCosts* costs = nullptr;
  std::function<void()> on_describe;  // with the engine's mutex, as is the next one
  std::function<void(Chunk*)> on_hit;
  std::atomic<bool> wants_epoch{false};  // cleared when one begins
  std::atomic<uint32_t> epoch{0};
  std::atomic<uint64_t> searches{0};  // for victims
  std::atomic<uint64_t> asked{0};  // times that WantsEpoch was: only when the epoch before is complete
};

class RecordingPolicy final : public CachePolicy {
 public:
  using Kind = PolicyRecord::Kind;
  RecordingPolicy(std::unique_ptr<CachePolicy> inner, PolicyRecord* record) : inner_(std::move(inner)), record_(record) {}

  Interests interests() const override { return {.touches = true, .costs = true}; }
  Memory memory() const override { return inner_->memory(); }
  void BeginSearch() override { inner_->BeginSearch(); }
  void FitLimit(uint64_t memory_bytes) noexcept override { inner_->FitLimit(memory_bytes); }
  uint64_t FixedWith(uint64_t memory_bytes) const override { return inner_->FixedWith(memory_bytes); }
  void SettleLimit() noexcept override { inner_->SettleLimit(); }
  void FitChunks(uint32_t ids) noexcept override { inner_->FitChunks(ids); }
  uint64_t FixedBeside(uint32_t ids) const override { return inner_->FixedBeside(ids); }
  void Reserve(uint32_t ids) override { inner_->Reserve(ids); }
  uint64_t SpareBytes() const override { return inner_->SpareBytes(); }
  void SetCosts(const TierCosts* costs) override { record_->costs = costs; }
  bool WantsEpoch() const override {
    record_->asked.fetch_add(1);
    return record_->wants_epoch;
  }
  void OnEpoch(uint32_t epoch) override {
    EXPECT_GT(epoch, record_->epoch.load());
    record_->wants_epoch = false;
    record_->epoch = epoch;
  }
  void OnTouch(Chunk* chunk, const Touch& touch) override {
    EXPECT_EQ(chunk->id, touch.chunk);
    ASSERT_TRUE(heard_in_.contains(chunk->id)) << "a touch of chunk " << chunk->id << ", which does not exist";
    EXPECT_LT(heard_in_[chunk->id], touch.epoch) << "chunk " << chunk->id << " is told twice";
    Hear(Kind::kTouch, chunk, touch.thread, touch.epoch, touch.write);
  }
  void OnCreate(Chunk* chunk) override {
    EXPECT_TRUE(heard_in_.emplace(chunk->id, 0).second);
    inner_->OnCreate(chunk);
  }
  void OnFree(Chunk* chunk) override {
    EXPECT_EQ(heard_in_.erase(chunk->id), 1u);
    inner_->OnFree(chunk);
  }
  void OnMiss(Chunk* chunk, uint32_t thread) override {
    Hear(Kind::kMiss, chunk, thread, record_->epoch, false);
    heard_in_[chunk->id] = 0;  // it may leave, and be touched in this epoch after it has come again
    inner_->OnMiss(chunk, thread);
  }
  void OnPrefetchHit(Chunk* chunk) override {
    Hear(Kind::kHit, chunk, kNoThread, record_->epoch, false);
    if (record_->on_hit) record_->on_hit(chunk);
    inner_->OnPrefetchHit(chunk);
  }
  void OnPrefetchWasted(Chunk* chunk) override { inner_->OnPrefetchWasted(chunk); }
  void OnPrefetchIssued(Chunk* chunk) override {
    heard_in_[chunk->id] = 0;
    inner_->OnPrefetchIssued(chunk);
  }
  void SetLimits(uint64_t memory_bytes, uint64_t swapped_bytes) override { inner_->SetLimits(memory_bytes, swapped_bytes); }
  size_t PickVictims(uint64_t bytes, std::span<Chunk*> out) override {
    ++record_->searches;
    return inner_->PickVictims(bytes, out);
  }
  void OnDone(Chunk* chunk) override { inner_->OnDone(chunk); }
  void OnPinned(Chunk* chunk) override { inner_->OnPinned(chunk); }
  bool WantsReadAhead() const override { return inner_->WantsReadAhead(); }
  size_t PickReadAhead(std::span<Chunk*> out) override { return inner_->PickReadAhead(out); }
  bool decides_in_consult() const override { return inner_->decides_in_consult(); }
  Turn Consult(Ask ask, uint64_t bytes, size_t places) override { return inner_->Consult(ask, bytes, places); }
  std::string Describe() const override {
    if (record_->on_describe) record_->on_describe();
    return inner_->Describe();
  }
  uint64_t preemptive_bytes() const override { return inner_->preemptive_bytes(); }
  bool IsValid() const override { return inner_->IsValid(); }

 private:
  void Hear(Kind kind, Chunk* chunk, uint32_t thread, uint32_t epoch, bool write) {
    EXPECT_GE(epoch, kind == Kind::kTouch ? 1u : 0u);
    heard_in_[chunk->id] = epoch;
    record_->events.push_back({kind, chunk->id, thread, epoch, write});
  }

  const std::unique_ptr<CachePolicy> inner_;
  PolicyRecord* const record_;
  std::map<uint32_t, uint32_t> heard_in_;  // by chunk: the epoch of the last touch, hit or miss
};

}  // namespace ramspan
