// How this process enters and leaves the job of memory servers: the other side of include/ramspan/mpi.h, and the hooks
// for programs that know nothing of MPI. One MpiWorld a process; its life is decided here and nowhere else.
//
// A process whose launcher announces servers (RAMSPAN_SERVERS > 0) always joins, whatever `transport` says, because the
// servers wait for everybody; the runtime then decides whether to use them. It joins in MPI_Init (ramspan/mpi.h), at
// the start of the runtime, or at exit at the latest; it leaves inside MPI_Finalize, or at exit. A process that ends
// with a status other than 0, or with its own MPI not finalised, does nothing at exit: the launcher ends the job.
//
// Thread-safety: any thread. Ownership: the world belongs to this file; pointers to it are valid until the hook
// returns.
#pragma once

#include "client/transport/mpi_door.h"
#include "client/transport/transport.h"
#include "common/mpi_world.h"

namespace ramspan {

// The world of this process, joined now if it has to be; nullptr in a job without memory servers. Collective over the
// job at the first call (every compute rank gets here, in MPI_Init or at exit if nowhere else).
// kFailedPrecondition: MPI was initialised by the program without MPI_THREAD_MULTIPLE, or has been finalised.
// kInvalidArgument: the job is put together wrongly.
Result<MpiWorld*> EnsureJoined();

// What mpi_door.h promises. `linked`: the program was linked with the library that this is in; if not, and the program has initialised MPI,
// it is told so: its calls on MPI_COMM_WORLD would wait for the servers, unseen.
Result<ServerTransport*> MpiJobTransport(bool linked);
void SetMpiBeforeLeaveHook(void (*hook)());
int MpiWorldRank();
// The end of this process, with this status.
void MeetEndOfProcess(int status);

// Whether this rank of the real MPI_COMM_WORLD is a memory server of the job that this process has joined.
bool IsServerInWorld(int world_rank);

}  // namespace ramspan
