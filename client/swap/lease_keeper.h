// LeaseKeeper: the room that RemoteSwap has on servers. Slots are cut here from leases, so no message is on the path of an
// eviction while a lease has room; the keeper asks for the next lease ahead of need, gives back what stays empty, and
// closes what dead servers held. A slot is wholly near (mapped) or wholly far; near ones are taken first.
//
// Where a slot comes from, in this order; Find decides it for all who want room, so that who is told to ask, and has asked, finds what it
// was told of:
//
//     room held of near servers                 taken
//     a near server may lend, and is not silent asked, its answer waited for
//     room held of far servers                  taken
//     a far server may lend, and is not silent  asked, its answer waited for
//                                               other swap comes here (SwapTier::Patience::kBrief, StandsStill)
//     room held of silent servers               taken
//     a silent server may lend                  its answer waited for
//     none of these                             full
//
// Silent is who owes something, an answer or the end of a transfer, while nothing has come for a while. Near servers owe answers only: their
// memory is at hand. What is begun there waits, and each write that waits keeps memory, so a small limit would be full of them.
//
// A server may lend while it lives, does not drain, has not said a moment ago that it is full, and side and slots have place for one more
// lease. What is waited for ends: a server that answers gives a lease or is full for a while, one that does not counts as silent after
// kSilentAfter, so that what comes behind it in the table is looked at, too, and as full after answer_timeout.
//
// Servers are asked one after the other, the next one when the last one is full or silent, not all at once: each lease that is granted is
// memory that a server makes resident, and that others want. Who waits looks at all of the table again and again, at what others have
// freed, too, and is asking only while it sends and takes answers: in between Upkeep does its work, and others look at what is held.
//
// Thread-safety: any thread, any call. One thread at a time talks to the servers (the asking role), and never while it waits; the mutex is
// held for bookkeeping only, never while the transport moves anything. Ownership: borrows the transport.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "client/swap/lease_client.h"
#include "client/swap/lease_space.h"
#include "client/swap/remote_io.h"
#include "client/swap/swap_tier.h"
#include "client/transport/transport.h"
#include "common/mutex.h"
#include "common/running_clock.h"

namespace ramspan {

struct RemoteSwapOptions {
  // Doubles from lease to lease; the server has the last word. The largest is what a server makes resident in about
  // 50 ms, the longest that a Reserve waits where memory is used up faster than Upkeep can ask ahead.
  uint64_t first_lease_bytes = uint64_t{8} << 20;
  uint64_t lease_bytes_max = uint64_t{32} << 20;
  // Running time (running_clock.h), as all here.
  std::chrono::milliseconds answer_timeout{5000};  // then the server counts as full for as long
  // An empty lease goes back after this time: longer than TieredSwap::kRoomLasts, or what may move up into it would find it gone.
  std::chrono::milliseconds idle_lease{3000};
  std::chrono::milliseconds last_answers{100};     // what the end waits for answers that are still under way
  // Of near servers, and of far ones: a slot's bits name no more (common/slot_ref.h). Fewer for tests.
  size_t leases_max = slot_bits::kRegionsMax;
  // There is no other swap: who is patient waits, as long as for an answer, for a server that makes room for this client, or drains; and for one
  // that owes an answer until that comes or the transport gives the server up, which takes less than silence_most.
  bool is_all = false;
  std::chrono::milliseconds silence_most{60'000};
};

class LeaseKeeper {
 public:
  // `transfers`: how those to a server get on. It is called without the mutex.
  using Transfers = std::function<RemoteIo::TransferLook(uint32_t server)>;
  LeaseKeeper(ServerTransport& transport, const RemoteSwapOptions& options, Transfers transfers);
  // Gives all leases back; slots that were not freed are gone with them.
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

  // As SwapTier's.
  Result<SlotRef> Reserve(size_t bytes, SwapTier::Patience patience = SwapTier::Patience::kWait);
  Result<SlotRef> TryReserve(size_t bytes);
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken);
  void Free(SlotRef slot, size_t bytes) noexcept;
  uint32_t LostWith(SlotRef slot, size_t bytes) const noexcept;
  bool StandsStill(SlotRef slot, size_t bytes) noexcept;
  // Called every few ms, by whoever waits, too. Looks seldom, whoever calls.
  void LookForSilence();
  void Upkeep();
  void AddTo(TierStats* stats) const;
  uint64_t metadata_bytes() const;
  // What is leased of each server and in use.
  void AddTo(std::span<ServerStats> servers) const;

  // Appends the slot's pieces in the order of its bytes. REQUIRES: the slot is reserved.
  void Locate(SlotRef slot, size_t bytes, std::vector<RemotePiece>* pieces) const;

  // Looks whose servers have died, and tells the user once for each.
  void CloseDeadServers();

  // Whether any server that slots may be on, or were, can only be reached by transfers. More servers may join.
  bool AnyFar() const noexcept { return any_far_.load(std::memory_order_relaxed); }

  // Whether slots are left in leases that shall go back, because their server drains or wants some back; as of the last Upkeep.
  bool HasLeaving() const noexcept { return leaving_.load(std::memory_order_relaxed); }
  // Whether the slot has a piece in one. REQUIRES: the slot is reserved.
  bool IsLeaving(SlotRef slot, size_t bytes) const noexcept;

 private:
  using Time = RunningClock::time_point;

  // All near servers, or all far ones.
  struct Side {
    explicit Side(size_t leases_max) : space(leases_max) {}

    LeaseSpace space;
    uint64_t next_lease_bytes = 0;  // at most twice what servers give at a time, where that is more than the first
    size_t servers = 0;
    Time next_try{};  // AskAhead's, while nothing is held
    bool said_that_no_more_fit = false;
  };
  // Longer than the largest lease takes that a server has to make resident (50 ms), so that a busy one is not passed over. With half of it
  // two servers would make a lease where one suffices; a miss waits as long for each server that has just begun to stand still.
  static constexpr std::chrono::milliseconds kSilentAfter{100};
  static constexpr std::chrono::seconds kThrifty{10};
  static constexpr uint64_t kThriftyLease = uint64_t{1} << 20;
  // How often it is looked for, and what one look counts at most: who has not run for a while itself finds nobody silent for that.
  static constexpr std::chrono::milliseconds kSilenceLooks{5}, kSilenceStepMax{20};
  struct ServerState {
    ServerTransport::Server server;  // constant
    bool closed = false;       // found dead, its leases closed
    bool drained = false;      // was found draining: its end is no surprise
    bool wants_some = false;   // of its leases back, as of the last Upkeep
    bool makes_room = false;   // it said that others have been asked to
    bool asked = false;        // and waited for
    Time asked_at{};
    uint64_t asked_bytes = 0;
    bool asked_ahead = false;  // nobody waited when it was asked
    // It owes something, and nothing has come from it, for kSilentAfter. It stays so when nobody waits for its answer any more.
    bool silent = false;
    bool unanswered = false;   // it owes the answer to a request
    bool heard = false;        // since the last look
    RunningClock::duration quiet{0};
    uint64_t transfers_ended = 0;  // as of the last look
    // What it refused ahead of need is not asked for again until then.
    Time ahead_until{};
    std::chrono::milliseconds ahead_pause{0};
    // Full until then; the pause doubles while the server keeps saying so.
    Time full_until{};
    std::chrono::milliseconds full_pause{0};
    uint64_t free_bytes = 0;  // as last told

    bool near() const { return server.mapped != nullptr; }
  };

  // Leaves the role at the end of the scope, however that is left.
  class AskingRole {
   public:
    explicit AskingRole(LeaseKeeper* keeper) : keeper_(keeper) {}
    ~AskingRole() { keeper_->LeaveAskingRole(); }
    AskingRole(const AskingRole&) = delete;
    AskingRole& operator=(const AskingRole&) = delete;

   private:
    LeaseKeeper* const keeper_;
  };

  static Time Now() { return RunningClock::ProcessNow(); }
  static uint64_t RoundUpToLease(uint64_t bytes) { return (bytes + kLeaseGranule - 1) / kLeaseGranule * kLeaseGranule; }
  static uint64_t ForMany(const Side& side, uint64_t bytes);
  bool IsDead(uint32_t server) const { return transport_.state(server) == ServerTransport::ServerState::kDead; }
  // What there is for who wants a slot: the slot, or whom to wait for.
  enum class Hope { kNone, kSilent, kGood };
  struct Found {
    SlotRef slot;
    Hope hope = Hope::kNone;
  };
  Found Find(size_t bytes, bool brief);
  void SetSilent(uint32_t server, bool silent) RS_REQUIRES(mutex_);
  SlotRef TakeHeld(bool near, size_t bytes) RS_REQUIRES(mutex_);
  Status FullStatus() const;
  StatusCode FullCode() const;

  // In the asking role, without the mutex.
  void Ask(uint32_t server, uint64_t bytes);
  bool TakeAnswers();
  void Adopt(uint32_t server, const WireMessage& grant);
  bool AddLease(uint32_t server, const WireMessage& grant);
  void AskAhead(bool near, Time now);
  void ReturnIdleLeases(bool near, Time now, RunningClock::duration idle_for);
  bool IsThrifty() const RS_REQUIRES(mutex_) { return Now() < thrifty_until_; }
  void AwaitLastAnswers();
  void TellIfNoMoreFit(bool near);
  void CloseWhatLeaves();
  bool MakesRoom() const RS_REQUIRES(mutex_);
  bool MayHaveMore(Hope hope) const;
  bool MayHaveRoomSoon() const RS_REQUIRES(mutex_);
  uint32_t OweAnswers() const RS_REQUIRES(mutex_);
  bool WaitForRoom(Time since);

  void NoteNewServers() RS_REQUIRES(mutex_);
  bool MayLend(uint32_t server, Time now) const RS_REQUIRES(mutex_);
  Hope LookForHope(bool near) RS_REQUIRES(mutex_);
  std::optional<uint32_t> NextToAsk(Time now, std::optional<bool> near) RS_REQUIRES(mutex_);
  void NoteFull(uint32_t server, std::chrono::milliseconds pause) RS_REQUIRES(mutex_);
  void GiveUpLateAnswers(Time now) RS_REQUIRES(mutex_);
  void NoteHeard(uint32_t server) RS_REQUIRES(mutex_);
  bool AskAndListen(size_t bytes);
  bool AnswersAreLate(Time since) const RS_REQUIRES(mutex_);
  bool TryTakeAskingRole();
  void LeaveAskingRole();

  // Constant after construction.
  ServerTransport& transport_;
  const RemoteSwapOptions options_;
  const Transfers transfers_;

  // Used in the asking role only.
  LeaseClient client_;

  std::atomic<bool> any_far_{false};  // never false again; publishes nothing but itself
  std::atomic<bool> leaving_{false};  // publishes nothing but itself
  std::atomic<uint32_t> silent_servers_{0};  // written with the mutex; publishes nothing but itself
  mutable std::atomic<bool> turned_away_{false};  // somebody wanted a slot in vain, and there was none since; likewise

  mutable Mutex mutex_{LockRank::kTier};
  CondVar news_;  // an answer has come
  bool asking_ RS_GUARDED_BY(mutex_) = false;
  // A server has said that others need memory: what is not used goes back at once, and until then nothing is asked for ahead of need.
  bool gives_spare_ RS_GUARDED_BY(mutex_) = false;
  uint32_t waiting_ RS_GUARDED_BY(mutex_) = 0;  // threads in Reserve; what comes for them is not given back before they have it
  Time thrifty_until_ RS_GUARDED_BY(mutex_){};
  std::array<Side, 2> sides_ RS_GUARDED_BY(mutex_);  // far, near
  std::vector<ServerState> servers_ RS_GUARDED_BY(mutex_);
  Time last_grant_ RS_GUARDED_BY(mutex_){};
  Time last_look_ RS_GUARDED_BY(mutex_){};  // LookForSilence's
};

}  // namespace ramspan
