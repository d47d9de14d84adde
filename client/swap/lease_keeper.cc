#include "client/swap/lease_keeper.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "client/swap/server_advice.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFullPauseMin{20}, kFullPauseMax{1000};
// An answer takes 10 us from a busy server and 1 ms from a sleeping one: look so often before the waits begin.
constexpr int kLooksBeforeWaiting = 20;
constexpr std::chrono::microseconds kWaitForAnswer{50};

}  // namespace

LeaseKeeper::LeaseKeeper(ServerTransport& transport, const RemoteSwapOptions& options)
    : transport_(transport), options_(options), client_(transport), sides_{Side(options.leases_max), Side(options.leases_max)} {
  MutexLock lock(mutex_);
  for (Side& side : sides_) side.next_lease_bytes = RoundUpToLease(options.first_lease_bytes);
  NoteNewServers();
}

// Nobody else is here, so the mutex is left alone. What cannot be returned for want of heap stays leased for as long as this client is known.
LeaseKeeper::~LeaseKeeper() {
  WithinHeap([this] { return AwaitLastAnswers(), true; }, false);
  const auto give_back = [this](const LeaseSpace::Lease& lease) {
    if (!IsDead(lease.server)) WithinHeap([&] { return client_.Return(lease.server, lease.id), true; }, false);
  };
  for (const Side& side : sides_) side.space.ForEach(give_back);
}

// A grant that comes too late is given back with the others.
void LeaseKeeper::AwaitLastAnswers() {
  const Time deadline = Now() + options_.last_answers;
  for (bool waiting = true; waiting && Now() < deadline;) {
    TakeAnswers();
    MutexLock lock(mutex_);
    waiting = false;
    for (uint32_t i = 0; i < servers_.size(); ++i) waiting = waiting || (servers_[i].asked && !IsDead(i));
    if (waiting) role_is_free_.WaitFor(mutex_, milliseconds(1));
  }
}

void LeaseKeeper::NoteNewServers() {
  for (uint32_t i = static_cast<uint32_t>(servers_.size()); i < transport_.servers(); ++i) {
    const ServerTransport::Server server = transport_.server(i);
    servers_.push_back({.server = server, .free_bytes = server.capacity_bytes});
    ++sides_[server.mapped != nullptr].servers;
    if (server.mapped == nullptr) any_far_.store(true, std::memory_order_relaxed);
  }
}

bool LeaseKeeper::HasServers(bool near) {
  MutexLock lock(mutex_);
  NoteNewServers();
  return sides_[near].servers > 0;
}

// ---- Slots ----

// What there is on either side, before any wait for room: a near server that drains must not keep far ones idle.
Result<SlotRef> LeaseKeeper::Reserve(size_t bytes, SwapTier::Patience patience) {
  const Time begin = Now();
  for (Time since = begin;; since = Now()) {  // answers are not late because room was waited for
    for (const bool near : {true, false}) {
      if (const SlotRef slot = ReserveOn(near, bytes, since)) return slot;
    }
    if (patience == SwapTier::Patience::kAsk || !WaitForRoom(begin)) return FullStatus();
  }
}

// Asks the servers of this side for as many leases as it takes.
SlotRef LeaseKeeper::ReserveOn(bool near, size_t bytes, Time since) {
  while (HasServers(near)) {
    if (const SlotRef slot = ReserveHeld(near, bytes)) return slot;
    if (!TakeAskingRole(since)) break;
    const AskingRole role(this);
    // Somebody else may have grown the side while this thread waited for the role.
    const SlotRef slot = ReserveHeld(near, bytes);
    const bool grown = !slot && Grow(near, bytes, since);
    if (slot || !grown) return slot;
  }
  return {};
}

// Whether some server has asked other clients to make room for this one: worth a wait for who has no other swap.
bool LeaseKeeper::MakesRoom() const {
  if (!options_.is_all) return false;
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i].makes_room && !IsDead(i)) return true;
  }
  return false;
}

// A server that drains may lend again, or is about to be replaced by another one: worth a wait for who must fail otherwise, but for no
// eviction, since it may drain for hours.
bool LeaseKeeper::MayHaveRoomSoon() const {
  if (MakesRoom()) return true;
  for (uint32_t i = 0; options_.is_all && i < servers_.size(); ++i) {
    if (transport_.state(i) == ServerTransport::ServerState::kDraining) return true;
  }
  return false;
}

// A little of that wait; false: it is over, or there is nothing to wait for.
bool LeaseKeeper::WaitForRoom(Time since) {
  MutexLock lock(mutex_);
  if (AnswersAreLate(since) || !MayHaveRoomSoon()) return false;
  role_is_free_.WaitFor(mutex_, kFullPauseMin);
  return true;
}

Result<SlotRef> LeaseKeeper::TryReserve(size_t bytes) {
  for (const bool near : {true, false}) {
    if (const SlotRef slot = ReserveHeld(near, bytes)) return slot;
    MutexLock lock(mutex_);
    if (AnyToAsk(near, Now())) return Status(StatusCode::kMustAsk, StaticText("a memory server has to be asked"));
  }
  {
    MutexLock lock(mutex_);
    if (MakesRoom()) return Status(StatusCode::kMustAsk, StaticText("a memory server may have room soon"));
  }
  turned_away_.store(true, std::memory_order_relaxed);
  return Status(FullCode(), StaticText("no memory server has room"));
}

SlotRef LeaseKeeper::ReserveHeld(bool near, size_t bytes) {
  MutexLock lock(mutex_);
  const SlotRef slot = sides_[near].space.Reserve(bytes);
  return slot && !near ? slot_bits::WithFar(slot) : slot;
}

void LeaseKeeper::Free(SlotRef slot, size_t bytes) noexcept {
  MutexLock lock(mutex_);
  sides_[!slot_bits::IsFar(slot)].space.Free(slot_bits::WithoutFar(slot), bytes);
}

SlotRef LeaseKeeper::TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) {
  if (given.empty()) return {};
  const bool near = !slot_bits::IsFar(given[0].slot);
  std::array<HeldSlot, SwapTier::kExchangeMax> own;
  for (size_t i = 0; i < given.size(); ++i) own[i] = {slot_bits::WithoutFar(given[i].slot), given[i].bytes};
  MutexLock lock(mutex_);
  const SlotRef slot = sides_[near].space.Exchange(std::span(own.data(), given.size()), bytes, taken);
  return near || !slot ? slot : slot_bits::WithFar(slot);
}

void LeaseKeeper::Locate(SlotRef slot, size_t bytes, std::vector<RemotePiece>* pieces) const {
  MutexLock lock(mutex_);
  sides_[!slot_bits::IsFar(slot)].space.Locate(slot_bits::WithoutFar(slot), bytes, pieces);
}

// What is mapped outlives its server.
uint32_t LeaseKeeper::LostWith(SlotRef slot, size_t bytes) const noexcept {
  uint32_t dead = SwapTier::kNoServer;
  if (!slot_bits::IsFar(slot)) return dead;
  MutexLock lock(mutex_);
  sides_[0].space.AnyServerOf(slot_bits::WithoutFar(slot), bytes, [&](uint32_t server) {
    if (IsDead(server)) dead = server;
    return dead != SwapTier::kNoServer;
  });
  return dead;
}

void LeaseKeeper::AddTo(TierStats* stats) const {
  MutexLock lock(mutex_);
  for (const Side& side : sides_) {
    stats->slot_bytes_used += side.space.used_bytes();
    stats->slot_bytes_capacity += side.space.capacity_bytes();
    stats->slot_bytes_leaving += side.space.leaving_bytes();
  }
}

uint64_t LeaseKeeper::metadata_bytes() const {
  MutexLock lock(mutex_);
  uint64_t sum = sizeof *this + servers_.capacity() * sizeof(ServerState);
  for (const Side& side : sides_) sum += side.space.metadata_bytes();
  return sum;
}

void LeaseKeeper::AddTo(std::span<ServerStats> servers) const {
  MutexLock lock(mutex_);
  for (const Side& side : sides_) side.space.AddTo(servers);
}

// kResourceExhausted: somebody lives who could lend. kUnavailable: nobody does.
StatusCode LeaseKeeper::FullCode() const {
  for (const bool near : {true, false}) {
    MutexLock lock(mutex_);
    if (transport_.servers() > 0 && !sides_[near].space.MayAdd()) return StatusCode::kResourceExhausted;
  }
  for (uint32_t i = 0; i < transport_.servers(); ++i) {
    if (!IsDead(i)) return StatusCode::kResourceExhausted;
  }
  return StatusCode::kUnavailable;
}

Status LeaseKeeper::FullStatus() const {
  turned_away_.store(true, std::memory_order_relaxed);
  if (transport_.servers() == 0) return Unavailable(NoServerYet());
  uint64_t largest = 0;
  for (uint32_t i = 0; i < transport_.servers(); ++i) largest = std::max(largest, transport_.server(i).capacity_bytes);
  for (const bool near : {true, false}) {
    MutexLock lock(mutex_);
    if (const LeaseSpace& space = sides_[near].space; !space.MayAdd()) {
      return ResourceExhausted(NoMoreLeasesFit(space.leases(), space.capacity_bytes()));
    }
  }
  const ServersStartedBy by = transport_.capabilities().started_by;
  return FullCode() == StatusCode::kResourceExhausted ? ResourceExhausted(ServersAreFull(by, largest)) : Unavailable(AllServersAreDead(by));
}

// ---- Leases ----

// Since the last lease, not for all that a large chunk needs: servers that give one after the other do answer.
bool LeaseKeeper::AnswersAreLate(Time since) const {
  return Now() >= std::max(since, last_grant_) + options_.answer_timeout;
}

bool LeaseKeeper::TakeAskingRole(Time since) {
  MutexLock lock(mutex_);
  while (asking_) {
    if (AnswersAreLate(since)) return false;
    role_is_free_.WaitFor(mutex_, milliseconds(1));
  }
  asking_ = true;
  return true;
}

bool LeaseKeeper::TryTakeAskingRole() {
  MutexLock lock(mutex_);
  return !std::exchange(asking_, true);
}

void LeaseKeeper::LeaveAskingRole() {
  MutexLock lock(mutex_);
  asking_ = false;
  role_is_free_.NotifyAll();
}

bool LeaseKeeper::MayAsk(uint32_t server, bool near, Time now) const {
  const ServerState& state = servers_[server];
  return transport_.state(server) == ServerTransport::ServerState::kAlive && now >= state.full_until && state.near() == near;
}

bool LeaseKeeper::AnyToAsk(bool near, Time now) {
  NoteNewServers();
  if (!sides_[near].space.MayAdd()) return false;
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    if (MayAsk(i, near, now)) return true;
  }
  return false;
}

// By distance, then by free room; servers that tie are taken in an order that differs from client to client.
std::vector<uint32_t> LeaseKeeper::ServersToAsk(bool near, Time now) {
  NoteNewServers();
  std::vector<uint32_t> order;
  if (!sides_[near].space.MayAdd()) return order;
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    if (MayAsk(i, near, now)) order.push_back(i);
  }
  const auto key = [&](uint32_t i) RS_NO_THREAD_SAFETY_ANALYSIS {
    return std::tuple(servers_[i].server.distance, ~servers_[i].free_bytes, (i + transport_.self()) % servers_.size());
  };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  return order;
}

// Adds a lease of this side, or finds that there is none to have now.
bool LeaseKeeper::Grow(bool near, uint64_t bytes, Time since) {
  std::vector<uint32_t> order;
  uint64_t grants_before = 0;
  {
    MutexLock lock(mutex_);
    order = ServersToAsk(near, Now());
    grants_before = grants_;
  }
  for (const uint32_t server : order) {
    Ask(server, bytes);
    if (AwaitLease(server, grants_before, since)) return true;
  }
  return false;
}

// True: some server has given a lease meanwhile. False: this one will not, or not in time.
bool LeaseKeeper::AwaitLease(uint32_t server, uint64_t grants_before, Time since) {
  for (int look = 0;; ++look) {
    TakeAnswers();
    MutexLock lock(mutex_);
    if (grants_ != grants_before) return true;
    if (!servers_[server].asked || IsDead(server)) return false;
    if (AnswersAreLate(since)) {
      NoteFull(server, options_.answer_timeout);
      return false;
    }
    if (look > kLooksBeforeWaiting) role_is_free_.WaitFor(mutex_, kWaitForAnswer);
  }
}

// Leases are as large as the options say until a quarter of all that there can be are held, then twice as large, and so on: where
// memory is plenty it must not be their number that ends first.
uint64_t LeaseKeeper::ForMany(const Side& side, uint64_t bytes) {
  return RoundUpToLease(bytes) << (4 * side.space.leases() / side.space.leases_max());
}

// `bytes` 0: ahead of need.
void LeaseKeeper::Ask(uint32_t server, uint64_t bytes) {
  uint64_t want = 0, least = kLeaseGranule;
  {
    MutexLock lock(mutex_);
    ServerState& state = servers_[server];
    if (state.asked) return;  // the answer to an earlier request is as good
    state.asked = true;
    state.asked_at = Now();
    const Side& side = sides_[state.near()];
    // A thread waits for this one: no larger than it must be, because a server makes fresh memory resident first.
    const uint64_t now_needed = std::max<uint64_t>(bytes, ForMany(side, options_.first_lease_bytes));
    want = RoundUpToLease(std::min(bytes == 0 ? side.next_lease_bytes : now_needed, ForMany(side, options_.lease_bytes_max)));
    // Scraps are welcome, but not as half of all leases that there can be.
    if (side.space.leases() > side.space.leases_max() / 2) least = RoundUpToLease(want / 4);
  }
  if (WithinHeap([&] { return client_.Ask(server, want, least), true; }, false)) return;
  MutexLock lock(mutex_);
  servers_[server].asked = false;  // nobody answers what was not asked
}

void LeaseKeeper::TakeAnswers() {
  while (const std::optional<LeaseClient::Answer> answer = client_.Next()) {
    if (answer->message.type == WireType::kLeaseGrant) {
      Adopt(answer->server, answer->message);
      continue;
    }
    MutexLock lock(mutex_);
    ServerState& state = servers_[answer->server];
    state.free_bytes = answer->message.free_bytes;
    state.makes_room = answer->message.flags == static_cast<uint32_t>(FullReason::kSoon);
    NoteFull(answer->server, state.makes_room ? kFullPauseMin : std::clamp(state.full_pause * 2, kFullPauseMin, kFullPauseMax));
  }
}

void LeaseKeeper::NoteFull(uint32_t server, milliseconds pause) {
  ServerState& state = servers_[server];
  state.asked = false;
  state.full_pause = std::min(pause, kFullPauseMax);
  state.full_until = Now() + pause;
}

void LeaseKeeper::Adopt(uint32_t server, const WireMessage& grant) {
  if (IsDead(server)) return client_.Return(server, grant.lease);  // the grant was under way when it died; its leases are closed once only
  transport_.Prepare(server, grant.offset, grant.bytes);
  if (!WithinHeap([&] { return AddLease(server, grant); }, false)) client_.Return(server, grant.lease);
}

// False: there are as many as there can be, since several servers may have been asked when one more was possible; or the server has died since.
bool LeaseKeeper::AddLease(uint32_t server, const WireMessage& grant) {
  MutexLock lock(mutex_);
  ServerState& state = servers_[server];
  if (state.closed) return false;
  Side& side = sides_[state.near()];
  state.asked = false;
  const bool added = side.space.Add({.server = server,
                                     .id = grant.lease,
                                     .offset = grant.offset,
                                     .bytes = grant.bytes,
                                     .distance = state.server.distance,
                                     .mapped = state.near() ? state.server.mapped + grant.offset : nullptr});
  if (!added) return false;
  state.full_pause = milliseconds(0);
  state.makes_room = false;
  state.free_bytes = grant.free_bytes;
  side.next_lease_bytes = std::min(side.next_lease_bytes * 2, ForMany(side, options_.lease_bytes_max));
  ++grants_;
  last_grant_ = Now();
  return true;
}

}  // namespace ramspan
