// parallelFor, forEachWindow: loops over the blocks of a managedVector or managedArray, whose exceptions come to the caller.
//
//   parallelFor(x.blocks(), [](auto& block) {            // OpenMP's threads, each with one block at a time
//     for (double& e : block) e = f(e);
//   });
//   parallelFor(x.block_count(), [&](size_t b) {         // several arrays: pin what is needed of each
//     auto from = std::as_const(x).block(b);
//     auto to = y.block(b);
//     for (size_t i = 0; i < to.size(); ++i) to[i] = g(from[i]);
//   });
//   forEachWindow(x.blocks(), [](auto& window) {         // as many blocks at a time as the library finds good, pinned together
//     parallelFor(window, [](auto& block) { ... });      // e.g. several passes over what is in memory anyway
//   });
//
// The first exception that a call throws is rethrown on the calling thread, when all calls that had begun have ended; others do not begin then. So an
// OutOfMemory is caught as in a serial program, also where the threads that wait for memory would wait for pins that the caller keeps beside the loop: it comes
// when all other threads have done their part. Without -fopenmp the same loops run on the calling thread. Blocking: as pulls. In a parallel
// region a loop is the calling thread's own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ramspan/adhere_all.h"
#include "ramspan/detail/block_range.h"
#include "ramspan/errors.h"
#include "ramspan/managed_array.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace ramspan {

namespace detail {

class FirstException {
 public:
  template <typename Call>
  void Run(const Call& call) noexcept {
    if (thrown_.load(std::memory_order_relaxed)) return;
    // Who waits for pins that another thread keeps until this loop ends gives up when a call has failed: that thread waits for the end. In a loop within a call it
    // is the outer one's end: the inner one is this thread's own.
    const std::atomic<bool>* const outer = t_loop_failed;
    if (outer == nullptr) t_loop_failed = &thrown_;
    try {
      call();
    } catch (...) {
      if (!thrown_.exchange(true, std::memory_order_relaxed)) first_ = std::current_exception();
    }
    t_loop_failed = outer;
  }
  // Round the barrier at the loop's end.
  void AwaitOthers(bool begins) noexcept { WaitsForLoopsEnd(begins ? &thrown_ : nullptr); }
  // After the threads' end, which publishes what one of them has written.
  void Rethrow() {
    if (first_ != nullptr) std::rethrow_exception(std::exchange(first_, nullptr));
  }

 private:
  std::atomic<bool> thrown_{false};
  std::exception_ptr first_;
};

// Sources of one program may be compiled with OpenMP and without.
#ifdef _OPENMP
inline namespace with_openmp {
template <typename Call>
void ForEachIndex(size_t n, const Call& call) {
  FirstException exception;
#pragma omp parallel if (!omp_in_parallel())
  {
#pragma omp for schedule(static) nowait
    for (size_t i = 0; i < n; ++i) exception.Run([&] { call(i); });
    const bool waits = omp_get_num_threads() > 1;
    if (waits) exception.AwaitOthers(true);
#pragma omp barrier
    if (waits) exception.AwaitOthers(false);
  }
  exception.Rethrow();
}
inline size_t ThreadsBeside() { return static_cast<size_t>(omp_get_num_threads()); }
}  // namespace with_openmp
#else
inline namespace without_openmp {
template <typename Call>
void ForEachIndex(size_t n, const Call& call) {
  for (size_t i = 0; i < n; ++i) call(i);
}
inline size_t ThreadsBeside() { return 1; }
}  // namespace without_openmp
#endif

// Whether it is a lambda's: what is called through a const one changes nothing of it, where other functions may have mutable members, locks for example.
template <typename Call>
constexpr bool IsClosure() {
  constexpr std::string_view name = __PRETTY_FUNCTION__;  // "... Call = f()::<lambda(int)>]", "... Call = (lambda at f.cc:1:2)]"; a class within one ends otherwise
  return name.find("lambda") != std::string_view::npos && (name.substr(name.size() - 3) == ")>]" || name.substr(name.size() - 2) == ")]");
}

struct PinnedWindow {
  // Blocks [first, first + count) of a container, pinned together. Throws OutOfMemory with none pinned.
  template <typename Container>
  static std::vector<typename BlockRange<Container>::value_type> Of(Container& container, size_t first, size_t count) {
    using Block = typename BlockRange<Container>::value_type;
    PinTable* const table = ThisThreadPins();
    std::vector<PinRequest> requests;
    std::vector<Block> window;
    requests.reserve(count);
    window.reserve(count);
    for (size_t b = first; b < first + count; ++b) requests.push_back(PinAccess::Request(container.chunk(b)));
    PinTogether(requests.data(), requests.size(), table);
    for (size_t i = 0; i < count; ++i) {
      const size_t begin = (first + i) * container.block_elements();
      window.emplace_back(PinAccess::Pinned<typename Container::value_type>(requests[i], table), begin, std::min(container.block_elements(), container.size() - begin));
    }
    return window;
  }
};

}  // namespace detail

// call(i) for each i < n. OpenMP's static schedule: each thread has a contiguous part, which read-ahead follows.
template <typename Call>
void parallelFor(size_t n, const Call& call) {
  detail::ForEachIndex(n, call);
}

// call(block) for each block of a range that has size() and []; blocks() or a window. What an inner loop reads is best captured by value, [dt] instead of [&]: through
// a reference it is read again for each element, because what is written might be it.
template <typename Blocks, typename Call, typename = std::enable_if_t<!std::is_integral_v<std::remove_reference_t<Blocks>>>>
void parallelFor(Blocks&& blocks, const Call& call) {
  detail::ForEachIndex(blocks.size(), [&](size_t b) {
    auto&& block = blocks[b];
    static_assert(std::is_invocable_v<const Call&, decltype((block))>, "parallelFor calls one function from many threads: its operator() is const (no `mutable` lambda), and takes a block by auto&");
    if constexpr (detail::IsClosure<Call>() && std::is_trivially_copyable_v<Call> && std::is_copy_constructible_v<Call> && sizeof(Call) <= 128) {
      const Call own = call;  // what it has captured by value can be in registers, whatever the loop writes
      own(block);
    } else {
      call(block);
    }
  });
}

// call(window) for consecutive parts of the blocks; a window is a std::vector of pinned blocks, whose pins end with the call. It has as many
// blocks as fit a fourth of the memory limit (divided by the threads of the region that this is called in), and at least one; fewer where other
// pins leave no room for more. The next window is fetched meanwhile. Throws OutOfMemory where not even one block can be pinned.
template <typename Container, typename Call>
void forEachWindow(detail::BlockRange<Container> blocks, const Call& call) {
  Container& container = blocks.container();
  const size_t n = blocks.size(), block_bytes = std::max<size_t>(1, container.block_elements() * sizeof(typename Container::value_type));
  size_t most = std::max<size_t>(1, detail::HalfOfMemory() / 2 / detail::ThreadsBeside() / block_bytes);
  for (size_t first = 0; first < n;) {
    const size_t count = std::min(most, n - first);
    std::vector<typename detail::BlockRange<Container>::value_type> window;
    try {
      window = detail::PinnedWindow::Of(container, first, count);
    } catch (const OutOfMemory&) {
      if (count == 1) throw;
      most = count / 2;
      continue;
    }
    for (size_t b = first + count; b < std::min(first + 2 * count, n); ++b) std::as_const(container).chunk(b).prepareUse();
    call(window);
    first += count;
  }
}

}  // namespace ramspan
