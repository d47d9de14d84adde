// The journey in: a pin misses (or the mover looks ahead), a frame is taken, the tier reads, the completion is checked,
// the pinners wake.
#include <string>
#include <utility>

#include "client/engine/engine.h"
#include "common/units.h"

namespace ramspan {

using Clock = std::chrono::steady_clock;

namespace {
constexpr uint32_t kReadAttemptsMax = 3;
}  // namespace

// Clocks are looked at without the mutex: each look costs some percent of a miss.
Status Engine::Acquire(Chunk* chunk, bool write, WhenPinned when_pinned) {
  const auto since = Clock::now();
  MutexLock lock(mutex_);
  return AcquireLocked(chunk, write, when_pinned, since);
}

Status Engine::AcquireCounted(Chunk* chunk, bool write, WhenPinned when_pinned, const std::atomic<Chunk*>* place) {
  const auto since = Clock::now();
  MutexLock lock(mutex_);
  if (place != nullptr && place->load(std::memory_order_acquire) != chunk) return {StatusCode::kAborted, StaticText("the chunk is being freed")};
  chunk->state.fetch_add(kOneCountedPin, std::memory_order_acq_rel);
  Status status = AcquireLocked(chunk, write, when_pinned, since);
  if (!status.ok()) chunk->state.fetch_sub(kOneCountedPin, std::memory_order_acq_rel);
  return status;
}

// What is thrown on the way is a message that could not be written: all that changes something takes what it needs before.
// OutOfHeap is for who asked then; the object is as it was.
Status Engine::AcquireLocked(Chunk* chunk, bool write, WhenPinned when_pinned, Time since) {
  return FromTier([&]() RS_NO_THREAD_SAFETY_ANALYSIS { return Await(chunk, write, when_pinned, since); }, OutOfHeap());
}

// The program waits since `since`.
Status Engine::Await(Chunk* chunk, bool write, WhenPinned when_pinned, Time since) {
  uint32_t failed_reads = 0;
  bool told = false;    // the policy, of this pin: as a miss, or as a hit
  bool helped = false;  // once: what it waits for may have come meanwhile
  for (;;) {
    Status status;
    if (Has(chunk, kDoomed)) return Aborted("freed meanwhile");  // Vacate's only: nobody else holds a freed chunk
    switch (PhaseOf(chunk)) {
      case Phase::kResident:
        if (!write || !HasReadOnlySlot(chunk)) {
          Open(chunk, write, told);
          return Status();
        }
        if (Has(chunk, kPrefetched)) {  // else it counts as one that nobody uses
          Open(chunk, false, told);
          told = true;
        }
        status = LeaveReadOnlySlot(chunk);
        break;
      case Phase::kWriting:
        feed_.Touch(chunk, kReadable, write);  // the end of the write sees kReadable, and keeps the frame
        if (!write) return Status();
        status = WaitFor(chunk->op, since);
        break;
      case Phase::kLoading:
        if (chunk->op->prefetch && !std::exchange(helped, true)) {
          HelpAhead(chunk->bytes);
          if (PhaseOf(chunk) != Phase::kLoading) {
            const auto now = Clock::now();
            CountWait(std::exchange(since, now), now);
          }
          continue;
        }
        told |= chunk->op->prefetch;
        status = WaitFor(chunk->op, since);
        // The read was another thread's, or one ahead of need, and it is the heap which that one found empty: this thread tries for
        // itself. Not for ever, where others are always faster to try and to fail.
        if (status.code() == StatusCode::kFailedPrecondition && ++failed_reads < kReadAttemptsMax) continue;
        break;
      case Phase::kSwapped:
        status = Load(chunk, when_pinned, since, &told);
        break;
      case Phase::kLost:
        return WithinHeap([&]() RS_NO_THREAD_SAFETY_ANALYSIS { return DataLoss("the data of an object of " + FormatBytes(chunk->bytes) + " (chunk " +
                        std::to_string(chunk->id) + ") is lost: " + WhyLost(chunk) + ". Restart from a checkpoint; see the log for the tier"); },
                          Status(StatusCode::kDataLoss, StaticText("the data of an object is lost: what came back from swap was not what was written, or its memory server is gone, or the program has abandoned its swap. Restart from a checkpoint; see the log for the tier")));
      case Phase::kFreed:
        RS_CHECK(when_pinned != WhenPinned::kBriefly, "chunk %u is used after it was freed", chunk->id);
        return Aborted("an adhereTo is used after the last managedPtr of its object is gone; the managedPtr must outlive its "
                       "adhereTos");
    }
    if (status.ok() && PhaseOf(chunk) == Phase::kResident) continue;
    since = Clock::now();  // what was waited for until now is counted
    if (status.ok() || status.code() == StatusCode::kDataLoss) continue;  // kLost says it with the remedy
    if (status.code() != StatusCode::kUnavailable || ++failed_reads == kReadAttemptsMax) return status;
  }
}

// The caller's pin keeps the chunk where it is, so the bits may be set without looking back. Of a pin of which the policy has been told it does not hear
// again, though it may have cleared kReferenced while the chunk came in: then it is the next pin that it wants to hear of.
void Engine::Open(Chunk* chunk, bool write, bool told) {
  if (Has(chunk, kPrefetched)) {
    ClearBits(chunk, kPrefetched);
    SetBits(chunk, kReferenced);  // the hit is the touch
    feed_.Drain();
    policy_->OnPrefetchHit(chunk);
    ++counters_.prefetch_hits;
    if (policy_->WantsReadAhead()) mover_bell_.Ring();
    told = true;
  }
  const uint64_t bits = OpenBits(chunk) | (write ? kDirty : 0);
  told ? SetBits(chunk, bits) : feed_.Touch(chunk, bits, write);
  NoteUse(chunk);
}

// From Swapped towards Resident. Returns OK also when another thread was faster; the caller looks again. *told: the policy has heard of a miss.
Status Engine::Load(Chunk* chunk, WhenPinned when_pinned, Time since, bool* told) {
  Frame frame;
  bool is_new = false;
  for (;;) {
    const Status status = TakeFrameAndRoom(chunk, when_pinned, &frame, &is_new);
    if (status.ok() && !frame) return status;
    if (status.ok()) break;
    if (!PolicyMakesWay(status)) return status;
    if (PhaseOf(chunk) != Phase::kSwapped || Has(chunk, kDoomed)) return Status();
  }
  IoOp* const op = is_new ? nullptr : ops_.TryTake();
  if (!is_new && op == nullptr) {
    NoteHeapFailure();
    frame = Frame();
    ServeWaiters();
    return OutOfHeap();
  }
  feed_.Drain();
  policy_->OnMiss(chunk, pins_->ThisThread());
  SetBits(chunk, kReferenced);  // the miss is the touch
  *told = true;
  if (is_new) {
    AttachFrame(chunk, std::move(frame));
    Transition(chunk, Event::kMaterialize);
    if (chunk->slot) SetBits(chunk, kDirty);  // there is nothing in it yet
    queue_.WakeFor(chunk);
    return Status();
  }
  CountMiss(chunk, pins_->ThisThread());
  BeginLoad(op, chunk, std::move(frame), false);
  ++op->waiters;  // keeps op alive over the submission
  const bool timed = feed_.wants_costs();
  const SlotRef slot = chunk->slot;
  const auto submitted = timed ? Clock::now() : since;
  IoRequest* const request = &op->io;
  if (load_ahead() && policy_->WantsReadAhead()) mover_bell_.Ring();  // first: where the transfer is a copy, it takes as long as the mover's next one
  SubmitAndPoll(std::span(&request, 1), false, true);
  --op->waiters;
  const uint64_t bytes = op->io.bytes;
  Status status = WaitFor(op, since);
  if (timed && status.ok()) {
    feed_.CountRead(slot, static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - submitted).count()), bytes);
  }
  return status;
}

void Engine::CountMiss(const Chunk* chunk, uint32_t thread) {
  ++counters_.misses;
  counters_.misses_in_order += miss_order_.Note(thread, chunk->id) ? 1 : 0;
}

void Engine::BeginLoad(IoOp* op, Chunk* chunk, Frame frame, bool prefetch) {
  AttachFrame(chunk, std::move(frame));
  room_.CountSwapped(chunk->bytes, false);
  Transition(chunk, Event::kBeginLoad);
  BeginOp(op, chunk, false);
  op->prefetch = prefetch;
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
    Transition(c, Event::kFinishLoad, untouched ? kPrefetched : OpenBits(c));
    resident_slots_.Note(c);
    if (op->prefetch && !untouched) {  // somebody came while it was loading: as good as a hit
      SetBits(c, kReferenced);
      feed_.Drain();
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
  if (lost) {  // whoever asks is told by the chunk's phase, which knows the remedy
    op->status = Status(StatusCode::kDataLoss, StaticText("what came back from swap was wrong, or its place there is gone"));
  } else if (io.result == StatusCode::kFailedPrecondition) {
    op->status = OutOfHeap();
  } else {
    op->status = WithinHeap([&] { return Unavailable("chunk " + std::to_string(c->id) + " could not be read back from " +
                                                     tier_->capabilities().name + " swap"); }, OutOfHeap());
  }
  if (lost) {
    losses_.Note(c->id, c->bytes, tier_->CapabilitiesOf(io.slot).name, IsWrong(*op));
    Transition(c, Event::kLose);
  } else {
    room_.CountSwapped(c->bytes, true);
    Transition(c, Event::kFailLoad, 0, kReferenced);
  }
  if (Has(c, kDoomed)) Forget(c);
}

std::string Engine::WhyLost(const Chunk* chunk) const {
  const uint32_t server = chunk->slot ? tier_->LostWith(chunk->slot, chunk->bytes) : SwapTier::kNoServer;
  if (server != SwapTier::kNoServer) return "it was only on memory server " + tier_->servers()[server].name + ", which has died";
  return "what came back from swap was not what was written, or its memory server is gone, or the program has abandoned its swap";
}

void Engine::TellLosses() {
  const LossLog::News news = losses_.TakeNews();
  MutexUnlock unlocked(mutex_);
  news.Tell();
}

}  // namespace ramspan
