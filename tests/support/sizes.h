// Sizes by the names that people give them.
#pragma once

#include <cstdint>

namespace ramspan {

inline constexpr uint64_t kKiB = uint64_t{1} << 10, kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30, kTiB = uint64_t{1} << 40;

}  // namespace ramspan
