// Preloaded by run.sh: the first allocation of NO_MEMORY_BYTES bytes within a parallel region fails.
#include <omp.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
std::atomic<bool> refused{false};
}  // namespace

void* operator new(std::size_t bytes) {
  static const char* const text = std::getenv("NO_MEMORY_BYTES");
  if (text != nullptr && bytes == std::strtoull(text, nullptr, 10) && omp_in_parallel() && !refused.exchange(true)) throw std::bad_alloc();
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
