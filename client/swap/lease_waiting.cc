// How long who wants room waits for servers, and which of them count as silent (the table of lease_keeper.h).
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "client/swap/lease_keeper.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;

// An answer takes 10 us from a busy server and 1 ms from a sleeping one: look so often before the waits begin.
constexpr int kLooksBeforeWaiting = 20;
constexpr std::chrono::microseconds kWaitForAnswer{50};
// What takes longer than this is a large lease, which takes 50 ms, or a server that stands still.
constexpr milliseconds kSoon{2};
constexpr std::chrono::microseconds kWaitForLateAnswer{500};
// Between two looks of who waits for room that others make.
constexpr milliseconds kRoomLook{20};

}  // namespace

// ---- Who waits ----

// Each server has answer_timeout from when it was asked; what bounds the wait where each of them refuses again and again is twice of it.
Result<SlotRef> LeaseKeeper::Reserve(size_t bytes, SwapTier::Patience patience) {
  struct Waiting {
    LeaseKeeper& keeper;
    explicit Waiting(LeaseKeeper* k) : keeper(*k) { Count(1); }
    ~Waiting() { Count(UINT32_MAX); }
    void Count(uint32_t more) {
      MutexLock lock(keeper.mutex_);
      keeper.waiting_ += more;
    }
  } const waiting(this);
  const Time begin = Now();
  const bool brief = patience == SwapTier::Patience::kBrief;
  Time since = begin;
  for (int look = 0;; ++look) {
    const Found found = Find(bytes, brief);
    if (found.slot) return found.slot;
    bool over = found.hope == Hope::kNone || (brief && found.hope == Hope::kSilent);
    if (!over) {
      if (AskAndListen(bytes)) continue;
      LookForSilence();
      MutexLock lock(mutex_);
      over = AnswersAreLate(since);
      // Answers come soon, or take long.
      if (!over && look > kLooksBeforeWaiting) news_.WaitFor(mutex_, Now() - since < kSoon ? kWaitForAnswer : kWaitForLateAnswer);
    }
    if (!over) continue;
    turned_away_.store(true, std::memory_order_relaxed);
    if (brief && MayHaveMore(found.hope)) return Status(StatusCode::kAborted, StaticText("a memory server that stands still may have room, or one that makes some"));
    if (patience != SwapTier::Patience::kWait || !WaitForRoom(begin)) return FullStatus();
    since = Now();  // answers are not late because room was waited for
  }
}

// True: some answer has come.
bool LeaseKeeper::AskAndListen(size_t bytes) {
  if (!TryTakeAskingRole()) return false;  // whoever has it is doing the same
  const AskingRole role(this);
  const bool heard = TakeAnswers();
  std::optional<uint32_t> server;
  {
    MutexLock lock(mutex_);
    server = NextToAsk(Now(), std::nullopt);
  }
  if (server && !heard) Ask(*server, bytes);
  return heard;
}

// Since the last lease, not for all that a large chunk needs: servers that give one after the other do answer.
bool LeaseKeeper::AnswersAreLate(Time since) const {
  return Now() >= std::max(since, last_grant_) + 2 * options_.answer_timeout;
}

// Whether more patience may find what kBrief has not.
bool LeaseKeeper::MayHaveMore(Hope hope) const {
  MutexLock lock(mutex_);
  return hope != Hope::kNone || sides_[false].space.AnySilent() || MayHaveRoomSoon();
}

// A server that drains may lend again, or is about to be replaced by another one: worth a wait for who must fail otherwise, but for no
// eviction, since it may drain for hours.
bool LeaseKeeper::MayHaveRoomSoon() const {
  if (MakesRoom() || (options_.is_all && OweAnswers() > 0)) return true;
  for (uint32_t i = 0; options_.is_all && i < servers_.size(); ++i) {
    if (transport_.state(i) == ServerTransport::ServerState::kDraining) return true;
  }
  return false;
}

// Whether some server has asked other clients to make room for this one: worth a wait for who has no other swap.
bool LeaseKeeper::MakesRoom() const {
  if (!options_.is_all) return false;
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i].makes_room && !IsDead(i)) return true;
  }
  return false;
}

// Servers that live, and have not answered yet. Those who have not for long count as full, so that others are asked.
uint32_t LeaseKeeper::OweAnswers() const {
  uint32_t count = 0;
  for (uint32_t i = 0; i < servers_.size(); ++i) count += servers_[i].unanswered && !IsDead(i) ? 1 : 0;
  return count;
}

// A little of that wait; false: it is over, or there is nothing to wait for.
bool LeaseKeeper::WaitForRoom(Time since) {
  MutexLock lock(mutex_);
  const auto most = OweAnswers() > 0 ? options_.silence_most : options_.answer_timeout;
  if (Now() >= std::max(since, last_grant_) + most || !MayHaveRoomSoon()) return false;
  news_.WaitFor(mutex_, kRoomLook);
  return true;
}

// ---- Who is silent ----

// Of no slot: as Find would, without a slot.
bool LeaseKeeper::StandsStill(SlotRef slot, size_t bytes) noexcept {
  if (silent_servers_.load(std::memory_order_relaxed) == 0 || (slot && !slot_bits::IsFar(slot))) return false;
  LookForSilence();
  MutexLock lock(mutex_);
  const auto is_silent = [this](uint32_t server) RS_NO_THREAD_SAFETY_ANALYSIS { return servers_[server].silent; };
  if (slot) return sides_[false].space.AnyServerOf(slot_bits::WithoutFar(slot), bytes, is_silent);
  for (const bool near : {true, false}) {
    if (sides_[near].space.free_bytes() >= RoundUpToGranule(bytes) || LookForHope(near) == Hope::kGood) return false;
  }
  return true;
}

// A server that owes something is quiet from look to look until something comes.
void LeaseKeeper::LookForSilence() {
  RunningClock::duration passed;
  size_t servers;
  {
    MutexLock lock(mutex_);
    const Time now = Now();
    passed = now - last_look_;
    if (passed < kSilenceLooks) return;
    last_look_ = now;
    servers = servers_.size();
  }
  passed = std::min<RunningClock::duration>(passed, kSilenceStepMax);
  for (uint32_t i = 0; i < servers; ++i) {
    const RemoteIo::TransferLook transfers = transfers_(i);
    MutexLock lock(mutex_);
    ServerState& state = servers_[i];
    const bool some_ended = std::exchange(state.transfers_ended, transfers.ended) != transfers.ended;
    const bool heard = std::exchange(state.heard, false) || some_ended;
    const bool owes = (state.unanswered || transfers.in_flight) && !IsDead(i);
    state.quiet = heard || !owes ? RunningClock::duration(0) : state.quiet + passed;
    SetSilent(i, state.quiet >= kSilentAfter + transfers.patience);
  }
}

void LeaseKeeper::SetSilent(uint32_t server, bool silent) {
  ServerState& state = servers_[server];
  if (std::exchange(state.silent, silent) == silent) return;
  silent_servers_.fetch_add(silent ? 1 : UINT32_MAX, std::memory_order_relaxed);
  sides_[state.near()].space.SetSilent(server, silent && !state.near());
}

void LeaseKeeper::NoteHeard(uint32_t server) {
  ServerState& state = servers_[server];
  SetSilent(server, false);
  state.unanswered = false;
  state.heard = true;
  state.quiet = RunningClock::duration(0);
  news_.NotifyAll();
}

// Who has not answered for so long counts as full for as long again. It stays silent, so that nobody waits for it who need not.
void LeaseKeeper::GiveUpLateAnswers(Time now) {
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i].asked && now - servers_[i].asked_at >= options_.answer_timeout) NoteFull(i, options_.answer_timeout);
  }
}

}  // namespace ramspan
