// The part of the benchmark `pin` about threads that hold many pins. Any thread; REQUIRES: the library is configured.
#pragma once

#include "bench/options.h"

namespace ramspan::bench {

void RunPinsHeld(const BenchOptions& options);

}  // namespace ramspan::bench
