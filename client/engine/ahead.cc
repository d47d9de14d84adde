// What is done before anybody waits for it: the mover's rounds, frames and reads ahead of need, and the program's own hints.
#include <algorithm>
#include <utility>

#include "client/engine/engine.h"

namespace ramspan {

using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;

namespace {
constexpr auto kMoverNap = microseconds(200);
constexpr size_t kAheadAtOnce = 8;       // reads submitted together
constexpr uint64_t kHelpBytes = 256 << 10;  // of small chunks that leave together, which takes some 40 us where they are copied
constexpr auto kSearchCounted = std::chrono::milliseconds(20);  // of 100 000 chunks; that of many more is repeated that much sooner
constexpr uint64_t kMuchLarger = 4;         // chunks of another thread
constexpr auto kRestAfterFailure = std::chrono::milliseconds(10);  // the same chunks would be tried at once, for ever
}  // namespace

void Engine::WakeMover() {
  MutexLock lock(mutex_);
  mover_bell_.Ring();
}

void Engine::MoverWait(microseconds max) {
  MutexLock lock(mutex_);
  mover_bell_.Wait(mutex_, max);
}

bool Engine::MoverStep() {
  MutexLock lock(mutex_);
  mover_bell_.Hear();
  bool worked = in_flight_ > 0 && PollOnce(microseconds(0));
  worked |= MakeRoomForChildren();
  feed_.Drain();
  TellLimits();
  if (write_ahead()) worked |= RefillReserve();
  worked |= FetchWanted();
  // A tier that copies while it submits gets one chunk at a time, so that each is usable as soon as it is there.
  if (load_ahead()) worked |= ReadAhead(tier_->capabilities().synchronous ? 1 : kAheadAtOnce);
  static_cast<void>(Consult(CachePolicy::Ask::kNothing, 0, 0));  // what it has not heard yet must not pile up
  worked |= feed_.StepEpoch();
  const auto now = Clock::now();
  if (now - last_upkeep_ > std::chrono::milliseconds(5)) {
    last_upkeep_ = now;
    {
      MutexUnlock unlocked(mutex_);
      FromTier([this] { return tier_->Upkeep(), true; }, false);
    }
    NoteTiers();
  }
  // What is in flight needs no spinning: whoever waits for it polls by himself, and who copies takes what has ended with that.
  const bool may_end = !worked && in_flight_ > 0;
  if (may_end && (tier_->capabilities().synchronous || !PollOrHear(kMoverNap))) mover_bell_.Wait(mutex_, kMoverNap);
  return worked || in_flight_ > 0;
}

// Frames ahead of need, so that a miss finds one without evicting. Only when the data cannot all be resident: a program
// that fits its limit is left alone.
bool Engine::RefillReserve() {
  if (live_bytes() <= budget_.frames_limit() || typical_bytes_ == 0) return false;
  AwaitClosing();
  uint64_t reserve = BatchBytes(std::max<uint64_t>(typical_bytes_, (1 << 20) / kTogether));
  // What has no slot stays where it is when swap is full. Half of the rest is left to what the program uses.
  if (room_.SeemsFull(typical_bytes_)) reserve = std::min(reserve, (budget_.frames_limit() - std::min(budget_.frames_limit(), room_.slotless())) / 2);
  // Half of it at once: one chunk at a time would be a membarrier for each.
  const auto begin = Clock::now();
  const uint64_t soon = arena_.available() + leaving_.Expected(begin, typical_bytes_);
  if (reserve < typical_bytes_ || soon > std::max(reserve / 2, typical_bytes_) || leaving_.bytes() >= 2 * reserve) return false;
  if (begin < refill_again_) return false;
  const Evicted evicted = EvictSome(std::clamp<uint64_t>(reserve - std::min(reserve, soon), typical_bytes_, Together(typical_bytes_) * typical_bytes_),
                                    {.may_take_kept = false});
  return NoteRefill(evicted, begin);
}

// For a thread that has to wait for what the mover is just bringing: the mover is late, so this thread does what comes next for it. Where transfers
// are copies, two cores copy then; where not, one more is under way. At most one chunk of the policy's choice, or room for one or a few that are
// about as large as its own: what it waits for has come when it is back. So no server or file system is asked for anything.
void Engine::HelpAhead(uint64_t bytes) {
  if (!load_ahead() || !policy_->WantsReadAhead() || ReadAhead(1)) return;
  const auto begin = Clock::now();
  if (!write_ahead() || !queue_.empty() || arena_.available() >= typical_bytes_ || begin < refill_again_) return;
  if (typical_bytes_ > kMuchLarger * bytes) return;
  Evicted evicted{.may_ask = false, .may_take_kept = false};
  feed_.Drain();
  LookForVictims(std::max(typical_bytes_, std::min(kHelpBytes, BatchBytes(typical_bytes_))), &evicted);
  NoteRefill(evicted, begin);
}

// A search in vain has looked at every chunk, under the mutex for which threads wait that miss. Nobody waits for this one.
bool Engine::NoteRefill(const Evicted& evicted, Time begin) {
  const bool worked = evicted.freed + evicted.started > 0 || evicted.room_made;
  const auto now = Clock::now();
  // What was waited for, or a stop of the process, is no reason to rest for as many times as long.
  if (!worked) refill_again_ = now + kRestAfterSearch * std::min<Clock::duration>(now - begin, kSearchCounted);
  if (std::exchange(failures_seen_, counters_.write_failures) != counters_.write_failures) {
    refill_again_ = std::max(refill_again_, now + kRestAfterFailure);
  }
  return worked;
}

bool Engine::ReadAhead(size_t most) {
  Chunk* wanted[kAheadAtOnce];
  size_t n;
  {
    const CachePolicy::Turn turn = Consult(CachePolicy::Ask::kReadAhead, 0, most);
    n = policy_->PickReadAhead(std::span(wanted, most));
  }
  IoOp* ops[kAheadAtOnce];
  size_t started = 0;
  for (Chunk* const chunk : std::span(wanted, n)) {
    // What would not come for long takes no frame from what is needed now; what is behind it may be elsewhere.
    if (tier_->StandsStill(chunk->slot, chunk->bytes)) continue;
    Frame frame = TryTakeFrame(chunk->bytes);
    IoOp* const op = frame ? ops_.TryTake() : nullptr;
    if (op == nullptr) break;
    BeginLoad(op, chunk, std::move(frame), true);
    ops[started++] = op;
    queue_.WakeFor(chunk);
    policy_->OnPrefetchIssued(chunk);
    ++counters_.prefetch_issued;
  }
  Submit(std::span(ops, started), false);
  return started > 0;
}

void Engine::Prefetch(Chunk* chunk) {
  const auto begin = Clock::now();
  MutexLock lock(mutex_);
  if (PhaseOf(chunk) != Phase::kSwapped || !chunk->slot) return;
  if (!BeginHinted(chunk, pins_->ThisThread())) return;  // not worth evicting what somebody may use: the pull will
  counters_.wait_ns_total += static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - begin).count());
  if (load_ahead() && policy_->WantsReadAhead()) mover_bell_.Ring();
}

void Engine::SetPreemptive(bool loading, bool unloading) {
  load_ahead_.store(loading, std::memory_order_relaxed);
  write_ahead_.store(unloading, std::memory_order_relaxed);
}

}  // namespace ramspan
