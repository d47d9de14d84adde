// Ranges of addresses without pages, as large as may be wanted one day: they cost nothing unless addresses are limited (ulimit -v). There a
// range that takes all that fits would leave nothing to the next one, to stacks and to the program.
#pragma once

#include <cstdint>

namespace ramspan {

struct AddressRange {
  char* begin = nullptr;  // null: there is no room even for the least
  uint64_t bytes = 0;
};

// `most` bytes, or half of it, and so on down to `least`, the largest that leaves room for kAddressesOfOthers beside it; or `least` alone.
// `least`, in whole pages, is no more than `most`. Pages may be read and written, and are made by their first use. munmap gives it back.
AddressRange ReserveAddresses(uint64_t most, uint64_t least);

// Stacks of 8 MiB for the mover and for threads of other libraries, malloc arenas, files that are mapped, and what the program makes
// after Ramspan has started. With half of it a program of two threads is refused where it needs no more.
inline constexpr uint64_t kAddressesOfOthers = uint64_t{64} << 20;

}  // namespace ramspan
