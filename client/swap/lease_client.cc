#include "client/swap/lease_client.h"

#include <atomic>

#include "common/log.h"

namespace ramspan {
namespace {

// Of the process, so that an answer to a tier that has gone is never taken for one to another. Relaxed: the number has
// to be new, it publishes nothing.
uint32_t NextSequence() {
  static std::atomic<uint32_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

void LeaseClient::Ask(uint32_t server, uint64_t want, uint64_t minimum) {
  const WireMessage* unanswered = ledger_.Outstanding(server);
  if (unanswered != nullptr) return Send(server, *unanswered);
  const WireMessage request{
      .type = WireType::kLeaseRequest, .sequence = NextSequence(), .bytes = want, .minimum_bytes = minimum};
  ledger_.NoteRequest(server, request);
  Send(server, request);
}

void LeaseClient::Return(uint32_t server, uint64_t lease) {
  ledger_.NoteReturned(server, lease);
  Send(server, {.type = WireType::kLeaseReturn, .sequence = NextSequence(), .lease = lease});
}

void LeaseClient::Send(uint32_t server, const WireMessage& message) {
  if (!sender_.Send(world_.servers()[server].world_rank, message).ok()) world_.MarkDead(server);
}

std::optional<LeaseClient::Answer> LeaseClient::Next() {
  ControlMessage message;
  while (ReceiveControl(world_.control(), MPI_ANY_SOURCE, &message).ok() && message.source >= 0) {
    uint32_t server = 0;
    while (server < world_.servers().size() && world_.servers()[server].world_rank != message.source) ++server;
    const Result<WireMessage> decoded =
        message.whole ? Decode(message.record) : InvalidArgument("control message of a wrong length");
    if (server == world_.servers().size() || !decoded.ok()) {
      LogWarning("ignored a control message from rank %d: %s", message.source, decoded.status().message().c_str());
      continue;
    }
    if (std::optional<Answer> answer = Judge(server, decoded.value())) return answer;
  }
  return std::nullopt;
}

std::optional<LeaseClient::Answer> LeaseClient::Judge(uint32_t server, const WireMessage& message) {
  const LeaseLedger::Verdict verdict = ledger_.Judge(server, message, world_.servers()[server].pool_bytes);
  const int rank = world_.servers()[server].world_rank;
  switch (verdict) {
    case LeaseLedger::Verdict::kTake:
    case LeaseLedger::Verdict::kFull: return Answer{server, message};
    case LeaseLedger::Verdict::kBroken:
      LogWarning("memory server rank %d granted memory that cannot be granted; it counts as full for now", rank);
      if (!ledger_.Holds(server, message.lease)) Return(server, message.lease);
      return Answer{server, {.type = WireType::kFull, .sequence = message.sequence}};
    case LeaseLedger::Verdict::kGiveBack: Return(server, message.lease); break;
    case LeaseLedger::Verdict::kIgnore: break;
  }
  return std::nullopt;
}

}  // namespace ramspan
