#include "client/engine/engine.h"

#include <algorithm>
#include <bit>
#include <string>
#include <thread>
#include <utility>

#include "common/checksum.h"
#include "common/units.h"

namespace ramspan {

using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;

namespace {
constexpr auto kMoverNap = microseconds(200);
constexpr auto kConsultingNap = microseconds(100);  // between looks whether a policy that goes is still being asked
constexpr uint32_t kRereadsMax = 1;  // a byte that is wrong twice is wrong where it is kept
}  // namespace

Engine::Engine(const Options& options, SwapTier* tier, PinScanner* pins,
               const std::function<std::unique_ptr<CachePolicy>(const ChunkTable*)>& make_policy)
    : options_(options),
      tier_(tier),
      pins_(pins),
      budget_(options.budget, options.metadata_beside_limit),
      load_ahead_(options.preemptive),
      write_ahead_(options.preemptive),
      chunks_(&budget_),
      arena_(&budget_, {.guard = options.debug, .addresses = options.addresses}),
      policy_(make_policy(&chunks_)),
      feed_(&chunks_, pins),
      ops_(&budget_) {
  feed_.SetPolicy(policy_.get());
}

Engine::~Engine() { Drain(); }

void Engine::Drain() {
  MutexLock lock(mutex_);
  while (in_flight_ > 0) PollOnce(microseconds(1000));
}

bool Engine::HasTransfers() {
  MutexLock lock(mutex_);
  if (in_flight_ > 0) PollOnce(microseconds(0));
  return in_flight_ > 0;
}

void Engine::FreeResidentSlots(uint64_t bytes) {
  MutexLock lock(mutex_);
  ReclaimResidentSlots(bytes);
}

Result<Chunk*> Engine::Create(uint64_t bytes, SlotRef contents) {
  MutexLock lock(mutex_);
  if (RoundUpToGranule(bytes) > budget_.frames_limit()) return TooLarge(bytes);
  if (const uint64_t slab = chunks_.next_charge(); slab > 0) {
    if (Status status = TakeMetadata(slab); !status.ok()) return status;
    budget_.ChargeMetadata(-slab);  // New charges it, if it is still needed
  }
  Chunk* chunk = chunks_.New(bytes);
  policy_->OnCreate(chunk);
  if (contents) {
    AttachSlot(chunk, Slot(tier_, contents, bytes));
    CountSwapped(chunk, true);
    kept_sizes_.Note(bytes);
  }
  live_bytes_ += RoundUpToGranule(bytes);
  all_sizes_.Note(bytes);
  counters_.data_bytes += bytes;
  counters_.peak_data_bytes = std::max(counters_.peak_data_bytes, counters_.data_bytes);
  static_cast<void>(Consult(CachePolicy::Ask::kNothing, 0, 0));  // a program's own policy knows its objects
  return chunk;
}

void Engine::Free(Chunk* chunk) {
  MutexLock lock(mutex_);
  feed_.Drain();
  if (Has(chunk, kPrefetched)) {
    policy_->OnPrefetchWasted(chunk);
    ++counters_.prefetch_wasted;
    ClearBits(chunk, kPrefetched);
  }
  live_bytes_ -= RoundUpToGranule(chunk->bytes);
  counters_.data_bytes -= chunk->bytes;
  if (chunk->op != nullptr || chunk == vacating_) {
    if (chunk->op != nullptr && std::exchange(chunk->op->prefetch, false)) {
      policy_->OnPrefetchWasted(chunk);
      ++counters_.prefetch_wasted;
    }
    policy_->OnFree(chunk);
    SetBits(chunk, kDoomed);  // Finish forgets it, or Vacate
    queue_.WakeFor(chunk);
    return;
  }
  policy_->OnFree(chunk);
  Forget(chunk);
  static_cast<void>(Consult(CachePolicy::Ask::kNothing, 0, 0));
}

bool Engine::IsLost(const Chunk* chunk) const {
  // Asked before each new small object: without the mutex as long as the bundle is in memory, or has never left it.
  const uint64_t word = chunk->state.load(std::memory_order_acquire);
  if (PhaseOf(word) != Phase::kLost && !(PhaseOf(word) == Phase::kSwapped && (word & kHasSlot) != 0)) return false;
  MutexLock lock(mutex_);
  return PhaseOf(chunk) == Phase::kLost ||
         (PhaseOf(chunk) == Phase::kSwapped && chunk->slot && tier_->IsLost(chunk->slot, chunk->bytes));
}

// Gives back all that a chunk with no transfer in flight holds.
void Engine::Forget(Chunk* chunk) {
  if (chunk == vacating_) return;  // Vacate looks at it when it has the mutex again
  if (PhaseOf(chunk) == Phase::kResident) {
    static_cast<void>(DetachFrame(chunk));
    ServeWaiters();
  } else if (PhaseOf(chunk) == Phase::kSwapped && chunk->slot) {
    CountSwapped(chunk, false);
  }
  static_cast<void>(DetachSlot(chunk));
  Transition(chunk, Event::kFree, 0, ~uint64_t{0});
  chunks_.Delete(chunk);
}

// A chunk that has a frame and no slot can leave memory only if swap has room for it: slotless_bytes_ counts those.
void Engine::AttachFrame(Chunk* chunk, Frame frame) {
  chunk->frame = frame.release();
  if (!chunk->slot) slotless_bytes_ += RoundUpToGranule(chunk->bytes);
}

Frame Engine::DetachFrame(Chunk* chunk) {
  if (!chunk->slot) slotless_bytes_ -= RoundUpToGranule(chunk->bytes);
  return arena_.Own(std::exchange(chunk->frame, nullptr), chunk->bytes);
}

void Engine::AttachSlot(Chunk* chunk, Slot slot) {
  if (chunk->frame != nullptr) slotless_bytes_ -= RoundUpToGranule(chunk->bytes);
  chunk->slot = slot.release();
  SetBits(chunk, kHasSlot | (tier_->CapabilitiesOf(chunk->slot).read_only ? kReadOnlySlot : 0));
}

Slot Engine::DetachSlot(Chunk* chunk) {
  if (chunk->frame != nullptr && chunk->slot) slotless_bytes_ += RoundUpToGranule(chunk->bytes);
  if (Has(chunk, kHasSlot)) ClearBits(chunk, kHasSlot | kReadOnlySlot);
  if (chunk->slot) full_bytes_ = UINT64_MAX;  // swap has room again
  return Slot(tier_, std::exchange(chunk->slot, SlotRef{}), chunk->bytes);
}

// The caller's pin keeps the chunk where it is, so the bits may be set without looking back.
void Engine::Open(Chunk* chunk, bool write) {
  if (Has(chunk, kPrefetched)) {
    ClearBits(chunk, kPrefetched);
    SetBits(chunk, kReferenced);  // the hit is the touch
    feed_.Drain();
    policy_->OnPrefetchHit(chunk);
    ++counters_.prefetch_hits;
    if (policy_->WantsReadAhead()) SignalMover();
  }
  feed_.Touch(chunk, kReadable | kWritable | (write ? kDirty : 0), write);
}

IoOp* Engine::NewOp(Chunk* chunk, bool write) {
  IoOp* op = ops_.Take();
  op->chunk = chunk;
  op->io.slot = chunk->slot;
  op->io.buffer = chunk->frame;
  op->io.bytes = chunk->bytes;
  op->io.cookie = op;
  op->io.is_write = write;
  op->round = write_round_;
  chunk->op = op;
  ++in_flight_;
  return op;
}

void Engine::Release(IoOp* op) {
  if (op->done && op->waiters == 0) ops_.Put(op);
}

void Engine::Submit(std::span<IoOp* const> ops, bool write) {
  if (ops.empty()) return;
  RS_CHECK(ops.size() <= kBatch, "%zu transfers at once", ops.size());
  IoRequest* requests[kBatch];
  for (size_t i = 0; i < ops.size(); ++i) requests[i] = &ops[i]->io;
  const std::span<IoRequest* const> batch(requests, ops.size());
  MutexUnlock unlocked(mutex_);
  if (write) {
    for (IoRequest* io : batch) {
      // The frame is constant while it is written (I3), so the checksum can be taken before or during the copy.
      if (options_.checksum && !tier_->CapabilitiesOf(io->slot).checksums) io->checksum = Checksum(io->buffer, io->bytes);
    }
    tier_->SubmitWrite(batch);
  } else {
    tier_->SubmitRead(batch);
  }
}

bool Engine::PollOnce(microseconds wait, const Waiter* watcher) {
  IoRequest* done[kBatch];
  size_t n;
  {
    MutexUnlock unlocked(mutex_);
    n = tier_->Poll(done, wait);
    for (IoRequest* io : std::span(done, n)) {
      if (io->is_write || !options_.checksum || io->result != StatusCode::kOk) continue;
      const SwapTier::Capabilities tier = tier_->CapabilitiesOf(io->slot);
      if (!tier.checksums && !tier.read_only) io->checksum = Checksum(io->buffer, io->bytes);
    }
  }
  if (watcher != nullptr) queue_.EndWatch(watcher);
  Finish(std::span(done, n));
  if (untold_losses_ > 0) TellLosses();
  return n > 0;
}

void Engine::Finish(std::span<IoRequest* const> done) {
  if (done.empty()) return;
  IoOp* writes[kBatch];
  IoOp* again[kBatch];
  size_t n = 0, m = 0;
  in_flight_ -= done.size();
  for (IoRequest* io : done) {
    auto* op = static_cast<IoOp*>(io->cookie);
    if (!io->is_write && IsWrong(*op) && op->rereads < kRereadsMax) {  // what is in swap may still be right
      ++op->rereads;
      ++counters_.rereads;
      ++in_flight_;
      again[m++] = op;
      continue;
    }
    op->chunk->op = nullptr;
    op->done = true;
    WakeSleepers(op);
    if (io->is_write) {
      writes[n++] = op;
    } else {
      queue_.WakeFor(op->chunk);
      FinishRead(op);
      Release(op);
    }
  }
  FinishWrites(std::span(writes, n));
  ServeWaiters();
  Submit(std::span(again, m), false);
}

void Engine::CountWait(Clock::time_point since) {
  const auto ns = static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - since).count());
  ++counters_.waits;
  counters_.wait_ns_total += ns;
  const size_t bucket = static_cast<size_t>(std::bit_width(ns / 1000));
  ++counters_.wait_us_histogram[std::min(bucket, counters_.wait_us_histogram.size() - 1)];
}

bool Engine::IsChanged(Chunk* chunk) {
  MutexLock lock(mutex_);
  return !HasReadOnlySlot(chunk) || Has(chunk, kDirty);
}

void Engine::ReplaceSlot(Chunk* chunk, SlotRef contents) {
  MutexLock lock(mutex_);
  while (chunk->op != nullptr) PollOnce(microseconds(1000));
  static_cast<void>(DetachSlot(chunk));
  AttachSlot(chunk, Slot(tier_, contents, chunk->bytes));
  ClearBits(chunk, kDirty);
}

std::string Engine::DescribeUnchangedWrites() const {
  MutexLock lock(mutex_);
  if (counters_.unchanged_writes == 0) return "";
  std::string text = "ramspan debug: " + std::to_string(counters_.unchanged_writes) + " of " +
                     std::to_string(counters_.evictions - counters_.clean_evictions) + " writes to swap (" +
                     FormatBytes(counters_.unchanged_bytes) +
                     ") wrote what was there already: the objects were pulled as T*, but not changed. Pull const T* where "
                     "data is only read (ADHERETOCONST, ADHERETOLOCCONST). Objects of";
  for (const auto& [bytes, writes] : unchanged_by_size_) {
    text += " " + FormatBytes(bytes) + " (" + std::to_string(writes) + " writes)";
  }
  return text + "\n";
}

void Engine::SignalMover() {
  mover_work_ = true;
  if (mover_asleep_) mover_wake_.NotifyAll();
}

void Engine::WakeMover() {
  MutexLock lock(mutex_);
  SignalMover();
}

void Engine::MoverWait(microseconds max) {
  MutexLock lock(mutex_);
  if (mover_work_) return;
  mover_asleep_ = true;
  mover_wake_.WaitFor(mutex_, max);
  mover_asleep_ = false;
}

bool Engine::MoverStep() {
  MutexLock lock(mutex_);
  mover_work_ = false;
  bool worked = in_flight_ > 0 && PollOnce(microseconds(0));
  feed_.Drain();
  TellLimits();
  if (write_ahead()) worked |= RefillReserve();
  if (load_ahead()) worked |= ReadAhead();
  static_cast<void>(Consult(CachePolicy::Ask::kNothing, 0, 0));  // what it has not heard yet must not pile up
  worked |= feed_.StepEpoch();
  const auto now = Clock::now();
  if (now - last_upkeep_ > std::chrono::milliseconds(5)) {
    last_upkeep_ = now;
    uint64_t metadata_bytes;
    {
      MutexUnlock unlocked(mutex_);
      tier_->Upkeep();
      metadata_bytes = tier_->stats().metadata_bytes;
    }
    NoteTiers(metadata_bytes);
  }
  // What is in flight needs no spinning: whoever waits for it polls by himself. A tier that has nothing to wait for
  // returns at once: another thread is just copying, or has taken the completion.
  if (!worked && in_flight_ > 0 && !PollOnce(kMoverNap) && Clock::now() - now < kMoverNap / 2 && !mover_work_) {
    mover_asleep_ = true;
    mover_wake_.WaitFor(mutex_, kMoverNap);
    mover_asleep_ = false;
  }
  return worked || in_flight_ > 0;
}

EngineCounters Engine::counters() const {
  MutexLock lock(mutex_);
  EngineCounters c = counters_;
  c.budget_bytes = budget_.limit();
  c.resident_bytes = arena_.in_use();
  c.metadata_bytes = budget_.metadata();
  c.metadata_beside_limit_bytes = budget_.beside_limit();
  c.peak_resident_bytes = arena_.peak();
  c.chunks = chunks_.live();
  c.swapped_bytes = swapped_bytes_;
  c.preemptive_bytes = policy_->preemptive_bytes();
  c.touches_dropped = pins_->touches_dropped();
  return c;
}

void Engine::SetPreemptive(bool loading, bool unloading) {
  load_ahead_.store(loading, std::memory_order_relaxed);
  write_ahead_.store(unloading, std::memory_order_relaxed);
}

std::unique_ptr<CachePolicy> Engine::ReplacePolicy(
    const std::function<std::unique_ptr<CachePolicy>(const ChunkTable*)>& make_policy) {
  std::unique_ptr<CachePolicy> next;
  {
    MutexLock lock(mutex_);
    next = ReplacePolicyLocked(make_policy);
    static_cast<void>(Consult(CachePolicy::Ask::kNothing, 0, 0));  // what there is already
    while (next->consulting > 0) {  // the program may destroy its own policy when this returns
      MutexUnlock unlocked(mutex_);
      std::this_thread::sleep_for(kConsultingNap);
    }
  }
  static_cast<void>(next->Consult(CachePolicy::Ask::kNothing, 0, 0));  // tells it the rest
  return next;
}

std::unique_ptr<CachePolicy> Engine::ReplacePolicyLocked(
    const std::function<std::unique_ptr<CachePolicy>(const ChunkTable*)>& make_policy) {
  std::unique_ptr<CachePolicy> next = make_policy(&chunks_);
  feed_.Drain();
  feed_.SetPolicy(next.get());
  next->SetLimits(load_ahead() ? budget_.limit() : 0, swapped_bytes_);
  for (uint32_t id = 0; id < chunks_.ids(); ++id) {
    Chunk* c = chunks_.At(id);
    if (PhaseOf(c) == Phase::kFreed || Has(c, kDoomed)) continue;
    // What the old policy fetched ahead is nobody's guess any more. Such a chunk is closed; its first pin opens it.
    if (Has(c, kPrefetched) || (c->op != nullptr && std::exchange(c->op->prefetch, false))) {
      policy_->OnPrefetchWasted(c);
      ++counters_.prefetch_wasted;
      ClearBits(c, kPrefetched);
    }
    policy_->OnFree(c);
    next->OnCreate(c);
  }
  std::swap(policy_, next);
  return next;
}

// Lets the program's own policy decide, without the mutex. Where another thread has replaced it meanwhile, the new one is asked:
// what a policy has named may be picked with its own turn only. The mutex is held when a turn ends, so who waits for
// `consulting` to be 0 can destroy the policy.
CachePolicy::Turn Engine::Consult(CachePolicy::Ask ask, uint64_t bytes, size_t places) {
  while (policy_->decides_in_consult()) {
    CachePolicy* const policy = policy_.get();
    CachePolicy::Turn turn;
    ++policy->consulting;
    {
      MutexUnlock unlocked(mutex_);
      turn = policy->Consult(ask, bytes, places);
    }
    --policy->consulting;
    if (policy == policy_.get()) return turn;
  }
  return {};
}

void Engine::TellTouches() {
  if (!mutex_.try_lock()) return;
  feed_.Drain();
  mutex_.unlock();
}

std::string Engine::DescribePolicy() const {
  MutexLock lock(mutex_);
  return policy_->Describe();
}

bool Engine::CheckPolicy() const {
  MutexLock lock(mutex_);
  return policy_->IsValid();
}

bool Engine::IsValid() {
  MutexLock lock(mutex_);
  uint64_t frames = 0, live = 0, slotless = 0, swapped = 0;
  for (uint32_t id = 0; id < chunks_.ids(); ++id) {
    const Chunk* c = chunks_.At(id);
    const Phase phase = PhaseOf(c);
    if (phase == Phase::kFreed) continue;
    ++live;
    if (phase == Phase::kResident || phase == Phase::kWriting || phase == Phase::kLoading) {
      frames += RoundUpToGranule(c->bytes);
      if (!c->slot) slotless += RoundUpToGranule(c->bytes);
    }
    if ((c->op != nullptr) != (phase == Phase::kLoading || phase == Phase::kWriting)) return false;
    if (phase == Phase::kWriting && Has(c, kWritable)) return false;                  // I3
    if (HasReadOnlySlot(c) && !c->slot) return false;
    if (phase == Phase::kSwapped && Has(c, kReadable | kWritable | kDirty)) return false;
    if (phase == Phase::kSwapped && c->slot) swapped += RoundUpToGranule(c->bytes);
  }
  return swapped == swapped_frames_ && live == chunks_.live() && slotless == slotless_bytes_ && frames == arena_.in_use() &&
         arena_.committed() + budget_.metadata() <= budget_.total();
}

}  // namespace ramspan
