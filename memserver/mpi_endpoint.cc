#include "memserver/mpi_endpoint.h"

#include <algorithm>

namespace ramspan {
namespace {

// Answers that a client has not taken yet; one that asks faster than it listens gets no more of them.
constexpr size_t kUnsentMax = 16;

}  // namespace

MpiEndpoint::MpiEndpoint(MpiWorld& world) : world_(world) {
  for (uint32_t i = 0; i < world.clients().size(); ++i) {
    const size_t rank = static_cast<size_t>(world.clients()[i].world_rank);
    if (client_of_rank_.size() <= rank) client_of_rank_.resize(rank + 1, UINT32_MAX);
    client_of_rank_[rank] = i;
    senders_.push_back(std::make_unique<ControlSender>(world.control()));
  }
  needs_polling_ = std::any_of(world.clients().begin(), world.clients().end(),
                               [](const MpiWorld::Client& client) { return !client.same_node; });
  if (needs_polling_) events_ = EventDescriptors::OfThisProcess();
}

Status MpiEndpoint::Poll(std::optional<Message>* message) {
  message->reset();
  trust_.NotePoll();
  Status received = ReceiveControl(world_.control(), MPI_ANY_SOURCE, &last_);
  if (!received.ok() || last_.source < 0) return received;
  const auto rank = static_cast<size_t>(last_.source);
  const uint32_t client = rank < client_of_rank_.size() ? client_of_rank_[rank] : UINT32_MAX;
  const std::span<const std::byte> record = last_.record;
  *message = {client, last_.whole ? record : record.first(0)};
  // Clients of this node talk through shared memory, which no descriptor tells of.
  if (client != UINT32_MAX && !world_.clients()[client].same_node) trust_.NoteMessage();
  return received;
}

Endpoint::Arrival MpiEndpoint::Wait(std::chrono::microseconds timeout) {
  if (events_.empty() || !trust_.trusted()) return Arrival::kUnknown;
  const bool some = events_.Wait(timeout);
  if (timeout.count() > 0) trust_.NoteWait(some);
  return some ? Arrival::kSome : Arrival::kNone;
}

void MpiEndpoint::Progress() {
  int ignored = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_.control(), &ignored, MPI_STATUS_IGNORE);
}

bool MpiEndpoint::Answer(uint32_t client, const WireMessage& message) {
  ControlSender& sender = *senders_[client];
  return sender.unsent() < (message.type == WireType::kSpare ? 1 : kUnsentMax) && sender.Send(world_.clients()[client].world_rank, message).ok();
}

}  // namespace ramspan
