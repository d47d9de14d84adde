#include "common/away_pages.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ramspan::away_pages {
namespace {

// The system calls themselves: libc's names may be the preloaded library's, which stands there for the program.
void* Map(void* at, size_t bytes, int protection, int flags) {
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0));
}
long StayOutOfChildren(void* begin, size_t bytes) { return syscall(SYS_madvise, begin, bytes, MADV_DONTFORK); }

}  // namespace

int MakeAway(void* begin, size_t bytes) {
  if (Map(begin, bytes, PROT_NONE, MAP_FIXED | MAP_NORESERVE) == MAP_FAILED) return errno;
  StayOutOfChildren(begin, bytes);
  return 0;
}

int Come(void* to, const void* from, size_t bytes) {
  void* const filled = Map(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_POPULATE);
  if (filled == MAP_FAILED) return errno;
  StayOutOfChildren(filled, bytes);
  if (from != nullptr) memcpy(filled, from, bytes);
  if (syscall(SYS_mremap, filled, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != -1) return 0;
  const int error = errno;
  syscall(SYS_munmap, filled, bytes);
  return error;
}

int Leave(void* to, void* from, size_t bytes) {
  if (syscall(SYS_mprotect, from, bytes, PROT_READ) != 0) return errno;  // who writes waits for the handler
  memcpy(to, from, bytes);
  const int error = MakeAway(from, bytes);
  if (error != 0 && syscall(SYS_mprotect, from, bytes, PROT_READ | PROT_WRITE) != 0) Come(from, to, bytes);  // it stays
  return error;
}

}  // namespace ramspan::away_pages
