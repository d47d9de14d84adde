#include "memserver/server.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "common/log.h"

namespace ramspan {
namespace {

// Clients repeat their announcement every 5 ms while they use RMA (client/transport/mpi_rma.cc); four of them may be
// late before the loop starts to sleep between polls.
constexpr std::chrono::milliseconds kActivityLasts{25};
// A client inside one long flush cannot repeat it. It says before how much will come, and after it that it is done:
// the wire is taken for a slow one.
constexpr uint64_t kActivityBytesPerMs = 20'000;
// Who was asked to give back needs seconds for it, and wants last for 10 s.
constexpr std::chrono::seconds kUpkeepEvery{1};
// How long who waits is told that some of what others do not use may come: a busy one looks within a second, and who has no other swap waits for five. Who has
// not asked for kWaitsAnew waits for something else now.
constexpr std::chrono::seconds kSpareWithin{3}, kWaitsAnew{1};

}  // namespace

MemServer::MemServer(MemServerOptions options)
    : options_(std::move(options)), leases_(options_.pool_bytes, options_.clients, options_.reclaim), sessions_(options_.clients),
      active_until_(options_.clients), granted_(options_.clients) {}

bool MemServer::RmaIsActive(Clock::time_point now) const {
  return std::any_of(active_until_.begin(), active_until_.end(), [now](Clock::time_point until) { return now < until; });
}

std::optional<WireMessage> MemServer::Handle(uint32_t client, std::span<const std::byte> record,
                                             Clock::time_point now) {
  if (client >= sessions_.size()) return std::nullopt;
  const Result<WireMessage> decoded = Decode(record);
  if (!decoded.ok()) {
    NoteBad(client, decoded.status());
    return std::nullopt;
  }
  const WireMessage& message = decoded.value();
  ClientSession& session = sessions_[client];
  if (message.type == WireType::kBye) {
    if (!session.BeginDrain()) {
      NoteBad(client, FailedPrecondition("bye said twice"));
      return std::nullopt;
    }
    leases_.Retire(client);
    ++draining_;
    ++((message.flags & kByeTogether) != 0 ? byes_together_ : byes_alone_);
    return std::nullopt;
  }
  const bool from_client = message.type == WireType::kLeaseRequest || message.type == WireType::kLeaseReturn ||
                           message.type == WireType::kActivity;
  if (!from_client || !session.NoteRequest()) {
    NoteBad(client, FailedPrecondition(from_client ? "request after bye" : "a server's message from a client"));
    return std::nullopt;
  }
  if (message.type == WireType::kLeaseRequest) return GrantOrRefuse(client, message, now);
  if (message.type == WireType::kActivity) {
    const uint64_t bytes = std::min(message.bytes, options_.pool_bytes);
    active_until_[client] = now + kActivityLasts + std::chrono::milliseconds(bytes / kActivityBytesPerMs);
  }
  if (message.type == WireType::kLeaseReturn) {
    const Status returned = leases_.Return(client, message.lease);
    if (!returned.ok()) NoteBad(client, returned);
  }
  return std::nullopt;
}

void MemServer::AskBack(Clock::time_point now) {
  if (!options_.ask_back) return;
  for (const LeaseTable::Claim& claim : leases_.AskBack(now)) options_.ask_back(claim.client, leases_.ToBeReturnedBy(claim.client));
}

void MemServer::SettleClaims(Clock::time_point now) {
  if (!options_.ask_back) return;
  for (const uint32_t client : leases_.TakeBack(now)) options_.ask_back(client, leases_.ToBeReturnedBy(client));
  AskBack(now);
}

void MemServer::Upkeep(Clock::time_point now) {
  // Also where nothing is awaited: those who were spared are asked again while more is out than may be.
  if (now < next_upkeep_) return;
  next_upkeep_ = now + kUpkeepEvery;
  SettleClaims(now);
}

void MemServer::SetLent(uint64_t bytes, Clock::time_point now) {
  leases_.SetLent(bytes);
  SettleClaims(now);
}

void MemServer::SetQuota(const std::string& job, std::optional<uint64_t> bytes, Clock::time_point now) {
  leases_.SetQuota(job, bytes);
  SettleClaims(now);
}

// Leases that nobody uses are nobody's right, whatever the shares. True: some may come. Who waits is refused when all have been asked since it began.
bool MemServer::AskForSpare(uint32_t by, Clock::time_point now) {
  if (waiting_.size() <= by) waiting_.resize(sessions_.size());
  Waiting& wait = waiting_[by];
  if (now >= wait.last + kWaitsAnew) wait.began = now;
  wait.last = now;
  if (spare_asked_at_ && now < *spare_asked_at_ + kSpareWithin) return true;
  if (spare_asked_at_ && *spare_asked_at_ >= wait.began) return false;
  bool any = false;
  for (uint32_t client = 0; client < sessions_.size(); ++client) {
    if (client == by || leases_.HeldBy(client) == 0) continue;
    options_.ask_for_spare(client);
    any = true;
  }
  if (any) spare_asked_at_ = now;
  return any;
}

FullReason MemServer::NoteRefusal(uint32_t client, const WireMessage& request, const Status& why, Clock::time_point now) {
  const bool asks = options_.ask_for_spare && (request.flags & kNoOtherPlace) != 0 && leases_.QuotaAllows(client, request.minimum_bytes);
  const bool spare_may_come = asks && AskForSpare(client, now);
  if (leases_.WantOf(client) > 0) {
    AskBack(now);
    if (leases_.awaited_bytes() > 0) return FullReason::kSoon;
  }
  if (spare_may_come) return FullReason::kSoon;
  return why.code() == StatusCode::kUnavailable ? FullReason::kQuota : FullReason::kPool;
}

WireMessage MemServer::GrantOrRefuse(uint32_t client, const WireMessage& request, Clock::time_point now) {
  // The client did not get the answer, or not in time, and asks again: it gets the same lease, not another one.
  new_lease_ = 0;
  const WireMessage& before = granted_[client];
  if (before.lease != 0 && before.sequence == request.sequence && leases_.Holds(client, before.lease)) return before;
  WireMessage answer{.type = WireType::kFull, .sequence = request.sequence};
  if (is_draining_) {
    answer.flags = static_cast<uint32_t>(FullReason::kPool);
    return answer;
  }
  leases_.ForgetOldWants(now);
  Result<Lease> lease = leases_.Grant(client, request.bytes, request.minimum_bytes);
  // What others' reserves kept from it may be its own by right.
  if (!lease.ok() && options_.ask_back && leases_.NoteWant(client, request.bytes, (request.flags & ~kNoOtherPlace) * kLeaseGranule, now) > 0) {
    lease = leases_.Grant(client, request.bytes, request.minimum_bytes);
  }
  if (!lease.ok()) {
    answer.flags = static_cast<uint32_t>(NoteRefusal(client, request, lease.status(), now));
  } else if (options_.provide && !options_.provide(lease.value())) {
    leases_.Undo(lease.value().id);
    answer.flags = static_cast<uint32_t>(FullReason::kNoMemory);
  } else {
    answer = {.type = WireType::kLeaseGrant,
              .sequence = request.sequence,
              .lease = lease.value().id,
              .offset = lease.value().offset,
              .bytes = lease.value().bytes};
  }
  answer.free_bytes = leases_.FreeFor(client);
  if (answer.type == WireType::kLeaseGrant) granted_[client] = answer;
  new_lease_ = answer.lease;
  return answer;
}

void MemServer::Withdraw(uint32_t client, const WireMessage& answer) {
  // An answer that was given before may have been received; the client has that lease or asks once more.
  if (answer.type != WireType::kLeaseGrant || answer.lease != new_lease_) return;
  granted_[client] = {};
  leases_.Undo(answer.lease);
}

void MemServer::NoteArrival(uint32_t client, const std::string& job) {
  RS_CHECK(client <= sessions_.size(), "client %u comes when there are %zu", client, sessions_.size());
  leases_.Welcome(client, job);
  if (client == sessions_.size()) {
    sessions_.emplace_back();
    active_until_.emplace_back();
    granted_.emplace_back();
    return;
  }
  const SessionState before = sessions_[client].state();
  RS_CHECK(before == SessionState::kDraining || before == SessionState::kGone, "client %u comes while it is %s", client,
           SessionStateName(before));
  sessions_[client] = {};
  active_until_[client] = {};
  granted_[client] = {};
  --draining_;
}

void MemServer::NoteDeath(uint32_t client) {
  if (client >= sessions_.size() || !sessions_[client].NoteDeath()) return;
  leases_.Retire(client);
  active_until_[client] = {};
  ++draining_;
}

Result<bool> MemServer::LeaveTogether() const {
  RS_CHECK(Done(), "%zu clients are still here", sessions_.size() - draining_);
  if (byes_together_ != 0 && byes_alone_ != 0) {
    return FailedPrecondition(
        "the clients do not agree on the end of the job: " + std::to_string(byes_alone_) + " of " +
        std::to_string(sessions_.size()) +
        " say that a server died, the others wait for everybody; see the messages of the compute ranks");
  }
  return byes_alone_ == 0 && byes_together_ == sessions_.size();
}

void MemServer::NoteBad(uint32_t client, const Status& why) {
  ClientSession& session = sessions_[client];
  if (!session.NoteBadMessage()) return;
  LogWarning("memory server %s: ignored message %llu from client %u: %s", options_.label.c_str(),
             static_cast<unsigned long long>(session.bad_messages()), client, why.message().c_str());
}

void MemServer::Finish() {
  for (ClientSession& session : sessions_) {
    if (session.state() != SessionState::kGone) session.FinishDrain();
  }
}

}  // namespace ramspan
