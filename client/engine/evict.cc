// The journey out: victims are closed, looked for in all pin tables, given slots, written, and their frames returned.
#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "client/engine/engine.h"
#include "common/units.h"

namespace ramspan {

using Clock = std::chrono::steady_clock;

namespace {
// Looks, of about a microsecond each, at a thread that issues a membarrier: mostly it is at its end by then. Else it may have no core.
constexpr int kLooksBeforeYield = 10;
// Then it has none for a while: a thread that only yields keeps a core from it where it comes first itself (real-time, or a whole time slice).
constexpr int kLooksBeforeSleep = 50;
constexpr auto kSleep = std::chrono::microseconds(50);
}  // namespace

// Closes the victims and opens those again that some thread pins: keep[i] says so. What is closed and not kept cannot
// be pinned without this mutex. A pin that was stored before the closing is found by the scan; one stored later sees
// the closed word and comes to Acquire. The membarrier takes as long as several misses, so it is issued without the mutex, and Acquire may
// come meanwhile: it opens the chunk, which is kept then. A chunk that is freed meanwhile goes here.
void Engine::CloseUnpinned(std::span<Chunk*> victims, std::span<bool> keep) {
  if (victims.empty()) return;  // closing_ would say to other threads that nobody is about it, and be cleared under them
  for (Chunk* c : victims) ClearBits(c, kReadable | kWritable);
  closing_ = victims;
  {
    MutexUnlock unlocked(mutex_);
    pins_->Barrier();
    pins_->FindPinned(victims, keep);
  }
  closing_ = {};
  closings_ended_.store(closings_ended_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const bool hold_up = pins_->HoldsUpOthers();
  for (size_t i = 0; i < victims.size(); ++i) {
    keep[i] = keep[i] || HasCountedPins(victims[i]) || Has(victims[i], kReadable | kDoomed);
    if (Has(victims[i], kDoomed)) {
      Forget(victims[i]);
    } else if (keep[i] && !Has(victims[i], kPrefetched)) {
      if (hold_up) ClearBits(victims[i], kReferenced);
      SetBits(victims[i], OpenBits(victims[i]));
    }
  }
}

bool Engine::IsClosing(const Chunk* chunk) const { return std::find(closing_.begin(), closing_.end(), chunk) != closing_.end(); }

// One thread at a time looks for victims, so that what it finds is all that there is. It lets go of the mutex for as long as a membarrier
// takes. False: there was nobody to wait for. The count is only a reason to take the mutex, which orders all that it tells of.
bool Engine::AwaitClosing() {
  if (closing_.empty()) return false;
  do {
    const uint32_t ended = closings_ended_.load(std::memory_order_relaxed);
    MutexUnlock unlocked(mutex_);
    for (int looks = 0; closings_ended_.load(std::memory_order_relaxed) == ended; ++looks) {
      if (looks >= kLooksBeforeSleep) std::this_thread::sleep_for(kSleep);
      if (looks >= kLooksBeforeYield) std::this_thread::yield();
      for (int i = 0; i < 64; ++i) __builtin_ia32_pause();
    }
  } while (!closing_.empty());
  return true;
}

void Engine::DropFrame(Chunk* c, Event event) {
  static_cast<void>(DetachFrame(c));
  Transition(c, event, 0, kReadable | kWritable | kReferenced | kDirty);
  if (c->slot) room_.CountSwapped(c->bytes, true);
  ++counters_.evictions;
}

// Makes chunks leave. Where none can because swap is full, those in memory that could give their slots to them are looked for anew;
// and before anybody is told that swap is full, it is asked once more.
Evicted Engine::EvictSome(uint64_t bytes, Evicted result) {
  feed_.Drain();
  LookForVictims(bytes, &result);
  if (result.leaves() || result.room_made) return result;
  if (result.status.code() == StatusCode::kUnavailable && result.no_slot > 0) WaitForSlots(result.no_slot, &result);  // for its words
  if (result.status.code() != StatusCode::kResourceExhausted || result.room_made) return result;
  NoteResidentSlots();
  result.exchanges_failed = 0;
  LookForVictims(bytes, &result);
  if (!result.leaves() && !result.room_made && result.no_slot > 0) WaitForSlots(result.no_slot, &result);
  return result;
}

// What the program wants to be kept leaves when nothing else has.
void Engine::LookForVictims(uint64_t bytes, Evicted* result) {
  const uint64_t kept = Search(bytes, false, result);
  if (kept > 0 && !result->leaves() && !result->room_made && result->may_take_kept) Search(bytes, true, result);
}

// Looks at ever more victims until one can leave or all that the policy names have been looked at. Returns how many were kept.
uint64_t Engine::Search(uint64_t bytes, bool take_kept, Evicted* result) {
  IoOp* ops[kBatch];
  size_t writes = 0;
  uint64_t kept = 0;
  const uint64_t live = chunks_.live();  // before others free some of those that have been looked at
  for (uint64_t seen = 0; seen < live && !result->leaves();
       bytes = std::min(2 * bytes, std::max(bytes, budget_.limit()))) {  // it must not wrap to 0
    Chunk* victims[kBatch];
    bool keep[kBatch] = {};
    size_t n;
    {
      CachePolicy::Turn turn;
      do {
        turn = {};
        AwaitClosing();
        turn = Consult(CachePolicy::Ask::kVictims, bytes, kBatch);
      } while (!closing_.empty());  // while a program's own policy was asked another thread has begun
      if (seen == 0) policy_->BeginSearch();  // not while another thread is in the middle of its own
      n = policy_->PickVictims(bytes, victims);
    }
    if (n == 0) break;
    seen += n;
    if (!take_kept) n = PassKept(std::span(victims, n), &kept);
    CloseUnpinned(std::span(victims, n), std::span(keep, n));
    const auto now = Clock::now();
    for (size_t i = 0; i < n; ++i) {
      if (keep[i]) {
        if (PhaseOf(victims[i]) == Phase::kResident && !Has(victims[i], kDoomed)) policy_->OnPinned(victims[i]);
        continue;
      }
      if (IoOp* op = SendAway(victims[i], result, now)) ops[writes++] = op;
    }
    // The tier has no slot for these victims. Smaller or clean ones may still be able to leave, so the search goes on.
    if (result->no_slot_yet > 0 && !result->leaves()) {
      if (room_.SeemsFull(result->no_slot_yet)) {
        result->status = ResourceExhausted("");  // asked a moment ago
      } else if (result->may_ask && WaitForSlots(result->no_slot_yet, result)) {
        break;
      }
    }
    result->no_slot_yet = 0;
  }
  if (result->freed > 0) ServeWaiters();
  Submit(std::span(ops, writes), true);
  return kept;
}

// A policy names what was fetched ahead last, so it may never get there while everything else is pinned. Those chunks are
// closed until their first pull, which needs this mutex: nobody can be using one. For threads in the queue for memory: what
// this frees is theirs, while the mover would only fetch the same chunks again.
Evicted Engine::EvictPrefetched(uint64_t bytes) {
  Evicted result;
  IoOp* ops[kBatch];
  size_t writes = 0;
  AwaitClosing();
  const auto now = Clock::now();
  for (uint32_t id = 0; id < chunks_.ids() && result.freed + result.started < bytes && writes < kBatch; ++id) {
    Chunk* c = chunks_.At(id);
    if (PhaseOf(c) != Phase::kResident || !Has(c, kPrefetched)) continue;
    if (IoOp* op = SendAway(c, &result, now)) ops[writes++] = op;
  }
  if (result.freed > 0) ServeWaiters();
  Submit(std::span(ops, writes), true);
  return result;
}

// A server's or file system's answer is waited for without the mutex, so that other threads go on meanwhile. Whoever comes
// first takes the room that it brings, and looks for a victim anew. True: there is room to look for.
bool Engine::WaitForSlots(uint64_t bytes, Evicted* result) {
  Status room = AskForRoom(bytes, &result->may_wait);
  result->room_made = room.ok();
  if (!room.ok()) result->status = std::move(room);
  return result->room_made;
}

// A closed victim leaves at once, or gets a write to be submitted, or stays.
IoOp* Engine::SendAway(Chunk* c, Evicted* result, Clock::time_point now) {
  if (Has(c, kPrefetched)) {
    ClearBits(c, kPrefetched);
    policy_->OnPrefetchWasted(c);
    ++counters_.prefetch_wasted;
  }
  if (c->slot && tier_->IsLost(c->slot, c->bytes)) {  // this frame is the only copy left, and a write there would fail
    static_cast<void>(DetachSlot(c));
    SetBits(c, kDirty);
  }
  const bool moves_up = !Has(c, kDirty) && MovesUp(c);
  if (!Has(c, kDirty)) {  // the slot holds the same bytes, or there never were any
    DropFrame(c, Event::kDrop);
    ++counters_.clean_evictions;
    counters_.clean_bytes += c->bytes;
    result->freed += c->bytes;
    return nullptr;
  }
  const bool rewrite = options_.checksum && c->slot && !moves_up;
  const uint64_t old_checksum = c->checksum;
  IoOp* const op = ops_.TryTake();
  if (op == nullptr) NoteHeapFailure();
  Status status = op != nullptr ? EnsureSlot(c, result) : OutOfHeap();
  if (!status.ok()) {
    if (op != nullptr) ops_.Put(op);
    SetBits(c, kReadable | kWritable);  // stays, dirty: data is never dropped
    result->no_slot = result->no_slot == 0 ? c->bytes : std::min(result->no_slot, c->bytes);
    if (status.code() == StatusCode::kMustAsk) {
      result->no_slot_yet = result->no_slot_yet == 0 ? c->bytes : std::min(result->no_slot_yet, c->bytes);
    } else {
      result->status = std::move(status);
    }
    return nullptr;
  }
  Transition(c, Event::kBeginWrite);  // stays closed, so that who comes is seen: no barrier is needed at its end
  result->started += c->bytes;
  BeginOp(op, c, true);
  op->spell = leaving_.Begin(RoundUpToGranule(c->bytes), now);
  op->rewrite = rewrite;
  op->old_checksum = old_checksum;
  op->in_slot = c->checksum;  // 0 if it has got another slot
  return op;
}

// A clean chunk in slower swap may get a slot in a faster one that has had room for a while: it is written there, and read from there
// the next time.
bool Engine::MovesUp(Chunk* c) {
  if (!c->slot || HasReadOnlySlot(c) || !TablesMayTakeRow(c, Budget::SlotFor::kOther)) return false;
  const SlotRef slot = FromTier([&] { return tier_->TryMoveUp(c->slot, c->bytes); }, SlotRef{});
  if (!slot) return false;
  static_cast<void>(DetachSlot(c));
  AttachSlot(c, Slot(tier_, slot, c->bytes));
  SetBits(c, kDirty);
  return true;
}

// A dirty chunk is written over its old slot, unless a faster tier has room for it again.
Status Engine::EnsureSlot(Chunk* c, Evicted* result) {
  if (c->slot && !tier_->ShouldMove(c->slot, c->bytes)) return Status();
  const auto exchanged = [&]() RS_NO_THREAD_SAFETY_ANALYSIS {
    if (c->slot || !result->MayExchange(c->bytes)) return false;
    if (Exchange(c)) return true;
    result->NoteNoExchange(c->bytes);
    return false;
  };
  if (room_.SeemsFull(c->bytes) && exchanged()) return Status();
  // The frames of what is leaving are there until it has been written, so what comes next has to wait where its row is too much beside them.
  const bool others_leave = !c->slot && (leaving_.bytes() > 0 || result->leaves());
  Result<SlotRef> slot = AskSlot(c);
  if (slot.ok() && others_leave && !TablesFitBesideFrames()) {
    tier_->Free(slot.value(), c->bytes);
    slot = Status(StatusCode::kAborted, StaticText("others leave first"));
  }
  if (c->slot && tier_->StandsStill(c->slot, c->bytes)) {
    // What is written there keeps its memory until somebody goes on, so others are asked first; but it is not moved to where the same holds.
    if (slot.status().code() == StatusCode::kMustAsk) return slot.status();
    if (slot.ok() && tier_->StandsStill(slot.value(), c->bytes)) {
      tier_->Free(slot.value(), c->bytes);
      return Status();
    }
  }
  if (!slot.ok()) {
    if (slot.status().code() != StatusCode::kMustAsk && slot.status().code() != StatusCode::kAborted && exchanged()) return Status();
    return c->slot ? Status() : slot.status();
  }
  static_cast<void>(DetachSlot(c));
  AttachSlot(c, Slot(tier_, slot.value(), c->bytes));
  return Status();
}

void Engine::FinishWrites(std::span<IoOp*> ops) {
  for (IoOp* op : ops) {
    Chunk* c = op->chunk;
    // The tier has not been asked for what was skipped: it may have been given up, or its server have died, meanwhile.
    const bool gone = op->skipped && tier_->IsLost(c->slot, c->bytes);
    const bool ok = op->io.result == StatusCode::kOk && op->io.bytes_done == op->io.bytes && !gone;
    if (ok) {
      c->checksum = op->io.checksum;
      const bool unchanged = op->rewrite && op->old_checksum == c->checksum;
      if (op->rewrite) unchanged_share_ += ((unchanged ? kAllUnchanged : 0) - unchanged_share_) / 16;
      if (unchanged) {
        ++counters_.unchanged_writes;
        counters_.unchanged_bytes += c->bytes;
        counters_.unchanged_skipped += op->skipped ? 1 : 0;
        if (options_.debug) NoteUnchanged(c);
      }
      failed_writes_.NoteGood();
      ClearBits(c, kDirty);
      // Closed since its pins were looked for: who pinned it came to Acquire, which opened it for reading.
      const bool keep = Has(c, kReadable | kDoomed);
      if (keep) {
        Transition(c, Event::kFinishKeep, kReadable | kWritable);
        resident_slots_.Note(c);
      } else {
        DropFrame(c, Event::kFinishEvict);
      }
    } else {
      ++counters_.write_failures;
      failed_writes_.NoteFailed(op->round);
      static_cast<void>(DetachSlot(c));  // I4: nothing is in flight on it any more
      Transition(c, Event::kFailWrite, kReadable | kWritable | kDirty);
    }
    if (Has(c, kDoomed)) Forget(c);
    Release(op);
  }
}

// Writes that failed are tried again, elsewhere where the tier can; not for ever.
Status Engine::CheckWrites() {
  if (!failed_writes_.TooMany()) return Status();
  return {StatusCode::kUnavailable,
          StaticText("many writes to swap in a row have failed, so no memory can be freed (nothing is lost: the data stays in memory). See "
                     "the log for the cause; check the disk of `swapfiles` (RAMSPAN_SWAPFILES) and the memory servers")};
}

}  // namespace ramspan
