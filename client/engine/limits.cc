// Limits that change: metadata that grows into the frames' part, another budget.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "client/engine/engine.h"
#include "common/units.h"

namespace ramspan {

using std::chrono::microseconds;

namespace {
constexpr uint64_t kIdleKept = 16;  // of the limit, one part
constexpr std::chrono::milliseconds kIdlePause{1};  // in which others get the mutex
constexpr uint64_t kIdleTurn = uint64_t{64} << 20;   // some 20 ms of the mover's
}  // namespace

// Whether metadata leaves to frames what it must, and where it is a step of the tiers that comes, would still do so after it.
bool Engine::MetadataMayGrow(bool of_tiers) {
  const auto may = [&] { return of_tiers ? budget_.TiersMayGrow() : budget_.frames_beside_reserve() >= budget_.floor(); };
  if (may()) return true;
  LookForSizes();  // the one that was the largest may be gone
  return may();
}

Status Engine::NoRoomForDescriptors(StatusCode code) const {
  return WithinHeap([&] { return Status(code, "descriptors of objects and the tables of swap take " + FormatBytes(budget_.metadata()) + " of the memory limit of " +
                            FormatBytes(budget_.limit()) +
                            ", and the rest is needed to use the objects; make fewer and larger objects (an array in one "
                            "managedPtr), or raise the limit (RAMSPAN_MEMORY, ramspan run --memory)"); }, OutOfHeap());
}

// Frames give way to metadata, which is charged on success only. What was refused while a swap is closed or removed is tried again after that: it
// may have failed, and the swap be open as before.
Status Engine::TakeMetadata(uint64_t bytes) {
  for (CondVar nap;;) {
    const uint64_t vacates_ended = vacating_.ended;
    room_.Hold();
    budget_.ChargeMetadata(bytes);
    Status status = FromTier([this]() RS_NO_THREAD_SAFETY_ANALYSIS { return LeaveToMetadata(); }, OutOfHeap());
    if (status.ok()) return status;
    budget_.ChargeMetadata(-bytes);
    if (PolicyMakesWay(status)) continue;
    if (!vacating_.GivesUp() && vacating_.ended == vacates_ended) return status;
    while (vacating_.GivesUp()) nap.WaitFor(mutex_, microseconds(1000));
  }
}

// Of metadata that is charged already.
Status Engine::LeaveToMetadata() {
  if (!MetadataMayGrow(/*of_tiers=*/false)) return NoRoomForDescriptors();
  if (Status status = KeepRoom(); !status.ok()) return status;
  if (arena_.committed() <= budget_.frames_limit()) return Status();
  Status status = HoldLimit();
  if (arena_.committed() + budget_.metadata() <= budget_.total()) {
    arena_.CountPeak();
    return Status();
  }
  // The tiers' own metadata may have grown meanwhile, so frames that made way do not make room.
  return status.ok() ? NoRoomForDescriptors() : status;
}

Status Engine::ChargeMetadata(uint64_t bytes) {
  MutexLock lock(mutex_);
  return TakeMetadata(bytes);
}

// Evicts until the frames fit beside the metadata.
Status Engine::HoldLimit() {
  PinWait wait;
  CondVar nap;
  bool may_wait = true;
  arena_.Trim(budget_.frames_limit());
  while (arena_.committed() > budget_.frames_limit()) {
    Evicted evicted = EvictSome(arena_.committed() - budget_.frames_limit(), {.may_wait = may_wait});
    may_wait = evicted.may_wait;
    arena_.Trim(budget_.frames_limit());
    Status status = CheckWrites();
    // What was started may have ended already: Submit and Poll let other threads take completions.
    const bool progress = evicted.freed > 0 || evicted.room_made || in_flight_ > 0 || evicted.started > 0 || evicted.others_first();
    if (in_flight_ > 0) PollOnce(microseconds(1000));
    if (progress) wait = PinWait();
    if (status.ok() && !progress) {
      status = evicted.status.ok() ? WaitForPins(budget_.limit(), &wait, &nap) : std::move(evicted.status);
      // Who lowers the limit can do without: he does not wait for ever, as a thread does that needs its data.
      if (status.ok() && wait.waited > options_.deadlock_grace) status = FullOfPinsStatus(budget_.limit());
    }
    if (!status.ok()) return status;
  }
  return Status();
}

// Half of the frames that nobody has needed for a while, so that what a program has freed is free for others; in pieces, because who misses waits
// meanwhile. Only half, and not the last ones: the program may come to need them again, and frames of which the kernel has to make the pages
// cost it a quarter of a microsecond a KiB.
void Engine::GiveBackIdle(const std::atomic<bool>& stop) {
  MutexLock lock(mutex_);
  uint64_t gone = 0;  // in this turn: the mover has other things to do, and who ends the process waits for it
  if (idle_to_go_ == 0) {
    const auto now = std::chrono::steady_clock::now();
    if (now - idle_since_ < options_.idle_for) return;
    idle_since_ = now;
    const uint64_t idle = arena_.idle(), kept = budget_.frames_limit() / kIdleKept;
    idle_to_go_ = (idle - std::min(idle, kept)) / 2;
    // One that is larger than all that may stay would never be within a half.
    if (idle > kept) gone = arena_.TrimOneBetween(kept, idle);
    idle_to_go_ -= std::min(idle_to_go_, gone);
  }
  while (idle_to_go_ > 0 && gone < kIdleTurn && !stop.load(std::memory_order_relaxed)) {
    const uint64_t piece = arena_.TrimSome(std::min(idle_to_go_, arena_.idle()));
    idle_to_go_ = piece == 0 ? 0 : idle_to_go_ - piece;
    gone += piece;
    MutexUnlock unlocked(mutex_);
    std::this_thread::sleep_for(kIdlePause);
  }
  if (idle_to_go_ == 0) arena_.IdleFrom();
}

// For as many chunks as have a descriptor with the next slab. Takes what is free just now: no chunk has to make way, and nobody waits. Where it has had to give way before, there has to be
// twice as much: else it would come and go with each slab.
void Engine::FitPolicyToChunks(uint64_t bytes) {
  const uint32_t ids = chunks_.ids_with_next_charge();
  const uint64_t now = policy_->memory().fixed, then = policy_->FixedBeside(ids), more = then - std::min(now, then), slab = chunks_.next_charge();
  if (more > 0) {
    const uint64_t free = (policy_made_way_ ? 2 * more : more) + slab;
    budget_.ChargeMetadata(free);
    arena_.Trim(budget_.frames_limit());
    const uint64_t frames = budget_.frames_limit(), slotless = room_.Excess(room_.slotless(), 0, room_.Needed(room_.all, Room::For::kNewChunk), budget_.frames_usual());
    const bool is_free = MetadataMayGrow(/*of_tiers=*/false) && arena_.committed() <= frames && RoundUpToGranule(bytes) <= frames && slotless == 0;
    budget_.ChargeMetadata(-free);
    if (!is_free) return;
  }
  policy_->FitChunks(ids);
  ChargePolicy();
}

// Before anybody is refused, but for who lowers the limit: what the policy remembers of chunks beside the usual goes. True: it is worth while to try
// again.
bool Engine::PolicyMakesWay(const Status& refusal) {
  if (refusal.code() != StatusCode::kResourceExhausted && refusal.code() != StatusCode::kFailedPrecondition) return false;
  const uint64_t before = policy_bytes_;
  policy_->FitChunks(0);
  if (reserved_policy_ != nullptr) reserved_policy_->FitChunks(0);
  ChargePolicy();
  if (policy_bytes_ == before) return false;
  policy_made_way_ = true;
  return true;
}

// Without read-ahead there is no room for it: the policy would keep runs together that nobody fetches.
void Engine::TellLimits() { policy_->SetLimits(load_ahead() ? budget_.limit() : 0, room_.swapped_bytes()); }

// What policies take of a limit whatever the chunks are.
uint64_t Engine::PoliciesWith(uint64_t bytes) const {
  return policy_->FixedWith(bytes) + (reserved_policy_ == nullptr ? 0 : reserved_policy_->FixedWith(bytes));
}

// Before anybody asks what a lower limit has room for, and when a higher one, or the old one again, is in force.
void Engine::FitPolicies(uint64_t bytes) {
  policy_made_way_ = policy_made_way_ && bytes <= policies_fit_;
  policies_fit_ = bytes;
  policy_->FitLimit(bytes);
  if (reserved_policy_ != nullptr) reserved_policy_->FitLimit(bytes);
  ChargePolicy();
}

Status Engine::LeavesRoomForData(uint64_t bytes) {
  MutexLock lock(mutex_);
  const uint64_t taken = budget_.limit() - std::min(budget_.limit(), budget_.frames_beside_reserve());
  const uint64_t given_back = policy_bytes_ - std::min(policy_bytes_, PoliciesWith(bytes));
  if (taken - std::min(taken, given_back) + bytes / Budget::kDataShare <= bytes) return Status();
  return NoRoomForDescriptors();
}

void Engine::LeaveHugePages() {
  MutexLock lock(mutex_);
  arena_.LeaveHugePages();
}

Status Engine::SetBudget(uint64_t bytes) {
  MutexLock lock(mutex_);
  if (bytes > arena_.addresses()) {
    return WithinHeap([&]() RS_NO_THREAD_SAFETY_ANALYSIS { return FailedPrecondition("a memory limit of " + FormatBytes(bytes) + " is more than the " +
                              FormatBytes(arena_.addresses()) +
                              " of addresses that were reserved at start; start with the larger limit (RAMSPAN_MEMORY, "
                              "ramspan run --memory) and lower it, or allow more addresses (ulimit -v)"); }, OutOfHeap());
  }
  const uint64_t policies_fitted = policies_fit_;
  if (bytes < budget_.limit()) FitPolicies(bytes);
  const uint64_t old = budget_.limit(), old_fits = room_.fits_up_to(), old_held = budget_.held();
  room_.Hold();
  budget_.set_limit(bytes);
  // An object that would keep all others out of a lower limit, if room were kept for it, has to wait for a higher one.
  room_.SetFitsUpTo(bytes < old ? std::min(old_fits, budget_.frames_beside_growth()) : std::max(old_fits, budget_.frames_at_most()));
  LookForSizes();
  const auto hold = [&]() RS_NO_THREAD_SAFETY_ANALYSIS {
    Status room = bytes < old ? KeepRoom() : Status();
    return room.ok() ? HoldLimit() : room;
  };
  Status status = FromTier(hold, OutOfHeap());
  if (!status.ok()) {
    budget_.set_limit(old);
    room_.SetFitsUpTo(old_fits);
    LookForSizes();
    budget_.RestoreHeld(old_held);
    if (bytes < old) FitPolicies(policies_fitted);  // which may be less than the old limit would have given them
    room_.Hold();
    return status;
  }
  // Frames must not have to give way: where a little more memory would double what a policy takes, it stays as it is.
  const uint64_t growth = PoliciesWith(bytes) - std::min(PoliciesWith(bytes), policy_bytes_);
  if (bytes > old && (growth <= bytes - old || arena_.committed() + growth <= budget_.frames_limit())) FitPolicies(bytes);
  policy_->SettleLimit();
  if (reserved_policy_ != nullptr) reserved_policy_->SettleLimit();
  room_.Hold();
  TellLimits();
  ServeWaiters();
  return Status();
}

}  // namespace ramspan
