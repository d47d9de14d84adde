// Which way of page faults is chosen: a traced process is not to wait for threads that its tracer has stopped. And who waits for a page goes on.
#include "common/userfault.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

namespace ramspan {
namespace {

enum Served { kServed, kNotServed, kNoUserfault, kNotTraced };

// Whether the kernel's accesses would be served, in a process that this one traces, or does not.
int InChild(bool is_traced) {
  const pid_t child = fork();
  if (child == 0) {
    if (is_traced && ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kNotTraced);
    Userfault userfault;
    const bool is_open = userfault.Open(FaultMode::kAuto).ok() && userfault.mode() != FaultMode::kProtect;
    _exit(!is_open ? kNoUserfault : userfault.serves_system_calls() ? kServed : kNotServed);
  }
  int status = 0;
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) ptrace(PTRACE_CONT, child, nullptr, nullptr);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// It stopped all threads and then waited for what one of them had to bring: `strace -f` of a program hung.
TEST(Userfault, WhoIsTracedGetsPagesBySignals) {
  if (InChild(false) != kServed) GTEST_SKIP() << "needs a userfaultfd that serves the kernel's accesses (root, or sysctl vm.unprivileged_userfaultfd=1)";
  const int traced = InChild(true);
  if (traced == kNotTraced) GTEST_SKIP() << "needs ptrace";
  EXPECT_EQ(traced, kNotServed);
}

// gdb reads what has left in ways that do not wait, and halts at each signal.
TEST(Userfault, WhoIsDebuggedDoesNot) {
  if (InChild(false) != kServed) GTEST_SKIP() << "needs a userfaultfd that serves the kernel's accesses (root, or sysctl vm.unprivileged_userfaultfd=1)";
  char name[16];
  prctl(PR_GET_NAME, name);
  prctl(PR_SET_NAME, "gdb");
  const int traced = InChild(true);
  prctl(PR_SET_NAME, name);
  if (traced == kNotTraced) GTEST_SKIP() << "needs ptrace";
  EXPECT_EQ(traced, kServed);
}

// The kernel (Linux 6.18) moves a page now and then and says that it has not. Who waited for it was not woken. (LAMMPS stood still before a page that was there, in one of a hundred runs on a busy machine.)
TEST(Userfault, WhoWaitsForAPageOfWhichItWasNotToldThatItHasMovedGoesOn) {
  constexpr size_t kPages = 16, kBytes = kPages * kPageBytes;
  Userfault userfault;
  if (!userfault.Open(FaultMode::kThread, PageMoves::kMove).ok()) GTEST_SKIP() << "needs a userfaultfd that moves pages (Linux 6.8)";
  const auto map = [] { return static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)); };
  char* const home = map();
  char* const frame = map();
  madvise(home, kBytes, MADV_NOHUGEPAGE);
  madvise(frame, kBytes, MADV_NOHUGEPAGE);
  memset(frame, 1, kBytes);
  ASSERT_EQ(userfault.Register(home, kBytes), 0);
  std::atomic<int> seen{0};
  std::thread waiting([&] { seen = static_cast<volatile char*>(home)[kBytes - 1]; });
  Userfault::Fault fault;
  ASSERT_TRUE(userfault.Next(&fault, 10'000));
  // <linux/userfaultfd.h> of older systems does not know it.
  struct {
    uint64_t to, from, bytes, mode;
    int64_t moved;
  } untold = {reinterpret_cast<uintptr_t>(home) + kBytes - kPageBytes, reinterpret_cast<uintptr_t>(frame) + kBytes - kPageBytes, kPageBytes, /*UFFDIO_MOVE_MODE_DONTWAKE=*/1, 0};
  ASSERT_EQ(ioctl(userfault.fd(), _IOWR(0xAA, 0x05, decltype(untold)), &untold), 0);
  EXPECT_EQ(userfault.Move(home, frame, kBytes, Userfault::MayBeShared::kYes), 0);
  for (int i = 0; i < 1000 && seen == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(seen, 1) << "it waits for a page that is there";
  userfault.Wake(home, kBytes);
  waiting.join();
}

}  // namespace
}  // namespace ramspan
