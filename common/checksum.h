// The checksum that travels with every chunk through swap: XXH3-64 (xxHash library). Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ramspan {

// Checksum of data[0, bytes). About 25 GB/s on cached data.
uint64_t Checksum(const void* data, size_t bytes);

// memcpy(to, from, bytes) and Checksum(from, bytes) in one pass over memory, blockwise while the data is in cache.
// Buffers must not overlap.
uint64_t CopyWithChecksum(void* to, const void* from, size_t bytes);

}  // namespace ramspan
