// What frames leave to metadata that comes without asking.
#include "client/arena/budget.h"

#include <gtest/gtest.h>

#include "client/swap/swap_file_maker.h"
#include "common/buddy_allocator.h"
#include "common/slot_ref.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// The bitmaps of a swap file half as large as all before it, some MiB of a file of 100 GiB, were in memory before any frame had
// left for them.
TEST(Budget, HoldsTheLimitWhileSwapFilesAreMade) {
  struct Case {
    uint64_t limit, swap;
    bool all_held;
  };
  for (const auto& [limit, swap, all_held] : {Case{2 * kMiB, 4 * kGiB, false}, Case{64 * kMiB, 128 * kGiB, false}, Case{kGiB, 4 * kTiB, false},
                                              Case{64 * kGiB, 16 * kTiB, false}, Case{2 * kMiB, 4 * kGiB, true}, Case{64 * kGiB, 16 * kTiB, true}}) {
    Budget budget(limit);
    uint64_t tables = 0, files = 0;
    for (uint64_t have = 0; have < swap && budget.TiersMayGrow(); ++files) {
      const uint64_t frames = budget.frames_limit();  // all in use
      if (all_held) budget.Hold(frames);
      const uint64_t bytes = SwapFileMaker::UsualStep(kSwapGranule, have, 64 * kMiB);
      tables += BuddyAllocator(bytes / kSwapGranule).metadata_bytes();
      budget.SetTierMetadata(tables);
      ASSERT_LE(frames + budget.metadata(), budget.total()) << "a file of " << bytes / kMiB << " MiB, beside " << have / kMiB;
      have += bytes;
    }
    EXPECT_LT(files, 260u);
  }
}

// 64 KiB went from frames at once when tables had grown by so much, more than was free beside chunks without slots: with swap full the
// largest object could not be read any more.
TEST(Budget, RowsOfSlotsTakeNothingOfWhatIsHeld) {
  for (const auto use : {Budget::SlotFor::kOther, Budget::SlotFor::kExchange}) {
    Budget budget(2 * kMiB);
    const uint64_t held = budget.frames_limit() - 20'000;
    uint64_t tables = 0;
    for (; budget.TiersMayTake(130, use); tables += 130) {
      budget.SetTierMetadata(tables);
      budget.Hold(held);
      ASSERT_GE(budget.frames_limit(), held) << tables;
      ASSERT_LE(budget.frames_limit() + budget.metadata(), budget.total()) << tables;
    }
    EXPECT_GT(tables, 40'000u);
    EXPECT_TRUE(budget.TiersMayTake(130, Budget::SlotFor::kSlotless));
    EXPECT_EQ(budget.TiersMayTake(130, Budget::SlotFor::kExchange), use == Budget::SlotFor::kOther);
  }
}

// More than ever was there is not held: it was never promised.
TEST(Budget, HoldsNoMoreThanFramesHad) {
  Budget budget(2 * kMiB);
  const uint64_t had = budget.frames_limit();
  budget.Hold(2 * had);
  EXPECT_EQ(budget.frames_limit(), had);
  budget.SetTierMetadata(30'000);
  EXPECT_EQ(budget.frames_limit(), had);
  budget.Hold(had / 2);
  EXPECT_EQ(budget.frames_limit(), had - 30'000);
}

}  // namespace
}  // namespace ramspan
