// What the policies are compared with: LRU, and MIN, which knows the future (Belady, "A study of replacement algorithms for a
// virtual-storage computer", 1966): who is used again farthest in the future leaves. No policy that brings in only what is touched
// reads less than MIN where all chunks are of one size and all have been written. Chunks of different sizes make the best choice a
// knapsack; there it is a greedy bound, which a policy may beat by a little, and so it is where threads hold chunks.
//
// Both make room for the chunk that comes and no more, one victim after another, and read nothing ahead.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>

#include "bench/policy_memory.h"
#include "bench/policy_trace.h"

namespace ramspan::bench {

enum class Reference { kLru, kMin };

// As Replay: throws std::runtime_error where the limit is too little; counts the same.
PolicyTraffic ReplayReference(const PolicyTrace& trace, uint64_t limit, Reference reference, bool steady = false);

}  // namespace ramspan::bench
