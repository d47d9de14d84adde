// HeapWatch: what operator new is asked for by the calling thread, and whether it gives it. A program that is linked with heap_watch.cc
// has its own operator new; outside of the scopes here that one is like any other. Aligned requests are not watched.
// Thread-safety: each scope is about the thread that opens it.
#pragma once

#include <cstdint>

namespace ramspan {

// Counts allocations while it lives.
class CountedHeap {
 public:
  CountedHeap();
  ~CountedHeap();
  CountedHeap(const CountedHeap&) = delete;
  CountedHeap& operator=(const CountedHeap&) = delete;
  static int count();  // of the thread's last scope
};

// While it lives one allocation in `one_in` throws std::bad_alloc, drawn from `*random`, which goes on from scope to scope.
class ScarceHeap {
 public:
  ScarceHeap(uint64_t* random, uint32_t one_in);
  ~ScarceHeap();
  ScarceHeap(const ScarceHeap&) = delete;
  ScarceHeap& operator=(const ScarceHeap&) = delete;
  static uint64_t refused();  // by all threads, ever
  // Throws as an allocation would: for what stands in for a part that allocates.
  static void MayThrow();
};

// Code of the test's own: neither counted nor refused.
class UnwatchedHeap {
 public:
  UnwatchedHeap();
  ~UnwatchedHeap();
  UnwatchedHeap(const UnwatchedHeap&) = delete;
  UnwatchedHeap& operator=(const UnwatchedHeap&) = delete;

 private:
  const bool counting_;
  uint64_t* const random_;
};

}  // namespace ramspan
