// Memory that is used by plain pointers and swapped by blocks of pages: for code that cannot say what it uses and when (a library that
// wants a double*, a std::vector that is passed around). Nothing is pinned: what is not in memory comes when it is touched, at the cost of a page fault.
//
//   ramspan::pagedVector<double> x(n);                           // std::vector with PagedAllocator; may be larger than the memory limit
//   double* y = static_cast<double*>(ramspan::AllocatePages(n * sizeof(double)));  // zeros
//   ramspan::advise(y, n * sizeof(double), ramspan::advice::sequential);
//   ramspan::FreePages(y);
//
// managedPtrs of the same program share the memory limit. Needs Linux 5.11 (better 6.8) and its userfaultfd (docs/pages.md: what that cannot do, and when managedPtr
// is the better choice). Programs that are not recompiled: ramspan run --pages.
//
// Thread-safety: as malloc and free. A forked child has what was there at the fork, as a copy (docs/pages.md: pageChildren, of which `none` ends a child that touches it, with a message).
#pragma once

#include "ramspan/detail/cxx17.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <type_traits>
#include <vector>

#include "ramspan/advice.h"
#include "ramspan/detail/resident.h"

namespace ramspan {

// Zeros; none of it takes memory before it is touched. `alignment` is a power of two, in bytes. Starts Ramspan. Throws ConfigError where the system or the
// configuration does not allow it, with the remedy; std::bad_alloc without addresses. Never null, also for 0 bytes.
RAMSPAN_API void* AllocatePages(size_t bytes, size_t alignment = alignof(std::max_align_t));
// There is no ReallocatePages: rs_realloc (ramspan/rs_malloc.h) takes such memory.
// Null is nothing. Ends the process for what AllocatePages has not given, or not any more.
RAMSPAN_API void FreePages(void* begin) noexcept;
// Whether the address is in such memory, and so belongs to FreePages.
RAMSPAN_API bool IsPaged(const void* address) noexcept;
// As asked for, at least 1. REQUIRES: `begin` came from AllocatePages.
RAMSPAN_API size_t PagedBytes(const void* begin) noexcept;

// As managedPtr::advise, for the blocks in the range that have been touched. Nothing elsewhere.
RAMSPAN_API void advise(const void* begin, size_t bytes, advice what) noexcept;
// The range is zeros from now on; whole blocks in it give back their memory, or their place in swap.
RAMSPAN_API void discard(void* begin, size_t bytes) noexcept;

// Counts since the start.
struct PageStatistics {
  uint64_t block_bytes = 0;  // that are swapped as one, where their size does not adapt; 0: no such memory has been asked for
  uint64_t faults = 0;       // touches of what was not there, or was in memory and to be heard of
  uint64_t blocks_in = 0, blocks_out = 0;  // that came where the program sees them, and were taken from there
  uint64_t zero_blocks = 0;  // that left as a mark, because they were all zeros
  uint64_t stuck = 0;        // times that a block had to stay because the kernel or a device held its pages
  bool adapts = false;       // blocks are larger or smaller than block_bytes where that suits their use
  uint64_t merges = 0, splits = 0;  // of several blocks to a larger one; of one to several
  bool serves_system_calls = false;  // read(2) into what is not there waits for it, and does not fail
  bool copies = false;               // pages come as copies, because the kernel cannot move them (before Linux 6.8)
};
RAMSPAN_API PageStatistics GetPageStatistics() noexcept;

// std::allocator's interface. Small requests, below a block, are operator new's.
template <typename T>
class PagedAllocator {
 public:
  using value_type = T;
  using is_always_equal = std::true_type;
  PagedAllocator() = default;
  template <typename U>
  PagedAllocator(const PagedAllocator<U>&) noexcept {}  // NOLINT: conversion is part of the interface

  T* allocate(size_t n) {
    if (n > std::numeric_limits<size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    const size_t bytes = n * sizeof(T);
    return static_cast<T*>(bytes < kLeast ? ::operator new(bytes, std::align_val_t(alignof(T))) : AllocatePages(bytes, alignof(T)));
  }
  void deallocate(T* begin, size_t n) noexcept {
    n * sizeof(T) < kLeast ? ::operator delete(begin, std::align_val_t(alignof(T))) : FreePages(begin);
  }
  friend bool operator==(const PagedAllocator&, const PagedAllocator&) { return true; }
  friend bool operator!=(const PagedAllocator&, const PagedAllocator&) { return false; }

 private:
  static constexpr size_t kLeast = size_t{64} << 10;
};

// A std::vector in all, also in speed as long as its elements are in memory. managedVector is what moves less, and sooner, where they are not.
template <typename T>
using pagedVector = std::vector<T, PagedAllocator<T>>;

}  // namespace ramspan
