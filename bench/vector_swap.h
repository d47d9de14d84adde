// The half of `vector` that does not fit in memory (bench/vector.cc has the other one).
#pragma once

#include "bench/options.h"

namespace ramspan::bench {

// For each limit that the options name. Prints its tables or JSON lines; whether all sums and elements were right. The library is configured, and
// its memory limit another one when this returns.
bool RunVectorSwapping(const BenchOptions& options);

// What element i of all vectors of `vector` is: small enough that sums of doubles are exact, never 0, so that one that is left out is missed.
inline uint64_t VectorElementAt(uint64_t i) { return (i * 0x9e3779b97f4a7c15u >> 44) | 1; }

}  // namespace ramspan::bench
