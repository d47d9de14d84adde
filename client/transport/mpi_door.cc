#include "client/transport/mpi_door.h"

#include <dlfcn.h>
#include <unistd.h>

#include <string>

#include "common/announced_servers.h"
#include "common/signal_handlers_kept.h"
#include "common/signals_blocked.h"

namespace ramspan {
namespace {

struct Opened {
  const MpiDoor* door = nullptr;
  bool linked = false;
  std::string why_not;
};

// Beside the library that this function is in.
std::string LibraryPath() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&JobTransport), &info) == 0 || info.dli_fname == nullptr) return RAMSPAN_MPI_LIBRARY;
  const std::string library = info.dli_fname;
  return library.substr(0, library.rfind('/') + 1) + RAMSPAN_MPI_LIBRARY;
}

// A number that makes no sense goes on to MPI: only there can the other ranks, which wait for this one, hear of it.
bool JobHasServers() {
  const Result<int> servers = AnnouncedServers();
  return !servers.ok() || servers.value() > 0;
}

// Once: what the launcher announces does not change.
const Opened& TheDoor() {
  static const Opened* const opened = [] {
    auto* found = new Opened;  // never destroyed: it is used while the process exits
    void* library = dlopen(RAMSPAN_MPI_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    found->linked = library != nullptr;
    // For ever: it stays until MPI has been finalised at the end of the process.
    if (library == nullptr && JobHasServers()) {
      const SignalsBlocked blocked;   // a signal that comes meanwhile is for the program's handlers
      const SignalHandlersKept kept;  // UCX takes SIGHUP and those of crashes
      library = dlopen(LibraryPath().c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    void* open = library == nullptr ? nullptr : dlsym(library, kMpiDoorName);
    if (open != nullptr) {
      found->door = reinterpret_cast<OpenMpiDoor>(open)(RAMSPAN_VERSION);
      if (found->door == nullptr) found->why_not = "it is of another version than libramspan";
    } else if (JobHasServers()) {
      const char* reason = dlerror();
      found->why_not = reason == nullptr ? LibraryPath() : reason;
    }
    return found;
  }();
  return *opened;
}

const pid_t process_id = getpid();

// A program that never touches Ramspan meets its servers at the end, because they wait for every rank. Forked children do not count.
void AtExit(int status, void*) {
  if (status == 0 && process_id == getpid() && TheDoor().door != nullptr) TheDoor().door->meet_end(status);
}

[[gnu::constructor]] void AtLoad() {
  if (AnnouncedRank() >= 0 && JobHasServers()) on_exit(AtExit, nullptr);
}

}  // namespace

Result<ServerTransport*> JobTransport() {
  const Opened& opened = TheDoor();
  if (opened.door != nullptr) return opened.door->job_transport(opened.linked);
  if (!JobHasServers()) return nullptr;
  return FailedPrecondition("this job has memory servers (RAMSPAN_SERVERS), but the library for MPI cannot be used: " + opened.why_not +
                            "; install libramspan-mpi and MPICH, or start the program with --transport ofi or none");
}

void SetBeforeLeaveHook(void (*hook)()) {
  if (TheDoor().door != nullptr) TheDoor().door->set_before_leave_hook(hook);
}

int WorldRank() { return TheDoor().door != nullptr ? TheDoor().door->world_rank() : AnnouncedRank(); }

}  // namespace ramspan
