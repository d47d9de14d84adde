// What is in swap can come back, however full memory and swap are.
//
// A chunk that owns a slot can leave memory without asking anybody; one without a slot (slotless_bytes_) can only if swap has
// room for it. So for each chunk with a slot there must be room in memory beside all chunks without one:
//
//     slotless_bytes_ + (the largest chunk that has contents) <= frames_limit, as long as anything is swapped
//
// Then each object can be read and written in turn, whatever its size and however scattered the free slots are. It is kept
// where it could be broken: before a chunk without a slot comes in (Admit), before descriptors or a lower limit take memory
// from frames (KeepRoom), before a slot is taken from a chunk in memory (Exchange, ReclaimResidentSlots), and when data comes
// home from a swap that goes (Vacate). Where there is no room, chunks in memory get slots, which stay empty until they leave;
// where there is no slot, whatever is new is refused. A write that fails, or a server that dies, takes slots without asking;
// the next of these calls makes good for it.
//
// New chunks have to leave a little more, the second largest chunk too where sizes differ: Exchange can pass slots on then
// although they do not fit exactly, so that pins may hold nearly all of memory, not only what is kept free.
#include <algorithm>
#include <string>
#include <utility>

#include "client/engine/engine.h"
#include "common/units.h"

namespace ramspan {

using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;

namespace {
// How often a thread asks for room in swap that others take before it can.
constexpr int kRoomAttemptsMax = 16;
// A part of memory that stays free beside the room itself, because what frames may take shrinks while nobody asks: the tables of
// a swap file grow as its slots get scattered (up to 16 bytes a page: 1/64 of memory for swap four times as large). Without
// it, two pages were missing in one random program of eight.
constexpr uint64_t kSlackPart = 64;
// Chunks for which no slot is at hand, until only smaller ones are tried: there may be a million of them.
constexpr int kAsksMax = 16;
// Swap that said it is full is taken at its word for so long by evictions, which can exchange slots instead of asking again:
// asking costs a message to each server, or a look at the disk.
constexpr auto kFullFor = std::chrono::milliseconds(10);

// Nobody is told this: who gets it asks swap.
Status MayHaveRoom() { return Aborted("swap may have room"); }
}  // namespace

void Engine::Sizes::Note(uint64_t bytes) {
  const uint64_t frame = RoundUpToGranule(bytes);
  mixed = mixed || (largest > 0 && frame != largest);
  second = std::max(second, std::min(frame, largest));
  largest = std::max(largest, frame);
}

// Looks at all chunks: only for who would be refused otherwise. Those that were noted may be gone.
void Engine::LookForSizes() {
  all_sizes_ = kept_sizes_ = Sizes();
  for (uint32_t id = 0; id < chunks_.ids(); ++id) {
    const Chunk* c = chunks_.At(id);
    if (PhaseOf(c) == Phase::kFreed || Has(c, kDoomed)) continue;
    all_sizes_.Note(c->bytes);
    if (c->frame != nullptr || c->slot) kept_sizes_.Note(c->bytes);
  }
}

void Engine::CountSwapped(const Chunk* chunk, bool more) {
  swapped_bytes_ += more ? chunk->bytes : -chunk->bytes;
  swapped_frames_ += more ? RoundUpToGranule(chunk->bytes) : -RoundUpToGranule(chunk->bytes);
}

// What has to stay free of chunks without slots. A reader needs the largest. The second, so that slots can be exchanged, is
// left out where both are more than half of memory: they could hardly be pinned together.
uint64_t Engine::RoomFor(const Sizes& sizes, bool new_chunk) const {
  const uint64_t limit = budget_.frames_limit();
  const uint64_t both = sizes.largest + (sizes.mixed ? sizes.second : 0);
  const uint64_t slack = limit / kSlackPart;
  return std::min(limit, new_chunk ? std::max(sizes.largest, std::min(both, limit / 2)) + 2 * slack : sizes.largest + slack);
}

// By how much chunks without slots are too many, if there are `slotless` bytes of them and `leaving` bytes more of data are
// swapped than now.
uint64_t Engine::Excess(uint64_t slotless, uint64_t leaving, uint64_t room) const {
  if (!options_.keep_room) return 0;
  const uint64_t need = slotless + std::min(room, swapped_frames_ + leaving);
  return need > budget_.frames_limit() ? need - budget_.frames_limit() : 0;
}

// A slot without a wait. Who is told that swap is full may exchange slots.
Result<SlotRef> Engine::AskSlot(uint64_t bytes) {
  Result<SlotRef> slot = tier_->TryReserve(bytes);
  if (!slot.ok() && slot.status().code() == StatusCode::kResourceExhausted) NoteFull(bytes);
  return slot;
}

void Engine::NoteFull(uint64_t bytes) {
  full_bytes_ = SeemsFull(bytes) ? full_bytes_ : bytes;
  full_until_ = Clock::now() + kFullFor;
}

bool Engine::SeemsFull(uint64_t bytes) const { return bytes >= full_bytes_ && Clock::now() < full_until_; }

// A slot without contents for a chunk in memory, or one that is just coming in. Dirty, so that it is written when it leaves.
void Engine::GiveEmptySlot(Chunk* chunk, SlotRef slot) {
  AttachSlot(chunk, Slot(tier_, slot, chunk->bytes));
  chunk->checksum = 0;
  NoteResidentSlot(chunk);
}

// Gives slots to chunks in memory that have none, `bytes` in sum. kResourceExhausted: there are not as many; those given stay.
// kAborted: the tier has to be asked, for *ask bytes.
Status Engine::GiveSlots(uint64_t bytes, uint64_t* ask) {
  Status status = ResourceExhausted("no object in memory can make way");
  uint64_t given = 0, too_large = UINT64_MAX;
  int must_ask = 0;
  for (uint32_t id = 0; id < chunks_.ids() && given < bytes; ++id) {
    Chunk* c = chunks_.At(id);
    if (PhaseOf(c) != Phase::kResident || c->slot || c->bytes >= too_large) continue;
    Result<SlotRef> slot = AskSlot(c->bytes);
    if (!slot.ok()) {
      const bool may_have = slot.status().code() == StatusCode::kAborted;
      if (may_have) *ask = c->bytes;
      must_ask += may_have;
      if (!may_have || must_ask == kAsksMax) too_large = c->bytes;
      status = slot.status();
      continue;
    }
    GiveEmptySlot(c, slot.value());
    SetBits(c, kDirty);
    given += RoundUpToGranule(c->bytes);
  }
  if (given >= bytes) return Status();
  return must_ask > 0 ? MayHaveRoom() : status;
}

// Makes sure that what is in swap can come back when `coming` bytes more of chunks without slots are in memory, and
// `leaving` more have gone to swap. kAborted: *ask bytes of swap have to be asked for. kResourceExhausted: it cannot be.
Status Engine::TryKeepRoom(uint64_t coming, uint64_t leaving, const Sizes& sizes, uint64_t* ask) {
  const uint64_t excess = Excess(slotless_bytes_ + coming, leaving, RoomFor(sizes, true));
  return excess == 0 ? Status() : GiveSlots(excess, ask);
}

Status Engine::NoRoomToKeep(const Status& why) const {
  if (why.code() == StatusCode::kAborted) {
    return ResourceExhausted("memory is full, and " + std::to_string(kRoomAttemptsMax) + " times in a row room that swap had was "
                             "gone when it was to be taken (other threads take it, too). Pull again, free some objects, or give "
                             "more swap or memory");
  }
  return ResourceExhausted("memory and swap are full: what remains free is needed to read and write the objects that are there. "
                           "Free some objects, or give more swap or memory (" + why.message() + ")");
}

// The tiers' own tables take memory from frames. Where they have grown, so has the room for slots: as many as are needed now are
// taken at once, before others take them.
void Engine::NoteTiers(uint64_t metadata_bytes) {
  budget_.SetTierMetadata(metadata_bytes);
  uint64_t ask = 0;
  if (Excess(slotless_bytes_, 0, RoomFor(kept_sizes_, false)) > 0) static_cast<void>(TryKeepRoom(0, 0, kept_sizes_, &ask));
}

// Asks the tier for what TryKeepRoom or Admit found missing, without the mutex. OK: it is worth while to try again.
Status Engine::AskForRoom(uint64_t bytes) {
  Status room;
  uint64_t metadata_bytes;
  {
    // A slot may be taken under the mutex only: the swap that gives it could be removed before it is stored, and the slot
    // would then go back to whichever swap comes next.
    MutexUnlock unlocked(mutex_);
    room = tier_->MakeRoom(bytes);
    metadata_bytes = tier_->stats().metadata_bytes;
  }
  NoteTiers(metadata_bytes);
  if (room.code() == StatusCode::kResourceExhausted) NoteFull(bytes);
  return room;
}

// For descriptors and a lower limit, which are set already: frames that are too many now have to leave.
Status Engine::KeepRoom() {
  Status status;
  uint64_t ask = 0;
  for (int attempt = 0; attempt < kRoomAttemptsMax; ++attempt) {
    const uint64_t in_use = arena_.in_use(), limit = budget_.frames_limit();
    const uint64_t leaving = in_use > limit ? in_use - limit + kept_sizes_.largest : 0;  // whole chunks leave
    status = TryKeepRoom(0, leaving, kept_sizes_, &ask);
    if (status.ok()) return status;
    if (attempt == 0) {
      LookForSizes();
      continue;
    }
    if (status.code() != StatusCode::kAborted) break;
    if (Status room = AskForRoom(ask); !room.ok()) {
      status = std::move(room);
      break;
    }
  }
  return NoRoomToKeep(status);
}

// A chunk without contents comes in; its frame is there. It gets a slot of its own where there must not be more chunks
// without one. The mutex is not let go. kAborted: as TryKeepRoom. kResourceExhausted: it must not come in.
Status Engine::Admit(Chunk* chunk, uint64_t* ask) {
  const uint64_t frame = RoundUpToGranule(chunk->bytes);
  Sizes sizes = kept_sizes_;
  sizes.Note(chunk->bytes);
  if (Excess(slotless_bytes_ + frame, 0, RoomFor(sizes, true)) == 0) {
    kept_sizes_ = sizes;
    return Status();
  }
  Result<SlotRef> slot = AskSlot(chunk->bytes);
  if (slot.ok()) {
    Slot mine(tier_, slot.value(), chunk->bytes);
    const Status others = TryKeepRoom(0, 0, sizes, ask);
    if (others.ok()) {
      GiveEmptySlot(chunk, mine.release());
      kept_sizes_ = sizes;
      return others;
    }
    if (others.code() != StatusCode::kAborted) return others;
    // Its place goes back, and to the others: else swap would be asked for room that is this place, again and again.
  } else {
    *ask = chunk->bytes;
  }
  const Status others = TryKeepRoom(frame, 0, sizes, ask);
  if (others.ok()) kept_sizes_ = sizes;
  if (others.ok() || slot.ok()) return others;
  return slot.status().code() == StatusCode::kAborted ? MayHaveRoom() : others;
}

// A frame for a chunk that is about to come in, and where it has no contents yet, room for what it makes necessary. On return the
// mutex may have been released. OK without a frame: as TakeFrame. *is_new: it has no contents; a slot that it has now is empty.
Status Engine::TakeFrameAndRoom(Chunk* chunk, WhenPinned when_pinned, Frame* frame, bool* is_new) {
  bool looked = false, no_swap = false;
  for (int attempt = 0;; ++attempt) {
    Status taken = TakeFrame(chunk, when_pinned, frame);
    *is_new = !chunk->slot;
    if (!taken.ok() || !*frame || !*is_new || no_swap) return taken;
    uint64_t ask = 0;
    Status status = Admit(chunk, &ask);
    if (status.ok()) return status;
    if (!std::exchange(looked, true)) {
      LookForSizes();
      status = Admit(chunk, &ask);
      if (status.ok()) return status;
    }
    no_swap = status.code() == StatusCode::kUnavailable;  // nothing can be kept for it
    if (no_swap) return Status();
    *frame = Frame();
    ServeWaiters();
    if (status.code() != StatusCode::kAborted || attempt == kRoomAttemptsMax) return NoRoomToKeep(status);
    status = AskForRoom(ask);
    if (status.code() == StatusCode::kResourceExhausted) return NoRoomToKeep(status);
    no_swap = status.code() == StatusCode::kUnavailable;
    if (PhaseOf(chunk) != Phase::kSwapped || Has(chunk, kDoomed)) return Status();
  }
}

// The slot of a chunk in memory goes; it gets another one where too many would be without one. The tier that has it gives none
// any more. `even_if_full`: it goes in any case.
Status Engine::LeaveSlot(Chunk* chunk, bool even_if_full) {
  const SlotRef leaving = chunk->slot;
  Status status;
  for (int attempt = 0; attempt < kRoomAttemptsMax; ++attempt) {
    if (MayGiveUpSlot(chunk, 0, 0)) {
      static_cast<void>(DetachSlot(chunk));
      return Status();
    }
    Result<SlotRef> slot = AskSlot(chunk->bytes);
    if (slot.ok()) {
      static_cast<void>(DetachSlot(chunk));
      GiveEmptySlot(chunk, slot.value());
      SetBits(chunk, kDirty);
      return Status();
    }
    status = slot.status();
    if (status.code() != StatusCode::kAborted) break;
    Status room = AskForRoom(chunk->bytes);
    // Nothing that is pinned leaves, but its slot may have been given to another one that did.
    if (!(chunk->slot == leaving)) return Status();
    if (!room.ok()) {
      status = std::move(room);
      break;
    }
  }
  if (status.code() != StatusCode::kUnavailable && !even_if_full) return NoRoomToKeep(status);
  static_cast<void>(DetachSlot(chunk));
  return Status();
}

// Notes a chunk in memory whose slot could be another's. The newest is given up first: it leaves last.
void Engine::NoteResidentSlot(const Chunk* chunk) {
  resident_slots_[resident_slots_next_++ % kResidentSlots] = chunk->id + 1;
}

// `leaving`: of a chunk without a slot that leaves at the same time.
// `others`: of chunks that give theirs up with it.
bool Engine::MayGiveUpSlot(const Chunk* chunk, uint64_t leaving, uint64_t others) const {
  if (PhaseOf(chunk) != Phase::kResident || !chunk->slot || HasReadOnlySlot(chunk)) return false;
  const uint64_t slotless = slotless_bytes_ + others + RoundUpToGranule(chunk->bytes) - leaving;
  return Excess(slotless, leaving, RoomFor(kept_sizes_, false)) == 0;
}

// Swap is full, and a chunk in memory that has no slot shall leave: others that are in memory and have one give it theirs,
// and are dirty from now on. So memory works as a whole, although only few of the chunks in it own slots. Those that were
// noted are asked.
bool Engine::Exchange(Chunk* chunk) {
  std::array<bool, 2 * (slot_bits::kTiersMax + 1)> there{};  // a slot of somebody who was noted, by its space
  for (uint32_t& noted : resident_slots_) {
    const Chunk* c = noted > 0 ? chunks_.At(noted - 1) : nullptr;
    if (c != nullptr && (PhaseOf(c) != Phase::kResident || !c->slot)) noted = 0;
    if (noted > 0) there[SpaceOf(c->slot)] = true;
  }
  for (uint64_t space = 0; space < there.size(); ++space) {
    if (there[space] && ExchangeIn(space, chunk)) return true;
  }
  return false;
}

// The part of swap within which slots may be cut anew from what others gave back.
uint64_t Engine::SpaceOf(SlotRef slot) { return 2 * slot_bits::TierPlusOne(slot) + (slot_bits::IsFar(slot) ? 1 : 0); }

// With slots of one space only, the newest noted first.
bool Engine::ExchangeIn(uint64_t space, Chunk* chunk) {
  static_assert(kResidentSlots <= SwapTier::kExchangeMax);
  std::array<uint32_t*, kResidentSlots> givers;  // their places in resident_slots_
  std::array<HeldSlot, kResidentSlots> slots;
  size_t n = 0, taken = 0;
  uint64_t bytes = 0;
  for (uint32_t back = 1; back <= kResidentSlots; ++back) {
    uint32_t& noted = resident_slots_[(resident_slots_next_ - back) % kResidentSlots];
    const Chunk* c = noted > 0 ? chunks_.At(noted - 1) : nullptr;
    if (c == nullptr || !MayGiveUpSlot(c, RoundUpToGranule(chunk->bytes), bytes) || SpaceOf(c->slot) != space) continue;
    // It is noted each time that it comes in.
    if (std::any_of(slots.begin(), slots.begin() + n, [c](const HeldSlot& one) { return one.slot == c->slot; })) continue;
    bytes += RoundUpToGranule(c->bytes);
    slots[n] = {c->slot, c->bytes};
    givers[n++] = &noted;
  }
  const SlotRef slot = tier_->TryExchange(std::span(slots.data(), n), chunk->bytes, &taken);
  if (!slot) return false;
  const uint64_t full_bytes = full_bytes_;
  for (uint32_t* giver : std::span(givers.data(), taken)) {
    Chunk* c = chunks_.At(std::exchange(*giver, 0) - 1);
    SetBits(c, kDirty);
    static_cast<void>(DetachSlot(c).release());  // the tier has it back
  }
  full_bytes_ = full_bytes;  // what became free is in use again
  AttachSlot(chunk, Slot(tier_, slot, chunk->bytes));
  return true;
}

// Notes chunks in memory whose slots others could have. Looks at all chunks.
void Engine::NoteResidentSlots() {
  resident_slots_.fill(0);
  uint32_t n = 0;
  for (uint32_t looked = 0; looked < chunks_.ids() && n < kResidentSlots; ++looked) {
    const Chunk* c = chunks_.At(next_noted_++ % chunks_.ids());
    if (!MayGiveUpSlot(c, std::min(slotless_bytes_, RoundUpToGranule(c->bytes)), 0)) continue;
    NoteResidentSlot(c);
    ++n;
  }
}

// Resident chunks give up the slots that they keep in swap (and count as dirty from now on, if they did not), as far as what is
// swapped can still come back.
void Engine::ReclaimResidentSlots(uint64_t bytes) {
  uint64_t freed = 0;
  for (uint32_t id = 0; id < chunks_.ids() && freed < bytes; ++id) {
    Chunk* c = chunks_.At(id);
    if (!MayGiveUpSlot(c, 0, 0)) continue;
    SetBits(c, kDirty);
    static_cast<void>(DetachSlot(c));
    freed += RoundUpToGranule(c->bytes);
  }
}

}  // namespace ramspan
