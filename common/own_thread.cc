#include "common/own_thread.h"

#include <sys/stat.h>

#include <algorithm>

namespace ramspan {

int ThreadsOfProgram() {
  constexpr int kLinksOfFolder = 2;  // to which procfs adds one for each thread; needs no descriptor
  struct stat tasks;
  if (stat("/proc/self/task", &tasks) != 0) return 1;
  return std::max(1, static_cast<int>(tasks.st_nlink) - kLinksOfFolder - detail::own_threads.load(std::memory_order_relaxed));
}

}  // namespace ramspan
