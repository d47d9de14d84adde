#include "launch/pump.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "launch/process.h"

namespace ramspan {
namespace {

// What comes out of a pump whose program writes `pieces`, one after the other, and then pauses.
class PumpTest : public testing::Test {
 protected:
  void Write(std::string_view piece) {
    ASSERT_EQ(write(from_.write_end.get(), piece.data(), piece.size()), static_cast<ssize_t>(piece.size()));
    while (loop_.RunOnce(0) > 0) {
    }
  }
  std::string Out() {
    char bytes[4096];
    const ssize_t n = read(to_.read_end.get(), bytes, sizeof bytes);
    return std::string(bytes, n > 0 ? static_cast<size_t>(n) : 0);
  }

  EventLoop loop_;
  Pipe from_ = MakePipe(), to_ = MakePipe();
  OutputFilter filter_{OutputFilter::Kind::kBanner};
  Pump pump_{loop_, from_.read_end.get(), to_.write_end.get(), &filter_, [](bool) {}};
};

// It came when the stream had paused, and stood behind the line that the program had written to stderr meanwhile.
TEST_F(PumpTest, ALineComesOutWithItsEnd) {
  Write("out\n");
  EXPECT_EQ(Out(), "out\n");
  EXPECT_FALSE(filter_.has_pending());
}

TEST_F(PumpTest, ABannerIsTakenOutBehindALine) {
  Write("out\n");
  Write("\n" + std::string(83, '=') + "\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 5259 RUNNING AT vm\n");
  EXPECT_EQ(Out(), "out\n");
  EXPECT_FALSE(filter_.taken().empty());
}

// The disk behind `> out.log` was full for a moment, and a job of hours ended by SIGPIPE without a word.
TEST(Pump, WhatCannotBeWrittenIsLostAndTheStreamGoesOn) {
  EventLoop loop;
  Pipe from = MakePipe();
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  int broken = -1;
  std::vector<int> losses;
  Pump pump(loop, from.read_end.get(), full.get(), nullptr, [&](bool is_broken) { broken = is_broken; }, [&](int error) { losses.push_back(error); });
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(write(from.write_end.get(), "line\n", 5), 5);
    while (loop.RunOnce(0) > 0) {
    }
  }
  EXPECT_EQ(losses, std::vector<int>{ENOSPC}) << "once";
  EXPECT_EQ(pump.lost_bytes(), 10u);
  EXPECT_EQ(broken, -1);
  from.write_end.Reset();
  while (!pump.is_done()) loop.RunOnce(10);
  EXPECT_EQ(broken, 0);
}

}  // namespace
}  // namespace ramspan
