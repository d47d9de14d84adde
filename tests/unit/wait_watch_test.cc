#include "client/runtime/wait_watch.h"

#include <gtest/gtest.h>

#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr WaitWatch::Time kBegin{std::chrono::hours(1)};
constexpr WaitWatch::Time kMinute = kBegin + WaitWatch::kPeriod;
constexpr uint64_t kUs = 1'000'000;
int One() { return 1; }
int Two() { return 2; }

TEST(WaitWatch, TellsOnceOfAMinuteInWhichAProgramOnlyWaitedForTheSameData) {
  WaitWatch watch(kBegin);
  EXPECT_FALSE(watch.IsDue(kMinute - std::chrono::milliseconds(1)));
  ASSERT_TRUE(watch.IsDue(kMinute));
  const auto found = watch.Look({30 * kUs, 0, 240 * kMiB, 24 * kMiB}, One, kMinute);
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->seconds, 60);
  EXPECT_DOUBLE_EQ(found->waited, 30);
  EXPECT_EQ(found->bytes_in, 240 * kMiB);
  EXPECT_DOUBLE_EQ(found->times_data, 10);
  EXPECT_FALSE(watch.IsDue(kMinute + 2 * WaitWatch::kPeriod));
}

// A minute of its own, not what was before it.
TEST(WaitWatch, JudgesEachMinuteByItself) {
  WaitWatch watch(kBegin);
  EXPECT_FALSE(watch.Look({29 * kUs, 0, 400 * kMiB, 24 * kMiB}, One, kMinute));
  EXPECT_FALSE(watch.Look({58 * kUs, 0, 900 * kMiB, 24 * kMiB}, One, kMinute + WaitWatch::kPeriod)) << "29 s, as before";
  EXPECT_FALSE(watch.Look({118 * kUs, 0, 1100 * kMiB, 24 * kMiB}, One, kMinute + 2 * WaitWatch::kPeriod)) << "200 MiB";
  EXPECT_TRUE(watch.Look({150 * kUs, 0, 1400 * kMiB, 24 * kMiB}, One, kMinute + 3 * WaitWatch::kPeriod));
}

TEST(WaitWatch, CountsFaultsAndAllThreadsThatCanCompute) {
  const auto found = WaitWatch(kBegin).Look({20 * kUs, 500'000, 8 * kGiB, 24 * kMiB}, One, kMinute);
  ASSERT_TRUE(found) << "10 s of faults";
  EXPECT_DOUBLE_EQ(found->waited, 20) << "what was measured";
  EXPECT_EQ(found->page_faults, 500'000u);
  EXPECT_FALSE(WaitWatch(kBegin).Look({20 * kUs, 450'000, 8 * kGiB, 24 * kMiB}, One, kMinute));
  EXPECT_FALSE(WaitWatch(kBegin).Look({50 * kUs, 0, 8 * kGiB, 24 * kMiB}, Two, kMinute)) << "of 120";
  EXPECT_TRUE(WaitWatch(kBegin).Look({60 * kUs, 0, 8 * kGiB, 24 * kMiB}, Two, kMinute));
}

// What a sweep over large data moves at the speed of a disk is what was asked for.
TEST(WaitWatch, IsSilentWhereDataComesBackSeldom) { EXPECT_FALSE(WaitWatch(kBegin).Look({60 * kUs, 0, 60 * kGiB, 30 * kGiB}, One, kMinute)); }

TEST(WaitWatch, TakesAFirstMinuteWithoutDataForNothing) { EXPECT_FALSE(WaitWatch(kBegin).Look({}, One, kMinute)); }

}  // namespace
}  // namespace ramspan
