// Sizes as people write them, and back. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace ramspan {

// "4096", "1.5 GiB", "64MiB", "1 TB" (10^12), "10%"? no: bytes only. Units: B, kB/KB, MB, GB, TB, PB (powers of ten),
// KiB, MiB, GiB, TiB, PiB, and the bare K, M, G, T, P (powers of two, as in Rambrain's and SLURM's habit); case does
// not matter except that it is never guessed: an unknown unit, a negative or empty number, trailing text, or a value
// over 2^63-1 is kInvalidArgument with the text quoted and examples of what would do.
Result<uint64_t> ParseBytes(std::string_view text);

// "64 MiB", "1.50 GiB", "17 B": at most three significant decimals, powers of two.
std::string FormatBytes(uint64_t bytes);

// What to add to the error about a size that is too small: "; units forgotten? (64MiB)" for "64", nothing for one with units or for 0.
std::string UnitsForgotten(const std::string& text);

}  // namespace ramspan
