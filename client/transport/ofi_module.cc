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

Result<std::unique_ptr<OfiTransport>> Open(const OfiDoorOptions& door, const char* version) {
  if (std::string_view(version) != RAMSPAN_VERSION) {
    return FailedPrecondition(std::string("libramspan is of version ") + version + ", its libfabric transport of " + RAMSPAN_VERSION);
  }
  Result<std::vector<SocketPlace>> places = ParseSocketPlaces(door.servers);
  if (!places.ok()) return InvalidArgument("servers: " + places.status().message());
  const Result<std::string> file = door.key_file.empty() ? DefaultKeyFile() : Result<std::string>(door.key_file);
  if (!file.ok()) return file.status();
  const Result<Secret> secret = Secret::FromFile(file.value());
  if (!secret.ok()) return secret.status();
  OfiOptions options;
  options.places = std::move(places).value();
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
