// The end of a process whose standard error nobody reads.
#include "common/last_words.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace ramspan {
namespace {

void MakeStderrAFullPipe() {
  int ends[2];
  if (pipe(ends) != 0) _exit(9);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  const char block[4096] = {};
  while (write(ends[1], block, sizeof block) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  dup2(ends[1], STDERR_FILENO);
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
        MakeStderrAFullPipe();
        if (StderrTakesALine(milliseconds(0))) _exit(8);
        EndProcessSaying("nobody reads this\n");
      },
      testing::ExitedWithCode(1), "");
}

}  // namespace
}  // namespace ramspan
