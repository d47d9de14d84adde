// The limit under which the tests of this folder run. Set before main and not in CMake: gtest_discover_tests takes one
// variable only.
#pragma once

#include <cstdlib>

namespace guest {
[[maybe_unused]] inline const int environment = setenv("RAMSPAN_MEMORY", "4MiB", 1);
}
