// A copy past the caches, for bytes that this process does not read again soon: a chunk that leaves for a server's memory.
#pragma once

#include <cstddef>

namespace ramspan {

// memcpy(to, from, bytes) whose stores neither read `to` into a cache first nor drive others out of it: a third less goes over the memory
// bus. Four parts of each 64 KiB are copied side by side, since the processor's prefetchers end at a page. What is short is left to memcpy.
// Other threads may see `to` once they have synchronised with this one, as after any copy. Buffers must not overlap.
void NonTemporalCopy(void* to, const void* from, size_t bytes);

}  // namespace ramspan
