#include "client/transport/wait_judge.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "tests/support/sizes.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{200}, kWarn{10'000}, kGiveUp{60'000};

// The first verdict of its kind for each server, after how many looks.
struct Judged {
  explicit Judged(std::initializer_list<WaitJudge::Look> calls)
      : looks(calls), warned(looks.size(), -1), given_up(looks.size(), -1) {}
  void Tick() {
    ++ticks;
    judge.Observe(looks, kTick);
    for (size_t i = 0; i < looks.size(); ++i) {
      if (judge.VerdictOf(i) == WaitJudge::Verdict::kWarn) warned[i] = warned[i] < 0 ? ticks : -2;
      if (judge.VerdictOf(i) == WaitJudge::Verdict::kGiveUp && given_up[i] < 0) given_up[i] = ticks;
    }
  }
  void Run(int count) {
    while (count-- > 0) Tick();
  }
  WaitJudge judge{kWarn, kGiveUp};
  std::vector<WaitJudge::Look> looks;
  std::vector<int> warned, given_up;
  int ticks = 0;
};

TEST(WaitJudge, ACallThatStaysInsideIsWarnedOfOnceAndThenGivenUp) {
  Judged server{{.entered = 1}};
  server.Run(310);
  EXPECT_NEAR(server.warned[0], 51, 2);
  EXPECT_NEAR(server.given_up[0], 301, 2);
}

TEST(WaitJudge, CallsThatComeAndGoAreNotStuckHoweverManyAreInside) {
  Judged server{{.entered = 3}};
  for (int i = 0; i < 1000; ++i) {
    ++server.looks[0].entered, ++server.looks[0].left;
    server.Tick();
  }
  EXPECT_EQ(server.warned[0], -1);
}

TEST(WaitJudge, ManyBytesMayTakeTheTimeOfASlowWire) {
  Judged server{{.entered = 1, .bytes = 2 * kGiB}};  // 215 s
  server.Run(1200);
  EXPECT_EQ(server.given_up[0], -1);
  server.Run(200);
  EXPECT_GT(server.given_up[0], 1200);
}

// The flush of 2 GiB to server 0 keeps MPI's lock, so a small call to server 1 cannot get in.
TEST(WaitJudge, ALongCallToOneServerDoesNotAgeTheClockOfAnother) {
  Judged servers{{.entered = 1, .bytes = 2 * kGiB}, {.entered = 1, .bytes = 4096}};
  servers.Run(1000);
  EXPECT_EQ(servers.warned[1], -1);
  ++servers.looks[0].left;  // it is through, and only now the other call begins
  servers.looks[0].bytes = 0;
  servers.Run(40);
  EXPECT_EQ(servers.warned[1], -1);
  servers.Run(300);
  EXPECT_GT(servers.given_up[1], 1000) << "it is stuck by itself";
}

TEST(WaitJudge, TwoLongCallsDoNotExcuseEachOtherForEver) {
  Judged servers{{.entered = 1, .bytes = kGiB}, {.entered = 1, .bytes = kGiB}};
  servers.Run(2000);
  EXPECT_GT(servers.given_up[0], 0);
  EXPECT_GT(servers.given_up[1], 0);
}

TEST(WaitJudge, AStoppedServerIsFoundWhileAnotherServesLongCalls) {
  Judged servers{{.entered = 1, .bytes = kGiB}, {.entered = 1, .bytes = 4096}};
  for (int i = 0; i < 400; ++i) {
    ++servers.looks[0].entered, ++servers.looks[0].left;
    servers.Tick();
  }
  EXPECT_GT(servers.given_up[1], 0);
  EXPECT_EQ(servers.given_up[0], -1);
}

}  // namespace
}  // namespace ramspan
