#include "client/swap/lease_client.h"

#include <sched.h>

#include <chrono>
#include <utility>

#include "common/log.h"

namespace ramspan {
namespace {

constexpr std::chrono::milliseconds kLastSends{100};

}  // namespace

LeaseClient::~LeaseClient() {
  const auto deadline = std::chrono::steady_clock::now() + kLastSends;
  while (!ForgetSent() && std::chrono::steady_clock::now() < deadline) sched_yield();
  // What is unsent now is for a dead server and will never be sent; it stays where MPI may look at it.
  if (!unsent_.empty()) static_cast<void>(new std::deque<Unsent>(std::move(unsent_)));
}

bool LeaseClient::ForgetSent() {
  int sent = 1;
  while (!unsent_.empty() && MPI_Test(&unsent_.front().request, &sent, MPI_STATUS_IGNORE) == MPI_SUCCESS && sent != 0) {
    unsent_.pop_front();
  }
  return unsent_.empty();
}

void LeaseClient::Ask(uint32_t server, uint64_t want, uint64_t minimum) {
  Send(server, {.type = WireType::kLeaseRequest, .sequence = ++sequence_, .bytes = want, .minimum_bytes = minimum});
}

void LeaseClient::Return(uint32_t server, uint64_t lease) {
  Send(server, {.type = WireType::kLeaseReturn, .sequence = ++sequence_, .lease = lease});
}

void LeaseClient::Send(uint32_t server, const WireMessage& message) {
  ForgetSent();
  Unsent& unsent = unsent_.emplace_back();
  unsent.record = Encode(message);
  if (MPI_Isend(unsent.record.data(), kWireBytes, MPI_BYTE, world_.servers()[server].world_rank, 0, world_.control(),
                &unsent.request) != MPI_SUCCESS) {
    unsent_.pop_back();
    world_.MarkDead(server);
  }
}

std::optional<LeaseClient::Answer> LeaseClient::Next() {
  for (;;) {
    int arrived = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_.control(), &arrived, &status) != MPI_SUCCESS || arrived == 0) {
      return std::nullopt;
    }
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::vector<std::byte> record(static_cast<size_t>(bytes > 0 ? bytes : 0));
    if (MPI_Recv(record.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, world_.control(),
                 MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      return std::nullopt;
    }
    uint32_t server = 0;
    while (server < world_.servers().size() && world_.servers()[server].world_rank != status.MPI_SOURCE) ++server;
    const Result<WireMessage> message = Decode(record);
    const bool possible =
        server < world_.servers().size() && message.ok() &&
        (message.value().type == WireType::kFull ||
         (message.value().type == WireType::kLeaseGrant &&
          message.value().offset + message.value().bytes <= world_.servers()[server].pool_bytes));
    if (possible) return Answer{server, message.value()};
    LogWarning("ignored an impossible control message from rank %d", status.MPI_SOURCE);
  }
}

}  // namespace ramspan
