// The door of libramspan-mpi.so; see mpi_door.h.
#include <string_view>

#include "client/transport/mpi_door.h"
#include "client/transport/mpi_entry.h"

namespace ramspan {

extern "C" __attribute__((visibility("default"))) const MpiDoor* ramspan_open_mpi(const char* version) {
  static constexpr MpiDoor door = {MpiJobTransport, SetMpiBeforeLeaveHook, MpiWorldRank, MeetEndOfProcess};
  return std::string_view(version) == RAMSPAN_VERSION ? &door : nullptr;
}

}  // namespace ramspan
