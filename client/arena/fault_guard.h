// Explains segmentation faults on frames that have left memory (debug mode).
// Thread-safety: one thread at a time calls ExplainFaults; faults may happen on any.
#pragma once

#include <cstddef>

namespace ramspan {

// From now on a fault on [base, base + bytes) is explained on standard error before whoever handled faults so far (or the
// kernel, which ends the process) gets it. One range a process: the last one.
void ExplainFaults(const void* base, size_t bytes);

}  // namespace ramspan
