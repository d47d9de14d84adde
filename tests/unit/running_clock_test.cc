#include "common/running_clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace ramspan {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

RunningClock::duration outside;
RunningClock::duration Outside() { return outside; }

TEST(RunningClock, RunsAsTheOtherClockWhileItIsLookedAt) {
  outside = seconds(100);
  RunningClock clock(Outside);
  const RunningClock::time_point begin = clock.Now();
  for (int i = 0; i < 100; ++i) {
    outside += milliseconds(37);
    clock.Now();
  }
  EXPECT_EQ(clock.Now() - begin, milliseconds(3700));
}

// 5 of 6 jobs that were suspended for 66 s ended themselves when they went on.
TEST(RunningClock, ASuspensionCostsADeadlineOneStep) {
  outside = seconds(100);
  RunningClock clock(Outside);
  const RunningClock::time_point deadline = clock.Now() + seconds(60);
  outside += seconds(3600);
  EXPECT_EQ(clock.Now() + seconds(60) - deadline, RunningClock::kStepMax);
  outside += milliseconds(10);
  EXPECT_EQ(clock.Now() + seconds(60) - deadline, RunningClock::kStepMax + milliseconds(10));
}

TEST(RunningClock, NeverGoesBack) {
  outside = seconds(100);
  RunningClock clock(Outside);
  const RunningClock::time_point begin = clock.Now();
  outside -= seconds(1);
  EXPECT_EQ(clock.Now(), begin);
  outside += milliseconds(5);
  EXPECT_EQ(clock.Now(), begin + milliseconds(5));
}

TEST(RunningClock, AllThreadsSeeOneClockOfTheProcess) {
  const RunningClock::time_point here = RunningClock::ProcessNow();
  RunningClock::time_point there;
  std::thread([&] { there = RunningClock::ProcessNow(); }).join();
  EXPECT_GE(there, here);
  EXPECT_GE(RunningClock::ProcessNow(), there);
}

}  // namespace
}  // namespace ramspan
