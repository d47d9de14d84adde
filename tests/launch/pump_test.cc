#include "launch/pump.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <string_view>

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

}  // namespace
}  // namespace ramspan
