// A loop over chunks by OpenMP threads, for work that may throw.
#pragma once

#include <omp.h>

#include <atomic>
#include <cstddef>
#include <exception>
#include <type_traits>
#include <utility>
#include <vector>

namespace ramspan::bench {

// Calls visit(i, Part*) for each i below `count`: each thread in order over a range of its own, with a Part of its own. Returns the
// parts of all threads. An exception must not leave a parallel region (the program would be aborted, without a word of why): the first
// one is kept, the threads begin nothing more, and it is thrown when all have come to the end.
template <typename Part, typename Visit>
std::vector<Part> InParallel(int threads, size_t count, const Visit& visit) {
  static_assert(std::is_nothrow_default_constructible_v<Part> && std::is_nothrow_move_assignable_v<Part>);
  std::vector<Part> parts(static_cast<size_t>(threads));
  std::atomic<bool> failed{false};  // says who is first, and publishes nothing: `error` is read behind the region's barrier
  std::exception_ptr error;
#pragma omp parallel num_threads(threads)
  {
    Part mine;  // not in `parts` meanwhile, where threads would share cache lines
#pragma omp for schedule(static)
    for (size_t i = 0; i < count; ++i) {
      if (failed.load(std::memory_order_relaxed)) continue;
      try {
        visit(i, &mine);
      } catch (...) {
        if (!failed.exchange(true, std::memory_order_relaxed)) error = std::current_exception();
      }
    }
    parts[static_cast<size_t>(omp_get_thread_num())] = std::move(mine);
  }
  if (error) std::rethrow_exception(error);
  return parts;
}

}  // namespace ramspan::bench
