#include "client/transport/mpi_near.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace ramspan {

void MapNearPages(const MpiWorld::Server& server, uint64_t offset, uint64_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(server.shared + offset) & ~(page - 1);
  const uintptr_t end = reinterpret_cast<uintptr_t>(server.shared + offset + bytes);
  // Kernels before 5.14 do not know it; then each page is mapped by its first use.
  if (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) != 0) errno = 0;
}

}  // namespace ramspan
