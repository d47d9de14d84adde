// `ramspan run` inside a rank of another MPI job: mpiexec's and the batch system's variables would make the ranks of the
// inner job talk to the outer one's process manager. Pure.
#pragma once

#include <functional>

#include "common/status.h"

namespace ramspan {

// kFailedPrecondition, with the remedy: this process is a rank of an MPI job, or one of several tasks of a SLURM step.
// Batch scripts and interactive allocations, which start one process, are fine.
Status CheckNotNested(const std::function<const char*(const char*)>& getenv);

}  // namespace ramspan
