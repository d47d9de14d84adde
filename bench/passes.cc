#include "bench/passes.h"

namespace ramspan::bench {

// Not inlined: the compiler must not know more about one caller's memory than about the other's.
[[gnu::noinline]] void AddOne(uint64_t* elements, size_t count) {
  for (size_t i = 0; i < count; ++i) ++elements[i];
}

[[gnu::noinline]] uint64_t Sum(const uint64_t* elements, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += elements[i];
  return sum;
}

}  // namespace ramspan::bench
