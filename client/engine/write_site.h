// WriteSite: where in the program a T* was pulled: return addresses, the innermost first; null: no more are known. A plain value.
#pragma once

#include <array>

namespace ramspan {

using WriteSite = std::array<const void*, 4>;

}  // namespace ramspan
