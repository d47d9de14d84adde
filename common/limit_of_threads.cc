#include "common/limit_of_threads.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstddef>

namespace ramspan {

std::string LimitOfThreads() {
  rlimit addresses;
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY) {
    pthread_attr_t attributes;
    size_t stack = size_t{8} << 20;
    if (pthread_getattr_default_np(&attributes) == 0) {
      pthread_attr_getstacksize(&attributes, &stack);
      pthread_attr_destroy(&attributes);
    }
    void* room = mmap(nullptr, stack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return "the limit of addresses has no room for its stack: raise `ulimit -v` or lower `ulimit -s`";
    munmap(room, stack);
  }
  rlimit data;  // counts stacks as well
  if (getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur != RLIM_INFINITY) return "see `ulimit -d`, then the user's processes (-u)";
  return "see `ulimit -u`";
}

}  // namespace ramspan
