// A goodbye to the process manager without MPI_Finalize. MPICH 4.0 over UCX/TCP cannot be trusted to finalise: a rank
// whose connections are flushed enters a barrier of the process manager in which it makes no progress, and another
// whose flush needs an answer of that rank waits for ever (seen in most runs of three ranks, with a program that does
// nothing else). So a job that spans nodes says by itself what MPI_Finalize says to the process manager, over the
// simple PMI-1 connection that hydra and SLURM give to each rank, and lets the end of the process close the rest.
//
// Thread-safety: one thread, after the last MPI call of all others.
#pragma once

#include <functional>

#include "common/status.h"

namespace ramspan {

// Whether this process has such a connection (PMI_FD).
bool CanSayPmiGoodbye();

// Collective over the job, and the last thing to do with MPI: waits until every rank is here, calling `progress` all
// the while so that the others' last messages come through, and tells the process manager that this rank ends well.
// kUnavailable when the process manager does not answer as it should, within half a minute.
Status SayPmiGoodbye(const std::function<void()>& progress);

}  // namespace ramspan
