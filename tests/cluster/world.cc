#include "tests/cluster/world.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace ramspan {
namespace {

constexpr int kNamespaces = CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS;

std::string Failed(const std::string& what) { return what + ": " + std::strerror(errno); }

bool WriteFile(const std::string& path, const std::string& text) { return bool(std::ofstream(path) << text << std::flush); }

std::string MakeNamespaces() {
  const std::string uid = std::to_string(geteuid()), gid = std::to_string(getegid());
  if (unshare(kNamespaces) == 0) return "";
  if (unshare(CLONE_NEWUSER | kNamespaces) != 0) return Failed("namespaces are not allowed here");
  WriteFile("/proc/self/setgroups", "deny");
  const bool mapped = WriteFile("/proc/self/uid_map", "0 " + uid + " 1") && WriteFile("/proc/self/gid_map", "0 " + gid + " 1");
  return mapped ? "" : Failed("a user namespace cannot be set up here");
}

// Files that others would see, or that a kill would leave.
std::string MakeMounts() {
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return Failed("mounts cannot be made private here");
  if (mount("proc", "/proc", "proc", 0, nullptr) != 0) return Failed("/proc cannot be mounted here");
  for (const char* folder : {"/run", "/dev/shm"}) {
    if (mount("tmpfs", folder, "tmpfs", 0, nullptr) != 0) return Failed(std::string(folder) + " cannot be mounted here");
  }
  if (mkdir("/run/tests", 0700) != 0) return Failed("/run/tests");
  setenv("TEST_TMPDIR", "/run/tests", 1);
  return "";
}

int StatusOf(int wait_status) { return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status); }

// Of the first process of the world: takes in who has lost its parent, until `child` ends. With it ends the world.
[[noreturn]] void ReapUntilEndOf(pid_t child) {
  int status = 0;
  for (pid_t ended; (ended = wait(&status)) != child;) {
    if (ended < 0 && errno != EINTR) _exit(1);
  }
  _exit(StatusOf(status));
}

[[noreturn]] void WaitFor(pid_t world) {
  int status = 0;
  while (waitpid(world, &status, 0) < 0 && errno == EINTR) continue;
  _exit(StatusOf(status));
}

// The parent may have ended before it could be asked to take this process along.
void DieWithParent(int pipe_of_parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  pollfd look{.fd = pipe_of_parent, .events = POLLIN, .revents = 0};
  if (poll(&look, 1, 0) != 0) _exit(1);
}

}  // namespace

std::string EnterWorld() {
  if (std::string missing = MakeNamespaces(); !missing.empty()) return missing;
  int ends[2];
  if (pipe(ends) != 0) return Failed("no pipe");
  const pid_t world = fork();
  if (world < 0) return Failed("no process in a new namespace");
  if (world > 0) {
    close(ends[0]);
    WaitFor(world);
  }
  close(ends[1]);
  DieWithParent(ends[0]);
  close(ends[0]);
  std::string missing = MakeMounts();
  // The first process of a namespace ignores signals that it does not catch, and has others' orphans for children: no place for tests.
  const pid_t tests = fork();
  if (tests < 0) return Failed("no process in the new namespace");
  if (tests > 0) ReapUntilEndOf(tests);
  return missing;
}

}  // namespace ramspan
