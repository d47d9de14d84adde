#include "common/process_life.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace ramspan {

uint64_t PidNamespace() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

// No stream and no string: it is asked by the thread that ends a job whose other threads may hold any lock.
ProcessLife LifeOfProcess(long pid) {
  if (pid <= 0) return ProcessLife::kUnknown;
  char path[48];
  std::snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT && access("/proc/self/stat", F_OK) == 0 ? ProcessLife::kGone : ProcessLife::kUnknown;
  char text[512];
  const ssize_t bytes = read(file, text, sizeof text - 1);
  close(file);
  if (bytes <= 0) return ProcessLife::kGone;  // it ended after the open
  text[bytes] = '\0';
  // PID (NAME) STATE ...: the name may hold blanks and brackets.
  const char* bracket = std::strrchr(text, ')');
  if (bracket == nullptr || bracket[1] != ' ') return ProcessLife::kUnknown;
  switch (bracket[2]) {
    case 'T':
    case 't': return ProcessLife::kStopped;
    case 'Z':
    case 'X': return ProcessLife::kGone;
    default: return ProcessLife::kRuns;
  }
}

}  // namespace ramspan
