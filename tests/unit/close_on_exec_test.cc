// Descriptors of other libraries, made as libfabric makes them.
#include "common/close_on_exec.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

namespace ramspan {
namespace {

bool ClosesOnExec(int number) { return (fcntl(number, F_GETFD) & FD_CLOEXEC) != 0; }

// A set that waits for another set, which waits for one end of a pair.
class Library {
 public:
  Library() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    Add(inner, pair[0]);
    Add(outer, inner);
  }
  ~Library() {
    for (const int one : {outer, inner, pair[0], pair[1]}) close(one);
  }
  static void Add(int set, int number) {
    epoll_event event{.events = EPOLLIN, .data = {}};
    EXPECT_EQ(epoll_ctl(set, EPOLL_CTL_ADD, number, &event), 0);
  }
  int outer = epoll_create1(0), inner = epoll_create1(0), pair[2];
};

bool KernelTellsPeers() {
  const int kernel = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (kernel >= 0) close(kernel);
  return kernel >= 0;
}

TEST(CloseOnExec, FindsWhatASetWaitsForAndNothingElse) {
  const Library library, other;
  int program[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, program), 0);
  CloseOnExec(library.outer);
  EXPECT_TRUE(ClosesOnExec(library.outer));
  EXPECT_TRUE(ClosesOnExec(library.inner));
  EXPECT_TRUE(ClosesOnExec(library.pair[0]));
  for (const int one : {other.outer, other.inner, other.pair[0], other.pair[1], program[0], program[1], 0, 1, 2}) {
    EXPECT_FALSE(ClosesOnExec(one)) << one;
  }
  for (const int one : program) close(one);
}

TEST(CloseOnExec, FindsTheOtherEndOfAPair) {
  if (!KernelTellsPeers()) GTEST_SKIP() << "this kernel does not tell the other ends of sockets (unix_diag)";
  const Library library;
  CloseOnExec(library.outer);
  EXPECT_TRUE(ClosesOnExec(library.pair[1]));
}

// A file that a child of the program still has stays in the set when the library has closed it, under a number that is the program's by then.
TEST(CloseOnExec, LeavesAloneWhatHasANumberThatTheLibraryHadBefore) {
  Library library;
  const int number = library.pair[0];
  const int kept_open = dup(number);  // as a child would
  int program[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, program), 0);
  ASSERT_EQ(dup2(program[0], number), number);
  CloseOnExec(library.outer);
  EXPECT_FALSE(ClosesOnExec(number));
  for (const int one : {kept_open, program[0], program[1]}) close(one);
}

TEST(CloseOnExec, OfNothingIsNothing) {
  CloseOnExec(-1);
  EXPECT_FALSE(ClosesOnExec(0));
}

TEST(CloseOnExec, OfACallIsWhatItOpensWhileThereIsOneThread) {
  const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
  if (std::distance(begin(tasks), end(tasks)) != 1) GTEST_SKIP() << "the thread sanitizer has a thread of its own";
  const int before = dup(0);
  int within = -1;
  {
    const CloseOnExecOfACall closing;
    within = dup(0);
  }
  EXPECT_TRUE(ClosesOnExec(within));
  EXPECT_FALSE(ClosesOnExec(before));
  close(within);
  int queue = -1;
  {
    const CloseOnExecOfACall closing;
    queue = epoll_create1(0);
    within = dup(0);
    EXPECT_EQ(closing.EventQueues(), std::vector<int>{queue}) << "what connects later is found by them";
    close(within);
  }
  close(queue);
  std::thread([&] {  // beside the first thread, which might open something as well
    const CloseOnExecOfACall closing;
    within = dup(0);
  }).join();
  EXPECT_FALSE(ClosesOnExec(within));
  close(within);
  close(before);
}

}  // namespace
}  // namespace ramspan
