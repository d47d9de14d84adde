// swap-targets: one contestant's process. It enters its cgroup, fills its data, uses them in each of the ways, compares all of them with
// what they have to be, and prints one JSON line for the process that started it.
// Thread-safety: the main thread's.
#pragma once

#include "bench/options.h"

namespace ramspan::bench {

// The contestant is options.only, its cgroup options.in_cgroup. 1: data came back wrong.
int RunTargetProgram(const BenchOptions& options);

}  // namespace ramspan::bench
