#include "common/log.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <string>
#include <thread>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "common/own_thread.h"

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

// Where two ranks wrote the same line nobody knew whose it was.
TEST(LogDeathTest, NamesTheRankInAJobOfSeveral) {
  if (std::getenv("RAMSPAN_LOG") != nullptr) GTEST_SKIP() << "RAMSPAN_LOG is set";
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the rank is read once a process
  struct Job {
    const char* rank;
    const char* ranks_name;
    const char* ranks;
    const char* line;
  };
  for (const auto& [rank, ranks_name, ranks, line] :
       {Job{"PMI_RANK", "PMI_SIZE", "4", "^ramspan\\[3\\]: full\n$"}, {"PMI_RANK", "PMI_SIZE", "1", "^ramspan: full\n$"},
        {"PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "4", "^ramspan\\[3\\]: full\n$"}, {"PMIX_RANK", "OMPI_COMM_WORLD_SIZE", nullptr, "^ramspan\\[3\\]: full\n$"},
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "4", "^ramspan\\[3\\]: full\n$"},
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr, "^ramspan: full\n$"}}) {
    EXPECT_EXIT(
        {
          for (const char* name : {"PMI_RANK", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}) unsetenv(name);
          setenv(rank, "3", 1);
          if (ranks != nullptr) setenv(ranks_name, ranks, 1);
          LogWarning("full");
          std::_Exit(0);
        },
        testing::ExitedWithCode(0), line)
        << rank << " of " << (ranks != nullptr ? ranks : "nobody knows how many");
  }
}

// A server whose standard error nobody read (a pipe, a terminal after ^S) stood still at the first message, and its clients took it for dead; a client's thread
// that judges servers likewise, and transfers never ended.
TEST(LogDeathTest, NeitherServersNorTheLibrarysThreadsWaitForStandardError) {
  if (std::getenv("RAMSPAN_LOG") != nullptr) GTEST_SKIP() << "RAMSPAN_LOG is set";
  const auto run = [] {
    alarm(60);  // else a mistake would be a hang
    int ends[2];
    if (pipe(ends) != 0) _exit(2);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    const std::string block(4096, '.');
    while (write(ends[1], block.data(), block.size()) > 0) {
    }
    fcntl(ends[1], F_SETFL, 0);
    dup2(ends[1], STDERR_FILENO);
    const auto read_all = [&] {
      std::string text;
      char some[4096];
      for (ssize_t n; (n = read(ends[0], some, sizeof some)) > 0;) text.append(some, static_cast<size_t>(n));
      return text.substr(text.find_last_of('.') + 1);
    };
    StartOwnThread([] {
      LogWarning("one");
      LogWarning("two");
    }).join();
    LogWhatWasKept();
    if (!read_all().empty()) _exit(3);
    const pid_t child = fork();  // wrote them a second time
    if (child == 0) {
      LogWhatWasKept();
      _exit(0);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0 || !read_all().empty()) _exit(7);
    LogWhatWasKept();
    if (read_all() != "ramspan: one\nramspan: two\n") _exit(4);
    while (write(ends[1], block.data(), block.size()) == 4096 && poll(nullptr, 0, 0) == 0) {
      pollfd full{ends[1], POLLOUT, 0};
      if (poll(&full, 1, 0) == 0) break;
    }
    StartOwnThread([] {
      for (int i = 0; i < 1000; ++i) LogWarning("%d of many", i);
    }).join();
    if (!read_all().empty()) _exit(5);
    LogWarning("and on");  // this thread may wait, and does not overtake the others
    const std::string text = read_all();
    const bool in_order = text.rfind("ramspan: 0 of many\nramspan: 1 of many\n", 0) == 0 && text.find("more messages are left out") < text.find("ramspan: and on\n");
    _exit(in_order && text.size() > 3000 && text.size() < 4200 ? 0 : 6);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ramspan
