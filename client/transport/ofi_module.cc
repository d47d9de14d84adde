// The door of libramspan-ofi.so; see ofi_door.h.
#include <cstdlib>
#include <string_view>

#include "client/transport/ofi_door.h"
#include "client/transport/ofi_transport.h"
#include "common/announced_servers.h"

namespace ramspan {
namespace {

// For tests only: RAMSPAN_TEST_FAR (servers of this host are reached over the network, too), RAMSPAN_TEST_SILENCE_MAX (seconds).
void ApplyTestSettings(OfiOptions* options) {
  options->near = std::getenv("RAMSPAN_TEST_FAR") == nullptr;
  options->fabric.register_local = std::getenv("RAMSPAN_TEST_REGISTER_LOCAL") != nullptr;
  if (const char* seconds = std::getenv("RAMSPAN_TEST_SILENCE_MAX")) options->silence_max = std::chrono::seconds(std::atoi(seconds));
}

// Who finds servers in a folder finds their secret there, too.
Result<std::string> KeyFile(const std::string& named, const ServerNames& names) {
  if (!named.empty()) return named;
  if (names.folders.empty()) return DefaultKeyFile();
  const Result<RendezvousFolder> folder = RendezvousFolder::Open(names.folders[0], /*make=*/false);
  if (!folder.ok()) return folder.status();
  return folder.value().key_file();
}

Result<std::unique_ptr<OfiTransport>> Open(const OfiDoorOptions& door, const char* version) {
  if (std::string_view(version) != RAMSPAN_VERSION) {
    return FailedPrecondition(std::string("libramspan is of version ") + version + ", its libfabric transport of " + RAMSPAN_VERSION);
  }
  const Result<ServerNames> names = ParseServerNames(door.servers);
  if (!names.ok()) return InvalidArgument("servers: " + names.status().message());
  const Result<std::string> file = KeyFile(door.key_file, names.value());
  if (!file.ok()) return file.status();
  const Result<Secret> secret = Secret::FromFile(file.value());
  if (!secret.ok()) return secret.status();
  OfiOptions options;
  options.servers = door.servers;
  options.fabric.provider = door.provider;
  if (IsKeyOfThisJob(file.value())) options.started_by = ServerTransport::Capabilities::StartedBy::kRunBesideJob;
  ApplyTestSettings(&options);
  return OfiTransport::Open(options, secret.value());
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ServerTransport* ramspan_open_ofi(const OfiDoorOptions* options, const char* version, Status* why) {
  Result<std::unique_ptr<OfiTransport>> opened = Open(*options, version);
  if (opened.ok()) return std::move(opened).value().release();
  *why = opened.status();
  return nullptr;
}

}  // namespace ramspan
