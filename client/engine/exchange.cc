// Chunks in memory that give up their slots: to others that have to leave while swap is full, to a program that wants copies of
// its data gone, or because their swap goes. room.cc says how far they may.
#include <algorithm>
#include <array>
#include <utility>

#include "client/engine/engine.h"

namespace ramspan {

// `others`: of chunks that give theirs up with it.
bool Engine::MayGiveUpSlot(const Chunk* chunk, uint64_t leaving, uint64_t others) const {
  if (PhaseOf(chunk) != Phase::kResident || !chunk->slot || HasReadOnlySlot(chunk)) return false;
  const uint64_t slotless = room_.slotless() + others + RoundUpToGranule(chunk->bytes) - leaving;
  const auto use = slotless > room_.slotless() ? Room::For::kSlotless : Room::For::kExchange;
  return room_.Excess(slotless, leaving, room_.Needed(room_.kept, use), budget_.frames_limit()) == 0;
}

// The slot of a chunk in memory goes; it gets another one where too many would be without one. The tier that has it gives none
// any more. Vacate says what the options are.
Status Engine::LeaveSlot(Chunk* chunk, VacateOptions options) {
  const SlotRef leaving = chunk->slot;
  Status status;
  bool asked_again = false;
  // Once for all that leaves, not for each chunk: what found no room has taken away the patience. Who comes again and again has none.
  bool may_wait = !options.only_elsewhere && options.part == nullptr && vacating_.patience > PinClock::Time{};
  for (int attempt = 0; attempt < Room::kAttemptsMax; ++attempt) {
    if (!options.only_elsewhere && MayGiveUpSlot(chunk, 0, 0)) {
      static_cast<void>(DetachSlot(chunk));
      return Status();
    }
    Result<SlotRef> slot = AskSlot(chunk);
    if (slot.ok()) {
      GiveEmptySlot(chunk, slot.value());
      SetBits(chunk, kDirty);
      return Status();
    }
    status = slot.status();
    const bool must_ask = status.code() == StatusCode::kMustAsk;
    if (!must_ask && (options.even_if_full || status.code() == StatusCode::kUnavailable || std::exchange(asked_again, true))) break;
    Status room;
    if (must_ask) {
      room = AskForRoom(chunk->bytes, &may_wait);
    } else if (!HasRoomAfterAll(&status, chunk->bytes, &may_wait)) {
      room = std::move(status);
    }
    // Nothing that is pinned leaves, but its slot may have been given to another one that did.
    if (!(chunk->slot == leaving)) return Status();
    if (!room.ok()) {
      status = std::move(room);
      break;
    }
  }
  if (options.only_elsewhere || (status.code() != StatusCode::kUnavailable && !options.even_if_full)) return NoRoomToKeep(std::move(status));
  static_cast<void>(DetachSlot(chunk));
  return Status();
}

// Swap is full, and a chunk in memory that has no slot shall leave: others that are in memory and have one give it theirs,
// and are dirty from now on. So memory works as a whole, although only few of the chunks in it own slots. Those that were
// noted are asked.
bool Engine::Exchange(Chunk* chunk) {
  std::array<bool, 2 * (slot_bits::kTiersMax + 1)> there{};  // a slot of somebody who was noted, by its space
  for (uint32_t back = 0; back < ResidentSlots::kMost; ++back) {
    uint32_t& noted = resident_slots_.Newest(back);
    const Chunk* c = noted != ResidentSlots::kNone ? chunks_.At(noted) : nullptr;
    if (c == nullptr) continue;
    if (PhaseOf(c) == Phase::kResident && c->slot) {
      there[SpaceOf(c->slot)] = true;
    } else {
      noted = ResidentSlots::kNone;
    }
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
  std::array<uint32_t*, ResidentSlots::kMost> givers;  // their places in the ring
  std::array<HeldSlot, ResidentSlots::kMost> slots;
  size_t n = 0, taken = 0;
  uint64_t bytes = 0;
  for (uint32_t back = 0; back < ResidentSlots::kMost; ++back) {
    uint32_t& noted = resident_slots_.Newest(back);
    const Chunk* c = noted != ResidentSlots::kNone ? chunks_.At(noted) : nullptr;
    if (c == nullptr || !MayGiveUpSlot(c, RoundUpToGranule(chunk->bytes), bytes) || SpaceOf(c->slot) != space) continue;
    // It may be noted twice.
    if (std::any_of(slots.begin(), slots.begin() + n, [c](const HeldSlot& one) { return one.slot == c->slot; })) continue;
    bytes += RoundUpToGranule(c->bytes);
    slots[n] = {c->slot, c->bytes};
    givers[n++] = &noted;
  }
  if (n == 0 || !TablesMayTakeRow(chunk, Budget::SlotFor::kExchange)) return false;
  const SlotRef slot = FromTier([&] { return tier_->TryExchange(std::span(slots.data(), n), chunk->bytes, &taken); }, SlotRef{});
  if (!slot) return false;
  const uint64_t full_bytes = room_.full_bytes();
  for (uint32_t* giver : std::span(givers.data(), taken)) {
    Chunk* c = chunks_.At(std::exchange(*giver, ResidentSlots::kNone));
    SetBits(c, kDirty);
    static_cast<void>(DetachSlot(c).release());  // the tier has it back
  }
  room_.ForgetFreed(full_bytes);
  AttachSlot(chunk, Slot(tier_, slot, chunk->bytes));
  return true;
}

// Notes chunks in memory whose slots others could have. Looks at all chunks.
void Engine::NoteResidentSlots() {
  resident_slots_.Clear();
  uint32_t n = 0;
  for (uint32_t looked = 0; looked < chunks_.ids() && n < ResidentSlots::kMost; ++looked) {
    const Chunk* c = chunks_.At(next_noted_++ % chunks_.ids());
    if (!MayGiveUpSlot(c, std::min(room_.slotless(), RoundUpToGranule(c->bytes)), 0)) continue;
    resident_slots_.Note(c);
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

void Engine::FreeResidentSlots(uint64_t bytes) {
  MutexLock lock(mutex_);
  ReclaimResidentSlots(bytes);
}

}  // namespace ramspan
