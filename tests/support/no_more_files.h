// NoMoreFiles: while one lives, this process gets no further descriptor (EMFILE). Those that are open stay. Not for several threads
// that open files: the limit is the whole process's.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/check.h"

namespace ramspan {

class NoMoreFiles {
 public:
  NoMoreFiles() {
    // Numbers below the limit may be free, but a new one is the lowest that is: the limit is set there.
    const int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    RS_CHECK(lowest >= 0 && getrlimit(RLIMIT_NOFILE, &before_) == 0, "no %s", "descriptors");
    close(lowest);
    const rlimit none{static_cast<rlim_t>(lowest), before_.rlim_max};
    RS_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit %d", errno);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit before_{};
};

}  // namespace ramspan
