// pages: memory that is swapped by pages, beside managedPtr and the raw transfers.
#pragma once

#include "bench/options.h"

namespace ramspan::bench {

// Blocks of options.chunk bytes. The exit status: 1 when data came back wrong.
int RunPages(const BenchOptions& options);

}  // namespace ramspan::bench
