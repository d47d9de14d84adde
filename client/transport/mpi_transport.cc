#include "client/transport/mpi_transport.h"

#include <algorithm>
#include <chrono>

#include "client/transport/mpi_near.h"
#include "common/close_on_exec.h"
#include "common/log.h"

namespace ramspan {

MpiTransport::MpiTransport(MpiWorld& world, MpiWatchdog::Options watchdog)
    : world_(world), watchdog_(world, watchdog), rma_(world, watchdog_), sender_(world.control()) {
  const auto is_far = [](const MpiWorld::Server& server) { return server.shared == nullptr; };
  if (std::any_of(world.servers().begin(), world.servers().end(), is_far)) watchdog_.Start();
}

ServerTransport::Server MpiTransport::server(uint32_t number) const {
  const MpiWorld::Server& server = world_.servers()[number];
  return {.label = "rank " + std::to_string(server.world_rank),
          .distance = server.distance,
          .capacity_bytes = server.pool_bytes,
          .mapped = server.shared};
}

void MpiTransport::Send(uint32_t server, const WireMessage& message) {
  if (!sender_.Send(world_.servers()[server].world_rank, message).ok()) world_.MarkDead(server);
}

std::optional<ServerTransport::Control> MpiTransport::Receive() {
  ControlMessage message;
  while (ReceiveControl(world_.control(), MPI_ANY_SOURCE, &message).ok() && message.source >= 0) {
    const auto& servers = world_.servers();
    const auto from = std::find_if(servers.begin(), servers.end(),
                                   [&](const MpiWorld::Server& server) { return server.world_rank == message.source; });
    if (from != servers.end() && message.whole) {
      return Control{static_cast<uint32_t>(from - servers.begin()), message.record};
    }
    LogWarning("ignored a message from rank %d, which is no control message of a memory server", message.source);
  }
  return std::nullopt;
}

void MpiTransport::Prepare(uint32_t server, uint64_t offset, uint64_t bytes) {
  if (world_.servers()[server].shared != nullptr) MapNearPages(world_.servers()[server], offset, bytes);
}

void MpiTransport::Upkeep() {
  if (event_queues_.empty()) return;
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  int64_t at = looks_at_ns_.load(std::memory_order_relaxed);
  const int64_t next_in = looks_next_in_ns_.load(std::memory_order_relaxed);
  if (now < at || !looks_at_ns_.compare_exchange_strong(at, now + next_in, std::memory_order_relaxed)) return;
  looks_next_in_ns_.store(2 * next_in, std::memory_order_relaxed);
  for (const int queue : event_queues_) {
    if (IsEventQueue(queue)) CloseOnExec(queue);  // MPI may have closed it, and the program have something else under its number
  }
}

}  // namespace ramspan
