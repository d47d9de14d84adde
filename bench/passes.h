// The compute passes of a program, the same for the library and for its rooflines.
// Thread-safety: any thread, on memory of its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ramspan::bench {

// One addition to each element; the sum of all.
void AddOne(uint64_t* elements, size_t count);
uint64_t Sum(const uint64_t* elements, size_t count);

}  // namespace ramspan::bench
