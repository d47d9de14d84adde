// Everything full: memory of descriptors, memory and swap of data. What is there can still be used.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/engine/engine.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/recording_policy.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

class Full : public testing::Test {
 protected:
  void Start(const FakeTierOptions& tier, const Engine::Options& options) {
    engine_.reset();  // before its tier
    tier_ = std::make_unique<FakeTier>(tier);
    engine_ = std::make_unique<Engine>(options, tier_.get(), &pins_, DefaultPolicy());
  }
  ~Full() override {
    for (Chunk* chunk : chunks_) engine_->Free(chunk);
    engine_->Drain();
    EXPECT_EQ(tier_->slots(), 0u);
  }
  Status Add(uint64_t bytes) {
    Result<Chunk*> chunk = engine_->Create(bytes);
    if (!chunk.ok()) return chunk.status();
    Status status = engine_->Acquire(chunk.value(), true);
    if (!status.ok()) {
      engine_->Free(chunk.value());
      return status;
    }
    chunks_.push_back(chunk.value());
    std::memset(chunks_.back()->frame, static_cast<int>(chunks_.size() & 0xff), bytes);
    return status;
  }
  void ReadAll(size_t step = 1) {
    for (size_t i = 0; i < chunks_.size(); i += step) {
      const Status status = engine_->Acquire(chunks_[i], false);
      ASSERT_TRUE(status.ok()) << i << " of " << chunks_.size() << ": " << status.ToString();
      ASSERT_EQ(static_cast<unsigned char*>(chunks_[i]->frame)[chunks_[i]->bytes - 1], (i + 1) & 0xff);
    }
    EXPECT_TRUE(engine_->IsValid());
  }

  NoPins pins_;
  std::unique_ptr<FakeTier> tier_;
  std::unique_ptr<Engine> engine_;
  std::vector<Chunk*> chunks_;
};

// Descriptors grew until no frame was left: of 62 464 objects none could be read any more.
TEST_F(Full, OfDescriptorsLeavesEveryObjectReadable) {
  for (const uint64_t bytes : {uint64_t{4096}, uint64_t{64} << 10}) {
    Start({.seed = 21, .capacity_bytes = uint64_t{8} << 30, .synchronous = true}, {.budget = 4 * kMiB, .preemptive = false});
    Status status;
    while (status.ok() && chunks_.size() < 100'000) {
      Result<Chunk*> chunk = engine_->Create(bytes);
      status = chunk.status();
      if (chunk.ok()) chunks_.push_back(chunk.value());
    }
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("descriptors"), std::string::npos) << status.message();
    EXPECT_GT(chunks_.size(), 40'000u);
    for (size_t i = 0; i < chunks_.size(); i += 97) {
      ASSERT_TRUE(engine_->Acquire(chunks_[i], true).ok()) << i;
      std::memset(chunks_[i]->frame, static_cast<int>((i + 1) & 0xff), bytes);
    }
    ReadAll(97);
    for (Chunk* chunk : chunks_) engine_->Free(chunk);
    chunks_.clear();
  }
}

// The largest object counts, not a share of the limit; and one that is gone counts no more.
TEST_F(Full, OfDescriptorsLeavesRoomForTheLargestObject) {
  Start({.seed = 22, .synchronous = true}, {.budget = 4 * kMiB, .preemptive = false});
  ASSERT_TRUE(Add(3 * kMiB).ok());
  Status status;
  std::vector<Chunk*> small;
  const auto fill = [&] {
    for (status = Status(); status.ok();) {
      Result<Chunk*> chunk = engine_->Create(4096);
      status = chunk.status();
      if (chunk.ok()) small.push_back(chunk.value());
    }
  };
  fill();
  const size_t beside = small.size();
  ASSERT_TRUE(engine_->Acquire(small[0], true).ok());
  ReadAll();
  engine_->Free(chunks_[0]);
  chunks_.clear();
  fill();
  EXPECT_GT(small.size(), 2 * beside);
  for (Chunk* chunk : small) engine_->Free(chunk);
}

// Its tables take much for each slot: as files do, 64 KiB for fifty that stay, or as slots in many pieces do, for those that there are, as much
// as they may.
class TierWithTables final : public ForwardingTier {
 public:
  explicit TierWithTables(bool in_pieces) : ForwardingTier(&real_), in_pieces_(in_pieces) {}
  Result<SlotRef> TryReserve(size_t bytes) override {
    if (!in_pieces_ && used_ == places_) return Status(StatusCode::kMustAsk, StaticText("the table is full"));
    ++used_;
    return ForwardingTier::TryReserve(bytes);
  }
  Status MakeRoom(size_t, Patience) override {
    places_ += 50;
    return Status();
  }
  void Free(SlotRef slot, size_t bytes) noexcept override {
    --used_;
    ForwardingTier::Free(slot, bytes);
  }
  uint64_t metadata_bytes() const noexcept override { return in_pieces_ ? used_ * TableBytesMax(20'000) : places_ * ((64 << 10) / 50); }

 private:
  FakeTier real_{FakeTierOptions{.seed = 23, .capacity_bytes = uint64_t{8} << 30, .synchronous = true}};
  const bool in_pieces_;
  uint64_t used_ = 0, places_ = 0;
};

// Swap's tables grew until no frame was left: with nothing pinned none of 6554 objects could be read any more.
TEST_F(Full, OfSwapsTablesLeavesEveryObjectReadable) {
  struct Case {
    uint64_t bytes;
    bool in_pieces;
    uint64_t largest;
  };
  for (const auto& [bytes, in_pieces, largest] : {Case{20'000, false, 0}, Case{512 << 10, false, 0}, Case{20'000, true, 0}, Case{20'000, false, 900 << 10}}) {
    TierWithTables tier(in_pieces);
    engine_ = std::make_unique<Engine>(Engine::Options{.budget = 2 * kMiB, .preemptive = false}, &tier, &pins_, DefaultPolicy());
    Status status = largest > 0 ? Add(largest) : Status();
    while (status.ok() && chunks_.size() < 16'000) {
      status = Add(bytes);
      if (chunks_.size() % 25 != 0) continue;
      std::this_thread::sleep_for(std::chrono::milliseconds(6));
      engine_->MoverStep();  // looks at what the tables take, each 5 ms
    }
    EXPECT_NE(status.message().find("the tables of swap"), std::string::npos) << status.message();
    EXPECT_GT(chunks_.size(), largest > 0 ? 400u : 900u);
    for (size_t i = 1; i < 400; ++i) {  // what lies free in the tables needs none that are larger
      engine_->Free(chunks_[i]);
      std::swap(chunks_[i], chunks_.back());
      chunks_.pop_back();
      status = Add(bytes);
      ASSERT_TRUE(status.ok()) << i << ' ' << bytes << ' ' << in_pieces << status.message();
      std::swap(chunks_[i], chunks_.back());
      std::memset(chunks_[i]->frame, static_cast<int>((i + 1) & 0xff), bytes);
    }
    ReadAll();
    for (Chunk* chunk : chunks_) EXPECT_TRUE(engine_->Acquire(chunk, true).ok());
    for (Chunk* chunk : chunks_) engine_->Free(chunk);
    chunks_.clear();
    EXPECT_TRUE(Add(bytes).ok());
    engine_->Free(chunks_[0]);
    chunks_.clear();
    engine_->Drain();
    engine_.reset();
  }
  Start({.seed = 23}, {.budget = 2 * kMiB});
}

// A limit was lowered to what descriptors had already taken, and nothing could be used until it was raised again.
TEST_F(Full, OfDescriptorsALimitThatLeavesNoRoomForDataIsRefused) {
  Start({.seed = 28, .capacity_bytes = uint64_t{8} << 30, .synchronous = true}, {.budget = 2 * kMiB, .preemptive = false});
  for (int i = 0; i < 14'000; ++i) chunks_.push_back(engine_->Create(8192).value());
  const Status status = engine_->LeavesRoomForData(kMiB);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("descriptors"), std::string::npos) << status.message();
  EXPECT_TRUE(engine_->LeavesRoomForData(2 * kMiB).ok());
}

// 64 of 95 objects were unreadable until something was freed.
TEST_F(Full, MemoryAndSwapLeaveEveryObjectReadableInTurn) {
  for (const bool synchronous : {true, false}) {
    Start({.seed = 23, .capacity_bytes = 4 * kMiB, .synchronous = synchronous}, {.budget = 2 * kMiB, .preemptive = false});
    Status status;
    while (status.ok() && chunks_.size() < 1000) status = Add(64 << 10);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
    EXPECT_GE(chunks_.size(), 64u + 20u);  // swap but for one slot, and memory
    ReadAll();
    for (size_t i = chunks_.size(); i-- > 0;) ASSERT_TRUE(engine_->Acquire(chunks_[i], true).ok()) << i;  // written, too
    EXPECT_NE(Add(64 << 10).code(), StatusCode::kOk);
    ReadAll();
    for (int i = 0; i < 2; ++i) {  // what is freed can be used again
      engine_->Free(chunks_.back());
      chunks_.pop_back();
    }
    ASSERT_TRUE(Add(64 << 10).ok());
    ReadAll();
    for (Chunk* chunk : chunks_) engine_->Free(chunk);
    chunks_.clear();
    engine_->Drain();
  }
}

// Beside a mover that reads ahead, some reads found nothing that could leave at that moment, and were refused.
TEST_F(Full, MemoryAndSwapLeaveEveryObjectReadableBesideAMover) {
  Start({.seed = 29, .capacity_bytes = 16 * kMiB, .synchronous = true}, {.budget = 2 * kMiB});
  std::atomic<bool> end{false};
  std::thread mover([&] {
    while (!end) {
      if (!engine_->MoverStep()) engine_->MoverWait(std::chrono::milliseconds(1));
    }
  });
  Status status;
  while (status.ok() && chunks_.size() < 1000) status = Add(32 << 10);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  int refused = 0;
  for (int round = 0; round < 5; ++round) {
    for (size_t i = 0; i < chunks_.size(); ++i) refused += !engine_->Acquire(chunks_[i * 7919 % chunks_.size()], false).ok();
  }
  EXPECT_EQ(refused, 0);
  end = true;
  engine_->WakeMover();
  mover.join();
}

TEST_F(Full, MemoryAndSwapOfMixedSizesLeaveEveryObjectReadableInTurn) {
  Start({.seed = 24, .capacity_bytes = 6 * kMiB, .synchronous = true}, {.budget = 3 * kMiB, .preemptive = false});
  const uint64_t sizes[] = {4096, 300 << 10, 20000, 64 << 10, 700 << 10, 5000};
  int refused = 0;
  for (int i = 0; refused < 20 && i < 3000; ++i) refused += !Add(sizes[i % 6]).ok();
  ReadAll();
  ReadAll();
}

// One large object among small ones cost twice its size of swap: of 16 MiB only 8 could be filled beside 3.
TEST_F(Full, OneLargeObjectKeepsLittleMoreThanItsOwnSizeFree) {
  for (const uint64_t large : {kMiB, 3 * kMiB}) {
    Start({.seed = 27, .capacity_bytes = 8 * kMiB, .synchronous = true}, {.budget = 8 * kMiB, .preemptive = false});
    ASSERT_TRUE(Add(large).ok());
    Status status;
    while (status.ok() && chunks_.size() < 1000) status = Add(60 << 10);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
    EXPECT_GE(large + (chunks_.size() - 1) * (60 << 10), 16 * kMiB - large - kMiB);
    ReadAll();
    ReadAll();
    for (Chunk* chunk : chunks_) engine_->Free(chunk);
    chunks_.clear();
    engine_->Drain();
  }
}

// With the engine's mutex, over and over, while threads that had missed waited for it.
TEST_F(Full, AMoverThatFindsNothingToEvictRests) {
  PolicyRecord record;
  tier_ = std::make_unique<FakeTier>(FakeTierOptions{.seed = 30, .synchronous = true});
  engine_ = std::make_unique<Engine>(Engine::Options{.budget = 2 * kMiB}, tier_.get(), &pins_, [&](const ChunkTable* chunks) {
    return std::make_unique<RecordingPolicy>(PolicyNamed("cyclic")(chunks), &record);
  });
  for (int i = 0; i < 20'000; ++i) chunks_.push_back(engine_->Create(4096).value());
  std::vector<Chunk*> pinned;  // all of memory
  while (engine_->AcquireCounted(chunks_[pinned.size()], true, Engine::WhenPinned::kReturn).ok()) {
    pinned.push_back(chunks_[pinned.size()]);
  }
  const uint64_t before = record.searches;
  engine_->MoverStep();
  const uint64_t of_a_step = record.searches - before;
  EXPECT_GE(of_a_step, 1u);
  for (int i = 0; i < 99; ++i) engine_->MoverStep();
  // It rests for twenty times as long as it has searched; on a loaded machine some of these steps come later.
  EXPECT_LT(record.searches - before, 60 * of_a_step);
  for (Chunk* chunk : pinned) chunk->state.fetch_sub(kOneCountedPin);
  for (Chunk* chunk : chunks_) engine_->Free(chunk);
  chunks_.clear();
  engine_.reset();
  engine_ = std::make_unique<Engine>(Engine::Options{.budget = 2 * kMiB}, tier_.get(), &pins_, DefaultPolicy());
}

// Objects come, are used and go in any order. What swap keeps of objects that are in memory may be given up for others when
// swap is full, but not all of it: nothing could make way any more.
TEST_F(Full, WhatIsThereStaysReadableWhileObjectsComeAndGo) {
  const uint64_t sizes[] = {4096, 20000, 64 << 10, 130 << 10, 300 << 10};
#if defined(__SANITIZE_THREAD__)
  const unsigned seeds = 15;  // there is one thread
#elif defined(__SANITIZE_ADDRESS__)
  const unsigned seeds = 60;
#else
  const unsigned seeds = 400;
#endif
  for (unsigned seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Start({.seed = seed, .capacity_bytes = 2 * kMiB, .synchronous = true}, {.budget = 2 * kMiB, .preemptive = false});
    for (int i = 0; i < 400; ++i) {
      const uint32_t what = random() % 8, at = chunks_.empty() ? 0 : static_cast<uint32_t>(random() % chunks_.size());
      if (what >= 4 || chunks_.empty()) {
        static_cast<void>(Add(sizes[random() % 5]));  // refused when all is full
      } else if (what > 0) {
        ASSERT_TRUE(engine_->Acquire(chunks_[at], what == 1).ok()) << "in step " << i;
      } else {
        engine_->Free(chunks_[at]);
        chunks_.erase(chunks_.begin() + at);
      }
    }
    for (Chunk* chunk : chunks_) ASSERT_TRUE(engine_->Acquire(chunk, false).ok());
    for (Chunk* chunk : chunks_) engine_->Free(chunk);
    chunks_.clear();
    engine_->Drain();
  }
}

// A read that brought a wrong byte once lost the chunk for good, although what was in swap was right.
TEST_F(Full, AWrongByteThatIsRightTheSecondTimeLosesNothing) {
  Start({.seed = 25, .synchronous = true}, {.budget = kMiB, .preemptive = false});
  for (int i = 0; i < 32; ++i) ASSERT_TRUE(Add(64 << 10).ok());
  tier_->faults().NextReads(Fault::kFlippedByte);
  ReadAll();
  EXPECT_EQ(engine_->counters().rereads, 1u);
  EXPECT_EQ(engine_->counters().losses, 0u);
}

// DataLost said "see the log for the tier", and the log held nothing.
TEST_F(Full, EachLossIsInTheLogWithItsTier) {
  Start({.seed = 26, .synchronous = true, .name = "fake"}, {.budget = kMiB, .preemptive = false});
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(Add(64 << 10).ok());
  testing::internal::CaptureStderr();
  tier_->faults().NextReads(Fault::kFlippedByte, 2);
  const auto swapped = std::find_if(chunks_.begin(), chunks_.end(), [](const Chunk* c) { return PhaseOf(c) == Phase::kSwapped; });
  ASSERT_NE(swapped, chunks_.end());
  EXPECT_EQ(engine_->Acquire(*swapped, false).code(), StatusCode::kDataLoss);
  std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("chunk " + std::to_string((*swapped)->id) + " of 65536 bytes is lost"), std::string::npos) << log;
  EXPECT_NE(log.find("fake swap"), std::string::npos) << log;
  // Many more are some lines.
  testing::internal::CaptureStderr();
  tier_->faults().SetRates({.read_flipped = 1});
  for (Chunk* chunk : chunks_) static_cast<void>(engine_->Acquire(chunk, false));
  log = testing::internal::GetCapturedStderr();
  EXPECT_LE(std::count(log.begin(), log.end(), '\n'), 18) << log;
  EXPECT_NE(log.find("32 chunks are lost so far"), std::string::npos) << log;
}

}  // namespace
}  // namespace ramspan
