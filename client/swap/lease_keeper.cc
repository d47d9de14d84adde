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

}  // namespace

LeaseKeeper::LeaseKeeper(ServerTransport& transport, const RemoteSwapOptions& options, Transfers transfers)
    : transport_(transport), options_(options), transfers_(std::move(transfers)), client_(transport), sides_{Side(options.leases_max), Side(options.leases_max)} {
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
    if (waiting) news_.WaitFor(mutex_, milliseconds(1));
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

// ---- Slots ----

// The table of lease_keeper.h, for a slot of so many bytes.
LeaseKeeper::Found LeaseKeeper::Find(size_t bytes, bool brief) {
  if (silent_servers_.load(std::memory_order_relaxed) > 0) LookForSilence();
  MutexLock lock(mutex_);
  if (const SlotRef slot = TakeHeld(/*near=*/true, bytes)) return {.slot = slot};
  NoteNewServers();
  Hope hope = sides_[true].servers > 0 ? LookForHope(/*near=*/true) : Hope::kNone;
  if (hope == Hope::kGood) return {.hope = hope};
  if (const SlotRef slot = TakeHeld(/*near=*/false, bytes)) return {.slot = slot};
  hope = std::max(hope, LookForHope(/*near=*/false));
  if (brief || hope == Hope::kGood || !sides_[false].space.AnySilent()) return {.hope = hope};
  if (const SlotRef slot = sides_[false].space.ReserveSilent(bytes)) return {.slot = slot_bits::WithFar(slot)};
  return {.hope = hope};
}

Result<SlotRef> LeaseKeeper::TryReserve(size_t bytes) {
  const Found found = Find(bytes, /*brief=*/false);
  if (found.slot) return found.slot;
  if (found.hope != Hope::kGood) turned_away_.store(true, std::memory_order_relaxed);
  if (found.hope != Hope::kNone) return Status(StatusCode::kMustAsk, StaticText("a memory server has to be asked"));
  {
    MutexLock lock(mutex_);
    if (MakesRoom()) return Status(StatusCode::kMustAsk, StaticText("a memory server may have room soon"));
  }
  return Status(FullCode(), StaticText("no memory server has room"));
}

SlotRef LeaseKeeper::TakeHeld(bool near, size_t bytes) {
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
  if (FullCode() == StatusCode::kUnavailable) return Unavailable(AllServersAreDead(by));
  uint32_t silent = 0;
  {
    MutexLock lock(mutex_);
    silent = OweAnswers();
  }
  return ResourceExhausted(ServersAreFull(by, largest) + (silent > 0 ? "; " + std::to_string(silent) + " of them did not answer in time: see what stopped the server, or the network" : ""));
}

// ---- Leases ----

bool LeaseKeeper::TryTakeAskingRole() {
  MutexLock lock(mutex_);
  return !std::exchange(asking_, true);
}

void LeaseKeeper::LeaveAskingRole() {
  MutexLock lock(mutex_);
  asking_ = false;
}

// Also where it has been asked already: its lease may be on its way.
bool LeaseKeeper::MayLend(uint32_t server, Time now) const {
  const ServerState& state = servers_[server];
  return now >= state.full_until && sides_[state.near()].space.MayAdd() && transport_.state(server) == ServerTransport::ServerState::kAlive;
}

LeaseKeeper::Hope LeaseKeeper::LookForHope(bool near) {
  const Time now = Now();
  GiveUpLateAnswers(now);
  Hope best = Hope::kNone;
  for (uint32_t i = 0; i < servers_.size() && best != Hope::kGood; ++i) {
    if (servers_[i].near() == near && MayLend(i, now)) best = std::max(best, servers_[i].silent ? Hope::kSilent : Hope::kGood);
  }
  return best;
}

// Those that are silent come last. Near ones first, by distance, then by free room; servers that tie are taken in an order that differs from
// client to client. `near`: of these, for AskAhead; empty: of all, for who waits. None: the first that is not silent has been asked, and its answer comes first; or all have been asked.
std::optional<uint32_t> LeaseKeeper::NextToAsk(Time now, std::optional<bool> near) {
  NoteNewServers();
  std::optional<uint32_t> first;
  const auto key = [&](uint32_t i) RS_NO_THREAD_SAFETY_ANALYSIS {
    const ServerState& state = servers_[i];
    return std::tuple(state.silent, !state.near(), state.server.distance, ~state.free_bytes, (i + transport_.self()) % servers_.size());
  };
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    const ServerState& state = servers_[i];
    if ((near && (state.near() != *near || now < state.ahead_until)) || (state.asked && state.silent) || !MayLend(i, now)) continue;
    if (!first || key(i) < key(*first)) first = i;
  }
  return first && !servers_[*first].asked ? first : std::nullopt;
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
    state.asked = state.unanswered = true;
    state.asked_at = Now();
    const Side& side = sides_[state.near()];
    // A thread waits for this one: no larger than it must be, because a server makes fresh memory resident first.
    const uint64_t now_needed = std::max<uint64_t>(bytes, ForMany(side, IsThrifty() ? std::min(kThriftyLease, options_.first_lease_bytes) : options_.first_lease_bytes));
    want = RoundUpToLease(std::min(bytes == 0 ? side.next_lease_bytes : now_needed, ForMany(side, options_.lease_bytes_max)));
    // Scraps are welcome, but not as half of all leases that there can be.
    if (side.space.leases() > side.space.leases_max() / 2) least = RoundUpToLease(want / 4);
  }
  const auto sent = WithinHeap([&] { return std::optional(client_.Ask(server, want, least, bytes, /*no_other_place=*/options_.is_all && bytes > 0)); }, std::optional<WireMessage>());
  MutexLock lock(mutex_);
  ServerState& state = servers_[server];
  if (sent) {
    state.asked_bytes = sent->bytes;
    state.asked_ahead = sent->flags == 0;
  } else {
    state.asked = state.unanswered = false;  // nobody answers what was not asked
  }
}

// True: some have come.
bool LeaseKeeper::TakeAnswers() {
  bool some = false;
  while (const std::optional<LeaseClient::Answer> answer = client_.Next()) {
    some = true;
    if (answer->message.type == WireType::kLeaseGrant) {
      Adopt(answer->server, answer->message);
      continue;
    }
    MutexLock lock(mutex_);
    if (answer->message.type == WireType::kSpare) {
      thrifty_until_ = Now() + kThrifty;
      gives_spare_ = true;
      continue;
    }
    ServerState& state = servers_[answer->server];
    NoteHeard(answer->server);
    state.free_bytes = answer->message.free_bytes;
    if (state.asked_ahead) {  // who waits may claim what this could not
      state.asked = false;
      state.ahead_pause = std::clamp(state.ahead_pause * 2, kFullPauseMin, kFullPauseMax);
      state.ahead_until = Now() + state.ahead_pause;
      continue;
    }
    state.makes_room = answer->message.flags == static_cast<uint32_t>(FullReason::kSoon);
    NoteFull(answer->server, state.makes_room ? kFullPauseMin : std::clamp(state.full_pause * 2, kFullPauseMin, kFullPauseMax));
  }
  return some;
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
  NoteHeard(server);
  const bool added = side.space.Add({.server = server,
                                     .id = grant.lease,
                                     .offset = grant.offset,
                                     .bytes = grant.bytes,
                                     .distance = state.server.distance,
                                     .mapped = state.near() ? state.server.mapped + grant.offset : nullptr});
  if (!added) return false;
  state.full_pause = state.ahead_pause = milliseconds(0);
  state.makes_room = false;
  state.free_bytes = grant.free_bytes;
  // Who asks for more than servers give keeps more ahead than it uses, which others may need.
  if (grant.bytes < state.asked_bytes) side.next_lease_bytes = std::max(grant.bytes, ForMany(side, options_.first_lease_bytes));
  else if (!IsThrifty()) side.next_lease_bytes = std::min(side.next_lease_bytes * 2, ForMany(side, options_.lease_bytes_max));
  last_grant_ = Now();
  return true;
}

}  // namespace ramspan
