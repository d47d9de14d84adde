// What a program's advice does to who leaves and who comes, with each policy.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "client/engine/advised.h"
#include "client/engine/engine.h"
#include "tests/support/fake_tier.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// Nobody pins but for the call.
struct NobodyPins final : PinScanner {
  void Barrier() override {}
  // Who looked at nobody, with the mutex let go, took the mark off that another thread closes chunks: a batch of which all are kept.
  void FindPinned(std::span<Chunk* const> chunks, std::span<bool>) override { EXPECT_FALSE(chunks.empty()); }
  void SetWaiting(Chunk*) override {}
  Verdict JudgeWaiters() override { return Verdict::kDeadlock; }
  uint32_t ThisThread() const override { return 0; }
};

class AdviceTest : public testing::TestWithParam<std::string> {
 protected:
  static constexpr uint64_t kBytes = 64 << 10;
  static constexpr size_t kAll = 400;  // chunks; memory holds some 120

  void SetUp() override {
    for (size_t i = 0; i < kAll; ++i) chunks_.push_back(engine_.Create(kBytes).value());
  }
  void TearDown() override {
    EXPECT_TRUE(engine_.CheckPolicy());
    for (Chunk* chunk : chunks_) engine_.Free(chunk);
    engine_.Drain();
  }
  void Use(size_t first, size_t last, bool write = false) {
    for (size_t i = first; i < last; ++i) {
      const Status status = engine_.Acquire(chunks_[i], write);
      ASSERT_TRUE(status.ok()) << i << ": " << status.ToString();
      engine_.MoverStep();
    }
    engine_.Drain();
  }
  void Advise(size_t first, size_t last, advice what) {
    for (size_t i = first; i < last; ++i) engine_.Advise(chunks_[i], what);
  }
  size_t Resident(size_t first, size_t last) const {
    return static_cast<size_t>(
        std::count_if(chunks_.begin() + static_cast<ptrdiff_t>(first), chunks_.begin() + static_cast<ptrdiff_t>(last), [](const Chunk* c) { return PhaseOf(c) == Phase::kResident; }));
  }

  FakeTier tier_{{.seed = 7, .synchronous = true}};
  NobodyPins pins_;
  Engine engine_{{.budget = 8 * kMiB}, &tier_, &pins_, PolicyNamed(GetParam())};
  std::vector<Chunk*> chunks_;
};

TEST_P(AdviceTest, WhatIsKeptStaysBesideWhatPassesBy) {
  Advise(0, 40, advice::keep);
  Use(0, kAll, true);
  for (int sweep = 0; sweep < 3; ++sweep) {
    Use(40, kAll);
    EXPECT_EQ(Resident(0, 40), 40u) << sweep;
  }
  EXPECT_GT(engine_.counters().kept, 0u);
  EXPECT_EQ(engine_.counters().advised[static_cast<size_t>(advice::keep)], 40u);
  Advise(0, 40, advice::normal);
  const uint64_t kept = engine_.counters().kept;
  for (int sweep = 0; sweep < 3; ++sweep) Use(40, kAll);
  EXPECT_EQ(engine_.counters().kept, kept);
}

TEST_P(AdviceTest, WhatIsKeptLeavesWhereNothingElseCan) {
  Advise(0, kAll, advice::keep);
  Use(0, kAll, true);
  Use(0, kAll);
}

TEST_P(AdviceTest, WhatIsDoneLeavesFirst) {
  Use(0, kAll, true);
  Use(0, 60);
  engine_.SetPreemptive(false, false);
  const size_t before = Resident(0, 60);
  ASSERT_GT(before, 50u) << "then this test shows nothing";
  Advise(20, 40, advice::done);
  size_t used = 0;
  for (size_t i = 60; i < kAll && used < 24; ++i) {
    if (PhaseOf(chunks_[i]) != Phase::kSwapped) continue;
    Use(i, i + 1);
    ++used;
  }
  EXPECT_LT(Resident(20, 40), 10u);
  EXPECT_GE(Resident(0, 20) + Resident(40, 60), before - 20 - 2);
  Use(20, 40);
}

TEST_P(AdviceTest, WhatIsUsedOnceLeavesWhenOthersAreUsed) {
  Use(0, kAll, true);
  engine_.SetPreemptive(false, false);
  Use(0, 60);
  const size_t before = Resident(0, 60);
  Advise(100, kAll, advice::once);
  Use(100, kAll);
  EXPECT_GE(Resident(0, 60) + 4, before);
}

TEST_P(AdviceTest, WhatIsUsedAtRandomIsNotFetchedBecauseOfItsNeighbour) {
  Use(0, kAll, true);
  Advise(0, kAll, advice::random);
  const uint64_t issued = engine_.counters().prefetch_issued;
  for (int sweep = 0; sweep < 3; ++sweep) Use(0, kAll);
  EXPECT_EQ(engine_.counters().prefetch_issued, issued);
  Advise(0, kAll, advice::sequential);
  for (int sweep = 0; sweep < 3; ++sweep) Use(0, kAll);
  if (GetParam() != "second-chance") {  // which fetches nothing ahead
    EXPECT_GT(engine_.counters().prefetch_issued, issued);
  }
}

TEST_P(AdviceTest, WhatWillBeNeededComesWithoutAPull) {
  Use(0, kAll, true);
  size_t first = 0;
  while (first + 20 < kAll && Resident(first, first + 20) > 0) ++first;
  ASSERT_EQ(Resident(first, first + 20), 0u);
  Advise(first, first + 20, advice::will_need);
  for (int i = 0; i < 1000; ++i) engine_.MoverStep();
  engine_.Drain();
  EXPECT_EQ(Resident(first, first + 20), 20u);
  const uint64_t misses = engine_.counters().misses;
  Use(first, first + 20);
  EXPECT_EQ(engine_.counters().misses, misses);
}

// What had no room kept all that was wanted after it waiting.
TEST_P(AdviceTest, WhatFitsComesBesideWhatDoesNot) {
  Use(0, kAll, true);
  Chunk* const large = engine_.Create(7 * kMiB).value();
  ASSERT_TRUE(engine_.Acquire(large, true).ok());
  Use(0, kAll, true);
  ASSERT_EQ(PhaseOf(large), Phase::kSwapped);
  size_t first = 0;
  while (first + 20 < kAll && Resident(first, first + 20) > 0) ++first;
  engine_.Advise(large, advice::will_need);
  Advise(first, first + 20, advice::will_need);
  for (int i = 0; i < 100'000 && Resident(first, first + 20) < 20; ++i) engine_.MoverStep();
  engine_.Drain();
  EXPECT_EQ(Resident(first, first + 20), 20u);
  engine_.Free(large);
}

// More than is remembered, chunks that go meanwhile, and descriptors that become other chunks'.
TEST_P(AdviceTest, WhatWillBeNeededMayBeFreed) {
  Use(0, kAll, true);
  for (int round = 0; round < 8; ++round) Advise(0, kAll, advice::will_need);
  for (size_t i = 0; i < kAll; i += 2) engine_.Free(chunks_[i]);
  for (size_t i = 0; i < kAll; i += 4) chunks_[i] = engine_.Create(kBytes).value();
  for (size_t i = 2; i < kAll; i += 4) chunks_[i] = engine_.Create(2 * kBytes).value();
  for (int i = 0; i < 2000; ++i) engine_.MoverStep();
  Use(0, kAll, true);
}

INSTANTIATE_TEST_SUITE_P(Policies, AdviceTest, testing::ValuesIn(std::vector<std::string>(PolicyNames().begin(), PolicyNames().end())), [](const auto& test) {
  std::string name = test.param;
  std::erase(name, '-');
  return name;
});

TEST(Advised, UsesOfTheSameChunkAreOne) {
  Advised advised;
  for (uint32_t i = 0; i < 16; ++i) EXPECT_EQ(advised.UseOnce(i), Advised::kNone);
  EXPECT_EQ(advised.UseOnce(3), Advised::kNone);
  EXPECT_EQ(advised.UseOnce(16), 0u);
  EXPECT_EQ(advised.UseOnce(17), 1u);
}

TEST(Advised, BlocksOfAnArrayAreOneRange) {
  Advised advised;
  for (uint32_t i = 0; i < 5000; ++i) advised.Want(7 + i, 3);
  ASSERT_EQ(advised.wanted(), 1u);
  EXPECT_EQ(advised.first().chunk, 7u);
  EXPECT_EQ(advised.first().count, 5000u);
  EXPECT_EQ(advised.first().thread, 3u);
}

TEST(Advised, WantsNoMoreThanItHasPlacesFor) {
  Advised advised;
  for (uint32_t i = 0; i < 5000; ++i) advised.Want(2 * i, 0);
  uint32_t wanted = 0;
  for (; advised.wanted() > 0; advised.DropFirst()) EXPECT_EQ(advised.first().chunk, 2 * wanted++);
  EXPECT_EQ(wanted, 1024u);
}

}  // namespace
}  // namespace ramspan
