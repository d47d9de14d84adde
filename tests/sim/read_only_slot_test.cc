// A tier that says that its slots are read-only gets what mapped files get, without any name but its capability: the engine
// and the policies read there, and never write, check, fetch ahead, give up or bring home what is there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/engine/engine.h"
#include "client/swap/tiered_swap.h"
#include "tests/support/fake_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr uint64_t kFilledChunk = 64 << 10;
constexpr size_t kFilledChunks = 32;

// An engine over a tier that may be written and one whose slots are filled before; whether the latter says so is the test's.
class FilledSlots : public testing::TestWithParam<const char*> {
 protected:
  void Make(bool read_only, uint64_t swap_bytes = FakeTierOptions().capacity_bytes) {
    auto swap = std::make_unique<FakeTier>(FakeTierOptions{.seed = 1, .capacity_bytes = swap_bytes, .name = "swap"});
    auto filled = std::make_unique<FakeTier>(FakeTierOptions{.seed = 2, .read_only = read_only, .name = "filled"});
    filled_ = filled.get();
    std::vector<std::unique_ptr<SwapTier>> tiers;
    tiers.push_back(std::move(swap));
    tiers.push_back(std::move(filled));
    tiers_ = std::make_unique<TieredSwap>(std::move(tiers));
    const size_t order[] = {0};
    tiers_->SetOrder(order);
    engine_ = std::make_unique<Engine>(Engine::Options{.budget = 8 * kMiB, .checksum = read_only}, tiers_.get(), &pins_,
                                       PolicyNamed(GetParam()));
    for (size_t i = 0; i < kFilledChunks; ++i) chunks_.push_back(engine_->Create(kFilledChunk, Fill(Letter(i))).value());
    written_ = filled_->stats().bytes_written;
  }
  ~FilledSlots() override {
    if (engine_ == nullptr) return;
    for (Chunk* chunk : chunks_) engine_->Free(chunk);
  }

  static char Letter(size_t i) { return static_cast<char>('A' + i); }
  SlotRef Fill(char letter) {
    alignas(4096) static char page[kFilledChunk];
    std::memset(page, letter, sizeof page);
    IoRequest request;
    request.slot = filled_->Reserve(kFilledChunk).value();
    request.buffer = page;
    request.bytes = kFilledChunk;
    IoRequest* batch[] = {&request};
    filled_->SubmitWrite(batch);
    IoRequest* done[1];
    while (filled_->Poll(done, std::chrono::microseconds(100)) == 0) {
    }
    return TieredSwap::SlotIn(1, request.slot);
  }
  Status Read(size_t i) {
    Status status = engine_->Acquire(chunks_[i], false);
    if (status.ok()) {
      EXPECT_EQ(static_cast<const char*>(chunks_[i]->frame)[kFilledChunk - 1], Letter(i));
    }
    return status;
  }
  Status Write(size_t i) {
    Status status = engine_->Acquire(chunks_[i], true);
    if (status.ok()) std::memset(chunks_[i]->frame, Letter(i), kFilledChunk);
    return status;
  }
  // All leave that can.
  void Evict() {
    ASSERT_TRUE(engine_->SetBudget(kMiB).ok());
    engine_->Drain();
    ASSERT_TRUE(engine_->SetBudget(8 * kMiB).ok());
  }
  void Pause() {
    for (int i = 0; i < 20; ++i) engine_->MoverStep();
    engine_->Drain();
  }

  NoPins pins_;
  FakeTier* filled_ = nullptr;
  std::unique_ptr<TieredSwap> tiers_;
  std::unique_ptr<Engine> engine_;
  std::vector<Chunk*> chunks_;
  uint64_t written_ = 0;
};

TEST_P(FilledSlots, AreReadWithoutAChecksumAndDropped) {
  Make(true);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < kFilledChunks; ++i) ASSERT_TRUE(Read(i).ok()) << "chunk " << i;
    Evict();
  }
  EXPECT_GT(filled_->stats().reads, kFilledChunks) << "nothing has left";
  EXPECT_EQ(filled_->slots(), kFilledChunks);
  EXPECT_EQ(tiers_->tier(0).stats().bytes_written, 0u) << "a clean chunk was written to swap";
  EXPECT_FALSE(engine_->IsChanged(chunks_[0]));
  EXPECT_TRUE(engine_->IsValid());
}

TEST_P(FilledSlots, AreNeverWrittenAndLeftByAChunkThatHasChanged) {
  Make(true);
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < kFilledChunks; ++i) ASSERT_TRUE(Write(i).ok()) << "chunk " << i;
    Evict();
  }
  EXPECT_EQ(filled_->stats().bytes_written, written_);
  EXPECT_GT(tiers_->tier(0).stats().bytes_written, 0u);
  EXPECT_LT(filled_->slots(), kFilledChunks);
  EXPECT_TRUE(engine_->IsChanged(chunks_[0]));
  for (size_t i = 0; i < kFilledChunks; ++i) ASSERT_TRUE(Read(i).ok()) << "chunk " << i;
  EXPECT_TRUE(engine_->IsValid());
}

TEST_P(FilledSlots, AreReplacedBySlotsOfTheSameKind) {
  Make(true);
  ASSERT_TRUE(Write(3).ok());
  EXPECT_TRUE(engine_->IsChanged(chunks_[3]));
  engine_->ReplaceSlot(chunks_[3], Fill(Letter(3)));
  EXPECT_FALSE(engine_->IsChanged(chunks_[3]));
  EXPECT_EQ(filled_->slots(), kFilledChunks);
}

TEST_P(FilledSlots, AreKeptWhenSwapMakesRoomOrIsClosed) {
  Make(true);
  for (size_t i = 0; i < kFilledChunks; ++i) ASSERT_TRUE(Read(i).ok());
  engine_->FreeResidentSlots(UINT64_MAX);
  EXPECT_EQ(filled_->slots(), kFilledChunks) << "they take no room in swap";
  Evict();
  tiers_->SetOrder({});
  const uint64_t reads = filled_->stats().reads;
  EXPECT_TRUE(engine_->Vacate([](SlotRef, size_t) { return true; }).ok());
  EXPECT_EQ(filled_->stats().reads, reads);
  EXPECT_EQ(filled_->slots(), kFilledChunks);
}

// Such a chunk was let in as one that can leave without swap. Each that was changed then took a place in memory for good from
// those in swap, until none of them could be read.
TEST_P(FilledSlots, AreLeftOnlyAsFarAsWhatIsSwappedCanStillComeBack) {
  Make(true, 4 * kMiB);
  std::vector<Chunk*> others;
  for (;;) {
    others.push_back(engine_->Create(kMiB).value());
    if (!engine_->Acquire(others.back(), true).ok()) break;
    *static_cast<size_t*>(others.back()->frame) = others.size();
  }
  engine_->Free(others.back());
  others.pop_back();
  EXPECT_GT(others.size(), 8u) << "swap is not full";
  size_t changed = 0;
  for (size_t i = 0; i < kFilledChunks; ++i) {
    ASSERT_TRUE(Read(i).ok()) << "chunk " << i;
    const Status status = Write(i);
    changed += status.ok();
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
    }
    EXPECT_EQ(engine_->IsChanged(chunks_[i]), status.ok()) << "chunk " << i;
    ASSERT_TRUE(engine_->IsValid()) << "chunk " << i;
  }
  EXPECT_LT(changed, kFilledChunks);
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < others.size(); ++i) {
      const Status status = engine_->Acquire(others[i], round == 1);
      ASSERT_TRUE(status.ok()) << "object " << i << ": " << status.message();
      EXPECT_EQ(*static_cast<size_t*>(others[i]->frame), i + 1);
    }
    for (size_t i = 0; i < kFilledChunks; ++i) ASSERT_TRUE(Read(i).ok()) << "chunk " << i;
  }
  for (Chunk* one : others) engine_->Free(one);
  // There is room now.
  for (size_t i = 0; i < kFilledChunks; ++i) ASSERT_TRUE(Write(i).ok()) << "chunk " << i;
  EXPECT_TRUE(engine_->IsValid());
}

// Pulled to be read it is not open for writing, or its first change would pass by the engine.
TEST_P(FilledSlots, AreOpenForReadingOnlyUntilTheyAreLeft) {
  Make(true);
  ASSERT_TRUE(Read(0).ok());
  EXPECT_TRUE(Has(chunks_[0], kReadable));
  EXPECT_FALSE(Has(chunks_[0], kWritable));
  ASSERT_TRUE(Write(0).ok());
  EXPECT_TRUE(Has(chunks_[0], kWritable));
  EXPECT_TRUE(Has(chunks_[0], kDirty));
  engine_->ReplaceSlot(chunks_[0], Fill(Letter(0)));
  EXPECT_FALSE(Has(chunks_[0], kWritable)) << "written back: the next change is the first again";
  EXPECT_TRUE(engine_->IsValid());
}

TEST_P(FilledSlots, AreNotFetchedAhead) {
  Make(true);
  for (size_t i = 0; i < kFilledChunks; ++i) {
    const uint64_t reads = filled_->stats().reads;
    ASSERT_TRUE(Read(i).ok());
    Pause();
    EXPECT_LE(filled_->stats().reads - reads, 1u) << "at chunk " << i;
  }
  EXPECT_EQ(engine_->counters().prefetch_issued, 0u);
}

// The same chunks in a tier that does not say so: the default policy does fetch ahead, so the test above can fail.
TEST_P(FilledSlots, OfAnOrdinaryTierAreFetchedAhead) {
  if (GetParam() != PolicyNames()[0]) return;  // others may have nothing to say here
  Make(false);
  for (size_t i = 0; i < kFilledChunks; ++i) {
    ASSERT_TRUE(Read(i).ok());
    Pause();
  }
  EXPECT_GT(engine_->counters().prefetch_issued, 0u);
}

INSTANTIATE_TEST_SUITE_P(Policies, FilledSlots, testing::ValuesIn(PolicyNames()),
                         [](const auto& one) { std::string name = one.param; std::replace(name.begin(), name.end(), '-', '_'); return name; });

}  // namespace
}  // namespace ramspan
