#include "launch/start_watch.h"

#include <gtest/gtest.h>

#include <map>

namespace ramspan {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
using Advice = StartWatch::Advice;

// Ten ticks a second while `heard` keepers are there; how often each advice came.
std::map<Advice, int> Wait(StartWatch& watch, int heard, int64_t* now_ns, int seconds) {
  std::map<Advice, int> counts;
  for (int i = 0; i < seconds * 10; ++i) ++counts[watch.OnTick(heard, *now_ns += kSecond / 10)];
  return counts;
}

TEST(StartWatch, AsLongAsRanksAppearNothingIsWrong) {
  StartWatch watch(100, false);
  int64_t now_ns = kSecond;
  for (int heard = 0; heard < 100; ++heard) EXPECT_EQ(Wait(watch, heard, &now_ns, 1)[Advice::kNone], 10);
  EXPECT_EQ(Wait(watch, 100, &now_ns, 1000)[Advice::kNone], 10000);
}

TEST(StartWatch, AJobOfThisHostThatDoesNotStartIsProbedToldAndGivenUp) {
  StartWatch watch(3, false);
  int64_t now_ns = kSecond;
  EXPECT_EQ(Wait(watch, 2, &now_ns, 10)[Advice::kProbe], 4);
  EXPECT_EQ(Wait(watch, 2, &now_ns, 20)[Advice::kTell], 1);
  EXPECT_EQ(Wait(watch, 2, &now_ns, 60)[Advice::kGiveUp], 1);
}

TEST(StartWatch, OtherHostsMayTakeTheirTime) {
  StartWatch watch(3, true);
  int64_t now_ns = kSecond;
  std::map<Advice, int> counts = Wait(watch, 0, &now_ns, 1000);
  EXPECT_EQ(counts[Advice::kTell], 1);
  EXPECT_EQ(counts[Advice::kNone], 9999);
}

TEST(StartWatch, ASuspendedJobIsNotLate) {
  StartWatch watch(3, false);
  int64_t now_ns = kSecond;
  Wait(watch, 0, &now_ns, 1);
  now_ns += 3600 * kSecond;
  EXPECT_EQ(watch.OnTick(0, now_ns), Advice::kNone);
}

}  // namespace
}  // namespace ramspan
