// HeapWatch: what operator new is asked for by the calling thread, and whether it gives it. A program that is linked with heap_watch.cc
// has its own operator new; outside of the scopes here that one is like any other. Aligned requests are not watched.
// Thread-safety: each scope is about the thread that opens it, but for HeaplessThreads.
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

// While it lives the thread's first `given` allocations are granted, and none after them.
class EndingHeap {
 public:
  explicit EndingHeap(int given);
  ~EndingHeap();
  EndingHeap(const EndingHeap&) = delete;
  EndingHeap& operator=(const EndingHeap&) = delete;
  static bool refused();  // whether the thread's last scope has refused one
};

// While it lives, threads whose name begins so (pthread_setname_np) are given nothing. One at a time.
class HeaplessThreads {
 public:
  explicit HeaplessThreads(const char* name);
  ~HeaplessThreads();
  HeaplessThreads(const HeaplessThreads&) = delete;
  HeaplessThreads& operator=(const HeaplessThreads&) = delete;
  static uint64_t refused(const char* name);  // to such threads, so far
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
  const int left_;
};

}  // namespace ramspan
