// The keeper of one rank, `ramspan __rank -- WORDS`: the process between mpiexec's proxy and the program. It starts
// the program, reports to the launcher how it ended, passes signals on, and sees to it that nothing of the program
// outlives the job, whichever of launcher, mpiexec, proxy, program or the keeper itself is killed:
//
// | who is killed       | what the keeper does                                                                    |
// |---------------------|-----------------------------------------------------------------------------------------|
// | the program         | reports it, ends what the program left running, ends with the program's status          |
// | the launcher        | (its socket closes) kills the program, sweeps shared memory, removes the job's folder    |
//                         (its guard does the last two as well: hydra may kill the keepers before they get there)
// | mpiexec, the proxy  | (PMI closes) kills the program                                                          |
// | the keeper          | the kernel kills the program (PR_SET_PDEATHSIG)                                         |
//
// Single-threaded.
#pragma once

#include <string>
#include <vector>

namespace ramspan {

// Runs the program that `words` encode (argument_code.h) and returns the status to exit with.
int RunKeeper(const std::vector<std::string>& words);

}  // namespace ramspan
