#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "client/arena/arena.h"
#include "client/chunk/chunk.h"
#include "client/chunk/chunk_table.h"
#include "client/policy/policy_factory.h"

namespace ramspan {
namespace {

// Written from the table of transitions in client/chunk/chunk.h, not from the code.
const std::map<std::pair<Phase, Event>, Phase> kTable = {
    {{Phase::kFreed, Event::kCreate}, Phase::kSwapped},
    {{Phase::kSwapped, Event::kMaterialize}, Phase::kResident},
    {{Phase::kSwapped, Event::kBeginLoad}, Phase::kLoading},
    {{Phase::kLoading, Event::kFinishLoad}, Phase::kResident},
    {{Phase::kLoading, Event::kFailLoad}, Phase::kSwapped},
    {{Phase::kLoading, Event::kLose}, Phase::kLost},
    {{Phase::kSwapped, Event::kLose}, Phase::kLost},
    {{Phase::kResident, Event::kDrop}, Phase::kSwapped},
    {{Phase::kResident, Event::kBeginWrite}, Phase::kWriting},
    {{Phase::kWriting, Event::kFinishEvict}, Phase::kSwapped},
    {{Phase::kWriting, Event::kFinishKeep}, Phase::kResident},
    {{Phase::kWriting, Event::kFailWrite}, Phase::kResident},
    {{Phase::kResident, Event::kFree}, Phase::kFreed},
    {{Phase::kSwapped, Event::kFree}, Phase::kFreed},
    {{Phase::kLost, Event::kFree}, Phase::kFreed},
};

TEST(ChunkState, OnlyTheTableIsAllowed) {
  for (int p = 0; p <= static_cast<int>(Phase::kLost); ++p) {
    for (int e = 0; e <= static_cast<int>(Event::kFree); ++e) {
      const auto row = kTable.find({static_cast<Phase>(p), static_cast<Event>(e)});
      Phase to = Phase::kFreed;
      EXPECT_EQ(NextPhase(static_cast<Phase>(p), static_cast<Event>(e), &to), row != kTable.end()) << p << " " << e;
      if (row != kTable.end()) {
        EXPECT_EQ(to, row->second) << p << " " << e;
      }
    }
  }
}

TEST(ChunkStateDeathTest, AnythingElseIsABug) {
  Budget budget(1 << 20);
  ChunkTable table(&budget);
  Chunk* chunk = table.New(100);
  EXPECT_DEATH(Transition(chunk, Event::kFinishLoad), "chunk 0: event");
}

TEST(ChunkState, ADescriptorIs64BytesAndIsCharged) {
  Budget budget(64 << 20);
  ChunkTable table(&budget);
  for (int i = 0; i < 4096; ++i) table.New(1);
  EXPECT_EQ(sizeof(Chunk), 64u);
  EXPECT_EQ(budget.metadata(), 4096u * 64u);
}

TEST(Arena, NeverCommitsMoreThanTheBudgetForAnySizes) {
  Budget budget(8 << 20);
  Arena arena(&budget);
  std::map<void*, Frame> taken;
  uint64_t random = 12345;
  for (int i = 0; i < 20000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    if ((random >> 33) % 2 && !taken.empty()) {
      taken.erase(taken.begin());
    } else {
      const size_t bytes = 1 + (random >> 40) % 300000;
      if (Frame frame = arena.TryTake(bytes)) {
        ASSERT_EQ(reinterpret_cast<uintptr_t>(frame.get()) % kSwapGranule, 0u);
        ASSERT_TRUE(taken.emplace(frame.get(), std::move(frame)).second) << "a frame was given twice";
      }
    }
    uint64_t sum = 0;
    for (const auto& [at, frame] : taken) sum += RoundUpToGranule(frame.bytes());
    ASSERT_EQ(arena.in_use(), sum);
    ASSERT_LE(arena.committed(), budget.frames_limit());
  }
}

// Regression: frames were taken up to the limit before metadata grew, and stayed there.
TEST(Arena, GrowingMetadataDoesNotPushThePeakOverTheLimit) {
  Budget budget(4 << 20);
  Arena arena(&budget);
  std::vector<Frame> frames;
  while (Frame frame = arena.TryTake(64 << 10)) frames.push_back(std::move(frame));
  budget.ChargeMetadata(64 << 10);
  EXPECT_LE(arena.committed() + budget.metadata(), budget.limit());
  EXPECT_FALSE(arena.TryTake(4096));
  frames.pop_back();
  frames.pop_back();
  EXPECT_TRUE(arena.TryTake(4096));
  EXPECT_LE(arena.peak(), budget.limit());
}

class Cyclic : public testing::Test {
 protected:
  Cyclic() : budget_(1 << 20), table_(&budget_), policy_(MakePolicy("cyclic", &table_).value()) { policy_->SetLimits(1000, 0); }
  // A resident chunk of 10 bytes.
  Chunk* Resident() {
    Chunk* chunk = table_.New(10);
    policy_->OnCreate(chunk);
    Transition(chunk, Event::kMaterialize);
    return chunk;
  }
  Budget budget_;
  ChunkTable table_;
  std::unique_ptr<CachePolicy> policy_;
};

TEST_F(Cyclic, TheOldestLeavesFirst) {
  Chunk* chunks[5];
  for (Chunk*& c : chunks) c = Resident();
  Chunk* victims[3];
  ASSERT_EQ(policy_->PickVictims(30, victims), 3u);
  EXPECT_EQ(victims[0], chunks[0]);
  EXPECT_EQ(victims[1], chunks[1]);
  EXPECT_EQ(victims[2], chunks[2]);
  EXPECT_TRUE(policy_->IsValid());
}

TEST_F(Cyclic, ReadsAheadInTheOrderOfUseWithinATenthOfMemory) {
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 40; ++i) chunks.push_back(Resident());
  for (Chunk* c : chunks) {
    Transition(c, Event::kDrop);
    c->slot.bits = 1;
  }
  policy_->OnMiss(chunks[0], 0);
  Transition(chunks[0], Event::kBeginLoad);
  Chunk* ahead[64];
  const size_t n = policy_->PickReadAhead(ahead);
  ASSERT_EQ(n, 10u);  // 100 of 1000 bytes
  for (size_t i = 0; i < n; ++i) {
    EXPECT_EQ(ahead[i], chunks[i + 1]);
    Transition(ahead[i], Event::kBeginLoad);
    policy_->OnPrefetchIssued(ahead[i]);
  }
  EXPECT_EQ(policy_->PickReadAhead(ahead), 0u) << "the pre-emptive budget is used up";
  policy_->OnPrefetchHit(chunks[1]);
  ASSERT_EQ(policy_->PickReadAhead(ahead), 1u);
  Transition(ahead[0], Event::kBeginLoad);
  policy_->OnPrefetchIssued(ahead[0]);
  policy_->OnMiss(chunks[30], 0);
  EXPECT_EQ(policy_->PickReadAhead(ahead), 0u) << "nothing of it was touched, wherever the program goes on";
  EXPECT_FALSE(policy_->WantsReadAhead());
  EXPECT_TRUE(policy_->IsValid());
}

TEST_F(Cyclic, RandomMissesKeepTheCycleWhole) {
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 50; ++i) chunks.push_back(Resident());
  for (Chunk* c : chunks) Transition(c, Event::kDrop);
  uint64_t random = 7;
  for (int i = 0; i < 2000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    policy_->OnMiss(chunks[(random >> 33) % chunks.size()], 0);
    ASSERT_TRUE(policy_->IsValid()) << "step " << i;
  }
}

}  // namespace
}  // namespace ramspan
