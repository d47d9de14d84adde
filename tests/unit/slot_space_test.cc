// Slots cut from regions: hand-made cases and, seeded, random histories against a map of granules.
#include "client/swap/slot_space.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr uint64_t kG = kSwapGranule;

std::vector<Extent> ExtentsOf(const SlotSpace& space, SlotRef slot, size_t bytes) {
  std::vector<Extent> extents;
  space.Resolve(slot, bytes, &extents);
  return extents;
}

TEST(SlotSpace, AChunkTakesExactlyItsGranules) {
  SlotSpace space;
  space.AddRegion(16 * kG);
  const SlotRef slot = space.Reserve(5 * kG - 1);
  ASSERT_TRUE(slot);
  EXPECT_EQ(space.used_bytes(), 5 * kG);
  EXPECT_EQ(space.free_bytes(), 11 * kG);
  const auto extents = ExtentsOf(space, slot, 5 * kG - 1);
  ASSERT_EQ(extents.size(), 1u);
  EXPECT_EQ(extents[0].bytes, 5 * kG - 1);
  space.Free(slot, 5 * kG - 1);
  EXPECT_EQ(space.used_bytes(), 0u);
}

// Each slot of several extents rehashed the table of them around some sizes: 1.4 ms, with the engine's mutex held.
TEST(SlotSpace, SlotsOfSeveralExtentsRehashTheirTableSeldom) {
  constexpr size_t kRows = 3000;
  SlotSpace space;
  space.AddRegion(4 * kRows * kG);
  std::vector<SlotRef> single;
  while (const SlotRef slot = space.Reserve(kG)) single.push_back(slot);
  for (size_t i = 0; i < single.size(); i += 2) space.Free(single[i], kG);  // no two free granules are neighbours
  std::vector<SlotRef> rows;
  size_t buckets = space.row_buckets(), rehashed = 0;
  const auto look = [&] {
    rehashed += space.row_buckets() != buckets;
    buckets = space.row_buckets();
  };
  for (size_t i = 0; i < kRows; ++i) {
    rows.push_back(space.Reserve(2 * kG));
    ASSERT_TRUE(rows.back());
    look();
    if (i % 5 != 4) continue;  // five there, three gone
    for (int gone = 0; gone < 3; ++gone) {
      space.Free(rows.back(), 2 * kG);
      rows.pop_back();
      look();
    }
  }
  EXPECT_GE(rehashed, 5u);
  EXPECT_LE(rehashed, 20u);
}

// The table of rows took 84 KiB more in one step, where the budget keeps 64 KiB for it: an object that had fitted did not any more.
TEST(SlotSpace, NoSlotOfSeveralExtentsIsALargeStep) {
  constexpr size_t kRows = 30'000;
  SlotSpace space;
  space.AddRegion(4 * kRows * kG);
  std::vector<SlotRef> single;
  while (const SlotRef slot = space.Reserve(kG)) single.push_back(slot);
  for (size_t i = 0; i < single.size(); i += 2) space.Free(single[i], kG);  // no two free granules are neighbours
  uint64_t before = space.metadata_bytes(), most = 0;
  for (size_t i = 0; i < kRows; ++i) {
    ASSERT_TRUE(space.Reserve(2 * kG));
    most = std::max(most, space.metadata_bytes() - before);
    before = space.metadata_bytes();
  }
  EXPECT_LT(most, 4096u);
}

// 24 bytes a granule, and it counted as metadata: memory for frames that nobody had.
TEST(SlotSpace, WhatIsMadeForTheWorstCaseGoesWhereItIsNotNeeded) {
  constexpr uint64_t kBytes = uint64_t{1} << 30;
  SlotSpace space;
  space.AddRegion(2 * kBytes);
  const uint64_t before = space.metadata_bytes();
  space.PrepareRow(kBytes);
  const SlotRef slot = space.Reserve(kBytes);
  ASSERT_TRUE(slot);
  EXPECT_LT(space.metadata_bytes(), before + 4096);
  space.Free(slot, kBytes);
}

TEST(SlotSpace, WithoutRegionsThereIsNoSlot) {
  SlotSpace space;
  EXPECT_FALSE(space.Reserve(1));
  EXPECT_EQ(space.capacity_bytes(), 0u);
}

TEST(SlotSpace, AChunkLargerThanARegionGetsSeveralExtents) {
  SlotSpace space;
  for (int i = 0; i < 3; ++i) space.AddRegion(4 * kG);
  const size_t bytes = 10 * kG + 17;
  const SlotRef slot = space.Reserve(bytes);
  ASSERT_TRUE(slot);
  uint64_t sum = 0;
  std::set<uint32_t> regions;
  for (const Extent& e : ExtentsOf(space, slot, bytes)) {
    sum += e.bytes;
    regions.insert(e.region);
  }
  EXPECT_EQ(sum, bytes);
  EXPECT_EQ(regions.size(), 3u);
  EXPECT_TRUE(space.IsValid());
  space.Free(slot, bytes);
  EXPECT_EQ(space.free_bytes(), 12 * kG);
}

TEST(SlotSpace, AFragmentedRegionServesALargeChunkFromItsHoles) {
  SlotSpace space;
  space.AddRegion(8 * kG);
  std::vector<SlotRef> slots;
  for (int i = 0; i < 8; ++i) slots.push_back(space.Reserve(kG));
  for (size_t i : {0u, 2u, 5u, 6u}) space.Free(slots[i], kG);
  const SlotRef slot = space.Reserve(4 * kG);
  ASSERT_TRUE(slot);
  EXPECT_EQ(ExtentsOf(space, slot, 4 * kG).size(), 3u) << "granules 5 and 6 are neighbours";
  EXPECT_FALSE(space.Reserve(1));
}

TEST(SlotSpace, NeighbouringBlocksBecomeOneExtent) {
  SlotSpace space;
  space.AddRegion(7 * kG);  // 4 + 2 + 1: no block holds 6 granules
  const SlotRef slot = space.Reserve(6 * kG);
  ASSERT_TRUE(slot);
  EXPECT_EQ(ExtentsOf(space, slot, 6 * kG).size(), 1u);
  space.Free(slot, 6 * kG);
  EXPECT_TRUE(space.IsValid());
}

TEST(SlotSpace, AClosedRegionGivesNoSlotsButTakesThemBack) {
  SlotSpace space;
  const uint32_t region = space.AddRegion(4 * kG).value();
  const SlotRef slot = space.Reserve(kG);
  space.CloseRegion(region);
  EXPECT_FALSE(space.Reserve(kG));
  EXPECT_EQ(space.RegionFree(region), 0u);
  EXPECT_EQ(space.capacity_bytes(), kG) << "what is used is never more than the capacity";
  EXPECT_EQ(space.RegionUsed(region), kG);
  EXPECT_EQ(ExtentsOf(space, slot, kG).size(), 1u);
  space.Free(slot, kG);
  EXPECT_EQ(space.capacity_bytes(), 0u);
  space.RemoveRegion(region);
  EXPECT_EQ(space.AddRegion(2 * kG), region) << "indices are reused";
}

// A server that lent scraps ended the program with its 65536th lease.
TEST(SlotSpace, ARegionThatNoSlotCouldNameIsNotAdded) {
  SlotSpace space(/*regions_max=*/3);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(space.AddRegion(kG), i);
  EXPECT_FALSE(space.MayAddRegion());
  EXPECT_FALSE(space.AddRegion(kG).has_value());
  EXPECT_EQ(space.capacity_bytes(), 3 * kG);
  space.RemoveRegion(1);
  EXPECT_EQ(space.AddRegion(kG), 1u);
  EXPECT_TRUE(space.IsValid());
}

TEST(SlotSpace, TellsHowManySlotsHaveToGoForAnotherOne) {
  SlotSpace space;
  space.AddRegion(4 * kG);
  space.AddRegion(4 * kG);
  std::vector<HeldSlot> given;
  for (int i = 0; i < 7; ++i) given.push_back({space.Reserve(kG), kG});
  EXPECT_EQ(space.NeededOf(given, kG), 0u) << "one granule is free";
  EXPECT_EQ(space.NeededOf(given, 3 * kG - 5), 2u);
  EXPECT_EQ(space.NeededOf(given, 8 * kG), 7u);
  EXPECT_EQ(space.NeededOf(given, 8 * kG + 1), std::nullopt);
  EXPECT_EQ(space.NeededOf({}, 2 * kG), std::nullopt);
  space.CloseRegion(1);  // with the free granule, and three of the slots, which give no room any more
  EXPECT_EQ(space.NeededOf(given, kG), 1u);
  EXPECT_EQ(space.NeededOf(given, 4 * kG), 4u);
  EXPECT_EQ(space.NeededOf(given, 5 * kG), std::nullopt);
  for (const HeldSlot& one : given) space.Free(one.slot, one.bytes);
}

// Full regions are passed over without a look; what opens again, or has room again, is not.
TEST(SlotSpace, ARegionThatOpensAgainGivesSlots) {
  SlotSpace space;
  ASSERT_EQ(space.AddRegion(kMiB), 0u);
  ASSERT_EQ(space.AddRegion(kMiB), 1u);
  space.CloseRegion(0);
  ASSERT_TRUE(space.Reserve(kMiB));  // of the other one
  space.OpenRegion(0);
  EXPECT_TRUE(space.IsValid());
  const SlotRef slot = space.Reserve(kMiB, 1);
  ASSERT_TRUE(slot);
  EXPECT_FALSE(space.Reserve(4 * kKiB, 1));
  space.Free(slot, kMiB);
  EXPECT_TRUE(space.Reserve(4 * kKiB, 1));
  EXPECT_TRUE(space.IsValid());
}

TEST(SlotSpace, ThePreferredRegionIsTriedFirst) {
  SlotSpace space;
  space.AddRegion(4 * kG);
  const uint32_t second = space.AddRegion(4 * kG).value();
  EXPECT_EQ(ExtentsOf(space, space.Reserve(kG, second), kG)[0].region, second);
  EXPECT_EQ(ExtentsOf(space, space.Reserve(kG), kG)[0].region, 0u);
}

using SlotSpaceDeathTest = testing::Test;

TEST(SlotSpaceDeathTest, MisuseOfSlotsIsABug) {
  SlotSpace space;
  space.AddRegion(4 * kG);
  const SlotRef slot = space.Reserve(2 * kG);
  EXPECT_DEATH(space.RemoveRegion(0), "in use");
  EXPECT_DEATH(space.RemoveRegion(9), "no swap region 9");
  space.Free(slot, 2 * kG);
  EXPECT_DEATH(space.Free(slot, 2 * kG), "double free");
  EXPECT_DEATH(space.Free(slot_bits::WithTier(slot, 0), 2 * kG), "not of this tier");
}

// A random history beside a set of the granules in use.
class History {
 public:
  explicit History(uint64_t seed) : random_(seed) {}

  void Run() {
    for (int step = 0; step < 500; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      Step();
      ASSERT_TRUE(space_.IsValid());
      ASSERT_EQ(space_.used_bytes(), used_.size() * kG);
      ASSERT_EQ(space_.free_bytes(), FreeBytes());
      if (testing::Test::HasFatalFailure()) return;
    }
    while (!slots_.empty()) FreeOne();
    EXPECT_EQ(space_.used_bytes(), 0u);
  }

 private:
  struct RegionModel {
    uint64_t granules;
    bool closed;
  };

  uint64_t FreeBytes() const {
    uint64_t free = 0;
    for (const auto& region : regions_) {
      if (region.second.closed) continue;
      const auto in_region = [&](const auto& granule) { return granule.first == region.first; };
      free += region.second.granules - static_cast<uint64_t>(std::count_if(used_.begin(), used_.end(), in_region));
    }
    return free * kG;
  }

  void Step() {
    const uint64_t dice = random_() % 100;
    if (dice < 4 && regions_.size() < 6) {
      const uint64_t granules = 1 + random_() % 200;
      const uint32_t index = space_.AddRegion(granules * kG).value();
      ASSERT_TRUE(regions_.emplace(index, RegionModel{granules, false}).second);
    } else if (dice < 5 && !regions_.empty()) {
      auto region = std::next(regions_.begin(), static_cast<std::ptrdiff_t>(random_() % regions_.size()));
      space_.CloseRegion(region->first);
      region->second.closed = true;
    } else if (dice < 60) {
      ReserveOne();
    } else if (!slots_.empty()) {
      FreeOne();
    }
    RemoveDrained();
  }

  void ReserveOne() {
    const size_t bytes = random_() % 8 == 0 ? 1 + random_() % (300 * kG) : 1 + random_() % (9 * kG);
    const bool fits = FreeBytes() >= RoundUpToGranule(bytes);
    const SlotRef slot = space_.Reserve(bytes, static_cast<uint32_t>(random_() % 4));
    ASSERT_EQ(static_cast<bool>(slot), fits) << bytes;
    if (!slot) return;
    uint64_t sum = 0;
    for (const Extent& e : ExtentsOf(space_, slot, bytes)) {
      ASSERT_FALSE(regions_.at(e.region).closed);
      for (uint64_t at = 0; at < e.bytes; at += kG) {
        ASSERT_TRUE(used_.emplace(e.region, (e.offset + at) / kG).second) << "granule given twice";
      }
      sum += e.bytes;
    }
    ASSERT_EQ(sum, bytes);
    slots_.emplace_back(slot, bytes);
  }

  void FreeOne() {
    auto& chosen = slots_[random_() % slots_.size()];
    for (const Extent& e : ExtentsOf(space_, chosen.first, chosen.second)) {
      for (uint64_t at = 0; at < e.bytes; at += kG) used_.erase({e.region, (e.offset + at) / kG});
    }
    space_.Free(chosen.first, chosen.second);
    chosen = slots_.back();
    slots_.pop_back();
  }

  void RemoveDrained() {
    for (auto region = regions_.begin(); region != regions_.end();) {
      const bool drained = region->second.closed && space_.RegionUsed(region->first) == 0;
      if (drained) space_.RemoveRegion(region->first);
      region = drained ? regions_.erase(region) : std::next(region);
    }
  }

  std::mt19937_64 random_;
  SlotSpace space_;
  std::map<uint32_t, RegionModel> regions_;
  std::set<std::pair<uint32_t, uint64_t>> used_;  // region, granule
  std::vector<std::pair<SlotRef, size_t>> slots_;
};

TEST(SlotSpace, AgreesWithANaiveModelOnRandomHistories) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    History(seed).Run();
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ramspan
