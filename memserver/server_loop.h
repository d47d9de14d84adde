// The loop of one memory-server rank over MPI: receives control messages, answers, and gives MPI the progress that
// passive-target RMA needs. MPICH moves nothing for a target that is outside MPI, so while an off-node client is active
// the loop polls without a pause (yielding its core). Otherwise it sleeps between polls, 50 us and then longer: up to
// 1 ms where an off-node client may become active, up to 4 ms where all clients copy by load/store and only lease
// requests, which are sent ahead of need, have to be seen (idle: under 1% of a core).
// Leased memory is made resident before a client has it, and in idle time ahead of the next lease.
//
// Thread-safety: one thread. Ownership: borrows the world.
#pragma once

#include "common/mpi_world.h"
#include "common/status.h"

namespace ramspan {

// Serves until every client has said bye. True when all of them found everybody alive, so that MPI can be left
// together. kUnavailable: MPI failed beneath us.
Result<bool> ServeUntilBye(MpiWorld& world);

}  // namespace ramspan
