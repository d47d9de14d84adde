// Ranges of addresses without pages, as large as may be wanted one day: they cost nothing unless addresses are limited (ulimit -v). There a
// range that takes all that fits would leave nothing to the next one, to stacks and to the program.
#pragma once

#include <cstdint>

namespace ramspan {

struct AddressRange {
  char* begin = nullptr;  // null: there is no room even for the least
  uint64_t bytes = 0;
};

// `most` bytes, or as many of them as leave room for kAddressesOfOthers beside them (to a MiB), but not less than `least`, which may be all there is.
// `least`, in whole pages, is no more than `most`. Begins where a huge page can, unless `least` takes all there is. Pages may be read and written, and are made by their first use. munmap gives it back.
AddressRange ReserveAddresses(uint64_t most, uint64_t least);
// From now on not more than half of what `ulimit -v` leaves, but for `least`: where all of a program's large allocations are to find room in what is reserved, and it has
// mappings of its own besides.
void LeaveHalfOfAddresses();

// What glibc reserves for the allocations of two more threads (64 MiB each), their stacks of 8 MiB, files that are mapped, and what the program
// makes after Ramspan has started. With 64 MiB a program of two threads found no heap now and then, where it needs no more.
inline constexpr uint64_t kAddressesOfOthers = uint64_t{160} << 20;

}  // namespace ramspan
