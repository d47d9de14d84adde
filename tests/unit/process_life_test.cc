#include "common/process_life.h"
#include "tests/support/send_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ramspan {
namespace {

TEST(ProcessLife, StoppedRunningAndEndedAreToldApart) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  EXPECT_EQ(LifeOfProcess(child), ProcessLife::kRuns);
  SendSignal(child, SIGSTOP);
  waitpid(child, nullptr, WUNTRACED);
  EXPECT_EQ(LifeOfProcess(child), ProcessLife::kStopped);
  SendSignal(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);  // not reaped: a zombie
  EXPECT_EQ(SendSignal(child, 0), 0) << "which is what was asked before";
  EXPECT_EQ(LifeOfProcess(child), ProcessLife::kGone);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(LifeOfProcess(child), ProcessLife::kGone);
  EXPECT_EQ(LifeOfProcess(getpid()), ProcessLife::kRuns);
}

// A memory server in another container of the same host: its number is nobody's or another process's here, and it was
// taken for dead.
TEST(ProcessLife, OfAProcessThatCannotBeSeenFromHereIsUnknown) {
  EXPECT_EQ(LifeOfProcess(0), ProcessLife::kUnknown);
  struct stat mine {};
  ASSERT_EQ(stat("/proc/self/ns/pid", &mine), 0);
  EXPECT_EQ(PidNamespace(), mine.st_ino);
}

}  // namespace
}  // namespace ramspan
