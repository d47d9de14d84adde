#include "client/runtime/leave_pace.h"

#include <gtest/gtest.h>

namespace ramspan {
namespace {

using std::chrono::milliseconds;
constexpr LeavePace::Time kBegin{std::chrono::hours(1)};

// A last part in which nothing had to leave began the pause anew, and each pass was told of.
TEST(LeavePace, DoublesThePauseAndTellsOnceWhereOnlySomePartsFindNoPlace) {
  LeavePace pace;
  LeavePace::Time now = kBegin;
  int told = 0;
  milliseconds pause = LeavePace::kPauseMin;
  for (int pass = 0; pass < 8; ++pass) {
    ASSERT_TRUE(pace.MayTry(now));
    told += pace.NotePart(/*failed=*/true, /*ends_pass=*/false, now);
    EXPECT_FALSE(pace.MayTry(now + pause - milliseconds(1))) << pass;
    now += pause;
    told += pace.NotePart(/*failed=*/false, /*ends_pass=*/true, now);
    pause = std::min(2 * pause, LeavePace::kPauseMax);
  }
  EXPECT_EQ(told, 1);
}

TEST(LeavePace, BeginsAnewWhenAWholePassHasFoundPlaces) {
  LeavePace pace;
  EXPECT_TRUE(pace.NotePart(true, true, kBegin));
  EXPECT_FALSE(pace.MayTry(kBegin));
  EXPECT_FALSE(pace.NotePart(false, false, kBegin));
  EXPECT_FALSE(pace.NotePart(false, true, kBegin));
  EXPECT_TRUE(pace.MayTry(kBegin));
  EXPECT_TRUE(pace.NotePart(true, true, kBegin)) << "it is news again";
  EXPECT_FALSE(pace.MayTry(kBegin + LeavePace::kPauseMin - milliseconds(1)));
  EXPECT_TRUE(pace.MayTry(kBegin + LeavePace::kPauseMin));
}

// A job that has no other place is asked for some of its leases every 40 s.
TEST(LeavePace, TellsNothingAnewOfAServerThatAsksAgain) {
  LeavePace pace;
  EXPECT_TRUE(pace.NotePart(true, true, kBegin));
  pace.NoteNothingLeaves();
  EXPECT_TRUE(pace.MayTry(kBegin));
  EXPECT_FALSE(pace.NotePart(true, true, kBegin));
}

}  // namespace
}  // namespace ramspan
