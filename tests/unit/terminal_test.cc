// Questions on a terminal, asked by a child that has one of its own.
#include "common/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace ramspan {
namespace {

int told = -1;  // a pipe: a byte for each run of the handler
extern "C" void Tell(int) { static_cast<void>(!write(told, "x", 1)); }

// As a program has one that uses a timer.
void RunHandlersEvery2Ms() {
  struct sigaction action {};
  action.sa_handler = Tell;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval every{{0, 2000}, {0, 2000}};
  setitimer(ITIMER_REAL, &every, nullptr);
}

// Until the terminal has shown the question's end; false: it has gone before.
bool SeesQuestion(int terminal) {
  std::string text;
  char buffer[256];
  while (text.find("[y/N] ") == std::string::npos) {
    const ssize_t n = read(terminal, buffer, sizeof buffer);
    if (n <= 0) return false;
    text.append(buffer, static_cast<size_t>(n));
  }
  return true;
}

// The first signal was taken for "no", and swap did not grow any more.
TEST(Terminal, ASignalIsNoAnswer) {
  int pipe_ends[2], terminal = -1;
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK), 0);
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(child, 0);
  if (child == 0) {
    told = pipe_ends[1];
    RunHandlersEvery2Ms();
    _exit(AskOnTerminal("May swap grow?") ? 0 : 1);
  }
  close(pipe_ends[1]);
  EXPECT_TRUE(SeesQuestion(terminal));
  char byte = 0;
  while (read(pipe_ends[0], &byte, 1) == 1) {  // from before the question
  }
  // Most of these while it waits for the answer. The end of the pipe is the end of the child, which has not waited.
  bool there = true;
  for (int runs = 0; runs < 20 && there;) {
    pollfd ready{.fd = pipe_ends[0], .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, -1) != 1) continue;
    const ssize_t n = read(pipe_ends[0], &byte, 1);
    there = n != 0;
    runs += n == 1;
  }
  EXPECT_TRUE(there) << "it has taken a signal for an answer";
  EXPECT_EQ(write(terminal, "y\n", 2), 2);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(terminal);
  close(pipe_ends[0]);
}

}  // namespace
}  // namespace ramspan
