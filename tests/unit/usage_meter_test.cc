#include "memserver/usage_meter.h"

#include <gtest/gtest.h>

#include "tests/support/sizes.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class UsageMeterOfAClient : public testing::Test {
 protected:
  // It says that it has written so much in all.
  void Tell(uint64_t mib) { meter_.Note({.written_bytes = mib * kMiB, .read_bytes = 2 * mib * kMiB}, now_); }
  uint64_t MiBPerSecond() const {
    const ServiceUsage usage = meter_.UsageAt(now_);
    EXPECT_EQ(usage.read_per_second, 2 * usage.written_per_second);
    return usage.written_per_second / kMiB;
  }

  UsageMeter meter_;
  UsageMeter::Time now_{};
};

TEST_F(UsageMeterOfAClient, SaysWhatWasMovedOfLate) {
  EXPECT_EQ(MiBPerSecond(), 0u);
  Tell(0);
  for (uint64_t second = 1; second < 5; ++second) {
    now_ += seconds(1);
    Tell(second * 100);
    EXPECT_EQ(MiBPerSecond(), 100u);
  }
  now_ += seconds(2);
  EXPECT_EQ(MiBPerSecond(), 100u);
  now_ += seconds(2);
  EXPECT_EQ(MiBPerSecond(), 0u) << "it says nothing any more";
  EXPECT_EQ(meter_.UsageAt(now_).written_bytes, 400 * kMiB);
}

TEST_F(UsageMeterOfAClient, KnowsNoSpeedOfWhatWasMovedBeforeItCame) {
  now_ += seconds(7);
  Tell(1000);
  EXPECT_EQ(MiBPerSecond(), 0u);
}

// After an hour without a transfer 1000 MiB/s were 284 KiB/s.
TEST_F(UsageMeterOfAClient, DoesNotSpreadWhatWasMovedOverThePauseBefore) {
  Tell(1);
  now_ += std::chrono::hours(1);
  Tell(1001);
  EXPECT_EQ(MiBPerSecond(), 1000u);
}

// A server that was stopped takes what was said meanwhile in one go: 100 MiB/s were 159 TiB/s.
TEST_F(UsageMeterOfAClient, TakesNoSpeedFromWhatComesAtOnce) {
  Tell(0);
  now_ += seconds(1);
  for (const uint64_t held_up : {100, 200, 300, 400}) {
    Tell(held_up);
    EXPECT_EQ(MiBPerSecond(), 100u) << held_up;
    now_ += std::chrono::microseconds(1);
  }
  now_ += milliseconds(999);
  Tell(500);
  EXPECT_NEAR(static_cast<double>(MiBPerSecond()), 100, 1);
}

}  // namespace
}  // namespace ramspan
