// The buddy allocator against hand-made cases and, seeded, against a naive map of units.
#include "common/buddy_allocator.h"

#include <algorithm>
#include <bit>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace ramspan {
namespace {

TEST(BuddyAllocator, SingleUnitsFillTheSpaceFromTheBottom) {
  BuddyAllocator buddy(64);
  for (uint64_t i = 0; i < 64; ++i) ASSERT_EQ(buddy.Allocate(1), i);
  EXPECT_EQ(buddy.free_units(), 0u);
  EXPECT_EQ(buddy.largest_free_block(), 0u);
  EXPECT_FALSE(buddy.Allocate(1).has_value());
}

TEST(BuddyAllocator, ARequestIsTrimmedToItsExactUnits) {
  BuddyAllocator buddy(16);
  EXPECT_EQ(buddy.Allocate(5), 0u);
  EXPECT_EQ(buddy.free_units(), 11u);
  EXPECT_EQ(buddy.Allocate(1), 5u);
  EXPECT_EQ(buddy.Allocate(2), 6u);
  EXPECT_EQ(buddy.Allocate(8), 8u);
  EXPECT_EQ(buddy.free_units(), 0u);
  EXPECT_TRUE(buddy.IsValid());
}

TEST(BuddyAllocator, FreedBuddiesMergeIntoTheOriginalBlock) {
  BuddyAllocator buddy(256);
  std::vector<uint64_t> firsts;
  for (int i = 0; i < 256; ++i) firsts.push_back(*buddy.Allocate(1));
  std::shuffle(firsts.begin(), firsts.end(), std::mt19937(7));
  for (uint64_t first : firsts) buddy.Free(first, 1);
  EXPECT_EQ(buddy.largest_free_block(), 256u);
  EXPECT_EQ(buddy.Allocate(256), 0u);
}

TEST(BuddyAllocator, PartOfAnAllocationCanBeGivenBack) {
  BuddyAllocator buddy(32);
  ASSERT_EQ(buddy.Allocate(32), 0u);
  buddy.Free(3, 6);
  EXPECT_EQ(buddy.free_units(), 6u);
  EXPECT_TRUE(buddy.IsValid());
  EXPECT_EQ(buddy.Allocate(4), 4u);
  buddy.Free(0, 3);
  buddy.Free(4, 4);
  buddy.Free(9, 23);
  EXPECT_EQ(buddy.largest_free_block(), 32u);
}

TEST(BuddyAllocator, TheLowestAddressIsTakenEvenWhenASmallerBlockIsFreeAbove) {
  BuddyAllocator buddy(16);
  ASSERT_EQ(buddy.Allocate(16), 0u);
  buddy.Free(0, 8);
  buddy.Free(15, 1);
  EXPECT_EQ(buddy.Allocate(1), 0u);
}

TEST(BuddyAllocator, AnyNumberOfUnitsIsUsedToTheLastOne) {
  for (uint64_t units : {1u, 2u, 3u, 63u, 64u, 65u, 100u, 4095u, 4097u, 65537u}) {
    BuddyAllocator buddy(units);
    EXPECT_TRUE(buddy.IsValid());
    EXPECT_EQ(buddy.free_units(), units);
    EXPECT_EQ(buddy.largest_free_block(), std::bit_floor(units));
    for (uint64_t i = 0; i < units; ++i) ASSERT_EQ(buddy.Allocate(1), i);
    EXPECT_FALSE(buddy.Allocate(1).has_value());
    buddy.Free(0, units);
    EXPECT_TRUE(buddy.IsValid());
    EXPECT_EQ(buddy.largest_free_block(), std::bit_floor(units));
  }
}

TEST(BuddyAllocator, ARequestLargerThanTheLargestBlockGetsNothing) {
  BuddyAllocator buddy(100);
  EXPECT_FALSE(buddy.Allocate(65).has_value());
  EXPECT_FALSE(buddy.Allocate(uint64_t{1} << 50).has_value());
  EXPECT_EQ(buddy.Allocate(64), 0u);
}

TEST(BuddyAllocator, ServesTwoToTheFortyUnitsWithoutTouchingTheirBitmaps) {
  const uint64_t units = uint64_t{1} << 40;
  BuddyAllocator buddy(units);
  EXPECT_EQ(buddy.Allocate(1), 0u);
  EXPECT_EQ(buddy.Allocate(units / 2), units / 2);
  EXPECT_EQ(buddy.Allocate(3), 4u);
  buddy.Free(0, 1);
  buddy.Free(4, 3);
  buddy.Free(units / 2, units / 2);
  EXPECT_EQ(buddy.largest_free_block(), units);
}

TEST(BuddyAllocator, MetadataIsAboutTwoBitsAUnit) {
  const uint64_t units = uint64_t{1} << 26;
  BuddyAllocator buddy(units);
  EXPECT_LE(static_cast<double>(buddy.metadata_bytes()) * 8, 2.1 * static_cast<double>(units));
}

using BuddyAllocatorDeathTest = testing::Test;

TEST(BuddyAllocatorDeathTest, FreeingWhatIsFreeIsABug) {
  BuddyAllocator buddy(64);
  ASSERT_EQ(buddy.Allocate(8), 0u);
  EXPECT_DEATH(buddy.Free(8, 1), "double free");
  EXPECT_DEATH(buddy.Free(4, 8), "double free");
  EXPECT_DEATH(buddy.Free(60, 8), "in 64 units");
  buddy.Free(2, 1);
  EXPECT_DEATH(buddy.Free(0, 8), "double free");
}

// A naive model: one flag a unit.
class Model {
 public:
  explicit Model(uint64_t units) : used_(units, false) {}

  void Take(uint64_t first, uint64_t units) {
    for (uint64_t u = first; u < first + units; ++u) {
      ASSERT_FALSE(used_[u]) << "unit " << u << " given twice";
      used_[u] = true;
    }
  }
  void GiveBack(uint64_t first, uint64_t units) {
    std::fill_n(used_.begin() + static_cast<std::ptrdiff_t>(first), units, false);
  }
  uint64_t free_units() const { return static_cast<uint64_t>(std::count(used_.begin(), used_.end(), false)); }

  // Where the documented rule puts `units`: the lowest aligned free run of the next power of two.
  std::optional<uint64_t> LowestFit(uint64_t units) const {
    const uint64_t block = std::bit_ceil(units);
    for (uint64_t first = 0; first + block <= used_.size(); first += block) {
      const auto begin = used_.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = begin + static_cast<std::ptrdiff_t>(block);
      if (std::find(begin, end, true) == end) return first;
    }
    return std::nullopt;
  }

 private:
  std::vector<bool> used_;
};

void RunAgainstModel(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const uint64_t units = 1 + random() % 700;
  BuddyAllocator buddy(units);
  Model model(units);
  std::vector<std::pair<uint64_t, uint64_t>> held;  // first, units
  for (int step = 0; step < 400; ++step) {
    if (random() % 5 < 3) {
      const uint64_t want = random() % 4 != 0 ? 1 + random() % 16 : 1 + random() % units;
      const std::optional<uint64_t> first = buddy.Allocate(want);
      ASSERT_EQ(first, model.LowestFit(want)) << "for " << want << " units at step " << step;
      if (!first) continue;
      model.Take(*first, want);
      held.emplace_back(*first, want);
    } else if (!held.empty()) {
      auto& chosen = held[random() % held.size()];
      // Often only a part goes back, from the front, so that what is left is an odd range.
      const uint64_t back = random() % 2 == 0 ? chosen.second : 1 + random() % chosen.second;
      buddy.Free(chosen.first, back);
      model.GiveBack(chosen.first, back);
      chosen.first += back;
      chosen.second -= back;
      if (chosen.second == 0) {
        chosen = held.back();
        held.pop_back();
      }
    }
    ASSERT_TRUE(buddy.IsValid()) << "step " << step;
    ASSERT_EQ(buddy.free_units(), model.free_units());
  }
  for (const auto& [first, n] : held) buddy.Free(first, n);
  EXPECT_EQ(buddy.largest_free_block(), std::bit_floor(units));
}

TEST(BuddyAllocator, AgreesWithANaiveModelOnRandomHistories) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    RunAgainstModel(seed);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ramspan
