// Data that comes home from swap which is to be given up. It has to find room in memory, or in another swap.
//
// Who gives up a swap can do without, so he waits for pins of others for as long as one that lowers the limit does, and not at all
// where waiting is of no use: because what would have to be in memory is more than its limit. Threads that need their data wait
// until he has ended.
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
// What comes home gives back this part of the patience that is spent. With all of it, one object a second would keep up a call that
// comes to nothing, and all who wait for it; with none, a call that brings home a million of them would fail for want of a microsecond each.
constexpr int kGivenBack = 8;
// Chunks that are looked at before other threads get the mutex: some tenths of a millisecond. A program may have millions of chunks.
constexpr uint32_t kLooksAtATime = 4096;

bool IsThere(const Chunk* chunk) {
  return PhaseOf(chunk) != Phase::kFreed && PhaseOf(chunk) != Phase::kLost && !Has(chunk, kDoomed);
}
bool SlotLeaves(const Chunk* chunk, const Vacating::Leaving& leaving) {
  return chunk->slot && !HasReadOnlySlot(chunk) && leaving(chunk->slot, chunk->bytes);
}
}  // namespace

// Looks at all chunks. What is changed and has no slot stays in memory, too: this is for when no swap takes it.
uint64_t Engine::BytesAtHome(const Vacating::Leaving& leaving) const {
  uint64_t bytes = 0;
  for (uint32_t id = 0; id < chunks_.ids(); ++id) {
    const Chunk* c = chunks_.At(id);
    if (!IsThere(c)) continue;
    const bool stays = c->frame != nullptr && Has(c, kDirty) && !c->slot;
    if (stays || SlotLeaves(c, leaving)) bytes += RoundUpToGranule(c->bytes);
  }
  return bytes;
}

Status Engine::FitsAtHome(const Vacating::Leaving& leaving) const {
  MutexLock lock(mutex_);
  const uint64_t bytes = BytesAtHome(leaving);
  return bytes <= budget_.frames_limit_without_swap() ? Status() : TooMuchAtHome(bytes, Status());
}

bool Engine::HasRoomAtHome(uint64_t bytes) const {
  MutexLock lock(mutex_);
  return room_.slotless() + bytes <= budget_.frames_limit_without_swap();
}

// `why`: what swap has said that has no room for it, if it was asked.
Status Engine::TooMuchAtHome(uint64_t bytes, const Status& why) const {
  return WithinHeap([&] {
    const uint64_t room = budget_.frames_limit_without_swap();
    std::string text = FormatBytes(bytes) + " of objects would have to be in memory at once, and its limit of " + FormatBytes(budget_.limit()) +
                       " has room for " + FormatBytes(room) + ": " + FormatBytes(bytes - std::min(bytes, room)) +
                       " too much. Free some objects, or raise the limit (SetMemoryLimit, RAMSPAN_MEMORY, ramspan run --memory)";
    if (why.code() != StatusCode::kResourceExhausted) return FailedPrecondition(std::move(text));
    return ResourceExhausted(text + ", or give more swap (" + why.message() + ")");
  }, OutOfHeap());
}

// Why the chunk that is being brought home found no frame.
Status Engine::NoHome(Status why) const {
  if (why.code() == StatusCode::kFailedPrecondition && why.is_terse()) return why;  // the heap
  if (why.code() == StatusCode::kResourceExhausted) {  // no other swap has room either
    const uint64_t bytes = BytesAtHome(*vacating_.leaving);
    return bytes > budget_.frames_limit_without_swap() ? TooMuchAtHome(bytes, why) : why;
  }
  const uint64_t object = vacating_.chunk->bytes;
  return WithinHeap([&] {
    return FailedPrecondition("an object of " + FormatBytes(object) + " does not come home from swap: adhereTos pin too "
                              "much of the memory limit of " + FormatBytes(budget_.limit()) + ", or descriptors take it. Call again when "
                              "other threads have released theirs, hold fewer at once, or raise the limit (SetMemoryLimit, "
                              "RAMSPAN_MEMORY, ramspan run --memory)");
  }, OutOfHeap());
}

// Brings one chunk home and gives its slot up.
Status Engine::BringHome(Chunk* chunk, VacateOptions options) {
  chunk->state.fetch_add(kOneCountedPin, std::memory_order_acq_rel);
  vacating_.chunk = chunk;
  vacating_.no_memory = false;
  Status status = AcquireLocked(chunk, true, WhenPinned::kBriefly, std::chrono::steady_clock::now());
  if (!status.ok() && vacating_.no_memory) status = NoHome(std::move(status));
  // Meanwhile another thread may have freed the chunk (then it is doomed, and goes here or in AwaitForgotten) or taken its slot.
  const Phase phase = PhaseOf(chunk);
  const bool still = phase != Phase::kFreed && phase != Phase::kLost && SlotLeaves(chunk, *vacating_.leaving);
  if (status.ok() && still) status = FromTier([&]() RS_NO_THREAD_SAFETY_ANALYSIS { return LeaveSlot(chunk, options); }, OutOfHeap());
  chunk->state.fetch_sub(kOneCountedPin, std::memory_order_acq_rel);
  vacating_.chunk = nullptr;
  if (!Has(chunk, kDoomed)) return status;
  if (chunk->op == nullptr && !IsClosing(chunk)) Forget(chunk);
  return Status();
}

// A part of the slot may be at another server, which stands still: who comes again and again waits for none such.
bool Engine::ComesLater(const Chunk* chunk, VacateOptions options) const {
  return options.part != nullptr && SlotLeaves(chunk, *vacating_.leaving) && tier_->StandsStill(chunk->slot, chunk->bytes);
}

// A chunk that was freed keeps its slot until who is about it (a transfer, or a look at pins) has ended, and forgets it. Until then the slot's
// number must not mean something else, and a transfer must have a tier that ends it.
void Engine::AwaitForgotten(const Chunk* chunk, VacateOptions options) {
  while (Has(chunk, kDoomed) && SlotLeaves(chunk, *vacating_.leaving) && !ComesLater(chunk, options)) {
    if (chunk->op != nullptr) {
      PollOnce(microseconds(1000));
    } else if (!AwaitClosing()) {
      return;
    }
  }
}

Status Engine::BringHomeIfItLeaves(Chunk* chunk, VacateOptions options) {
  const Vacating::Leaving& leaving = *vacating_.leaving;
  // Transfers elsewhere are none of its business: while other threads go on there are always some.
  while (chunk->op != nullptr && SlotLeaves(chunk, leaving) && !ComesLater(chunk, options)) PollOnce(microseconds(1000));
  AwaitForgotten(chunk, options);
  if (ComesLater(chunk, options)) return Status();
  if (!SlotLeaves(chunk, leaving) || PhaseOf(chunk) == Phase::kFreed) return Status();
  if (PhaseOf(chunk) == Phase::kLost) {
    static_cast<void>(DetachSlot(chunk));  // nothing to bring home, but the slot's number will mean something else
    return Status();
  }
  if (chunk->bytes >= vacating_.too_large) return Status();
  vacating_.looks_left = 0;  // this takes as long as many looks
  Status status = BringHome(chunk, options);
  AwaitForgotten(chunk, options);
  if (status.ok()) {
    vacating_.waited -= vacating_.waited / kGivenBack;
    return status;
  }
  // The others may still come home, but only those that need not wait any more.
  const bool no_room = vacating_.no_memory || status.code() == StatusCode::kResourceExhausted;
  if (no_room) vacating_.patience = {};
  if (no_room && !options.even_if_full) vacating_.too_large = std::min(vacating_.too_large, chunk->bytes);
  return status;
}

// Before each look at a chunk. Where none are left other threads go on, since nothing is held between two chunks, and it says whether this
// call has done enough.
bool Engine::LetOthersIn(uint32_t* looks_left, const Vacating::Part* part) {
  if ((*looks_left)-- != 0) return false;
  *looks_left = kLooksAtATime;
  MutexUnlock unlocked(mutex_);
  std::this_thread::yield();
  return part != nullptr && part->enough();
}

void Engine::GiveUp(const Vacating::Leaving& gone) {
  MutexLock lock(mutex_);
  uint32_t looks_left = kLooksAtATime;
  for (uint32_t id = 0, ids = chunks_.ids(); id < ids; ++id) {
    LetOthersIn(&looks_left);
    Chunk* const chunk = chunks_.At(id);
    while (chunk->op != nullptr && SlotLeaves(chunk, gone)) PollOnce(microseconds(1000));
    if (!SlotLeaves(chunk, gone)) continue;
    if (PhaseOf(chunk) == Phase::kSwapped) {
      losses_.Note(chunk->id, chunk->bytes, tier_->CapabilitiesOf(chunk->slot).name, false);
      room_.CountSwapped(chunk->bytes, false);
      Transition(chunk, Event::kLose);
      queue_.WakeFor(chunk);
    } else if (PhaseOf(chunk) == Phase::kResident) {
      SetBits(chunk, kDirty);  // its frame is the only copy left
    }
    static_cast<void>(DetachSlot(chunk));
  }
  if (losses_.HasNews()) WithinHeap([&]() RS_NO_THREAD_SAFETY_ANALYSIS { return TellLosses(), true; }, false);
}

// A read that is under way brings the chunk into memory, or finds that it is lost: then it counts.
Engine::Losses Engine::LostWith(uint32_t server) {
  MutexLock lock(mutex_);
  const auto is_there = [&](const Chunk* chunk) RS_NO_THREAD_SAFETY_ANALYSIS {
    const Phase phase = PhaseOf(chunk);
    const bool only_there = phase == Phase::kSwapped || phase == Phase::kLoading || phase == Phase::kLost;
    return only_there && chunk->slot && !Has(chunk, kDoomed) && tier_->LostWith(chunk->slot, chunk->bytes) == server;
  };
  Losses losses;
  uint32_t looks_left = kLooksAtATime;
  for (uint32_t id = 0, ids = chunks_.ids(); id < ids; ++id) {
    LetOthersIn(&looks_left);
    const Chunk* const chunk = chunks_.At(id);
    while (chunk->op != nullptr && is_there(chunk)) PollOnce(microseconds(1000));
    if (!is_there(chunk)) continue;
    ++losses.chunks;
    losses.bytes += chunk->bytes;
  }
  return losses;
}

Status Engine::Vacate(const Vacating::Leaving& leaving, VacateOptions options, const std::function<void()>& take_back) {
  MutexLock lock(mutex_);
  vacating_ = {.leaving = &leaving, .patience = options.patiently ? Vacating::kForEver : options_.deadlock_grace, .ended = vacating_.ended};
  const uint32_t ids = chunks_.ids();
  Status first_failure;
  uint32_t id = options.part != nullptr ? std::exchange(options.part->next, 0) : 0;
  for (vacating_.looks_left = kLooksAtATime; id < ids; ++id) {
    if (LetOthersIn(&vacating_.looks_left, options.part)) {
      options.part->next = id;
      break;
    }
    Status status = BringHomeIfItLeaves(chunks_.At(id), options);
    if (first_failure.ok()) first_failure = std::move(status);
  }
  if (!first_failure.ok() && take_back) take_back();
  vacating_ = {.ended = vacating_.ended + 1};
  return first_failure;
}

}  // namespace ramspan
