// The checksum that travels with every chunk through swap: XXH3-64 (xxHash library). Pure; any thread. Leaves the vector
// registers as it found them (common/vector_state.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ramspan {

// Checksum of data[0, bytes). About 25 GB/s on cached data.
uint64_t Checksum(const void* data, size_t bytes);

// Which side of a copy is hashed. It has to be the side that the program has or gets, because the other one lies in memory
// that others can write to (a server's pool):
// - A chunk that comes back is hashed at its destination, the frame, after it was copied. If anybody changes the source
//   meanwhile, even between two loads of the same byte, the checksum is that of the bytes that the program will see.
// - A chunk that leaves is hashed at its source, the frame, which is constant while it is written. A
//   checksum of the destination would declare right whatever a stray store made of it. A write that was torn, by the
//   death of either side or by a store into the slot, has another checksum than its source and is found when it is read;
//   so is a program that writes to the frame all the same, between the copy and the hash.
enum class HashedSide { kSource, kDestination };

// memcpy(to, from, bytes) and Checksum of one side in one pass over memory, blockwise while the data is in cache.
// Buffers must not overlap.
uint64_t CopyWithChecksum(void* to, const void* from, size_t bytes, HashedSide side);

}  // namespace ramspan
