// The door of mpi_door.h where MPI is linked in: nothing is loaded.
#include "client/transport/mpi_door.h"
#include "client/transport/mpi_entry.h"

namespace ramspan {

Result<ServerTransport*> JobTransport() { return MpiJobTransport(true); }
void SetBeforeLeaveHook(void (*hook)()) { SetMpiBeforeLeaveHook(hook); }
int WorldRank() { return MpiWorldRank(); }

}  // namespace ramspan
