#pragma once

#include <cstdint>

namespace ramspan {

// What processor and kernel map as one huge page (x86-64, and arm64 with pages of 4 KiB).
inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

}  // namespace ramspan
