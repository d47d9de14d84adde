#include "client/engine/miss_order.h"

#include <gtest/gtest.h>

#include <random>

namespace ramspan {
namespace {

constexpr uint32_t kFirst = MissOrder::kStepsBefore + 1;  // misses before the first that can be in order

TEST(MissOrder, ASweepIsInOrderAfterSomeSteps) {
  MissOrder order;
  for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(order.Note(0, 7 + i), i >= kFirst) << i;
}

// Vectors of which elements were added in turns, each read at the same random places: half of the misses passed for a sweep, and `ramspan report` had no advice.
TEST(MissOrder, SomeNeighboursAtEachRandomPlaceAreNone) {
  MissOrder order;
  std::mt19937 random(1);  // NOLINT: always the same
  int in_order = 0;
  for (int i = 0; i < 10'000; ++i) {
    const auto place = static_cast<uint32_t>(random() % 512 * 5);
    for (uint32_t vector = 0; vector < 5; ++vector) in_order += order.Note(0, place + vector) ? 1 : 0;
  }
  EXPECT_LT(in_order, 50'000 / 20);
}

TEST(MissOrder, BackwardsAndByLargerStepsToo) {
  MissOrder order;
  for (uint32_t i = 0; i < 30; ++i) EXPECT_EQ(order.Note(0, 1000 - 7 * i), i >= kFirst) << i;
}

TEST(MissOrder, EqualStepsThatAreLargeAreJumps) {
  MissOrder order;
  const uint32_t step = MissOrder::kStepMost;
  for (uint32_t i = 0; i < 30; ++i) EXPECT_EQ(order.Note(0, 1000 + step * i), i >= kFirst) << i;
  for (uint32_t i = 0; i < 30; ++i) EXPECT_FALSE(order.Note(1, 1000 + (step + 1) * i)) << i;
}

TEST(MissOrder, SeveralArraysInTurnsAreInOrder) {
  for (uint32_t arrays = 1; arrays <= MissOrder::kTurnsMost; ++arrays) {
    MissOrder order;
    for (uint32_t i = 0; i < 20 * arrays; ++i) {
      const bool in_order = order.Note(0, 1000 * (i % arrays) * (i % arrays) + i / arrays);
      EXPECT_TRUE(in_order || i < kFirst * arrays) << arrays << " arrays, miss " << i;
    }
  }
}

TEST(MissOrder, ThreadsDoNotDisturbEachOther) {
  MissOrder order;
  for (uint32_t i = 0; i < 30; ++i) {
    EXPECT_EQ(order.Note(0, i), i >= kFirst);
    EXPECT_EQ(order.Note(1, 5000 - i), i >= kFirst);
  }
}

TEST(MissOrder, RandomMissesAreHardlyEver) {
  MissOrder order;
  std::mt19937 random(1);  // NOLINT: always the same
  int in_order = 0;
  for (int i = 0; i < 10'000; ++i) in_order += order.Note(0, random() % 512) ? 1 : 0;
  EXPECT_LT(in_order, 10'000 / 20);  // 8 in 512 are expected
}

// Empty places are no misses of chunk 0.
TEST(MissOrder, TheFirstMissesAreNoOrder) {
  MissOrder order;
  EXPECT_FALSE(order.Note(0, 0));
  EXPECT_FALSE(order.Note(0, 0));
}

}  // namespace
}  // namespace ramspan
