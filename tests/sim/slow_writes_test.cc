// Swap that takes long to write: chunks leave because frames are needed, not because a thread has looked once more.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "client/engine/engine.h"
#include "client/engine/writes_under_way.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// Large ones, because patience is by their bytes: 10 ms here.
constexpr size_t kChunk = kMiB, kChunks = 100;
constexpr uint64_t kBudget = 64 * kMiB, kTogether = 4;
// A batch and a half, and one more whenever this thread has not run for those 10 ms. Nearly all that fit are 60 chunks.
constexpr size_t kAFewBatches = 11 * kTogether;

// Under one a copy of a chunk takes as long as the patience.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Most looks find that nothing has ended yet, as over a wire.
class SlowTier final : public ForwardingTier {
 public:
  SlowTier() : ForwardingTier(&fake_) {}
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override {
    writing_ += batch.size();
    most_writing_ = std::max(most_writing_, writing_);
    ForwardingTier::SubmitWrite(batch);
  }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override {
    const size_t n = ForwardingTier::Poll(done, wait);
    for (const IoRequest* io : done.first(n)) writing_ -= io->is_write ? 1 : 0;
    return n;
  }
  size_t most_writing() const { return most_writing_; }

 private:
  FakeTier fake_{{.seed = 5, .capacity_bytes = 128 * kMiB, .delay_steps_max = 64, .empty_poll_rate = 0.95}};
  size_t writing_ = 0, most_writing_ = 0;
};

std::vector<Chunk*> Fill(Engine* engine) {
  std::vector<Chunk*> chunks;
  for (size_t i = 0; i < kChunks; ++i) {
    chunks.push_back(engine->Create(kChunk).value());
    EXPECT_TRUE(engine->Acquire(chunks.back(), true).ok());
  }
  return chunks;
}

void Sweep(Engine* engine, const std::vector<Chunk*>& chunks, int mover_steps) {
  for (Chunk* chunk : chunks) {
    for (int step = 0; step < mover_steps; ++step) engine->MoverStep();
    ASSERT_TRUE(engine->Acquire(chunk, true).ok());
  }
}

// A thread that waited for a frame made another batch leave with each look: half of the memory was on its way, and what was to be read came after it.
TEST(SlowWrites, AThreadThatWaitsMakesNoMoreLeaveThanItNeeds) {
  if (kSanitized) GTEST_SKIP() << "its bound is one of time";
  SlowTier tier;
  NoPins pins;
  Engine engine({.budget = kBudget, .preemptive = false}, &tier, &pins, DefaultPolicy());
  const std::vector<Chunk*> chunks = Fill(&engine);
  for (int sweep = 0; sweep < 2; ++sweep) Sweep(&engine, chunks, 0);
  EXPECT_GE(tier.most_writing(), kTogether / 2);
  EXPECT_LE(tier.most_writing(), kAFewBatches);
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// The thread waited for the write of one chunk after the other, and for each of them while it could have read.
TEST(SlowWrites, ChunksOfWhichFewFitAreWrittenWhileOthersAreRead) {
  SlowTier tier;
  NoPins pins;
  Engine engine({.budget = kBudget, .preemptive = false}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 12; ++i) {
    chunks.push_back(engine.Create(8 * kMiB).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
  }
  Sweep(&engine, chunks, 0);
  EXPECT_GE(tier.most_writing(), 2u);
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// For a write of 1 GiB it was eleven minutes in the end.
TEST(SlowWrites, NoBatchIsWaitedForMuchLongerThanItsLargestWriteMayTake) {
  using std::chrono::milliseconds;
  WritesUnderWay writes;
  WritesUnderWay::Time now{};
  for (int batch = 0; batch < 40; ++batch) {
    const WritesUnderWay::Time begin = now;
    writes.Begin(64 * kMiB, now);
    while (writes.Expected(now, 64 * kMiB) > 0) now += milliseconds(1);
    EXPECT_LE(now - begin, WritesUnderWay::PatienceFor(64 * kMiB) + milliseconds(102));
  }
}

// A server that stands still. What was on its way there counted as coming for as long as it stood.
TEST(SlowWrites, NobodyCountsOnWritesOfWhichNoneEnds) {
  using std::chrono::milliseconds;
  WritesUnderWay writes;
  const WritesUnderWay::Time begin{};
  const auto first = writes.Begin(100, begin);
  EXPECT_EQ(writes.Expected(begin + milliseconds(1), 100), 100u);
  EXPECT_EQ(writes.Expected(begin + milliseconds(2), 100), 0u);
  const auto second = writes.Begin(40, begin + milliseconds(2));
  EXPECT_EQ(writes.Expected(begin + milliseconds(3), 100), 40u);
  EXPECT_EQ(writes.bytes(), 140u);
  writes.End(40, second, begin + milliseconds(3));
  EXPECT_EQ(writes.Expected(begin + milliseconds(3), 100), 0u) << "what is overdue stays so, whoever else moves";
  writes.End(100, first, begin + milliseconds(9));
  EXPECT_EQ(writes.bytes(), 0u);
  EXPECT_EQ(writes.Expected(begin + milliseconds(9), 100), 0u);
}

// A batch more left each millisecond: all of memory was on its way to a server that stood still, before it was known to.
TEST(SlowWrites, WhileNoneEndsEachBatchIsWaitedForTwiceAsLong) {
  using std::chrono::milliseconds;
  WritesUnderWay writes;
  WritesUnderWay::Time now{};
  int batches = 0;
  WritesUnderWay::Spell spell = 0;
  for (int ms = 0; ms < 120; ++ms, now += milliseconds(1)) {
    if (writes.Expected(now, 100) > 0) continue;
    spell = writes.Begin(100, now);
    ++batches;
  }
  EXPECT_GE(batches, 5);
  EXPECT_LE(batches, 7);
  writes.End(100, spell, now);
  const WritesUnderWay::Time end = now;
  writes.Begin(100, now);
  while (writes.Expected(now, 100) > 0) now += milliseconds(1);
  EXPECT_EQ(now - end, milliseconds(2)) << "what ends is a reason to wait no longer than before";
}

// After a pause of the wire each batch was overdue behind what the pause had held up, and the next one was begun behind both.
TEST(SlowWrites, WhatIsBehindOverdueWritesIsExpectedAsLongAsTheseEnd) {
  using std::chrono::milliseconds;
  WritesUnderWay writes;
  const WritesUnderWay::Time begin{};
  std::vector<WritesUnderWay::Spell> held_up;
  for (int i = 0; i < 4; ++i) held_up.push_back(writes.Begin(100, begin));
  EXPECT_EQ(writes.Expected(begin + milliseconds(4), 100), 0u);
  const auto behind = writes.Begin(40, begin + milliseconds(4));
  for (int i = 0; i < 4; ++i) {
    writes.End(100, held_up[static_cast<size_t>(i)], begin + milliseconds(5 + i));
    EXPECT_EQ(writes.Expected(begin + milliseconds(5 + i), 100), 40u) << i;
  }
  writes.End(40, behind, begin + milliseconds(9));
  EXPECT_EQ(writes.bytes(), 0u);
}

// Beside one of 64 MiB a miss of 64 KiB had another one leave each millisecond; then it waited for the large one's end, though chunks that
// needed no write could have left.
TEST(SlowWrites, WhoMissesLittleCountsOnSmallWritesBehindALargeOneAndNotOnThatOne) {
  using std::chrono::milliseconds;
  WritesUnderWay writes;
  const WritesUnderWay::Time begin{};
  const auto large = writes.Begin(64 * kMiB, begin);
  const auto small = writes.Begin(100, begin);
  EXPECT_EQ(writes.Expected(begin + milliseconds(1), 100), 64 * kMiB + 100);
  EXPECT_EQ(writes.Expected(begin + milliseconds(500), 100), 100u);
  EXPECT_EQ(writes.Expected(begin + milliseconds(500), 4 * kMiB), 64 * kMiB + 100) << "not that much larger";
  writes.End(100, small, begin + milliseconds(500));
  EXPECT_EQ(writes.Expected(begin + milliseconds(501), 100), 64 * kMiB) << "news";
  const auto another = writes.Begin(64 * kMiB, begin + milliseconds(502));
  EXPECT_EQ(writes.Expected(begin + milliseconds(510), 100), 128 * kMiB) << "two are enough, and make room for all that miss little";
  writes.End(64 * kMiB, another, begin + milliseconds(550));
  writes.End(64 * kMiB, large, begin + milliseconds(600));
  writes.Begin(100, begin + milliseconds(600));
  EXPECT_EQ(writes.Expected(begin + milliseconds(602), 100), 0u) << "a large one that has ended is nobody's measure";
}

// Sums by size are exact however writes of one size end: some of them expected, some not.
TEST(SlowWrites, TheAccountOfEachSizeIsExact) {
  using std::chrono::milliseconds;
  WritesUnderWay writes;
  const WritesUnderWay::Time begin{};
  const auto overdue = writes.Begin(kMiB, begin), other = writes.Begin(kMiB + 1, begin);
  EXPECT_EQ(writes.Expected(begin + milliseconds(100), kMiB), 0u);
  const auto first = writes.Begin(kMiB, begin + milliseconds(100)), second = writes.Begin(kMiB, begin + milliseconds(100));
  writes.End(kMiB, overdue, begin + milliseconds(101));
  EXPECT_EQ(writes.Expected(begin + milliseconds(101), kMiB), 2 * kMiB);
  writes.End(kMiB, first, begin + milliseconds(102));
  writes.End(kMiB + 1, other, begin + milliseconds(103));
  EXPECT_EQ(writes.Expected(begin + milliseconds(103), kMiB), kMiB);
  writes.End(kMiB, second, begin + milliseconds(104));
  EXPECT_EQ(writes.Expected(begin + milliseconds(104), kMiB), 0u);
  EXPECT_EQ(writes.bytes(), 0u);
}

// What is being written counts as there already.
TEST(SlowWrites, TheMoverHasNoMoreOnItsWayThanItsReserve) {
  if (kSanitized) GTEST_SKIP() << "its bound is one of time";
  SlowTier tier;
  NoPins pins;
  Engine engine({.budget = kBudget}, &tier, &pins, DefaultPolicy());
  const std::vector<Chunk*> chunks = Fill(&engine);
  for (int sweep = 0; sweep < 2; ++sweep) Sweep(&engine, chunks, 8);
  EXPECT_LE(tier.most_writing(), kAFewBatches);
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// Who took note of an end and has had no core since comes after who took note of a later one.
TEST(SlowWrites, NewsThatComesLateIsNotOlderThanWhatIsKnown) {
  WritesUnderWay writes;
  using std::chrono::microseconds;
  const WritesUnderWay::Time begin{std::chrono::seconds(100)};
  const auto first = writes.Begin(65536, begin), second = writes.Begin(65536, begin);
  writes.Begin(65536, begin);
  writes.End(65536, second, begin + microseconds(3000));
  writes.End(65536, first, begin + microseconds(500));
  EXPECT_EQ(writes.Expected(begin + microseconds(3100), 65536), 65536u);
}

}  // namespace
}  // namespace ramspan
