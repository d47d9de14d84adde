// The end of a process whose standard error nobody reads.
#include "common/last_words.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <thread>

namespace ramspan {
namespace {

void MakeAFullPipe(int number) {
  int ends[2];
  if (pipe(ends) != 0) _exit(9);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  const char block[4096] = {};
  while (write(ends[1], block, sizeof block) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  dup2(ends[1], number);
}

using std::chrono::milliseconds;

TEST(LastWordsDeathTest, AreSaidWhereSomebodyReads) {
  EXPECT_TRUE(StderrTakesALine(milliseconds(0)));
  EXPECT_EXIT(EndProcessSaying("the end\n"), testing::ExitedWithCode(1), "the end");
}

// The watchdog of servers wrote its warning, and then its last message, into the pipe and stood there for ever.
TEST(LastWordsDeathTest, DoNotKeepAProcessWhoseStandardErrorIsFull) {
  EXPECT_EXIT(
      {
        MakeAFullPipe(STDERR_FILENO);
        if (StderrTakesALine(milliseconds(0))) _exit(8);
        EndProcessSaying("nobody reads this\n");
      },
      testing::ExitedWithCode(1), "");
}

// A plain fflush on the calling thread would wait for both for ever.
TEST(LastWordsDeathTest, DoNotWaitForAThreadThatHoldsAStream) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer flushes all streams by itself when a process ends";
#endif
  EXPECT_EXIT(
      {
        std::promise<void> held;
        std::thread([&held] {
          flockfile(stdout);
          held.set_value();
          for (;;) pause();
        }).detach();
        held.get_future().wait();
        EndProcessSaying("the end\n");
      },
      testing::ExitedWithCode(1), "the end");
}

TEST(LastWordsDeathTest, DoNotWaitForAStandardOutputThatNobodyReads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer flushes all streams by itself when a process ends";
#endif
  EXPECT_EXIT(
      {
        MakeAFullPipe(STDOUT_FILENO);
        std::fputs("nobody reads this", stdout);
        EndProcessSaying("the end\n");
      },
      testing::ExitedWithCode(1), "the end");
}

// What the program has printed before is worth the second that they wait.
TEST(LastWordsDeathTest, FollowWhatTheProgramHasPrinted) {
  EXPECT_EXIT(
      {
        dup2(STDERR_FILENO, STDOUT_FILENO);
        std::fputs("a result", stdout);
        EndProcessSaying("the end\n");
      },
      testing::ExitedWithCode(1), "a result");
}

}  // namespace
}  // namespace ramspan
