#include "client/swap/lease_ledger.h"

#include <iterator>
#include <new>

namespace ramspan {

LeaseLedger::Server& LeaseLedger::At(uint32_t server) {
  if (server >= servers_.size()) servers_.resize(server + size_t{1});
  return servers_[server];
}

void LeaseLedger::NoteRequest(uint32_t server, const WireMessage& request) { At(server).outstanding = request; }

const WireMessage* LeaseLedger::Outstanding(uint32_t server) const {
  if (server >= servers_.size() || !servers_[server].outstanding) return nullptr;
  return &*servers_[server].outstanding;
}

bool LeaseLedger::OverlapsHeld(const Server& server, uint64_t offset, uint64_t bytes) {
  const auto next = server.by_offset.lower_bound(offset);
  // Differences, not sums: nothing here can wrap.
  if (next != server.by_offset.end() && next->first - offset < bytes) return true;
  if (next == server.by_offset.begin()) return false;
  const auto before = std::prev(next);
  return offset - before->first < before->second.bytes;
}

LeaseLedger::Verdict LeaseLedger::Judge(uint32_t number, const WireMessage& answer, uint64_t limit_bytes) {
  Server& server = At(number);
  const bool is_grant = answer.type == WireType::kLeaseGrant;
  const bool is_ours = is_grant && server.offset_of_lease.contains(answer.lease);
  const bool is_answer = (is_grant || answer.type == WireType::kFull) && server.outstanding &&
                         server.outstanding->sequence == answer.sequence;
  if (!is_answer) return is_grant && !is_ours ? Verdict::kGiveBack : Verdict::kIgnore;
  const uint64_t wanted = server.outstanding->bytes, least = server.outstanding->minimum_bytes;
  if (!is_grant) {
    server.outstanding.reset();
    return Verdict::kFull;
  }
  const bool inside = answer.bytes != 0 && answer.bytes <= limit_bytes && answer.offset <= limit_bytes - answer.bytes;
  if (!inside || answer.bytes > wanted || answer.bytes < least || is_ours || OverlapsHeld(server, answer.offset, answer.bytes)) {
    server.outstanding.reset();
    return Verdict::kBroken;
  }
  // Where the heap has no more the request stays unanswered: it is sent again, and gets the same lease.
  server.offset_of_lease.try_emplace(answer.lease, answer.offset);
  try {
    server.by_offset[answer.offset] = {answer.bytes, answer.lease};
  } catch (const std::bad_alloc&) {
    server.offset_of_lease.erase(answer.lease);
    throw;
  }
  server.outstanding.reset();
  return Verdict::kTake;
}

bool LeaseLedger::Holds(uint32_t server, uint64_t lease) const {
  return server < servers_.size() && servers_[server].offset_of_lease.contains(lease);
}

void LeaseLedger::NoteReturned(uint32_t number, uint64_t lease) {
  Server& server = At(number);
  const auto found = server.offset_of_lease.find(lease);
  if (found == server.offset_of_lease.end()) return;
  server.by_offset.erase(found->second);
  server.offset_of_lease.erase(found);
}

}  // namespace ramspan
