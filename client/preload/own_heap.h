// What Ramspan, and the libraries that it calls (libfabric, MPICH), allocate, in programs that `ramspan run --pages` runs: a heap apart from libc's. A page may be needed by a thread that holds
// the lock of libc's heap: by a signal handler that has interrupted malloc, or by malloc itself, on a coroutine's stack of that memory. Who brings the page must not wait for that lock.
//
// A block is told from libc's by the word before it, which is a size there. It may be given back anywhere, also outside of Ramspan and in a child, where nothing is
// locked: it is put aside, and a child leaves its parent's blocks alone. A child begins with a heap of its own.
//
// Thread-safety: any thread; Allocate within Ramspan only, where signal handlers wait, once there are pages. Ownership: the caller's, as of malloc. Source: std::pmr's pools over pages of the kernel's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/public_call.h"

namespace ramspan::preload {

class OwnHeap {
 public:
  // `alignment`: a power of two. Null: there is no memory, or this is not within Ramspan, or it is just here: it is libc's turn.
  static void* Allocate(size_t bytes, size_t alignment) { return __builtin_expect(detail::t_inside_ramspan == 0, 1) ? nullptr : AllocateWithin(bytes, alignment); }
  // `begin`: not null, and from here or from libc.
  static bool Owns(const void* begin) { return reinterpret_cast<const uint64_t*>(begin)[-1] == (kMark ^ reinterpret_cast<uintptr_t>(begin)); }
  // REQUIRES: Owns(begin).
  static void Free(void* begin);
  static size_t Bytes(const void* begin);

 private:
  static constexpr uint64_t kMark = 0xA752'4D53'0000'0000;  // no size
  static void* AllocateWithin(size_t bytes, size_t alignment);
};

}  // namespace ramspan::preload
