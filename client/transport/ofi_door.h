// The way from the library to its libfabric transport, which is a module of its own (libramspan-ofi.so) and is loaded when it is
// asked for: programs that do not use it load neither libfabric nor libsodium.
#pragma once

#include <memory>
#include <string>

#include "client/transport/transport.h"

namespace ramspan {

struct OfiDoorOptions {
  std::string servers;   // places, comma-separated (common/socket_address.h)
  std::string key_file;  // empty: DefaultKeyFile
  std::string provider;  // empty: any
};

// kInvalidArgument: what the user wrote. kUnavailable: no server answers. kFailedPrecondition: the module is not installed. Blocks
// until all servers have answered, or for 10 s each.
Result<std::unique_ptr<ServerTransport>> OpenOfi(const OfiDoorOptions& options);

// What the module has; the library calls it by this name. `*why` is set instead of a result where there is none.
extern "C" {
using OfiDoor = ServerTransport* (*)(const OfiDoorOptions* options, const char* version, Status* why);
}
inline constexpr const char* kOfiDoorName = "ramspan_open_ofi";

}  // namespace ramspan
