// Which way of page faults is chosen: a traced process is not to wait for threads that its tracer has stopped.
#include "common/userfault.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

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

}  // namespace
}  // namespace ramspan
