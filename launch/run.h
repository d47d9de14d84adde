// Carries out a plan: starts mpiexec (or the one keeper), passes input, output and signals on, watches the keepers, and
// leaves nothing behind. Single-threaded; one call a process. REQUIRES: IgnoreFileSizeSignal() was called.
#pragma once

#include "launch/plan.h"

namespace ramspan {

// Blocks until the job has ended. Returns the status to exit with: the application's, 128 + signal when it was killed.
int RunPlan(const Plan& plan);

}  // namespace ramspan
