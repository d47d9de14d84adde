// 16 MiB of memory for each test, and swap files where they do no harm. Here and not in CMake: gtest_discover_tests takes
// one variable only.
#include <cstdlib>

namespace {
[[maybe_unused]] const int environment = setenv("RAMSPAN_MEMORY", "16MiB", 0) + setenv("RAMSPAN_SWAPFILES", "/tmp/rambrain-test-%d-%d", 0);
}
