// Who gets memory: a thread that misses takes a frame, makes room for one, or waits for it in a queue.
#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "client/engine/engine.h"
#include "common/log.h"
#include "common/units.h"

namespace ramspan {

using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;

namespace {
// Takes by others past the oldest waiting thread, while that one waits for pins and could not use the memory yet. With
// none of them all threads would stand still behind one long-held pin; without a bound a large chunk would starve.
constexpr uint32_t kPassesMax = 64;
// A miss makes room for so many chunks of its size: a membarrier and a submission cost the same for all of them.
constexpr uint64_t kTogether = 16;
// How often a thread asks for room in swap that others take before it can. Then it goes on without an escape of its own.
constexpr int kRoomAttemptsMax = 16;
}  // namespace

// One thread's place in the queue, for as long as the scope lasts. Made and destroyed with the mutex held.
class Engine::InQueue {
 public:
  InQueue(Engine* engine, uint64_t bytes) RS_NO_THREAD_SAFETY_ANALYSIS : engine_(engine) {
    waiter_.bytes = bytes;
    engine_->Join(&waiter_);
  }
  ~InQueue() RS_NO_THREAD_SAFETY_ANALYSIS { engine_->Leave(&waiter_); }
  InQueue(const InQueue&) = delete;
  InQueue& operator=(const InQueue&) = delete;
  Waiter* operator->() { return &waiter_; }
  const Waiter& operator*() const { return waiter_; }

 private:
  Engine* const engine_;
  Waiter waiter_;
};

void Engine::Join(Waiter* waiter) {
  waiter->takes_before = takes_;
  (oldest_ == nullptr ? oldest_ : newest_->next) = waiter;
  newest_ = waiter;
}

void Engine::Leave(Waiter* waiter) {
  if (waiter->memory) {  // not used: others may have it
    waiter->memory = Reservation();
    changed_.NotifyAll();
    return;
  }
  Waiter* before = nullptr;
  Waiter* at = oldest_;
  while (at != nullptr && at != waiter) before = std::exchange(at, at->next);
  if (at == nullptr) return;  // served, and the memory taken
  (before == nullptr ? oldest_ : before->next) = waiter->next;
  if (newest_ == waiter) newest_ = before;
  if (before == nullptr) passes_ = 0;
}

// The oldest gets what it needs as soon as that is there, then the next one.
void Engine::ServeWaiters() {
  while (oldest_ != nullptr) {
    Reservation memory = arena_.TryReserve(oldest_->bytes);
    if (!memory) return;
    Waiter* served = std::exchange(oldest_, oldest_->next);
    if (oldest_ == nullptr) newest_ = nullptr;
    served->next = nullptr;
    served->memory = std::move(memory);
    passes_ = 0;
    counters_.takes_past_a_waiter_max = std::max(counters_.takes_past_a_waiter_max, takes_ - served->takes_before);
    changed_.NotifyAll();
  }
}

// A frame without waiting or evicting, and not from what others wait for.
Frame Engine::TryTakeFrame(uint64_t bytes) {
  ServeWaiters();
  if (oldest_ != nullptr) return {};
  Frame frame = arena_.TryTake(bytes);
  takes_ += frame ? 1 : 0;
  return frame;
}

// Whether a thread may take memory that is owed to an older one, which waits for pins and has no use for it yet. With
// nobody left who might unpin, somebody has to: that thread may hold the very pins that the older one waits for.
bool Engine::MayPass(const Waiter& waiter, const PinWait& wait) {
  if (RoundUpToGranule(waiter.bytes) > arena_.available()) return false;
  if (passes_ >= kPassesMax && wait.waited <= options_.deadlock_grace &&
      pins_->JudgeWaiters() == PinScanner::Verdict::kSomebodyMayUnpin) {
    return false;
  }
  ++passes_;
  return true;
}

// Some write or read is under way; its end may bring a frame.
void Engine::AwaitTransfer() {
  if (PollOnce(microseconds(0))) return;
  {
    MutexUnlock unlocked(mutex_);
    std::this_thread::yield();
  }
  if (in_flight_ > 0) PollOnce(microseconds(200));
}

// Data that is in swap must stay readable when memory and swap are both full, so that a program can still write its
// checkpoint. A chunk that comes in from swap keeps its slot, so it can always leave again: as long as there is room for
// one such chunk, of whatever size, each can be read in turn. That room is a frame's worth of memory that chunks without
// slots may not take or, when they have all memory, a slot that is kept free, into which they can make way. Where sizes
// differ it has room for the second largest chunk beside the largest: those that make way may free less than is needed,
// and then one more has to go.
// Called before `chunk`, which has no slot, gets a frame. kResourceExhausted: that would have been the last room.
Status Engine::KeepEscape(const Chunk* chunk) {
  bool looked = false;
  for (int attempt = 0;; ++attempt) {
    const uint64_t largest = RoundUpToGranule(largest_bytes_);
    if (!options_.keep_escape || swapped_bytes_ == 0 ||
        slotless_bytes_ + RoundUpToGranule(chunk->bytes) + largest <= budget_.frames_limit()) {
      return Status();
    }
    const uint64_t bytes = largest + (mixed_sizes_ ? RoundUpToGranule(second_bytes_) : 0);
    if (escape_.bytes() >= bytes) return Status();
    escape_ = Slot();
    Result<SlotRef> slot = tier_->TryReserve(bytes);
    if (!slot.ok() && slot.status().code() == StatusCode::kAborted) {
      // A slot may be taken under the mutex only: the swap that gives it could be removed before it is stored here, and the
      // slot would then go back to whichever swap comes next.
      Status room;
      {
        MutexUnlock unlocked(mutex_);
        room = tier_->MakeRoom(bytes);
      }
      if (room.ok() && attempt < kRoomAttemptsMax) continue;  // while nobody looked, everything may have changed
      if (!room.ok()) slot = room;
    }
    if (slot.ok()) {
      escape_ = Slot(tier_, slot.value(), bytes);
      return Status();
    }
    if (slot.status().code() != StatusCode::kResourceExhausted) return Status();  // no swap at all: nothing to be kept
    if (std::exchange(looked, true)) {
      return ResourceExhausted("no more data can be kept: " + FormatBytes(bytes) + " of swap stay free, so that what is there can "
                               "still be read and written when memory is full (" + slot.status().message() + ")");
    }
    LookForLargest();  // the one for which there is no room may be gone
  }
}

// A frame for a chunk that is about to come in. Evicts and waits as needed; on return the mutex may have been released.
// OK without a frame: the chunk is not in swap any more, another thread was faster.
Status Engine::TakeFrame(Chunk* chunk, WhenPinned when_pinned, Frame* frame) {
  // Tells the judge of deadlocks that this thread waits, and that it does not any more, however this ends.
  struct WaitingMark {
    PinScanner* const pins;
    Chunk* const chunk;
    bool set = false;
    void Set() {
      if (!std::exchange(set, true)) pins->SetWaiting(chunk);
    }
    ~WaitingMark() {
      if (set) pins->SetWaiting(nullptr);
    }
  } mark{pins_, chunk};
  const uint64_t bytes = chunk->bytes;
  typical_bytes_ = RoundUpToGranule(bytes);
  if (!chunk->slot) {
    if (Status status = KeepEscape(chunk); !status.ok()) return status;
    if (PhaseOf(chunk) != Phase::kSwapped || Has(chunk, kDoomed)) return Status();
  }
  *frame = TryTakeFrame(bytes);
  if (*frame) {
    if (arena_.available() < 2 * typical_bytes_ && policy_->WantsReadAhead()) SignalMover();
    return Status();
  }
  if (typical_bytes_ > budget_.frames_limit()) return TooLarge(bytes);
  InQueue place(this, bytes);
  PinWait wait;
  // Each round looks at the chunk again: when another thread has brought it, this one's pin keeps it from leaving, and
  // waiting on for a frame of one's own would be waiting for oneself.
  while (PhaseOf(chunk) == Phase::kSwapped && !Has(chunk, kDoomed)) {
    ServeWaiters();
    if (place->memory) *frame = arena_.TryTake(bytes, &place->memory);
    if (*frame) break;
    wait.own = place->memory.bytes();
    const uint64_t available = arena_.available(), whole = RoundUpToGranule(bytes);
    const uint64_t needed = whole > available ? whole - available : whole;
    Evicted evicted = EvictSome(std::max(needed, std::min(kTogether * whole, budget_.limit() / 16)));
    if (evicted.freed + evicted.started == 0 && !evicted.room_made && policy_->preemptive_bytes() > 0) {
      const Evicted ahead = EvictPrefetched(needed);
      evicted.freed = ahead.freed;
      evicted.started = ahead.started;
    }
    const bool in_flight = in_flight_ > 0;
    if (in_flight || evicted.freed > 0 || evicted.started > 0 || evicted.room_made) wait = PinWait{.told = wait.told};
    if (evicted.freed > 0 || evicted.room_made) continue;
    if (Status status = CheckWrites(); !status.ok()) return status;
    if (in_flight) {
      AwaitTransfer();
      continue;
    }
    if (evicted.started > 0) continue;
    if (!evicted.status.ok()) {
      if (chunk->slot && escape_) {
        escape_ = Slot();  // what it was kept for; this chunk has a slot and can leave again
        continue;
      }
      if (!chunk->slot || when_pinned == WhenPinned::kReturn || !wait_for_pins()) return evicted.status;
      // Swap has no room for what could leave. What has a slot there and is pinned now, or being read ahead, needs none.
      mark.Set();
      if (!WaitForPins(bytes, &wait).ok()) return evicted.status;
      continue;
    }
    if (!place->memory && MayPass(*place, wait)) *frame = arena_.TryTake(bytes);
    if (*frame) break;
    if (when_pinned == WhenPinned::kReturn) return Aborted("pinned");
    if (!wait_for_pins()) return FullOfPinsStatus(bytes);
    mark.Set();
    if (Status status = WaitForPins(bytes, &wait); !status.ok()) return status;
  }
  takes_ += *frame ? 1 : 0;
  return Status();
}

// Everything resident is pinned. Unpinning is a plain store without a signal, so this looks again after a while. The
// verdict on a deadlock needs every holder of pins to be waiting, too, and to stay so for a moment: one that could go on
// by now may not have run yet. And the pins must still be there after it: a thread that unpinned and ended since they were
// looked at waits for nothing, and leaves no other trace. A wait that somebody can end has no deadline.
Status Engine::WaitForPins(uint64_t bytes, PinWait* wait) {
  const PinScanner::Verdict verdict = pins_->JudgeWaiters();
  const bool again = std::exchange(wait->was_deadlock, verdict == PinScanner::Verdict::kDeadlock);
  // Memory is there for a thread that has not run since: it goes on, whatever the verdict.
  const bool served = arena_.reserved() > wait->own;
  if (verdict == PinScanner::Verdict::kSomebodyMayUnpin || served) wait->hopeless = {};
  if ((verdict == PinScanner::Verdict::kDeadlock && again && wait->hopeless >= options_.deadlock_settle && !served) ||
      (verdict == PinScanner::Verdict::kUnlikely && wait->hopeless > options_.deadlock_grace)) {
    return FullOfPinsStatus(bytes);
  }
  if (wait->waited > options_.pin_wait_told && !std::exchange(wait->told, true)) {
    MutexUnlock unlocked(mutex_);
    LogWarning("a thread has waited %lld s for memory for an object of %s: adhereTos of other threads pin all of the "
               "memory limit of %s, and it waits on until they release some",
               static_cast<long long>(std::chrono::duration_cast<std::chrono::seconds>(wait->waited).count()),
               FormatBytes(bytes).c_str(), FormatBytes(budget_.limit()).c_str());
  }
  const auto begin = Clock::now();
  changed_.WaitFor(mutex_, microseconds(200));
  const auto look = std::min<Clock::duration>(Clock::now() - begin, std::chrono::milliseconds(2));
  wait->waited += look;
  wait->hopeless += look;
  return Status();
}

Status Engine::TooLarge(uint64_t bytes) const {
  return FailedPrecondition("an object of " + FormatBytes(bytes) + " does not fit the memory limit of " +
                            FormatBytes(budget_.limit()) +
                            " (part of which holds descriptors); raise the limit (RAMSPAN_MEMORY, ramspan run --memory) "
                            "or split the object into smaller managedPtrs");
}

Status Engine::FullOfPinsStatus(uint64_t bytes) const {
  return FailedPrecondition("no memory for " + FormatBytes(bytes) + ": adhereTos pin all of the memory limit of " +
                            FormatBytes(budget_.limit()) +
                            " and no thread can go on to release one. Hold fewer adhereTos at once (a smaller scope), "
                            "use smaller chunks, or raise the limit (RAMSPAN_MEMORY, ramspan run --memory); where several "
                            "threads each hold some, pull them together (adhereAll, LISTOFINGREDIENTS)");
}

}  // namespace ramspan
