// The way from the library to MPI, which is in a library of its own (libramspan-mpi.so): programs that call MPI are linked with it; in
// others it is loaded when the launcher announces memory servers. So a program that only uses files, or servers outside of any job, has
// nothing of MPI in it. What stands here is the same in the static library of the tests, which has MPI linked in (mpi_door_linked.cc).
//
// Thread-safety: any thread.
#pragma once

#include "client/transport/transport.h"
#include "common/status.h"

namespace ramspan {

// How the servers of this process's job are reached; nullptr without servers. Joins the job at the first call (mpi_entry.h, also for the
// errors). kFailedPrecondition: libramspan-mpi.so is not there, or the program calls MPI and is not linked with it. Lives until the
// process ends, but is not to be used after the hook below.
Result<ServerTransport*> JobTransport();

// Called once, before the servers are left, on the thread that finalises MPI or exits: the runtime stops using them there (chunks that
// live on servers are not reachable after it).
void SetBeforeLeaveHook(void (*hook)());

// The rank among all ranks of the job, servers included; while MPI is not initialised, what the process manager or the launcher says; -1 in a process
// that none started.
int WorldRank();

// What libramspan-mpi.so has; libramspan calls it by this name.
struct MpiDoor {
  // `linked`: the program was linked with it, so its calls of MPI are seen there.
  Result<ServerTransport*> (*job_transport)(bool linked);
  void (*set_before_leave_hook)(void (*hook)());
  int (*world_rank)();
  void (*meet_end)(int status);  // the process ends with this status
};
extern "C" {
using OpenMpiDoor = const MpiDoor* (*)(const char* version);  // null: of another version
}
inline constexpr const char* kMpiDoorName = "ramspan_open_mpi";

}  // namespace ramspan
