// Of LeaseKeeper: what nobody waits for. The mover calls Upkeep every few ms: leases of servers that died, drain or want some back are closed,
// those without slots go back, and one more is asked for before it is needed.
#include <algorithm>
#include <utility>

#include "client/swap/lease_keeper.h"
#include "client/swap/server_advice.h"
#include "common/log.h"

namespace ramspan {
namespace {

// How often a server is asked that may have room again, where nothing is held.
constexpr std::chrono::seconds kTryAgain{10};

}  // namespace

void LeaseKeeper::Upkeep() {
  LookForSilence();
  if (!TryTakeAskingRole()) return;  // whoever has the role is about to leave it; this is called again
  const AskingRole role(this);
  TakeAnswers();
  CloseDeadServers();
  CloseWhatLeaves();
  const Time now = Now();
  {
    MutexLock lock(mutex_);
    GiveUpLateAnswers(now);
  }
  bool gives_spare = false;
  {
    MutexLock lock(mutex_);
    if (waiting_ == 0) gives_spare = std::exchange(gives_spare_, false);
  }
  for (const bool near : {true, false}) {
    ReturnIdleLeases(near, now, gives_spare ? RunningClock::duration(0) : options_.idle_lease);
    AskAhead(near, now);
    TellIfNoMoreFit(near);
  }
}

// Once: from then on what has no room goes to files, and without files there is an error that says the same.
void LeaseKeeper::TellIfNoMoreFit(bool near) {
  std::string words;
  {
    MutexLock lock(mutex_);
    Side& side = sides_[near];
    if (side.space.MayAdd() || std::exchange(side.said_that_no_more_fit, true)) return;
    words = NoMoreLeasesFit(side.space.leases(), side.space.capacity_bytes());
  }
  LogWarning("%s", words.c_str());
}

void LeaseKeeper::CloseDeadServers() {
  for (uint32_t server = 0; server < transport_.servers(); ++server) {
    if (!IsDead(server)) continue;
    uint64_t lost = 0;
    bool expected = false, near = false;
    {
      MutexLock lock(mutex_);
      NoteNewServers();
      ServerState& state = servers_[server];
      if (state.closed) continue;
      const bool drains = transport_.server(server).drains;  // needs heap, so before anything changes
      state.closed = true;
      near = state.near();
      lost = sides_[state.near()].space.CloseServer(server, /*is_dead=*/true);
      expected = lost == 0 && (state.drained || drains);
    }
    if (expected) continue;
    // Once only, so without heap for the words there are others.
    const std::string words = WithinHeap([&] { return AServerHasDied(transport_.capabilities().started_by, transport_.server(server).label, lost, near); }, std::string());
    LogWarning("%s", words.empty() ? "a memory server died with some of this program's chunks; there is no memory to say which. See the servers' own messages" : words.c_str());
  }
}

// Again and again: a grant may have come since. What is still there is brought home by whoever asks HasLeaving.
void LeaseKeeper::CloseWhatLeaves() {
  uint64_t left = 0;
  for (uint32_t server = 0; server < transport_.servers(); ++server) {
    const ServerTransport::ServerState now = transport_.state(server);
    if (now == ServerTransport::ServerState::kDead) continue;  // its leases stay closed, or will be
    const bool drains = now == ServerTransport::ServerState::kDraining;
    const uint64_t asked_back = transport_.AskedBack(server);
    MutexLock lock(mutex_);
    NoteNewServers();
    ServerState& state = servers_[server];
    LeaseSpace& space = sides_[state.near()].space;
    state.drained = state.drained || drains;
    const bool wants_some = drains || asked_back > 0;
    const bool wanted_some = std::exchange(state.wants_some, wants_some);
    if (drains) space.CloseServer(server, /*is_dead=*/false);
    else if (wants_some || wanted_some) space.CloseSome(server, asked_back);
  }
  MutexLock lock(mutex_);
  for (const Side& side : sides_) left += side.space.leaving_bytes();
  leaving_.store(left > 0, std::memory_order_relaxed);
}

bool LeaseKeeper::IsLeaving(SlotRef slot, size_t bytes) const noexcept {
  MutexLock lock(mutex_);
  return sides_[!slot_bits::IsFar(slot)].space.IsLeaving(slot_bits::WithoutFar(slot), bytes);
}

// One lease ahead of need: when less than a quarter of the next one is left, so that it is there before it is needed.
void LeaseKeeper::AskAhead(bool near, Time now) {
  uint32_t server = 0;
  {
    MutexLock lock(mutex_);
    if (IsThrifty()) return;
    Side& side = sides_[near];
    if (side.space.used_bytes() > 0) {
      turned_away_.store(false, std::memory_order_relaxed);
      if (side.space.free_bytes() >= side.next_lease_bytes / 4) return;
    } else {
      // What found no room here is in slower swap now, and moves up only when it sees room here: a server may have joined, or
      // have room again. Not often, because nobody may come.
      if (!turned_away_.load(std::memory_order_relaxed) || side.space.capacity_bytes() > 0 || now < side.next_try) return;
    }
    const std::optional<uint32_t> next = NextToAsk(now, near);
    if (!next) return;
    server = *next;
    side.next_try = now + kTryAgain;
  }
  Ask(server, 0);
}

// Keeps half of the next lease's size free, twice of what AskAhead wants, so that a lease does not go back and forth; nothing while others need it.
void LeaseKeeper::ReturnIdleLeases(bool near, Time now, RunningClock::duration idle_for) {
  std::vector<LeaseSpace::Lease> idle;
  {
    MutexLock lock(mutex_);
    Side& side = sides_[near];
    side.space.TakeIdle(now, idle_for, IsThrifty() && waiting_ == 0 ? 0 : side.next_lease_bytes / 2, &idle);
    for (const LeaseSpace::Lease& lease : idle) {
      if (IsDead(lease.server)) continue;  // it goes because its server has gone
      side.next_lease_bytes = std::max(side.next_lease_bytes / 2, RoundUpToLease(options_.first_lease_bytes));
    }
  }
  // With a dead server's goes what is mapped of it here. One that cannot be sent for want of heap stays with us until the end, unused.
  for (const LeaseSpace::Lease& lease : idle) WithinHeap([&] { return client_.Return(lease.server, lease.id), true; }, false);
}

}  // namespace ramspan
