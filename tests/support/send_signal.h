// kill() of one process and of nothing else. 0 and -1 are what a fork that failed, or a process that is gone, leave in place of a pid, and
// kill() takes them for this process's group and for all processes of the user.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdio>
#include <cstdlib>

inline int SendSignal(pid_t pid, int number) {
  if (pid <= 1) {
    std::fprintf(stderr, "a test would have sent signal %d to process %d\n", number, static_cast<int>(pid));
    std::abort();
  }
  return kill(pid, number);
}
