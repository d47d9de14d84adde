// The journey in: a pin misses (or the mover looks ahead), a frame is taken, the tier reads, the completion is checked,
// the pinners wake.
#include <bit>
#include <cstdio>
#include <string>
#include <utility>

#include "client/engine/engine.h"
#include "common/log.h"
#include "common/units.h"

namespace ramspan {

using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;

namespace {
constexpr uint32_t kReadAttemptsMax = 3;
constexpr uint64_t kLossesTold = 16;  // one by one; a program that goes on may lose thousands
constexpr auto kSpinBeforeBlocking = microseconds(60);  // a blocking wake-up costs 70 to 280 us (limits.md)
}  // namespace

// A thread that waits for a transfer while another one polls for all, on its stack. It is woken when its transfer has
// ended, or to poll itself, because that one has what it waited for. In two lists: its transfer's and the engine's.
struct Sleeper {
  CondVar wake;
  Sleeper* next_of_op = nullptr;
  Sleeper *before = nullptr, *next = nullptr;
};

Status Engine::Acquire(Chunk* chunk, bool write, WhenPinned when_pinned) {
  MutexLock lock(mutex_);
  return AcquireLocked(chunk, write, when_pinned);
}

Status Engine::AcquireCounted(Chunk* chunk, bool write, WhenPinned when_pinned) {
  MutexLock lock(mutex_);
  chunk->state.fetch_add(kOneCountedPin, std::memory_order_acq_rel);
  Status status = AcquireLocked(chunk, write, when_pinned);
  if (!status.ok()) chunk->state.fetch_sub(kOneCountedPin, std::memory_order_acq_rel);
  return status;
}

Status Engine::AcquireLocked(Chunk* chunk, bool write, WhenPinned when_pinned) {
  uint32_t failed_reads = 0;
  for (;;) {
    Status status;
    if (Has(chunk, kDoomed)) return Aborted("freed meanwhile");  // Vacate's only: nobody else holds a freed chunk
    switch (PhaseOf(chunk)) {
      case Phase::kResident:
        Open(chunk, write);
        return Status();
      case Phase::kWriting:
        feed_.Touch(chunk, kReadable, write);  // the end of the write sees kReadable, and keeps the frame
        if (!write) return Status();
        status = WaitFor(chunk->op, Clock::now());
        break;
      case Phase::kLoading:
        status = WaitFor(chunk->op, Clock::now());
        break;
      case Phase::kSwapped:
        status = Load(chunk, when_pinned);
        break;
      case Phase::kLost:
        return DataLoss("the data of an object of " + FormatBytes(chunk->bytes) + " (chunk " +
                        std::to_string(chunk->id) + ") is lost: what came back from swap was not what was written, or "
                        "its memory server is gone. Restart from a checkpoint; see the log for the tier");
      case Phase::kFreed:
        RS_CHECK(when_pinned == WhenPinned::kWait, "chunk %u is used after it was freed", chunk->id);
        return Aborted("an adhereTo is used after the last managedPtr of its object is gone; the managedPtr must outlive its "
                       "adhereTos");
    }
    if (status.ok() || status.code() == StatusCode::kDataLoss) continue;  // kLost says it with the remedy
    if (status.code() != StatusCode::kUnavailable || ++failed_reads == kReadAttemptsMax) return status;
  }
}

// From Swapped towards Resident. Returns OK also when another thread was faster; the caller looks again.
Status Engine::Load(Chunk* chunk, WhenPinned when_pinned) {
  const auto begin = Clock::now();
  Frame frame;
  bool is_new = false;
  if (Status status = TakeFrameAndRoom(chunk, when_pinned, &frame, &is_new); !status.ok() || !frame) return status;
  feed_.Drain();
  policy_->OnMiss(chunk, pins_->ThisThread());
  SetBits(chunk, kReferenced);  // the miss is the touch
  if (is_new) {
    AttachFrame(chunk, std::move(frame));
    Transition(chunk, Event::kMaterialize);
    if (chunk->slot) SetBits(chunk, kDirty);  // there is nothing in it yet
    queue_.WakeFor(chunk);
    return Status();
  }
  ++counters_.misses;
  IoOp* op = BeginLoad(chunk, std::move(frame), false);
  ++op->waiters;  // keeps op alive over the submission
  const bool timed = feed_.wants_costs();
  const SlotRef slot = chunk->slot;
  const auto submitted = timed ? Clock::now() : begin;
  Submit(std::span(&op, 1), false);
  --op->waiters;
  if (load_ahead() && policy_->WantsReadAhead()) SignalMover();
  const uint64_t bytes = op->io.bytes;
  Status status = WaitFor(op, begin);
  if (timed && status.ok()) {
    feed_.CountRead(slot, static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - submitted).count()), bytes);
  }
  return status;
}

IoOp* Engine::BeginLoad(Chunk* chunk, Frame frame, bool prefetch) {
  AttachFrame(chunk, std::move(frame));
  CountSwapped(chunk, false);
  Transition(chunk, Event::kBeginLoad);
  IoOp* op = NewOp(chunk, false);
  op->prefetch = prefetch;
  return op;
}

// Whether all bytes came, but not those that were written.
bool Engine::IsWrong(const IoOp& op) const {
  const bool moved = op.io.result == StatusCode::kOk && op.io.bytes_done == op.io.bytes;
  return moved && options_.checksum && !HasReadOnlySlot(op.chunk) && op.io.checksum != op.chunk->checksum;
}

void Engine::FinishRead(IoOp* op) {
  Chunk* c = op->chunk;
  const IoRequest& io = op->io;
  const bool moved = io.result == StatusCode::kOk && io.bytes_done == io.bytes;
  if (moved && !IsWrong(*op)) {
    const bool untouched = op->prefetch && op->waiters == 0;
    Transition(c, Event::kFinishLoad, untouched ? kPrefetched : kReadable | kWritable);
    NoteResidentSlot(c);
    if (op->prefetch && !untouched) {  // somebody came while it was loading: as good as a hit
      SetBits(c, kReferenced);
      policy_->OnPrefetchHit(c);
      ++counters_.prefetch_hits;
    }
    if (Has(c, kDoomed)) {
      if (untouched) ClearBits(c, kPrefetched);
      Forget(c);
    }
    return;
  }
  ++counters_.read_failures;
  static_cast<void>(DetachFrame(c));
  if (op->prefetch) {
    policy_->OnPrefetchWasted(c);
    ++counters_.prefetch_wasted;
  }
  const bool lost = moved || io.result == StatusCode::kDataLoss;
  op->status = lost ? DataLoss("chunk " + std::to_string(c->id) + ": " +
                               (moved ? "wrong checksum after reading it back" : "its place in swap is gone"))
                    : Unavailable("chunk " + std::to_string(c->id) + " could not be read back from " +
                                  tier_->capabilities().name + " swap");
  if (lost) {
    NoteLoss(*op);
    Transition(c, Event::kLose);
  } else {
    CountSwapped(c, true);
    Transition(c, Event::kFailLoad, 0, kReferenced);
  }
  if (Has(c, kDoomed)) Forget(c);
}

void Engine::NoteLoss(const IoOp& op) {
  ++counters_.losses;
  if (untold_losses_ == losses_.size()) return;  // so many at once: the others are in the count
  Loss& loss = losses_[untold_losses_++];
  loss = {.chunk = op.chunk->id, .bytes = op.chunk->bytes, .tier = {}, .wrong = IsWrong(op)};
  std::snprintf(loss.tier, sizeof loss.tier, "%s", tier_->CapabilitiesOf(op.io.slot).name);
}

// The first losses are told one by one, later ones each time their number has doubled.
void Engine::TellLosses() {
  const auto losses = losses_;
  const size_t n = std::exchange(untold_losses_, 0);
  const uint64_t sum = counters_.losses;
  MutexUnlock unlocked(mutex_);
  for (size_t i = 0; i < n && sum <= kLossesTold; ++i) {
    LogWarning("chunk %u of %llu bytes is lost: %s %s swap", losses[i].chunk,
               static_cast<unsigned long long>(losses[i].bytes),
               losses[i].wrong ? "it was read twice, and twice its checksum was wrong, from" : "its place is gone in",
               losses[i].tier);
  }
  if (sum > kLossesTold && std::bit_floor(sum) > sum - n) {
    LogWarning("%llu chunks are lost so far, the last one in %s swap", static_cast<unsigned long long>(sum),
               losses[n - 1].tier);
  }
}

void Engine::SleepUntilDone(IoOp* op) {
  Sleeper self;
  self.next_of_op = std::exchange(op->sleepers, &self);
  self.next = std::exchange(sleepers_, &self);
  if (self.next != nullptr) self.next->before = &self;
  self.wake.WaitFor(mutex_, options_.sleep_max);
  Sleeper** at = &op->sleepers;
  while (*at != &self) at = &(*at)->next_of_op;
  *at = self.next_of_op;
  (self.before == nullptr ? sleepers_ : self.before->next) = self.next;
  if (self.next != nullptr) self.next->before = self.before;
}

void Engine::WakeSleepers(IoOp* op) {
  for (Sleeper* sleeper = op->sleepers; sleeper != nullptr; sleeper = sleeper->next_of_op) sleeper->wake.NotifyAll();
}

// Spins, polls and then sleeps until the transfer has ended. The program has waited since `since`: for the frame and
// the submission, which is all there is to wait for where a tier copies while it submits.
Status Engine::WaitFor(IoOp* op, Clock::time_point since) {
  const auto begin = Clock::now();
  ++op->waiters;
  while (!op->done) {
    if (PollOnce(microseconds(0)) || op->done) continue;
    if (Clock::now() - begin < kSpinBeforeBlocking) {
      MutexUnlock unlocked(mutex_);
      for (int i = 0; i < 64; ++i) __builtin_ia32_pause();
    } else if (!polling_) {
      polling_ = true;
      PollOnce(microseconds(200));
      polling_ = false;
    } else {
      SleepUntilDone(op);
    }
  }
  if (!polling_ && sleepers_ != nullptr) sleepers_->wake.NotifyAll();  // the next one polls
  CountWait(since);
  Status status = op->status;
  --op->waiters;
  Release(op);
  return status;
}

void Engine::Prefetch(Chunk* chunk) {
  const auto begin = Clock::now();
  MutexLock lock(mutex_);
  if (PhaseOf(chunk) != Phase::kSwapped || !chunk->slot) return;
  Frame frame = TryTakeFrame(chunk->bytes);
  if (!frame) return;  // not worth evicting what somebody may use: the pull will
  // The program asked for this very chunk: a miss, not a guess of the policy's, whose hits it must not count as.
  policy_->OnMiss(chunk, pins_->ThisThread());
  ++counters_.misses;
  IoOp* op = BeginLoad(chunk, std::move(frame), false);
  queue_.WakeFor(chunk);  // this thread does not wait for it
  Submit(std::span(&op, 1), false);
  counters_.wait_ns_total += static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - begin).count());
  if (load_ahead() && policy_->WantsReadAhead()) SignalMover();
}

// A tier that copies while it submits gets one chunk at a time, so that each is usable as soon as it is there.
bool Engine::ReadAhead() {
  Chunk* wanted[8];
  const size_t most = tier_->capabilities().synchronous ? 1 : 8;
  size_t n;
  {
    const CachePolicy::Turn turn = Consult(CachePolicy::Ask::kReadAhead, 0, most);
    n = policy_->PickReadAhead(std::span(wanted, most));
  }
  IoOp* ops[8];
  size_t started = 0;
  for (; started < n; ++started) {
    Frame frame = TryTakeFrame(wanted[started]->bytes);
    if (!frame) break;
    ops[started] = BeginLoad(wanted[started], std::move(frame), true);
    queue_.WakeFor(wanted[started]);
    policy_->OnPrefetchIssued(wanted[started]);
    ++counters_.prefetch_issued;
  }
  Submit(std::span(ops, started), false);
  return started > 0;
}

}  // namespace ramspan
