#include "client/engine/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/topology.h"
#include "common/units.h"

namespace ramspan {

using std::chrono::microseconds;

Engine::Engine(const Options& options, SwapTier* tier, PinScanner* pins, const MakePolicy& make_policy)
    : options_(options),
      tier_(tier),
      pins_(pins),
      budget_(options.budget, options.metadata_beside_limit),
      load_ahead_(options.preemptive),
      write_ahead_(options.preemptive),
      chunks_(&budget_),
      arena_(&budget_, {.guard = options.debug,
                       .addresses = options.addresses,
                       .before_pages_go = [tier, pins](std::span<std::byte> memory) {
                         tier->ForgetMemory(memory);
                         pins->ForgetFrames(memory);
                       }}),
      policy_(make_policy(&chunks_)),
      feed_(&chunks_, pins),
      ops_(&budget_),
      room_(&budget_, options.keep_room),
      spinners_max_(static_cast<uint32_t>(std::max(1, UsableCores() / 2))) {
  feed_.SetPolicy(policy_.get());
  policies_fit_ = options.budget;
  ChargePolicy();
}

Engine::~Engine() { Drain(); }

Result<Chunk*> Engine::Create(uint64_t bytes, SlotRef contents) {
  MutexLock lock(mutex_);
  const auto fits = [&]() RS_NO_THREAD_SAFETY_ANALYSIS { return RoundUpToGranule(bytes) <= budget_.frames_limit(); };
  const auto fits_after_all = [&]() RS_NO_THREAD_SAFETY_ANALYSIS {
    return fits() || (RoundUpToGranule(bytes) <= budget_.frames_limit() + policy_bytes_ && PolicyMakesWay(TooLarge(bytes)) && fits());
  };
  if (!fits_after_all()) return TooLarge(bytes);
  if (const uint64_t slab = chunks_.next_charge(); slab > 0) {
    if (Status status = TakeMetadata(slab); !status.ok()) return status;
    const bool still_fits = fits_after_all();
    budget_.ChargeMetadata(-slab);  // New charges it, if it is still needed
    if (!still_fits) return TooLarge(bytes);
    FitPolicyToChunks(bytes);
  }
  Chunk* const chunk = FromTier([&]() RS_NO_THREAD_SAFETY_ANALYSIS {
    policy_->Reserve(chunks_.next_id() + 1);
    if (reserved_policy_ != nullptr) reserved_policy_->Reserve(chunks_.next_id() + 1);
    return chunks_.New(bytes);
  }, static_cast<Chunk*>(nullptr));
  if (chunk == nullptr) return OutOfHeap();
  policy_->OnCreate(chunk);
  if (contents) {
    AttachSlot(chunk, Slot(tier_, contents, bytes));
    room_.CountSwapped(bytes, true);
    room_.kept.Note(bytes);
  }
  CountLive(RoundUpToGranule(bytes));
  room_.all.Note(bytes);
  if (!room_.Fits(bytes)) {  // the limit was lowered, and there is room for as large a one again
    room_.SetFitsUpTo(RoundUpToGranule(bytes));
    LookForSizes();
  }
  budget_.set_largest(room_.all.largest);
  counters_.data_bytes += bytes;
  counters_.peak_data_bytes = std::max(counters_.peak_data_bytes, counters_.data_bytes);
  counters_.peak_data_frame_bytes = std::max(counters_.peak_data_frame_bytes, live_bytes());
  static_cast<void>(Consult(CachePolicy::Ask::kNothing, 0, 0));  // a program's own policy knows its objects
  return chunk;
}

void Engine::CountLive(uint64_t bytes) {
  const uint64_t before = live_bytes(), now = before + bytes, limit = budget_.frames_limit();
  live_bytes_.store(now, std::memory_order_relaxed);
  const auto has_outgrown = [&](uint64_t size) { return before <= size && now > size; };
  if (has_outgrown(PinScanner::SpareOfAll(limit)) || has_outgrown(limit)) pins_->DataHasOutgrownMemory();
}

void Engine::Free(Chunk* chunk) {
  MutexLock lock(mutex_);
  FreeLocked(chunk);
}

bool Engine::FreeUnpinned(Chunk* chunk) {
  MutexLock lock(mutex_);
  if (HasCountedPins(chunk)) return false;
  FreeLocked(chunk);
  return true;
}

void Engine::FreeLocked(Chunk* chunk) {
  feed_.Drain();
  if (Has(chunk, kPrefetched)) {
    policy_->OnPrefetchWasted(chunk);
    ++counters_.prefetch_wasted;
    ClearBits(chunk, kPrefetched);
  }
  CountLive(-RoundUpToGranule(chunk->bytes));
  counters_.data_bytes -= chunk->bytes;
  if (chunk->op != nullptr || chunk == vacating_.chunk || IsClosing(chunk)) {
    if (chunk->op != nullptr && std::exchange(chunk->op->prefetch, false)) {
      policy_->OnPrefetchWasted(chunk);
      ++counters_.prefetch_wasted;
    }
    policy_->OnFree(chunk);
    SetBits(chunk, kDoomed);  // Finish forgets it, or Vacate, or CloseUnpinned
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
  if (chunk == vacating_.chunk) return;  // Vacate looks at it when it has the mutex again
  if (PhaseOf(chunk) == Phase::kResident) {
    static_cast<void>(DetachFrame(chunk));
    ServeWaiters();
  } else if (PhaseOf(chunk) == Phase::kSwapped && chunk->slot) {
    room_.CountSwapped(chunk->bytes, false);
  }
  static_cast<void>(DetachSlot(chunk));
  Transition(chunk, Event::kFree, 0, ~uint64_t{0});
  chunks_.Delete(chunk);
}

// A chunk that has a frame and no slot can leave memory only if swap has room for it: those are counted.
void Engine::AttachFrame(Chunk* chunk, Frame frame) {
  chunk->frame = frame.release();
  if (chunk->slot) return;
  room_.CountSlotless(chunk->bytes, true);
  room_.Hold();
}

Frame Engine::DetachFrame(Chunk* chunk) {
  if (!chunk->slot) {
    room_.CountSlotless(chunk->bytes, false);
    room_.Hold();
  }
  return arena_.Own(std::exchange(chunk->frame, nullptr), chunk->bytes);
}

void Engine::AttachSlot(Chunk* chunk, Slot slot) {
  if (chunk->frame != nullptr) room_.CountSlotless(chunk->bytes, false);
  room_.CountSlot(chunk->bytes, true);
  chunk->slot = slot.release();
  chunk->checksum = 0;  // what an earlier slot held says nothing of this one
  const bool read_only = tier_->CapabilitiesOf(chunk->slot).read_only;
  SetBits(chunk, kHasSlot | (read_only ? kReadOnlySlot : 0));
  if (!read_only) room_.NoteSpace(SpaceOf(chunk->slot));
  room_.Hold();
}

Slot Engine::DetachSlot(Chunk* chunk) {
  if (chunk->slot) {
    if (chunk->frame != nullptr) room_.CountSlotless(chunk->bytes, true);
    room_.CountSlot(chunk->bytes, false);
    room_.Hold();
    room_.NoteFreed();
  }
  if (Has(chunk, kHasSlot)) ClearBits(chunk, kHasSlot | kReadOnlySlot);
  return Slot(tier_, std::exchange(chunk->slot, SlotRef{}), chunk->bytes);
}

bool Engine::IsChanged(Chunk* chunk) {
  MutexLock lock(mutex_);
  return !HasReadOnlySlot(chunk);
}

void Engine::ReplaceSlot(Chunk* chunk, SlotRef contents) {
  MutexLock lock(mutex_);
  while (chunk->op != nullptr) PollOnce(microseconds(1000));
  static_cast<void>(DetachSlot(chunk));
  AttachSlot(chunk, Slot(tier_, contents, chunk->bytes));
  ClearBits(chunk, kDirty | (HasReadOnlySlot(chunk) ? kWritable : 0));
}

bool Engine::Cut(Chunk* chunk, std::span<Chunk* const> parts) {
  const size_t bytes = parts[0]->bytes;
  MutexLock lock(mutex_);
  if (chunk->op != nullptr || !chunk->slot || Has(chunk, kDirty | kReadOnlySlot) || !tier_->MayCut(chunk->slot, chunk->bytes)) return false;
  const uint64_t full = room_.full_bytes();
  const SlotRef slot = DetachSlot(chunk).release();
  room_.ForgetFreed(full);  // nothing is free of it
  for (size_t i = 0; i < parts.size(); ++i) {
    const uint64_t checksum = options_.checksum ? parts[i]->checksum : 0;
    AttachSlot(parts[i], Slot(tier_, slot_bits::PartOf(slot, i * bytes), bytes));
    parts[i]->checksum = checksum;
    room_.CountSwapped(bytes, true);
    room_.kept.Note(bytes);
  }
  return true;
}

std::string Engine::DescribeUnchangedWrites() const {
  MutexLock lock(mutex_);
  if (counters_.unchanged_writes == 0) return "";
  std::string text = "ramspan debug: " + std::to_string(counters_.unchanged_writes) + " of " +
                     std::to_string(counters_.evictions - counters_.clean_evictions) + " changed objects that left (" +
                     FormatBytes(counters_.unchanged_bytes) +
                     ") were what was in swap already: they had been pulled as T*, but not changed. Pull const T* where "
                     "data is only read (ADHERETOCONST, ADHERETOLOCCONST, read(), cview()). Objects of";
  for (const auto& [bytes, writes] : unchanged_by_size_) {
    text += " " + FormatBytes(bytes) + " (" + std::to_string(writes) + " times)";
  }
  return text + "\n";
}

void Engine::NoteWriteSite(const Chunk* chunk, const WriteSite& site) {
  MutexLock lock(mutex_);
  WithinHeap([&]() RS_NO_THREAD_SAFETY_ANALYSIS { return write_sites_[chunk->id] = site, true; }, false);
}

void Engine::NoteUnchanged(const Chunk* chunk) {
  WithinHeap([&]() RS_NO_THREAD_SAFETY_ANALYSIS {
    ++unchanged_by_size_[chunk->bytes];
    const auto site = write_sites_.find(chunk->id);
    if (site != write_sites_.end() && site->second.front() != nullptr) ++unchanged_by_site_[site->second];
    return true;
  }, false);
}

std::vector<std::pair<WriteSite, uint64_t>> Engine::UnchangedBySite() const {
  MutexLock lock(mutex_);
  std::vector<std::pair<WriteSite, uint64_t>> sites(unchanged_by_site_.begin(), unchanged_by_site_.end());
  std::stable_sort(sites.begin(), sites.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sites;
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
  c.swapped_bytes = room_.swapped_bytes();
  c.preemptive_bytes = policy_->preemptive_bytes();
  c.losses = losses_.sum();
  c.pin_refusals = pin_refusals_.load(std::memory_order_relaxed);
  c.heap_failures = heap_failures();
  c.touches_dropped = pins_->touches_dropped();
  return c;
}

bool Engine::IsValid() {
  MutexLock lock(mutex_);
  uint64_t frames = 0, live = 0, slotless = 0, slotted = 0, swapped = 0;
  for (uint32_t id = 0; id < chunks_.ids(); ++id) {
    const Chunk* c = chunks_.At(id);
    const Phase phase = PhaseOf(c);
    if (phase == Phase::kFreed) continue;
    ++live;
    slotted += c->slot ? RoundUpToGranule(c->bytes) : 0;
    if (phase == Phase::kResident || phase == Phase::kWriting || phase == Phase::kLoading) {
      frames += RoundUpToGranule(c->bytes);
      if (!c->slot) slotless += RoundUpToGranule(c->bytes);
    }
    if ((c->op != nullptr) != (phase == Phase::kLoading || phase == Phase::kWriting)) return false;
    if (phase == Phase::kWriting && Has(c, kWritable)) return false;                  // I3
    if (HasReadOnlySlot(c) && (!c->slot || Has(c, kWritable | kDirty))) return false;
    if (phase == Phase::kSwapped && Has(c, kReadable | kWritable | kDirty)) return false;
    if (phase == Phase::kSwapped && c->slot) swapped += RoundUpToGranule(c->bytes);
  }
  return ops_.in_use() == in_flight_ && (leaving_.bytes() == 0 || in_flight_ > 0) && swapped == room_.swapped() && live == chunks_.live() && slotless == room_.slotless() && slotted == room_.slotted() && frames == arena_.in_use() &&
         arena_.committed() + budget_.metadata() <= budget_.total();
}

}  // namespace ramspan
