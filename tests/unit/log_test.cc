#include "common/log.h"

#include <cerrno>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

namespace ramspan {
namespace {

// The level is read once a process, so all of these run at the default one.
class Log : public testing::Test {
 protected:
  Log() { testing::internal::CaptureStderr(); }
  ~Log() override {
    if (!ended_) testing::internal::GetCapturedStderr();
  }
  std::string Written() {
    ended_ = true;
    return testing::internal::GetCapturedStderr();
  }
  bool ended_ = false;
};

TEST_F(Log, WarningsAreOneLineEachAndInfoIsOffByDefault) {
  if (std::getenv("RAMSPAN_LOG") != nullptr) GTEST_SKIP() << "RAMSPAN_LOG is set";
  LogWarning("swap file %d of %s", 3, "x");
  LogInfo("nobody asked");
  EXPECT_EQ(Written(), "ramspan: swap file 3 of x\n");
}

TEST_F(Log, ALongMessageIsCutAndStillEndsItsLine) {
  if (std::getenv("RAMSPAN_LOG") != nullptr) GTEST_SKIP() << "RAMSPAN_LOG is set";
  LogWarning("%s", std::string(5000, 'x').c_str());
  const std::string line = Written();
  EXPECT_GT(line.size(), 1000u);
  EXPECT_LE(line.size(), 1024u);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST_F(Log, ErrnoOutlivesAMessage) {
  errno = ENOSPC;
  LogWarning("full");
  EXPECT_EQ(errno, ENOSPC);
}

TEST_F(Log, LinesOfThreadsDoNotMix) {
  if (std::getenv("RAMSPAN_LOG") != nullptr) GTEST_SKIP() << "RAMSPAN_LOG is set";
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) LogWarning("%s", "0123456789");
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string expected;
  for (int i = 0; i < 400; ++i) expected += "ramspan: 0123456789\n";
  EXPECT_EQ(Written(), expected);
}

}  // namespace
}  // namespace ramspan
