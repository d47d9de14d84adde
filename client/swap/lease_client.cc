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

WireMessage LeaseClient::Ask(uint32_t server, uint64_t want, uint64_t minimum, uint64_t needed, bool no_other_place) {
  if (const WireMessage* const unanswered = ledger_.Outstanding(server)) {
    const WireMessage again = *unanswered;
    transport_.Send(server, again);
    return again;
  }
  const WireMessage request{.type = WireType::kLeaseRequest,
                            .sequence = NextSequence(),
                            .flags = static_cast<uint32_t>((needed + kLeaseGranule - 1) / kLeaseGranule) | (no_other_place ? kNoOtherPlace : 0),
                            .bytes = want,
                            .minimum_bytes = minimum};
  ledger_.NoteRequest(server, request);
  transport_.Send(server, request);
  return request;
}

void LeaseClient::Return(uint32_t server, uint64_t lease) {
  ledger_.NoteReturned(server, lease);
  transport_.Send(server, {.type = WireType::kLeaseReturn, .sequence = NextSequence(), .lease = lease});
}

std::optional<LeaseClient::Answer> LeaseClient::Next() {
  while (const std::optional<ServerTransport::Control> control = transport_.Receive()) {
    const Result<WireMessage> decoded = Decode(control->record);
    if (!decoded.ok()) {
      LogWarning("ignored a message of memory server %s: %s", transport_.server(control->server).label.c_str(),
                 decoded.status().c_str());
      continue;
    }
    if (decoded.value().type == WireType::kSpare) return Answer{control->server, decoded.value()};
    if (std::optional<Answer> answer = Judge(control->server, decoded.value())) return answer;
  }
  return std::nullopt;
}

std::optional<LeaseClient::Answer> LeaseClient::Judge(uint32_t number, const WireMessage& message) {
  const ServerTransport::Server server = transport_.server(number);
  const LeaseLedger::Verdict verdict = ledger_.Judge(number, message, server.capacity_bytes);
  switch (verdict) {
    case LeaseLedger::Verdict::kTake:
    case LeaseLedger::Verdict::kFull: return Answer{number, message};
    case LeaseLedger::Verdict::kBroken:
      LogWarning("memory server %s granted memory that cannot be granted; it counts as full for now", server.label.c_str());
      if (!ledger_.Holds(number, message.lease)) Return(number, message.lease);
      return Answer{number, {.type = WireType::kFull, .sequence = message.sequence}};
    case LeaseLedger::Verdict::kGiveBack: Return(number, message.lease); break;
    case LeaseLedger::Verdict::kIgnore: break;
  }
  return std::nullopt;
}

}  // namespace ramspan
