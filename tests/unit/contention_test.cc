#include "common/contention.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ramspan {
namespace {

using std::chrono::milliseconds;

class ContentionTest : public testing::Test {
 protected:
  // Looks after so long, with so many more losses than at the last look.
  bool Look(milliseconds later, uint64_t more_losses) {
    now_ += later;
    losses_ += more_losses;
    return contention_.Look(now_, [this] { return losses_; });
  }

 private:
  Contention contention_;
  Contention::Clock::time_point now_{std::chrono::hours(1)};
  uint64_t losses_ = 1000;  // of what the thread did before
};

TEST_F(ContentionTest, IsFoundWhereEachSliceIsLost) {
  EXPECT_FALSE(Look(milliseconds(0), 0));
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(Look(milliseconds(4), 1)) << "the window is open";
  EXPECT_TRUE(Look(milliseconds(4), 1));
}

TEST_F(ContentionTest, NowAndThenALossIsNone) {
  Look(milliseconds(0), 0);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(Look(milliseconds(21), 1)) << i;
}

TEST_F(ContentionTest, ManyLossesInALongTimeAreNone) {
  Look(milliseconds(0), 0);
  EXPECT_FALSE(Look(milliseconds(10'000), 100));
  EXPECT_TRUE(Look(milliseconds(10'000), 2500)) << "the thread has computed on a busy core";
}

TEST_F(ContentionTest, IsRememberedWhileTheThreadSleepsAndThenLookedForAgain) {
  Look(milliseconds(0), 0);
  EXPECT_TRUE(Look(milliseconds(20), 5));
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(Look(milliseconds(20), 0)) << i;
  EXPECT_FALSE(Look(milliseconds(40), 0));
  EXPECT_TRUE(Look(milliseconds(20), 5));
}

}  // namespace
}  // namespace ramspan
