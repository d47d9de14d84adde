// What the arena is for, as a program sees it: chunks that are made and destroyed, and a memory limit that is set up.
// Thread-safety: none; the main thread's.
#pragma once

#include <string>
#include <vector>

#include "bench/options.h"

namespace ramspan::bench {

// Making and destroying chunks in a warm arena, beside new and delete of as many bytes. Configures the library.
void MeasureManagedChunks(BenchOptions options);

// Of the command line of this program: `self` once more, which prints what setting up a limit took (PrintSetup), several times.
void MeasureSetup(const BenchOptions& options, const std::vector<std::string>& self);
// Configures the library, and prints the milliseconds until the first object is written.
int PrintSetup(const BenchOptions& options);

}  // namespace ramspan::bench
