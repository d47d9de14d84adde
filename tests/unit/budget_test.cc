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
  };
  for (const auto& [limit, swap] : {Case{2 * kMiB, 4 * kGiB}, Case{64 * kMiB, 128 * kGiB}, Case{kGiB, 4 * kTiB}, Case{64 * kGiB, 16 * kTiB}}) {
    Budget budget(limit);
    uint64_t tables = 0, files = 0;
    for (uint64_t have = 0; have < swap; ++files) {
      const uint64_t frames = budget.frames_limit();  // all in use
      const uint64_t bytes = SwapFileMaker::UsualStep(kSwapGranule, have, 64 * kMiB);
      tables += BuddyAllocator(bytes / kSwapGranule).metadata_bytes();
      budget.SetTierMetadata(tables);
      ASSERT_LE(frames + budget.metadata(), budget.total()) << "a file of " << bytes / kMiB << " MiB, beside " << have / kMiB;
      have += bytes;
    }
    EXPECT_LT(files, 260u);
  }
}

}  // namespace
}  // namespace ramspan
