// One event after the other in the engine's life, each a mistake that was made once. One thread, and nothing is pinned when it matters.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "client/engine/engine.h"
#include "client/swap/tiered_swap.h"
#include "tests/support/fake_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr uint64_t kChunk = 64 * kKiB;

// An engine over one tier or several, and chunks of which each byte tells their number.
class EngineStory : public testing::Test {
 protected:
  ~EngineStory() override { End(); }
  void Start(const FakeTierOptions& tier, uint64_t budget, bool preemptive = true) {
    End();
    auto made = std::make_unique<FakeTier>(tier);
    tiers_ = {made.get()};
    Start(std::move(made), budget, preemptive);
  }
  void StartWithTwo(const FakeTierOptions& upper, const FakeTierOptions& lower, uint64_t budget, bool preemptive) {
    End();
    std::vector<std::unique_ptr<SwapTier>> made;
    for (const FakeTierOptions& options : {upper, lower}) {
      made.push_back(std::make_unique<FakeTier>(options));
      tiers_.push_back(static_cast<FakeTier*>(made.back().get()));
    }
    Start(std::make_unique<TieredSwap>(std::move(made)), budget, preemptive);
  }
  void Start(std::unique_ptr<SwapTier> swap, uint64_t budget, bool preemptive) {
    swap_ = std::move(swap);
    engine_ = std::make_unique<Engine>(Engine::Options{.budget = budget, .preemptive = preemptive}, swap_.get(), &pins_, DefaultPolicy());
  }
  void End() {
    if (engine_ == nullptr) return;
    for (Chunk* chunk : chunks_) engine_->Free(chunk);
    engine_->Drain();
    for (const FakeTier* tier : tiers_) EXPECT_EQ(tier->slots(), 0u);
    chunks_.clear();
    tiers_.clear();
    engine_.reset();
  }

  FakeTier& tier() { return *tiers_[0]; }
  static unsigned char Byte(size_t chunk) { return static_cast<unsigned char>(chunk + 1); }
  // One more chunk, which stays also where it cannot be had.
  Status Add(uint64_t bytes = kChunk) {
    chunks_.push_back(engine_->Create(bytes).value());
    const Status status = engine_->Acquire(chunks_.back(), true);
    if (status.ok()) std::memset(chunks_.back()->frame, Byte(chunks_.size() - 1), bytes);
    return status;
  }
  void Fill(size_t count) {
    for (size_t i = 0; i < count; ++i) ASSERT_TRUE(Add().ok()) << i;
  }
  bool Holds(size_t i) const { return static_cast<unsigned char*>(chunks_[i]->frame)[chunks_[i]->bytes - 1] == Byte(i); }
  // The first `count` chunks can be read, and hold what was written.
  void ReadAll(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const Status status = engine_->Acquire(chunks_[i], false);
      ASSERT_TRUE(status.ok()) << i << ": " << status.ToString();
      ASSERT_TRUE(Holds(i)) << i;
    }
  }
  void ReadAll() { ReadAll(chunks_.size()); }
  // What does not fit into the lower limit leaves; nothing comes back by itself.
  void LowerAndRaise(uint64_t low, uint64_t high) {
    ASSERT_TRUE(engine_->SetBudget(low).ok());
    ASSERT_TRUE(engine_->SetBudget(high).ok());
  }

  NoPins pins_;
  std::vector<FakeTier*> tiers_;  // swap_, or its
  std::unique_ptr<SwapTier> swap_;
  std::unique_ptr<Engine> engine_;
  std::vector<Chunk*> chunks_;
};

TEST_F(EngineStory, AChunkFreedWhileItIsReadGoesAlsoWhenTheReadFails) {
  for (const bool fails : {false, true}) {
    Start(FakeTierOptions{.seed = 4}, kMiB);
    ASSERT_TRUE(Add(4096).ok());
    LowerAndRaise(66 * kKiB, kMiB);  // what is left beside the descriptors is less than a frame
    ASSERT_EQ(PhaseOf(chunks_[0]), Phase::kSwapped);
    if (fails) tier().faults().SetRates({.read_fails = 1});
    engine_->Prefetch(chunks_[0]);
    ASSERT_EQ(tier().in_flight(), 1u);
    engine_->Free(chunks_[0]);
    chunks_.clear();
    engine_->Drain();
    EXPECT_EQ(tier().slots(), 0u);
    EXPECT_EQ(engine_->counters().chunks, 0u);
    EXPECT_EQ(engine_->counters().resident_bytes, 0u);
  }
}

// A clean chunk whose server had died was dropped at its next eviction, although memory still held it.
TEST_F(EngineStory, ACleanChunkWhoseServerDiedIsWrittenElsewhere) {
  StartWithTwo({.seed = 1}, {.seed = 2}, 4 * kMiB, false);
  Fill(16);
  LowerAndRaise(512 * kKiB, 4 * kMiB);  // most of them leave for the upper tier
  ReadAll();                            // back, and clean
  tier().SetGone(true);
  ASSERT_TRUE(engine_->SetBudget(512 * kKiB).ok());
  ReadAll();
}

// It was left for the mover to take, who was woken for each.
TEST_F(EngineStory, AHintOfWhatIsCopiedHasComeWhenItReturns) {
  Start(FakeTierOptions{.seed = 6, .synchronous = true}, 4 * kMiB);
  Fill(16);
  LowerAndRaise(512 * kKiB, 4 * kMiB);
  for (Chunk* chunk : chunks_) {
    engine_->Prefetch(chunk);
    EXPECT_EQ(PhaseOf(chunk), Phase::kResident);
  }
}

// adhereTo's hints once went into the policy's ring of chunks that it fetched ahead, without its bound: chunks were in
// it twice and left twice. They also counted as hits of its guesses, which made random access look ordered.
TEST_F(EngineStory, MoreHintsThanTheReadAheadRingHoldsAreMissesAndNotGuesses) {
  Start(FakeTierOptions{.seed = 5, .synchronous = true}, 48 * kMiB);  // a tenth of it is 76 chunks
  Fill(600);
  for (int round = 0; round < 3; ++round) {
    LowerAndRaise(2 * kMiB, 48 * kMiB);
    for (Chunk* chunk : chunks_) engine_->Prefetch(chunk);
    engine_->Drain();
    ASSERT_TRUE(engine_->IsValid());
    ReadAll();
  }
  EXPECT_EQ(engine_->counters().prefetch_hits, 0u);
}

// A disk of which every write fails made the thread that wanted memory try for ever.
TEST_F(EngineStory, WritesThatAlwaysFailEndInAnErrorAndLoseNothing) {
  for (const bool synchronous : {false, true}) {
    Start(FakeTierOptions{.seed = 6, .synchronous = synchronous}, kMiB);
    tier().faults().SetRates({.write_fails = 1});
    Status status;
    while (status.ok() && chunks_.size() < 100) status = Add();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
    EXPECT_EQ(engine_->Acquire(chunks_.back(), true).code(), StatusCode::kUnavailable);
    EXPECT_EQ(engine_->SetBudget(512 * kKiB).code(), StatusCode::kUnavailable);
    tier().faults().SetRates({});  // somebody made room on the disk
    ASSERT_TRUE(engine_->Acquire(chunks_.back(), true).ok());
    ReadAll(chunks_.size() - 1);
  }
}

// 64 KiB of descriptors for every 1024 chunks were made beside frames that filled the limit already.
TEST_F(EngineStory, DescriptorsOfManyChunksPushFramesOut) {
  Start(FakeTierOptions{.seed = 8, .synchronous = true}, 4 * kMiB, false);
  Fill(64);
  for (int i = 0; i < 40000; ++i) {
    chunks_.push_back(engine_->Create(8).value());
    if (i % 100 == 0) {
      ASSERT_TRUE(engine_->IsValid()) << i;
    }
  }
  EXPECT_LE(engine_->counters().peak_resident_bytes, 4 * kMiB);
  ReadAll(64);
}

// A tier that asks before it grows, and has room for small chunks only: the first victim's refusal was the pull's error.
TEST_F(EngineStory, AVictimTooLargeForSwapDoesNotHideThoseThatFit) {
  Start(FakeTierOptions{.seed = 9, .capacity_bytes = 100 * kChunk, .reserve_waits_rate = 0.7}, 256 * kChunk, false);
  ASSERT_TRUE(Add(128 * kChunk).ok());
  Fill(100);
  const Status status = Add(60 * kChunk);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// Each chunk was read, found no other place, and was pushed out again by the next one: for ever, while the server drained.
TEST_F(EngineStory, VacateReadsNothingForWhichThereIsNoOtherPlace) {
  Start(FakeTierOptions{.seed = 11}, 512 * kKiB, false);
  Fill(64);
  const uint64_t before = tier().stats().reads;
  tier().faults().NextReservesAreFull(100'000);
  EXPECT_EQ(engine_->Vacate([](SlotRef, size_t) { return true; }).code(), StatusCode::kResourceExhausted);
  EXPECT_LT(tier().stats().reads - before, 10u) << "a memory full of chunks, at most";
  ReadAll();
}

// At MPI_Finalize the first chunk that could not come home left all the others on the servers, where they were lost.
TEST_F(EngineStory, VacateBringsHomeWhatItCanWhenAChunkIsLost) {
  Start(FakeTierOptions{.seed = 10}, 4 * kMiB);
  Fill(16);
  LowerAndRaise(192 * kKiB, 4 * kMiB);
  tier().faults().NextReads(Fault::kFlippedByte, 2);  // also when it is read again
  EXPECT_EQ(engine_->Vacate([](SlotRef, size_t) { return true; }).code(), StatusCode::kDataLoss);
  EXPECT_EQ(tier().slots(), 1u) << "the lost one's";
  int lost = 0;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    if (PhaseOf(chunks_[i]) == Phase::kLost) {
      ++lost;
    } else {
      ASSERT_EQ(PhaseOf(chunks_[i]), Phase::kResident);
      EXPECT_TRUE(Holds(i)) << i;
    }
  }
  EXPECT_EQ(lost, 1);
}

}  // namespace
}  // namespace ramspan
