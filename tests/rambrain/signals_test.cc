// What SIGUSR1 and SIGUSR2 print, and the log of data movement.
#include <gtest/gtest.h>

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include <rambrain/managedMemory.h>

#include "tests/rambrain/life.h"

namespace {

TEST(Signals, Usr1PrintsAnd2PrintsTheColumnsOfRambrain) {
  const Life life("signal");
  EXPECT_EQ(life.status, 0);
  const auto lines = Split(life.out, '\n');
  ASSERT_EQ(lines.size(), 3u) << life.out;
  for (int i = 0; i < 2; ++i) {
    const auto columns = Split(lines[i], '\t');
    ASSERT_EQ(columns.size(), 11u) << lines[i];
    const auto out = std::stoull(columns[1]);
    EXPECT_GE(out, 20u * 262144) << lines[i];
    EXPECT_GE(std::stoull(columns[0]), out);
    if (i == 0) {
      EXPECT_EQ(columns[2], columns[1]);  // all of it since the start
    } else {
      EXPECT_LE(std::stoull(columns[2]), out / 2);
    }
    EXPECT_LE(std::stoull(columns[7]), 4u << 20);
    EXPECT_LE(std::stod(columns[8]), 1.0);
    EXPECT_GT(std::stoull(columns[9]), 0u);
  }
  const auto columns = Split(lines[2], '\t');
  ASSERT_EQ(columns.size(), 6u) << lines[2];
  EXPECT_GE(std::stoull(columns[1]), 20u * 262144);
  EXPECT_EQ(columns[5], "sane");
}

// The program on a terminal of its own; each question gets `answer`.
std::string OnATerminal(const char* answer) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    setenv("RAMSPAN_MEMORY", "4MiB", 1);
    execl(LIFE_PROGRAM, LIFE_PROGRAM, "ask", nullptr);
    _exit(127);
  }
  std::string text;
  size_t answered = 0;
  char buffer[4096];
  for (ssize_t n; (n = read(terminal, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
    for (size_t at; (at = text.find("[y/N] ", answered)) != std::string::npos; answered = at + 1) {
      EXPECT_GT(write(terminal, answer, std::strlen(answer)), 0);
    }
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << text;
  close(terminal);
  return text;
}

TEST(Policies, InteractiveAsksOnTheTerminal) {
  const std::string yes = OnATerminal("y\n");
  EXPECT_NE(yes.find("extended"), yes.rfind("extended")) << yes;  // twice: files, memory
  EXPECT_EQ(yes.find("full\r"), std::string::npos) << yes;
  const std::string no = OnATerminal("n\n");
  EXPECT_NE(no.find("full\r"), no.rfind("full\r")) << no;
  EXPECT_EQ(no.find("extended\r"), std::string::npos) << no;
}

TEST(Log, ToRambrainsFileEvery100Ms) {
  const Life life("log");
  EXPECT_EQ(life.status, 0);
  EXPECT_EQ(life.out, "");
  const auto lines = Split(life.log, '\n');
  ASSERT_GE(lines.size(), 5u) << life.log;
  EXPECT_EQ(lines[0].find("#Time [ms]"), 0u);
  EXPECT_EQ(Split(lines[0], '\t').size(), 12u);
  long long shortest_ms = 1000;  // a line may be late
  for (size_t i = 2; i + 1 < lines.size(); ++i) shortest_ms = std::min(shortest_ms, std::stoll(lines[i]) - std::stoll(lines[i - 1]));
  EXPECT_LT(shortest_ms, 400) << life.log;
  for (size_t i = 1; i < lines.size(); ++i) EXPECT_EQ(Split(lines[i], '\t').size(), 12u) << lines[i];
  const auto last = Split(lines.back(), '\t');
  EXPECT_GE(std::stoull(last[2]), 20u * 262144);
  EXPECT_GE(std::stoull(last[5]), 20u * 262144);
}

// A handler of the program's ran on the thread of the log when a signal came to the process.
TEST(Log, ItsThreadLeavesSignalsToTheProgram) {
  rambrain::managedMemory::logSwapstats("/dev/null", 100000);
  uint64_t blocked_by_all = ~uint64_t{0};
  int others = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(getpid())) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigBlk:", 0) != 0) continue;
      blocked_by_all &= std::stoull(line.substr(7), nullptr, 16);
      ++others;
    }
  }
  rambrain::managedMemory::logSwapstats(nullptr, 0);
  EXPECT_GE(others, 1);
  for (const int one : {SIGTERM, SIGINT, SIGUSR1, SIGALRM}) EXPECT_NE(blocked_by_all >> (one - 1) & 1, 0u) << one;
}

TEST(Log, ToTheConsoleUntilItIsStopped) {
  const Life life("console");
  EXPECT_EQ(life.status, 0);
  const auto lines = Split(life.out, '\n');
  ASSERT_GE(lines.size(), 4u) << life.out;
  EXPECT_EQ(lines.back(), "quiet");
}

}  // namespace
