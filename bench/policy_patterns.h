// What programs do with their chunks, as traces: one a kind of program. All are made of chunks of one size, which the program
// fills in the order of their making before it begins, and repeat exactly. Sized so that replaying one takes a fraction of a second.
// Thread-safety: pure functions.
#pragma once

#include <span>

#include "bench/policy_trace.h"

namespace ramspan::bench {

// How much a policy may read: `of_min` times what MIN does, or `of_lru` times what LRU does where nothing can be known. 0: no target.
struct PolicyTarget {
  double of_min = 0, of_lru = 0;
};

struct PolicyPattern {
  const char* name;
  const char* what;  // the program that does this
  PolicyTarget target;
  PolicyTrace (*make)();
};

std::span<const PolicyPattern> PolicyPatterns();

}  // namespace ramspan::bench
