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
constexpr uint32_t kLooksOfRefused = 64;  // the same bound, in looks
// Looks in a row at which some thread may unpin, until who was to be refused is not any more. One that tries again and again (adhereAll) holds its
// pins for a small part of the time.
constexpr uint32_t kHopefulLooks = 16;
// How often the pins are looked at while all that is resident is pinned, by one thread for all. Half of it would take CPU time
// from those that hold the pins, twice of it would be felt in each wait.
constexpr auto kLookEvery = microseconds(200);

// Tells the judge of deadlocks that this thread waits, and that it does not any more, however this ends.
class WaitingMark {
 public:
  WaitingMark(PinScanner* pins, Chunk* chunk) : pins_(pins), chunk_(chunk) {}
  ~WaitingMark() {
    if (set_) pins_->SetWaiting(nullptr);
  }
  WaitingMark(const WaitingMark&) = delete;
  WaitingMark& operator=(const WaitingMark&) = delete;
  void Set() {
    if (!std::exchange(set_, true)) pins_->SetWaiting(chunk_);
  }

 private:
  PinScanner* const pins_;
  Chunk* const chunk_;
  bool set_ = false;
};

}  // namespace

// One thread's place in the queue, for as long as the scope lasts. Made and destroyed with the mutex held.
class Engine::InQueue {
 public:
  InQueue(Engine* engine, Chunk* chunk) RS_NO_THREAD_SAFETY_ANALYSIS : engine_(engine), waiter_(chunk, chunk->bytes) {
    waiter_.takes_before = engine_->takes_;
    waiter_.since = engine_->pin_clock_.now();
    if (engine_->queue_.empty()) engine_->NoteNewOldest();
    engine_->queue_.Join(&waiter_);
  }
  ~InQueue() RS_NO_THREAD_SAFETY_ANALYSIS {
    if (engine_->queue_.oldest() == &waiter_) engine_->NoteNewOldest();
    engine_->queue_.Leave(&waiter_);
    engine_->pins_->EndHoldUp(&waiter_);
    waiter_.memory = Reservation();  // not used: others may have it
    engine_->ServeWaiters();
  }
  InQueue(const InQueue&) = delete;
  InQueue& operator=(const InQueue&) = delete;
  Waiter* operator->() { return &waiter_; }
  Waiter* get() { return &waiter_; }
  // Whether it is to get memory, or has some. Not when it was passed over because its chunk was on its way.
  bool HasPlace() const { return MemoryQueue::IsQueued(&waiter_) || waiter_.memory; }

 private:
  Engine* const engine_;
  Waiter waiter_;
};

void Engine::NoteNewOldest() {
  passes_ = 0;
  oldest_since_ = pin_clock_.now();
}

// The oldest gets what it needs as soon as that is there, then the next one. To be called wherever memory has come back.
void Engine::ServeWaiters() {
  while (Waiter* waiter = queue_.oldest()) {
    if (PhaseOf(waiter->chunk) != Phase::kSwapped) {  // another thread brings it, and wakes this one when it has come
      queue_.Remove(waiter);
      NoteNewOldest();
      continue;
    }
    Reservation memory = arena_.TryReserve(waiter->bytes);
    if (!memory) break;
    NoteNewOldest();
    counters_.takes_past_a_waiter_max = std::max(counters_.takes_past_a_waiter_max, takes_ - waiter->takes_before);
    Serve(waiter, std::move(memory));
  }
  queue_.KeepOneAwake();
}

void Engine::Serve(Waiter* waiter, Reservation memory) {
  waiter->memory = std::move(memory);
  queue_.Remove(waiter);
  queue_.Wake(waiter);
}

// A frame without waiting or evicting, and not from what others wait for.
Frame Engine::TryTakeFrame(uint64_t bytes) {
  ServeWaiters();
  if (!queue_.empty()) return {};
  Frame frame = arena_.TryTake(bytes);
  takes_ += frame ? 1 : 0;
  return frame;
}

// Whether a thread may take memory that is owed to an older one, which waits for pins and has no use for it yet. With
// nobody left who might unpin, somebody has to: that thread may hold the very pins that the older one waits for.
bool Engine::MayPass(const Waiter& waiter, const PinWait& wait) {
  if (RoundUpToGranule(waiter.bytes) > arena_.available()) return false;
  // Who has been served and has not run since is still marked as waiting, and goes on.
  if (passes_ >= kPassesMax && wait.waited <= options_.deadlock_grace &&
      (arena_.reserved() > 0 || pins_->JudgeWaiters() == PinScanner::Verdict::kSomebodyMayUnpin)) {
    return false;
  }
  ++passes_;
  return true;
}

// The same for those that sleep, by the thread that watches for them.
void Engine::LetSleepersPass(const PinWait& wait) {
  for (Waiter *waiter = queue_.oldest(), *next; waiter != nullptr && arena_.available() > 0; waiter = next) {
    next = MemoryQueue::After(waiter);
    if (!MemoryQueue::IsAsleep(waiter) || PhaseOf(waiter->chunk) != Phase::kSwapped) continue;
    if (RoundUpToGranule(waiter->bytes) > arena_.available()) continue;
    if (!MayPass(*waiter, wait)) return;
    if (Reservation memory = arena_.TryReserve(waiter->bytes)) Serve(waiter, std::move(memory));
  }
}

// Whether another thread looks for memory for this one, too. The oldest looks itself: it is the next to be served, and to be
// told that there is none.
bool Engine::MaySleep(const Waiter& waiter) {
  const Waiter* watcher = queue_.watcher();
  return watcher != nullptr && watcher != &waiter && queue_.oldest() != &waiter && !waiter.memory && !waiter.must_look;
}

// Swap has no room for what could leave. Who waits for that to come back goes on waiting; who has no slot is told.
void Engine::WakeSlotless() {
  for (Waiter* waiter = queue_.oldest(); waiter != nullptr; waiter = MemoryQueue::After(waiter)) {
    if (!MemoryQueue::IsAsleep(waiter) || waiter->chunk->slot) continue;
    waiter->must_look = true;
    queue_.Wake(waiter);
  }
}

void Engine::RefuseOldest() {
  MutexLock lock(mutex_);
  ServeWaiters();
  Waiter* const oldest = queue_.oldest();
  if (oldest == nullptr) return;
  oldest->refused = true;
  queue_.Wake(oldest);
}

// Some write or read is under way; its end may bring a frame.
void Engine::AwaitTransfer(Waiter* waiter) {
  if (PollOnce(microseconds(0))) return;
  if (MemoryQueue::IsQueued(waiter)) queue_.BeginWatch(waiter);
  {
    MutexUnlock unlocked(mutex_);
    std::this_thread::yield();
  }
  if (in_flight_ > 0 && !waiter->memory && !PollOrHear(kLookEvery, waiter) && in_flight_ > 0 && MemoryQueue::IsQueued(waiter)) {
    queue_.BeginWatch(waiter);
    waiter->wake.WaitFor(mutex_, kLookEvery);
  }
  queue_.EndWatch(waiter);
}

// WaitForPins for all in the queue, whose clock goes on from one watcher to the next.
Status Engine::WatchPins(Waiter* waiter, PinWait* wait) {
  const PinClock::Time begin = pin_clock_.now();
  pin_clock_.Begin(waiter->since, wait);
  if (TellWait(waiter->bytes, wait)) return Status();  // meanwhile everything may have changed
  wait->own = waiter->memory.bytes();
  LetSleepersPass(*wait);
  if (!queue_.empty()) pins_->HoldUpOthers(queue_.oldest(), pin_clock_.now() - oldest_since_, queue_.oldest()->bytes);
  if (MemoryQueue::IsQueued(waiter)) queue_.BeginWatch(waiter);
  const auto waited = wait->waited;
  Status status = WaitForPins(waiter->bytes, wait, &waiter->wake);
  queue_.EndWatch(waiter);
  pin_clock_.End(begin, wait->waited - waited, wait->hopeful);
  return status;
}

// One thread that has found no free frame, while it looks for one.
struct Engine::FrameSeeker {
  FrameSeeker(Engine* engine, Chunk* for_chunk, WhenPinned when)
      : chunk(for_chunk), when_pinned(when), mark(engine->pins_, for_chunk), place(engine, for_chunk) {}
  Chunk* const chunk;
  const WhenPinned when_pinned;
  WaitingMark mark;
  InQueue place;
  PinWait wait;
  bool patient = false;  // it waits for pins of others
  uint64_t ask = 0;  // bytes of swap that would let something leave
  uint64_t vacates_ended = 0;  // before it asked swap
  uint32_t looks_refused = 0;  // since it was to be refused, with nothing under way, at which others had taken memory
  uint32_t looks_hopeful = 0;  // the latest ones, in a row
  uint64_t takes_seen = 0;     // by all, at the last look
};

// Whether who was to be refused (RefuseOldest) is told now. Others may have pinned since, and may unpin; and what others take and let go again, too
// little for this one, may always be coming.
bool Engine::IsRefused(FrameSeeker* seeker, bool coming) {
  Waiter* const waiter = seeker->place.get();
  if (!seeker->patient || !waiter->refused || seeker->when_pinned == WhenPinned::kBriefly || in_flight_ > 0) return false;
  if (arena_.reserved() > 0 || vacating_.GivesUp()) return false;  // somebody goes on, or does as soon as it is decided
  if (pins_->JudgeWaiters() == PinScanner::Verdict::kSomebodyMayUnpin) {
    waiter->refused = ++seeker->looks_hopeful < kHopefulLooks;
    if (!waiter->refused) seeker->looks_hopeful = 0;
    return false;
  }
  seeker->looks_hopeful = 0;
  const bool taken_by_others = std::exchange(seeker->takes_seen, takes_) != takes_;
  return !coming || (taken_by_others && ++seeker->looks_refused > kLooksOfRefused);
}

// A frame for a chunk that is about to come in. Evicts and waits as needed; on return the mutex may have been released.
// OK without a frame: the chunk is not in swap any more, another thread was faster. kResourceExhausted: swap has to have *ask bytes.
Status Engine::TakeFrame(Chunk* chunk, WhenPinned when_pinned, Frame* frame, uint64_t* ask) {
  typical_bytes_ = RoundUpToGranule(chunk->bytes);
  *frame = TryTakeFrame(chunk->bytes);
  if (*frame) {
    if (arena_.available() < 2 * typical_bytes_ && policy_->WantsReadAhead()) mover_bell_.Ring();
    return Status();
  }
  if (typical_bytes_ > budget_.frames_limit()) return TooLarge(chunk->bytes);
  FrameSeeker seeker(this, chunk, when_pinned);
  Status status = SeekFrame(&seeker, frame);
  NotePinWait(pin_clock_.now() - seeker.place->since);
  if (when_pinned == WhenPinned::kBriefly) {
    vacating_.waited += pin_clock_.now() - seeker.place->since;
    vacating_.no_memory = !status.ok();
  }
  takes_ += *frame ? 1 : 0;
  if (!status.ok()) *ask = seeker.ask;
  return status;
}

void Engine::CountPinWait(PinClock::Time waited) {
  MutexLock lock(mutex_);
  NotePinWait(waited);
}

void Engine::NotePinWait(PinClock::Time waited) {
  if (waited <= PinClock::Time::zero()) return;
  ++counters_.pin_waits;
  counters_.pin_wait_ns += static_cast<uint64_t>(std::chrono::nanoseconds(waited).count());
}

// Whether a thread that waits may wait on for pins of others.
bool Engine::IsPatient(WhenPinned when_pinned, const Waiter& waiter) {
  if (when_pinned == WhenPinned::kReturn || !wait_for_pins() || !pins_->MayWait(pin_clock_.Waited(waiter.since))) return false;
  return when_pinned != WhenPinned::kBriefly || !vacating_.IsOutOfPatience(pin_clock_.now() - waiter.since);
}

// A round for each look: what is there already, what makes way at once, what will have made way soon, and at last what may
// become free when others unpin. Each round looks at the chunk again: when another thread has brought it, this one's pin keeps it
// from leaving, and waiting on for a frame of one's own would be waiting for oneself.
Status Engine::SeekFrame(FrameSeeker* seeker, Frame* frame) {
  InQueue& place = seeker->place;
  const bool looks_itself = seeker->when_pinned == WhenPinned::kBriefly;  // it has to find out when to give up
  place->must_look = looks_itself;
  while (PhaseOf(seeker->chunk) == Phase::kSwapped && !Has(seeker->chunk, kDoomed) && place.HasPlace()) {
    if (RoundUpToGranule(seeker->chunk->bytes) > budget_.frames_at_most()) return TooLarge(seeker->chunk->bytes);  // the limit was lowered
    ServeWaiters();
    if (place->memory) *frame = arena_.TryTake(seeker->chunk->bytes, &place->memory);
    if (*frame) break;
    seeker->patient = IsPatient(seeker->when_pinned, *place.get());
    if (seeker->patient && MaySleep(*place.get())) {
      seeker->mark.Set();
      queue_.Sleep(place.get(), mutex_, options_.sleep_max);
      continue;
    }
    if (AwaitClosing()) continue;  // another thread makes way just now
    place->must_look = looks_itself;
    seeker->vacates_ended = vacating_.ended;
    Evicted evicted;
    const bool had_memory = static_cast<bool>(place->memory);
    // Who has memory and no frame for it (addresses in pieces) needs others' frames to go.
    if (place->memory || !FramesAreComing()) {
      const auto search_began = Clock::now();
      evicted = EvictFor(seeker->chunk->bytes);
      if (looks_itself && !evicted.leaves() && !evicted.room_made) vacating_.NoteSearchInVain(Clock::now() - search_began);
    }
    seeker->ask = evicted.no_slot;
    bool coming = false;
    Status status = AwaitEvicted(seeker, evicted, &coming);
    const bool was_served = !had_memory && place->memory;  // while the search had let the mutex go: nobody is refused then
    if (status.ok() && !was_served && IsRefused(seeker, coming)) {
      status = evicted.status.ok() ? FullOfPinsStatus(seeker->chunk->bytes) : std::move(evicted.status);
    }
    if (status.ok() && !coming && !was_served) status = AwaitPins(seeker, evicted, frame);
    if (!status.ok() || *frame) return status;
  }
  return Status();
}

// How much leaves in one go where chunks are of so many bytes.
uint64_t Engine::BatchBytes(uint64_t bytes) const { return std::min({Together(bytes) * bytes, budget_.limit() / 16, policy_->SpareBytes()}); }

// What is being written is enough for all that wait and half of a batch more, so that writes go on while these threads read. Each look would
// make more leave otherwise: over a wire, half of the memory, whose writes are then in the way of what these threads want to read.
bool Engine::FramesAreComing() {
  const uint64_t expected = leaving_.Expected(Clock::now(), typical_bytes_);
  // One at a time behind those of which none has ended: most of memory would be on its way to a server that stands still.
  if (leaving_.in_vain()) return expected > 0;
  return expected > 0 && arena_.available() + expected >= queue_.bytes() + std::max(typical_bytes_, BatchBytes(typical_bytes_) / 2);
}

// Makes way for a frame of `bytes`, and for more of them where many are as small. Does not wait for room that others make in swap: who is in
// the queue is served there, and would keep from others for so long what they need.
Evicted Engine::EvictFor(uint64_t bytes) {
  const uint64_t available = arena_.available(), whole = RoundUpToGranule(bytes);
  const uint64_t needed = whole > available ? whole - available : whole;
  Evicted evicted = EvictSome(std::max(needed, BatchBytes(whole)), {});
  if (evicted.freed + evicted.started == 0 && !evicted.room_made && policy_->preemptive_bytes() > 0) {
    const Evicted ahead = EvictPrefetched(needed);
    evicted.freed = ahead.freed;
    evicted.started = ahead.started;
  }
  return evicted;
}

// *coming: frames have become free, or are about to with the end of a transfer, for which this has waited a little.
Status Engine::AwaitEvicted(FrameSeeker* seeker, const Evicted& evicted, bool* coming) {
  const bool in_flight = in_flight_ > 0;
  *coming = in_flight || evicted.leaves() || evicted.room_made || evicted.others_first();
  if (*coming) pin_clock_.NoteProgress(&seeker->wait);
  if (evicted.freed > 0 || evicted.room_made) return Status();
  if (Status status = CheckWrites(); !status.ok()) return status;
  Waiter* const waiter = seeker->place.get();
  if (in_flight && !(seeker->patient && MaySleep(*waiter))) AwaitTransfer(waiter);
  return Status();
}

// All that is in memory is pinned, or has no way out. OK: to be looked at again, unless there is a frame now.
Status Engine::AwaitPins(FrameSeeker* seeker, const Evicted& evicted, Frame* frame) {
  Chunk* const chunk = seeker->chunk;
  Waiter* const waiter = seeker->place.get();
  // Another thread has brought it while the policy, swap or a transfer was asked or waited for without the mutex.
  if (PhaseOf(chunk) != Phase::kSwapped || Has(chunk, kDoomed)) return Status();
  const bool briefly = seeker->when_pinned == WhenPinned::kBriefly;
  // Swap is closed, or being removed, and may be open again in a moment: nobody is told that it takes nothing until that is decided.
  const bool others_first = !briefly && (vacating_.GivesUp() || seeker->vacates_ended != vacating_.ended);
  if (!evicted.status.ok()) {
    if (briefly && BytesAtHome(*vacating_.leaving) > budget_.frames_limit_without_swap()) return evicted.status;  // whatever is unpinned
    // What has a slot in a full swap and is pinned now, or being read ahead, needs no room there: who has a slot may wait for
    // it, here or, with kReturn, where the caller waits.
    const bool may_wait = seeker->patient || (seeker->when_pinned == WhenPinned::kReturn && wait_for_pins());
    if (!may_wait || !(chunk->slot || others_first)) return evicted.status;
    WakeSlotless();
  } else if (!waiter->memory && MayPass(*waiter, seeker->wait)) {
    *frame = arena_.TryTake(chunk->bytes);
    if (*frame) return Status();
  }
  if (seeker->when_pinned == WhenPinned::kReturn) return Aborted("pinned");
  if (!seeker->patient) return FullOfPinsStatus(chunk->bytes);
  if (MaySleep(*waiter)) return Status();
  seeker->mark.Set();
  seeker->wait.others_first = others_first;
  Status status = WatchPins(waiter, &seeker->wait);
  // What could leave has no room in swap, and no thread is known to unpin the rest: who can do without gives up.
  if (briefly && !evicted.status.ok() && !seeker->wait.hopeful && seeker->wait.hopeless >= options_.deadlock_settle) return evicted.status;
  return status.ok() || evicted.status.ok() ? status : evicted.status;
}

// Says once in the log that a thread waits for long; whether it did. Writing the message may take for ever (a pipe that nobody
// reads), so another thread looks meanwhile, and no second one comes here: it would be stuck as well.
bool Engine::TellWait(uint64_t bytes, PinWait* wait) {
  if (wait->waited <= options_.pin_wait_told || telling_wait_ || std::exchange(wait->told, true)) return false;
  telling_wait_ = true;
  queue_.WakeOne();
  {
    MutexUnlock unlocked(mutex_);
    const auto words = [](uint64_t n) { return WithinHeap([n] { return FormatBytes(n); }, std::string()); };
    LogWarning("a thread has waited %lld s for memory for an object of %s: adhereTos and views of other threads pin all of the "
               "memory limit of %s, and it waits on until they release some. Where those threads wait at a barrier, in a join or "
               "for a lock of the program's, these have to end before that",
               static_cast<long long>(std::chrono::duration_cast<std::chrono::seconds>(wait->waited).count()),
               words(bytes).c_str(), words(budget_.limit()).c_str());
  }
  telling_wait_ = false;
  return true;
}

// Everything resident is pinned. Unpinning is a plain store without a signal, so this looks again after a while. The
// verdict on a deadlock needs every holder of pins to be waiting, too, and to stay so for a moment: one that could go on
// by now may not have run yet. And the pins must still be there after it: a thread that unpinned and ended since they were
// looked at waits for nothing, and leaves no other trace. Where no other thread has ever pinned, the second look is at once. A
// wait that somebody can end has no deadline.
Status Engine::WaitForPins(uint64_t bytes, PinWait* wait, CondVar* wake) {
  const PinScanner::Verdict verdict = pins_->JudgeWaiters();
  const bool alone = verdict == PinScanner::Verdict::kNobodyElse;
  const bool again = std::exchange(wait->was_deadlock, alone || verdict == PinScanner::Verdict::kDeadlock);
  // Memory is there for a thread that has not run since: it goes on, whatever the verdict.
  const bool served = arena_.reserved() > wait->own;
  wait->hopeful = verdict == PinScanner::Verdict::kSomebodyMayUnpin || served;
  if (wait->hopeful) wait->hopeless = {};
  const bool settled = alone || wait->hopeless >= options_.deadlock_settle;
  const bool is_over = (wait->was_deadlock && again && settled && !served) ||
                       (verdict == PinScanner::Verdict::kUnlikely && wait->hopeless > options_.deadlock_grace);
  if (is_over && !wait->others_first) return FullOfPinsStatus(bytes);
  if (alone && !again && !served && !wait->others_first) return Status();  // the second look at the pins
  TellWait(bytes, wait);
  const auto begin = Clock::now();
  wake->WaitFor(mutex_, kLookEvery);
  const auto look = std::min<Clock::duration>(Clock::now() - begin, std::chrono::milliseconds(2));
  wait->waited += look;
  wait->hopeless += look;
  return Status();
}

}  // namespace ramspan
