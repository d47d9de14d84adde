// What a policy hears of a program, in a simulated one: each access is one miss, one hit of read-ahead or one first touch
// when it is the first since the epoch began or since the chunk came in, and nothing otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "client/engine/engine.h"
#include "tests/support/fake_tier.h"
#include "tests/support/heap_watch.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/recording_policy.h"

namespace ramspan {
namespace {

using Kind = PolicyRecord::Kind;

class PolicyHears : public testing::Test {
 protected:
  static constexpr uint64_t kChunk = 16 << 10;

  PolicyHears()
      : engine_({.budget = uint64_t{2} << 20}, &tier_, &pins_, [this](const ChunkTable* chunks) {
          return std::make_unique<RecordingPolicy>(MakePolicy("cyclic", chunks).value(), &record_);
        }) {}
  ~PolicyHears() override {
    for (Chunk* chunk : chunks_) engine_.Free(chunk);
    engine_.Drain();
  }
  void NewEpoch() {
    const uint32_t before = record_.epoch;
    record_.wants_epoch = true;
    for (int step = 0; record_.epoch == before && step < 100; ++step) engine_.MoverStep();
    ASSERT_GT(record_.epoch.load(), before);
  }
  // The events that an access makes.
  std::vector<PolicyRecord::Event> Access(Chunk* chunk, bool write) {
    const size_t before = record_.events.size();
    const Status status = engine_.Acquire(chunk, write);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return {record_.events.begin() + static_cast<ptrdiff_t>(before), record_.events.end()};
  }

  PolicyRecord record_;
  FakeTier tier_{FakeTierOptions{.seed = 11}};
  NoPins pins_;
  Engine engine_;
  std::vector<Chunk*> chunks_;
};

TEST_F(PolicyHears, TheFirstTouchOfAChunkInMemoryInEachEpoch) {
  for (int i = 0; i < 20; ++i) {
    chunks_.push_back(engine_.Create(kChunk).value());
    const auto events = Access(chunks_.back(), true);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, Kind::kMiss);
  }
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (int round = 0; round < 3; ++round) {
      for (size_t i = 0; i < chunks_.size(); ++i) {
        const bool write = (i + static_cast<size_t>(epoch)) % 3 == 0;
        const auto events = Access(chunks_[i], write);
        ASSERT_EQ(events.size(), epoch > 0 && round == 0 ? 1u : 0u) << "epoch " << epoch << ", chunk " << i;
        if (events.empty()) continue;
        EXPECT_EQ(events[0].kind, Kind::kTouch);
        EXPECT_EQ(events[0].chunk, chunks_[i]->id);
        EXPECT_EQ(events[0].epoch, record_.epoch);
        EXPECT_EQ(events[0].write, write);
      }
    }
    NewEpoch();
  }
}

TEST_F(PolicyHears, OneEventForEachFirstAccessWhileChunksComeAndGo) {
  std::mt19937_64 random(7);
  struct Known {
    uint32_t accessed_in = UINT32_MAX;  // epoch
    bool hinted = false;                // and being fetched for it, which was heard as its touch
  };
  std::map<Chunk*, Known> known;
  uint64_t misses = 0, touches = 0, hits = 0;
  for (int step = 0; step < 20000; ++step) {
    if (chunks_.size() < 200 && random() % 40 == 0) {
      chunks_.push_back(engine_.Create(1 + random() % kChunk).value());
      known[chunks_.back()] = {};
    }
    if (chunks_.empty()) continue;
    if (random() % 200 == 0) NewEpoch();
    if (random() % 10 == 0) engine_.MoverStep();
    const size_t at = step % 3 == 0 ? random() % chunks_.size() : static_cast<size_t>(step) % chunks_.size();
    Chunk* chunk = chunks_[at];
    if (random() % 300 == 0) {
      engine_.Free(chunk);
      chunks_.erase(chunks_.begin() + static_cast<ptrdiff_t>(at));
      continue;
    }
    if (PhaseOf(chunk) == Phase::kSwapped && random() % 4 == 0) {
      engine_.Prefetch(chunk);
      if (PhaseOf(chunk) != Phase::kSwapped) known[chunk] = {.accessed_in = record_.epoch, .hinted = true};
    }
    const bool out = PhaseOf(chunk) == Phase::kSwapped || (PhaseOf(chunk) == Phase::kLoading && !known[chunk].hinted) || Has(chunk, kPrefetched);
    const bool first = out || known[chunk].accessed_in != record_.epoch;
    std::vector<PolicyRecord::Event> mine = Access(chunk, random() % 2);
    std::erase_if(mine, [&](const auto& event) { return event.chunk != chunk->id; });  // a poll may end others' transfers
    ASSERT_EQ(mine.size(), first ? 1u : 0u) << "step " << step;
    for (const auto& event : mine) {
      misses += event.kind == Kind::kMiss;
      touches += event.kind == Kind::kTouch;
      hits += event.kind == Kind::kHit;
    }
    known[chunk] = {.accessed_in = record_.epoch};
    ASSERT_TRUE(engine_.IsValid());
    ASSERT_TRUE(engine_.CheckPolicy());
  }
  EXPECT_GT(misses, 100u);
  EXPECT_GT(touches, 100u);
  EXPECT_GT(hits, 10u);
}

// A tier that has something done before each look at what has ended: what other threads do while one waits.
struct WatchedTier final : FakeTier {
  using FakeTier::FakeTier;
  std::function<void()> before_poll;
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override {
    if (before_poll) before_poll();
    return FakeTier::Poll(done, wait);
  }
};

// A policy that wants to hear of the next pin of a chunk clears its bit, and with three threads that miss that is done while the chunk is still
// coming in. The pin that had missed was then heard twice: a sweep by four threads was a sequence in which each chunk comes twice.
TEST(PolicyHearsAgain, NotOfThePinThatMissedButOfTheNextOne) {
  PolicyRecord record;
  WatchedTier tier(FakeTierOptions{.seed = 11});
  NoPins pins;
  Engine engine({.budget = 2 * kMiB}, &tier, &pins, [&](const ChunkTable* chunks) {
    return std::make_unique<RecordingPolicy>(MakePolicy("cyclic", chunks).value(), &record);
  });
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 300; ++i) {
    chunks.push_back(engine.Create(16 << 10).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
  }
  const auto heard = [&](Chunk* chunk) {
    const size_t before = record.events.size();
    EXPECT_TRUE(engine.Acquire(chunk, false).ok());
    return std::count_if(record.events.begin() + static_cast<ptrdiff_t>(before), record.events.end(), [&](const auto& event) { return event.chunk == chunk->id; });
  };
  record.on_hit = [](Chunk* chunk) { ClearBits(chunk, kReferenced); };
  uint64_t came = 0;
  for (int sweep = 0; sweep < 5; ++sweep) {
    for (Chunk* chunk : chunks) {
      if (PhaseOf(chunk) != Phase::kResident || Has(chunk, kPrefetched)) {
        ++came;
        tier.before_poll = [chunk] { ClearBits(chunk, kReferenced); };
        ASSERT_EQ(heard(chunk), 1);
        tier.before_poll = nullptr;
        ASSERT_EQ(heard(chunk), 1) << "the policy has asked for it";
      }
      ASSERT_EQ(heard(chunk), 0);
      if (sweep % 2 == 0) engine.MoverStep();  // else nothing is read ahead
    }
  }
  EXPECT_GT(came, 500u);
  const auto hits = std::count_if(record.events.begin(), record.events.end(), [](const auto& event) { return event.kind == Kind::kHit; });
  EXPECT_GT(hits, 20);
  EXPECT_GT(engine.counters().misses, 20u);
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// What a policy keeps of each chunk, and besides, was nobody's: the limit was exceeded by it.
TEST(PolicyMemoryUse, IsChargedToTheLimitAndFollowsIt) {
  FakeTier tier({.seed = 4, .synchronous = true});
  NoPins pins;
  constexpr uint64_t kLimit = 64 * kMiB, kSlab = 1024;
  Engine engine({.budget = kLimit}, &tier, &pins, PolicyNamed("cyclic"));
  const auto metadata = [&] { return engine.counters().metadata_bytes; };
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 3000; ++i) chunks.push_back(engine.Create(4096).value());
  const uint64_t without = metadata();
  engine.ReplacePolicy(PolicyNamed("replay"));
  const uint64_t with = metadata();
  EXPECT_GE(with - without, 3 * kSlab * 16 + kLimit / 512) << "a history of at least a half of 1/256, and three slabs";
  EXPECT_LE(with - without, 3 * kSlab * 16 + kLimit / 256 + (64 << 10));
  for (int i = 0; i < 100; ++i) chunks.push_back(engine.Create(4096).value());  // the fourth slab
  EXPECT_GE(metadata() - with, kSlab * (sizeof(Chunk) + 16) + kLimit / 128) << "and a longer history, for as many";
  EXPECT_LE(metadata() - with, kSlab * (sizeof(Chunk) + 32) + kLimit / 32);
  // A limit that is refused has changed nothing: the history was cut to what it has room for, and never grew again.
  const uint64_t before = metadata();
  EXPECT_FALSE(engine.LeavesRoomForData(64 << 10).ok());
  EXPECT_EQ(metadata(), before);
  Chunk* large = engine.Create(8 * kMiB).value();
  EXPECT_TRUE(engine.Acquire(large, true).ok());
  pins.all_pinned = true;
  EXPECT_FALSE(engine.SetBudget(4 * kMiB).ok());
  EXPECT_EQ(metadata(), before);
  pins.all_pinned = false;
  engine.Free(large);
  EXPECT_TRUE(engine.SetBudget(4 * kMiB).ok());
  EXPECT_LT(metadata(), before);
  EXPECT_TRUE(engine.SetBudget(kLimit).ok());
  EXPECT_LE(metadata(), before);
  EXPECT_GE(metadata() + kLimit / 32, before) << "what chunks had been given is not given again";
  // A lower limit had no room for what the higher one had for its history.
  EXPECT_TRUE(engine.SetBudget(4 * kMiB).ok());
  EXPECT_LE(metadata(), without + 5 * kSlab * (sizeof(Chunk) + 16) + 4 * kMiB / 32 + (64 << 10));
  // Kept for the time after a program's own.
  const uint64_t alone = metadata();
  std::unique_ptr<CachePolicy> kept;
  engine.ReplacePolicy([&](const ChunkTable* table) {
    kept = MakePolicy("replay", table).value();
    engine.KeepReserved(kept.get());
    return MakePolicy("second-chance", table).value();
  });
  EXPECT_LE(metadata(), alone);
  EXPECT_GE(metadata() + 4 * kMiB / 32, alone) << "its history begins anew";
  for (int i = 0; i < 2000; ++i) chunks.push_back(engine.Create(4096).value());
  {
    const CountedHeap counted;
    engine.ReplacePolicy([&](const ChunkTable*) {
      engine.KeepReserved(nullptr);
      return std::move(kept);
    });
  }
  EXPECT_EQ(CountedHeap::count(), 0) << "it has to take over where there is no heap, too";
  for (Chunk* chunk : chunks) EXPECT_TRUE(engine.Acquire(chunk, true).ok());
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// It had been left what it had when the limit was raised by less than it would have taken. A limit that is refused gave it that all the same.
TEST(PolicyMemoryUse, IsNoMoreAfterALimitThatIsRefusedThanBefore) {
  FakeTier tier({.seed = 1, .capacity_bytes = uint64_t{1} << 30, .synchronous = true});
  NoPins pins;
  constexpr uint64_t kBoundary = uint64_t{5120} << 14;  // from here on `replay` remembers twice as many uses
  Engine engine({.budget = kBoundary - 16384, .addresses = uint64_t{1} << 30}, &tier, &pins, PolicyNamed("replay"));
  ASSERT_TRUE(engine.SetBudget(kBoundary - 8192).ok());
  std::vector<Chunk*> chunks;
  engine.SetWaitForPins(false);
  pins.all_pinned = true;
  do {
    chunks.push_back(engine.Create(64 << 10).value());
  } while (engine.Acquire(chunks.back(), true).ok());
  const uint64_t fitted = engine.counters().metadata_bytes;
  ASSERT_TRUE(engine.SetBudget(kBoundary + 8192).ok());
  const uint64_t before = engine.counters().metadata_bytes;
  ASSERT_EQ(before, fitted) << "then this test shows nothing";
  EXPECT_FALSE(engine.SetBudget(kBoundary / 2).ok());
  EXPECT_EQ(engine.counters().metadata_bytes, before);
  EXPECT_TRUE(engine.IsValid());
  pins.all_pinned = false;
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

TEST_F(PolicyHears, WhatReadsHaveCostByTheSlotsTier) {
  ASSERT_NE(record_.costs, nullptr);
  EXPECT_EQ(record_.costs->Of(SlotRef{1}).read_bytes, 0u);
  for (int i = 0; i < 300; ++i) {
    chunks_.push_back(engine_.Create(kChunk).value());
    Access(chunks_.back(), true);
  }
  for (Chunk* chunk : chunks_) Access(chunk, false);
  const auto swapped = std::find_if(chunks_.begin(), chunks_.end(), [](Chunk* c) { return PhaseOf(c) == Phase::kSwapped; });
  ASSERT_NE(swapped, chunks_.end());
  EXPECT_EQ(record_.costs->Of((*swapped)->slot).read_bytes, kChunk);
  EXPECT_GT(record_.costs->Of((*swapped)->slot).read_ns, 0u);
  EXPECT_EQ(record_.costs->Of(SlotRef{}).read_ns, 0u);
  EXPECT_EQ(record_.costs->Of(slot_bits::WithTier((*swapped)->slot, 3)).read_bytes, 0u) << "another tier's";
}

// Another thread, which notes what it touches.
struct OneWhoNotes final : PinScanner {
  std::vector<Touch> touches;
  void Barrier() override {}
  void FindPinned(std::span<Chunk* const>, std::span<bool>) override {}
  void SetWaiting(Chunk*) override {}
  Verdict JudgeWaiters() override { return Verdict::kDeadlock; }
  void TakeTouches(const Hear& hear) override { hear(std::exchange(touches, {})); }
};

// A chunk whose read ahead was still under way was heard of before what its thread had touched before it.
TEST(PolicyHearsInOrder, WhatWasTouchedBeforeAChunkThatIsStillComing) {
  constexpr uint64_t kChunk = 16 << 10;
  PolicyRecord record;
  FakeTier tier({.seed = 11, .delay_steps_max = 1000});
  OneWhoNotes pins;
  Engine engine({.budget = uint64_t{2} << 20}, &tier, &pins,
                [&](const ChunkTable* chunks) { return std::make_unique<RecordingPolicy>(MakePolicy("cyclic", chunks).value(), &record); });
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 300; ++i) {
    chunks.push_back(engine.Create(kChunk).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
  }
  const auto of = [&](Phase phase) { return std::find_if(chunks.begin(), chunks.end(), [phase](const Chunk* c) { return PhaseOf(c) == phase; }); };
  for (size_t i = 0; of(Phase::kLoading) == chunks.end() && i < chunks.size(); ++i) {
    ASSERT_TRUE(engine.Acquire(chunks[i], false).ok());
    engine.MoverStep();
  }
  ASSERT_NE(of(Phase::kLoading), chunks.end());
  record.wants_epoch = true;
  while (record.epoch == 0 && of(Phase::kLoading) != chunks.end()) engine.MoverStep();
  ASSERT_NE(of(Phase::kLoading), chunks.end());
  ASSERT_NE(of(Phase::kResident), chunks.end());
  Chunk *const coming = *of(Phase::kLoading), *const touched = *of(Phase::kResident);
  pins.touches.push_back({.chunk = touched->id, .thread = 0, .epoch = record.epoch, .write = false});
  const size_t before = record.events.size();
  ASSERT_TRUE(engine.Acquire(coming, false).ok());
  ASSERT_EQ(record.events.size(), before + 2);
  EXPECT_EQ(record.events[before].kind, Kind::kTouch);
  EXPECT_EQ(record.events[before].chunk, touched->id);
  EXPECT_EQ(record.events[before + 1].kind, Kind::kHit);
  EXPECT_EQ(record.events[before + 1].chunk, coming->id);
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

}  // namespace
}  // namespace ramspan
