#include "client/transport/ofi_door.h"

#include <dlfcn.h>

#include "common/default_variable.h"
#include "common/signal_handlers_kept.h"
#include "common/signals_blocked.h"

namespace ramspan {
namespace {

// Beside the library that this function is in: installed, and in the build folder.
std::string ModulePath() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&OpenOfi), &info) == 0 || info.dli_fname == nullptr) return "libramspan-ofi.so";
  const std::string library = info.dli_fname;
  return library.substr(0, library.rfind('/') + 1) + "ramspan/libramspan-ofi.so";
}

}  // namespace

Result<std::unique_ptr<ServerTransport>> OpenOfi(const OfiDoorOptions& options) {
  const std::string path = ModulePath();
  void* module = nullptr;
  {
    const SignalsBlocked blocked;  // what it loads may start threads, and a signal that comes meanwhile is for the program's handlers
    const SignalHandlersKept kept;
    // The program may have other threads (MPI's), which do not block them: until it has its handlers back, libinfinipath's would end it by SIGTERM with status 1.
    const DefaultVariable no_handlers("IPATH_NO_BACKTRACE", "1");
    // For ever: its threads and what it has registered for the end of the process live on.
    module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  }
  void* door = module == nullptr ? nullptr : dlsym(module, kOfiDoorName);
  if (door == nullptr) {
    const char* reason = dlerror();
    return FailedPrecondition("servers are configured, but the libfabric transport cannot be loaded: " +
                              std::string(reason == nullptr ? path : reason) + "; install it with libfabric and libsodium, or leave `servers` out");
  }
  Status why;
  ServerTransport* transport = reinterpret_cast<OfiDoor>(door)(&options, RAMSPAN_VERSION, &why);
  if (transport == nullptr) return why;
  return std::unique_ptr<ServerTransport>(transport);
}

}  // namespace ramspan
