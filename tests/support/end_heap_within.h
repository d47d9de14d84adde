// The heap of the calling thread ends within a call, before its first allocation, before its second, and so on, until the call needs no
// more. What comes of that is the library's own exception or nothing. For programs with heap_watch.cc (ramspan_watch_heap).
#pragma once

#include <gtest/gtest.h>

#include <new>

#include "tests/support/heap_watch.h"

namespace ramspan {

inline constexpr int kAllocationsMax = 2000;  // of one call

// `Refusal`: the exception that may come. `undo`: after each time that the call has returned in order; `threw`: after each that has thrown.
// Returns how often it was refused something.
template <class Refusal, class Call, class Undo, class Threw>
int EndHeapWithin(const char* name, const Call& call, const Undo& undo, const Threw& threw) {
  for (int given = 0; given < kAllocationsMax; ++given) {
    bool returned = false;
    try {
      const EndingHeap ending(given);
      call();
      returned = true;
    } catch (const Refusal& error) {
      EXPECT_STRNE(error.what(), "") << name;
    } catch (const std::bad_alloc&) {
      ADD_FAILURE() << name << ": std::bad_alloc after " << given << " allocations";
    }
    const bool refused = EndingHeap::refused();
    returned ? undo() : threw();
    if (!refused) return given;
  }
  ADD_FAILURE() << name << " allocates without end";
  return kAllocationsMax;
}

}  // namespace ramspan
