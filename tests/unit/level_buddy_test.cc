// The allocator that `ramspan bench buddy` compares with must be right, or beating it says nothing.
#include "bench/level_buddy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace ramspan::bench {
namespace {

template <typename Lock>
class LevelBuddyTest : public testing::Test {};
using Locks = testing::Types<MutexLevelLock, SpinLevelLock>;
TYPED_TEST_SUITE(LevelBuddyTest, Locks);

TYPED_TEST(LevelBuddyTest, SingleUnitsFillAllOfItAndMergeAgain) {
  for (const uint32_t units : {1u, 2u, 64u, 100u}) {
    LevelBuddy<TypeParam> buddy(units);
    const uint32_t blocks = buddy.free_blocks();
    std::vector<bool> taken(units);
    for (uint32_t i = 0; i < units; ++i) {
      const auto at = buddy.Allocate(1);
      ASSERT_TRUE(at.has_value());
      ASSERT_LT(*at, units);
      ASSERT_FALSE(taken[*at]);
      taken[*at] = true;
    }
    EXPECT_FALSE(buddy.Allocate(1).has_value());
    for (uint32_t i = 0; i < units; ++i) buddy.Free(i, 1);
    EXPECT_EQ(buddy.free_units(), units);
    EXPECT_EQ(buddy.free_blocks(), blocks);
  }
}

TYPED_TEST(LevelBuddyTest, ARequestTakesThePowerOfTwoAboveIt) {
  LevelBuddy<TypeParam> buddy(16);
  ASSERT_TRUE(buddy.Allocate(5).has_value());
  EXPECT_EQ(buddy.free_units(), 8u);
  EXPECT_FALSE(buddy.Allocate(9).has_value());
  EXPECT_FALSE(buddy.Allocate(17).has_value());
}

TYPED_TEST(LevelBuddyTest, RandomBlocksNeverOverlap) {
  constexpr uint32_t kUnits = 1000;
  LevelBuddy<TypeParam> buddy(kUnits);
  const uint32_t blocks = buddy.free_blocks();
  std::mt19937 random(7);
  std::map<uint32_t, uint32_t> live;  // first, units
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0 && !live.empty()) {
      auto victim = live.lower_bound(random() % kUnits);
      if (victim == live.end()) victim = live.begin();
      buddy.Free(victim->first, victim->second);
      live.erase(victim);
      continue;
    }
    const uint32_t units = 1 + random() % 20;
    const auto at = buddy.Allocate(units);
    if (!at) continue;
    const auto after = live.lower_bound(*at);
    ASSERT_LE(*at + units, after == live.end() ? kUnits : after->first);
    ASSERT_TRUE(after == live.begin() || std::prev(after)->first + std::prev(after)->second <= *at);
    live[*at] = units;
  }
  for (const auto& [first, units] : live) buddy.Free(first, units);
  EXPECT_EQ(buddy.free_units(), kUnits);
  EXPECT_EQ(buddy.free_blocks(), blocks);
}

TYPED_TEST(LevelBuddyTest, ThreadsFillAllOfItTogetherAndNoUnitTwice) {
  constexpr uint32_t kUnits = 4096;
  LevelBuddy<TypeParam> buddy(kUnits);
  std::vector<std::atomic<int>> owners(kUnits);
  for (int round = 0; round < 5; ++round) {
    std::atomic<uint32_t> sum{0};
    std::atomic<int> twice{0}, filling{4};
    const auto body = [&](unsigned seed) {
      std::vector<std::pair<uint32_t, uint32_t>> mine;
      for (uint32_t units = 1; auto at = buddy.Allocate(units); units = round % 2 == 0 ? 1 : 1 << (seed + mine.size()) % 3) {
        for (uint32_t i = 0; i < units; ++i) twice += owners[*at + i].fetch_add(1);
        mine.emplace_back(*at, units);
        sum += units;
      }
      --filling;
      while (filling > 0) std::this_thread::yield();  // all of it was taken at one time
      for (const auto& [first, units] : mine) {
        for (uint32_t i = 0; i < units; ++i) --owners[first + i];
        buddy.Free(first, units);
      }
    };
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) threads.emplace_back(body, t);
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(twice, 0);
    EXPECT_TRUE(round % 2 != 0 || sum == kUnits) << sum;
    EXPECT_EQ(buddy.free_units(), kUnits);
    EXPECT_EQ(buddy.free_blocks(), 1u);
  }
}

// A thread alone waits on each level that is empty when it comes, until a block of the level above is split.
TYPED_TEST(LevelBuddyTest, CountsWhoWaitsForABlockFromAbove) {
  LevelBuddy<TypeParam> buddy(8);
  ASSERT_TRUE(buddy.Allocate(2).has_value());
  EXPECT_EQ(buddy.waiting_max(0), 0);
  EXPECT_EQ(buddy.waiting_max(1), 1);
  EXPECT_EQ(buddy.waiting_max(2), 1);
  EXPECT_EQ(buddy.waiting_max(3), 0);
  buddy.ResetWaiting();
  ASSERT_TRUE(buddy.Allocate(2).has_value());
  EXPECT_EQ(buddy.waiting_max(1), 0);
}

}  // namespace
}  // namespace ramspan::bench
