// The guard: the process that the user started and sees. It forks a second one that does the launcher's work, and each
// of the two notices at once when the other one is killed, even by SIGKILL, and cleans up. The guard takes the signals
// and passes them on, so that they are counted once, wherever ^C or kill sent them.
//
// | who is killed | who cleans up                                                                                     |
// |---------------|---------------------------------------------------------------------------------------------------|
// | the guard     | the worker: its orders end (end of file), it kills the job and cleans up as it always does          |
// | the worker    | the guard: adopts and kills what is left of the job, sweeps shared memory, removes the job's folder |
//
// Single-threaded; one call a process.
#pragma once

#include <functional>
#include <string>

#include "launch/process.h"

namespace ramspan {

// Runs `work` in the second process; its argument is the socket on which lines "signal N BY_TERMINAL" arrive. `folder`
// is the job's, which `work` makes: as long as only one process runs, there is nothing to clean up. Returns the status to exit with: what `work` returned.
int RunGuarded(const std::string& folder, const std::function<int(UniqueFd orders)>& work);

}  // namespace ramspan
