// What is in swap can come back, however full memory and swap are.
//
// A chunk that owns a slot can leave memory without asking anybody; one without a slot can only if swap has
// room for it. So for each chunk with a slot there must be room in memory beside all chunks without one:
//
//     bytes of chunks in memory without a slot + the largest chunk that has contents <= frames_limit, as long as anything is swapped
//
// Then each object can be read and written in turn, whatever its size, in how many swaps the slots are, and however scattered the
// free ones. It is kept where it could be broken: before a chunk without a slot comes in (Admit), or one whose slot is read-only
// is changed (LeaveReadOnlySlot), before descriptors or a lower limit take memory from frames (KeepRoom), before a slot is taken
// from a chunk in memory (exchange.cc), and when data comes home from a swap that goes (Vacate). Where there is no room, chunks
// in memory get slots, which stay empty until they leave; where there is no slot, whatever is new is refused. A write that fails,
// or a server that dies, takes slots without asking; the next of these calls makes good for it.
//
// New chunks have to leave a little more, the second largest chunk too where sizes differ: Exchange can pass slots on then
// although they do not fit exactly, so that pins may hold nearly all of memory, not only what is kept free. A slot lies within
// one swap, and on one side (near, far) of remote memory: where slots are in several, those that chunks in memory could give
// may be too small in each, so there Exchange leaves one more of the second largest free for each of them. Then what is pinned has, in one of
// them, slots as large as any chunk that could make way, and any two objects can be pinned together.
#include <algorithm>
#include <bit>
#include <string>
#include <thread>
#include <utility>

#include "client/engine/engine.h"
#include "common/units.h"

namespace ramspan {

using Clock = std::chrono::steady_clock;

namespace {
// Chunks for which no slot is at hand, until only smaller ones are tried: there may be a million of them.
constexpr int kAsksMax = 16;
// No program is told this: who gets it asks swap.
Status MayHaveRoom() { return {StatusCode::kMustAsk, StaticText("swap may have room")}; }
// A part of memory that stays free beside the room itself, because what frames may take shrinks while nobody asks: the tables of
// a swap file grow as its slots get scattered (up to 16 bytes a page: 1/64 of memory for swap four times as large). Without
// it, two pages were missing in one random program of eight.
constexpr uint64_t kSlackPart = 64;
// For so long swap that said it is full is taken at its word, by evictions, which can exchange slots instead of asking again.
constexpr auto kFullFor = std::chrono::milliseconds(10);
constexpr auto kLookAgain = std::chrono::milliseconds(1), kMoverMayTake = std::chrono::milliseconds(60'000);
}  // namespace

// A reader needs the largest. The second is left out where both are more than half of memory: they could hardly be pinned
// together.
uint64_t Room::Needed(const Sizes& sizes, For use) const {
  const bool new_chunk = use == For::kNewChunk;
  const uint64_t limit = budget_.frames_usual();
  const auto spaces = static_cast<uint64_t>(std::popcount(spaces_));
  const uint64_t others = sizes.mixed ? std::max<uint64_t>(spaces, 1) : spaces > 1;
  const uint64_t more = std::min(sizes.largest + others * sizes.second, limit / 2);
  const uint64_t chunks = new_chunk || spaces > 1 ? std::max(sizes.largest, more) : sizes.largest;
  const uint64_t slacks = new_chunk ? 2 : use == For::kSlotless ? 1 : 0;
  return std::min(limit, chunks + slacks * (limit / kSlackPart));
}

void Room::NoteFull(uint64_t bytes) {
  full_bytes_ = SeemsFull(bytes) ? full_bytes_ : bytes;
  full_until_ = Clock::now() + kFullFor;
}

// Looks at all chunks: only for who would be refused otherwise. Those that were noted may be gone.
void Engine::LookForSizes() {
  room_.all = room_.kept = Room::Sizes();
  room_.ForgetSpaces();
  for (uint32_t id = 0; id < chunks_.ids(); ++id) {
    const Chunk* c = chunks_.At(id);
    if (PhaseOf(c) == Phase::kFreed || Has(c, kDoomed) || !room_.Fits(c->bytes)) continue;
    room_.all.Note(c->bytes);
    if (c->frame != nullptr || c->slot) room_.kept.Note(c->bytes);
    if (c->slot && !HasReadOnlySlot(c)) room_.NoteSpace(SpaceOf(c->slot));
  }
  budget_.set_largest(room_.all.largest);
}

// Whether the tables of swap may take so much more, as Budget::TiersMayTake says. What slots have taken of them since they were looked at is
// known only as what it may be at most, so they are looked at where that is too much.
bool Engine::TablesMayTake(uint64_t more, Budget::SlotFor use) {
  if (table_growth_ + more <= budget_.step() / 2 && budget_.TiersMayTake(table_growth_ + more, use)) return true;
  LookAtTables();
  return budget_.TiersMayTake(more, use);
}

// The same for a slot that cannot be given back once it is there. A large chunk is hardly in as many pieces as it could be.
bool Engine::TablesMayTakeRow(const Chunk* chunk, Budget::SlotFor use) {
  const uint64_t most = SwapTier::TableBytesMax(chunk->bytes);
  const bool may = TablesMayTake(std::min(most, budget_.step() / 4), use);
  table_growth_ += most;
  return may;
}

// Whether the limit holds as long as what is leaving now has its frames still.
bool Engine::TablesFitBesideFrames() {
  const auto fit = [&]() RS_NO_THREAD_SAFETY_ANALYSIS { return arena_.committed() + budget_.metadata() + table_growth_ <= budget_.total(); };
  if (fit()) return true;
  LookAtTables();
  return fit();
}

void Engine::LookAtTables() {
  room_.Hold();
  budget_.SetTierMetadata(tier_->metadata_bytes());
  table_growth_ = 0;
}

// A slot without a wait, for a chunk that is in memory or just coming in. Who is told that swap is full may exchange slots. It is full, too,
// where its tables would take what must come back, but for what needs nothing of them.
Result<SlotRef> Engine::AskSlot(const Chunk* chunk) {
  const uint64_t bytes = chunk->bytes, most = SwapTier::TableBytesMax(bytes);
  const auto in_place = chunk->slot ? Budget::SlotFor::kExchange : Budget::SlotFor::kSlotless;
  const auto use = chunk->frame != nullptr ? in_place : Budget::SlotFor::kOther;
  const bool may_grow = TablesMayTake(most, use);
  const uint64_t before = budget_.tier_metadata();
  Result<SlotRef> slot = FromTier([&] { return tier_->TryReserve(bytes); }, Result<SlotRef>(OutOfHeap()));
  if (slot.ok()) table_growth_ += most;
  if (slot.ok() && !may_grow) {
    LookAtTables();
    if (budget_.tier_metadata() > before && !budget_.TiersMayTake(0, use)) {
      tier_->Free(slot.value(), bytes);
      LookAtTables();
      return Status(StatusCode::kResourceExhausted, StaticText("the tables of swap are as large as they may be"));
    }
  }
  if (!slot.ok() && slot.status().code() == StatusCode::kResourceExhausted) room_.NoteFull(bytes);
  return slot;
}

// A slot without contents, in place of any other, for a chunk in memory or one that is just coming in. Dirty, so that it is
// written when it leaves.
void Engine::GiveEmptySlot(Chunk* chunk, SlotRef slot) {
  static_cast<void>(DetachSlot(chunk));
  AttachSlot(chunk, Slot(tier_, slot, chunk->bytes));
  resident_slots_.Note(chunk);
}

// Gives slots to chunks in memory that have none, `bytes` in sum. kResourceExhausted: there are not as many; those given stay.
// kMustAsk: the tier has to be asked, for *ask bytes.
Status Engine::GiveSlots(uint64_t bytes, uint64_t* ask) {
  Status status(StatusCode::kResourceExhausted, StaticText("no object in memory can make way"));
  uint64_t given = 0, too_large = UINT64_MAX;
  int must_ask = 0;
  for (uint32_t id = 0; id < chunks_.ids() && given < bytes; ++id) {
    Chunk* c = chunks_.At(id);
    if (PhaseOf(c) != Phase::kResident || c->slot || c->bytes >= too_large) continue;
    Result<SlotRef> slot = AskSlot(c);
    if (!slot.ok()) {
      const bool may_have = slot.status().code() == StatusCode::kMustAsk;
      if (may_have || must_ask == 0) *ask = c->bytes;
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
// `leaving` more have gone to swap. kMustAsk: *ask bytes of swap have to be asked for. kResourceExhausted: it cannot be.
// Where only metadata has grown since it could, slots are given as far as there are some: one step of the reserve is left for what is held.
Status Engine::TryKeepRoom(uint64_t coming, uint64_t leaving, const Room::Sizes& sizes, uint64_t* ask) {
  const uint64_t needed = room_.Needed(sizes, Room::For::kNewChunk), slotless = room_.slotless() + coming;
  const uint64_t excess = room_.Excess(slotless, leaving, needed, budget_.frames_usual());
  if (excess == 0) return Status();
  if (room_.Excess(slotless, leaving, needed, budget_.frames_limit()) > 0) return GiveSlots(excess, ask);
  RelieveNow(excess);
  return Status();
}

// Slots for so many bytes of chunks, for nobody who waits. A search looks at all chunks, so one in vain is not repeated soon.
void Engine::RelieveNow(uint64_t bytes) {
  const auto begin = Clock::now();
  if (begin < relieve_again_) return;
  uint64_t ask = 0;
  if (GiveSlots(bytes, &ask).ok()) return;
  const auto end = Clock::now();
  relieve_again_ = end + std::max<Clock::duration>(kFullFor, kRestAfterSearch * (end - begin));
}

// Before anybody is refused because a tier has no `bytes`, it is asked once more where what it has said (*why) is not for people. True:
// there is room after all, and it is worth while to go round again.
bool Engine::HasRoomAfterAll(Status* why, uint64_t bytes, bool* may_wait) {
  if (!why->is_terse() || bytes == 0 || why->code() == StatusCode::kFailedPrecondition || why->code() == StatusCode::kMustAsk) return false;
  Status words = AskForRoom(bytes, may_wait);
  if (words.ok()) return true;
  *why = std::move(words);
  return false;
}

// `why`: what a tier has said that has no room.
Status Engine::NoRoomToKeep(Status why) {
  if (why.code() == StatusCode::kMustAsk) {
    return WithinHeap([] { return ResourceExhausted("memory is full, and " + std::to_string(Room::kAttemptsMax) + " times in a row room that swap had was "
                             "gone when it was to be taken (other threads take it, too). Pull again, free some objects, or give "
                             "more swap or memory"); }, OutOfHeap());
  }
  if (why.code() == StatusCode::kFailedPrecondition) return why;  // it is not swap that is full: the heap is
  return WithinHeap([&] { return ResourceExhausted("memory and swap are full: what remains free is needed to read and write the objects that are there. "
                           "Free some objects, or give more swap or memory (" + why.message() + ")"); }, OutOfHeap());
}

// The tiers' own tables take memory from frames. Where they have grown, so has the room for slots: as many as are needed now are
// taken at once, before others take them.
void Engine::NoteTiers() {
  LookAtTables();
  const uint64_t excess = room_.Excess(room_.slotless(), 0, room_.Needed(room_.kept, Room::For::kSlotless), budget_.frames_usual());
  if (excess > 0) RelieveNow(excess);
  arena_.Trim(budget_.frames_limit());
}

// A child of vfork runs with this memory, but files and connections that it opened would be its own, and gone when it starts its program.
bool Engine::IsBorrowed() const { return syscall(SYS_getpid) != process_; }

// The mover does it for such a child: its parent's thread is stopped, the mover is not. What they tell each other is no child's own, which may be killed meanwhile.
Status Engine::RoomByMover(uint64_t bytes, bool may_wait) {
  room_for_children_.bytes = std::max(room_for_children_.bytes, bytes);
  room_for_children_.may_wait |= may_wait;
  const uint64_t turn = ++room_for_children_.asked;
  const auto until = Clock::now() + kMoverMayTake;
  while (room_for_children_.answered < turn && Clock::now() < until) {
    mover_bell_.Ring();
    MutexUnlock unlocked(mutex_);
    std::this_thread::sleep_for(kLookAgain);  // who is killed while he waits for a condition variable leaves it broken
  }
  if (room_for_children_.answered < turn) return {StatusCode::kUnavailable, StaticText("no thread of the process makes room in swap for its child, which cannot do so itself before it has started its program")};
  return WithinHeap([&]() RS_NO_THREAD_SAFETY_ANALYSIS { return room_for_children_.answer; }, OutOfHeap());
}

bool Engine::MakeRoomForChildren() {
  if (room_for_children_.asked == room_for_children_.answered || IsBorrowed()) return false;
  const uint64_t turn = room_for_children_.asked;
  bool may_wait = std::exchange(room_for_children_.may_wait, false);
  Status answer = AskForRoom(std::exchange(room_for_children_.bytes, 0), &may_wait);
  room_for_children_.answer = std::move(answer);
  room_for_children_.answered = turn;
  return true;
}

// Asks the tier for what TryKeepRoom or Admit found missing, without the mutex. OK: it is worth while to try again.
// *may_wait: for seconds, until others make room; not again when that was in vain.
Status Engine::AskForRoom(uint64_t bytes, bool* may_wait) {
  if (!MetadataMayGrow(/*of_tiers=*/true)) {
    room_.NoteFull(bytes);
    return NoRoomForDescriptors(StatusCode::kResourceExhausted);
  }
  Status room;
  if (IsBorrowed()) {
    room = RoomByMover(bytes, *may_wait);
  } else {
    // A slot may be taken under the mutex only: the swap that gives it could be removed before it is stored, and the slot
    // would then go back to whichever swap comes next.
    MutexUnlock unlocked(mutex_);
    room = FromTier([&] { return tier_->MakeRoom(bytes, *may_wait ? SwapTier::Patience::kWait : SwapTier::Patience::kAsk); }, OutOfHeap());
  }
  *may_wait = *may_wait && room.ok();
  if (room.ok()) relieve_again_ = {};
  NoteTiers();
  if (room.code() == StatusCode::kResourceExhausted) room_.NoteFull(bytes);
  return room;
}

// For descriptors and a lower limit, which are set already: frames that are too many now have to leave.
Status Engine::KeepRoom() {
  Status status;
  uint64_t ask = 0;
  bool asked_again = false, may_wait = true;
  for (int attempt = 0; attempt < Room::kAttemptsMax; ++attempt) {
    const uint64_t in_use = arena_.in_use(), limit = budget_.frames_limit();
    const uint64_t leaving = in_use > limit ? in_use - limit + room_.kept.largest : 0;  // whole chunks leave
    status = TryKeepRoom(0, leaving, room_.kept, &ask);
    if (status.ok()) return status;
    if (attempt == 0) {
      LookForSizes();
      continue;
    }
    if (status.code() != StatusCode::kMustAsk) {
      if (std::exchange(asked_again, true) || !HasRoomAfterAll(&status, ask, &may_wait)) break;
    } else if (Status room = AskForRoom(ask, &may_wait); !room.ok()) {
      status = std::move(room);
      break;
    }
  }
  return NoRoomToKeep(std::move(status));
}

// A chunk without contents comes in, or one with a read-only slot is about to be changed; its frame is there. It gets a slot of its own
// where there must not be more chunks without one. The mutex is not let go. kMustAsk: as TryKeepRoom. kResourceExhausted: it must not come in.
Status Engine::Admit(Chunk* chunk, uint64_t* ask) {
  const uint64_t frame = RoundUpToGranule(chunk->bytes);
  Room::Sizes sizes = room_.kept;
  sizes.Note(chunk->bytes);
  if (room_.Excess(room_.slotless() + frame, 0, room_.Needed(sizes, Room::For::kNewChunk), budget_.frames_usual()) == 0) {
    room_.kept = sizes;
    return Status();
  }
  Result<SlotRef> slot = AskSlot(chunk);
  if (slot.ok()) {
    Slot mine(tier_, slot.value(), chunk->bytes);
    const Status others = TryKeepRoom(0, 0, sizes, ask);
    if (others.ok()) {
      room_.kept = sizes;  // before what is held is told of the slot
      GiveEmptySlot(chunk, mine.release());
      return others;
    }
    if (others.code() != StatusCode::kMustAsk) return others;
    // Its place goes back, and to the others: else swap would be asked for room that is this place, again and again.
  } else {
    *ask = chunk->bytes;
  }
  const Status others = TryKeepRoom(frame, 0, sizes, ask);
  if (others.ok()) room_.kept = sizes;
  if (others.ok() || slot.ok()) return others;
  if (slot.status().code() == StatusCode::kUnavailable && NothingToKeep()) return slot.status();
  return slot.status().code() == StatusCode::kMustAsk ? MayHaveRoom() : others;
}

// What a chunk that asks to be admitted has been through.
struct Engine::Admission {
  int asks = 0;
  bool looked = false, asked_again = false;
  bool may_wait = true;
  bool no_swap = false;  // nothing can be kept for it
  uint64_t ask = 0;      // bytes of swap that were missing at the last try
};

// Admit, where sizes that were noted may be of chunks that are gone. OK also without any swap.
Status Engine::AdmitOrLook(Chunk* chunk, Admission* admission) {
  admission->ask = 0;
  if (admission->no_swap && NothingToKeep()) return Status();  // asked anew: more may have left meanwhile that can still be read
  Status status = Admit(chunk, &admission->ask);
  if (!status.ok() && !std::exchange(admission->looked, true)) {
    LookForSizes();
    status = Admit(chunk, &admission->ask);
  }
  admission->no_swap = status.code() == StatusCode::kUnavailable && NothingToKeep();
  return admission->no_swap ? Status() : status;
}

// Where there is no swap any more, what is in it may still be read (a dead server of this host, a file that is full of errors), and needs room; not what
// went with a far server. Looks at all chunks at worst.
bool Engine::NothingToKeep() const {
  if (room_.swapped() == 0) return true;
  for (uint32_t id = 0; id < chunks_.ids(); ++id) {
    const Chunk* c = chunks_.At(id);
    if (PhaseOf(c) == Phase::kSwapped && c->slot && !tier_->IsLost(c->slot, c->bytes)) return false;
  }
  return true;
}

// Asks swap for what AdmitOrLook found missing. OK: it is worth while to try again.
Status Engine::AskFor(Admission* admission, Status refusal) {
  if (refusal.code() != StatusCode::kMustAsk) {
    if (std::exchange(admission->asked_again, true) || !HasRoomAfterAll(&refusal, admission->ask, &admission->may_wait)) return NoRoomToKeep(std::move(refusal));
    return Status();
  }
  if (admission->asks++ >= Room::kAttemptsMax) return NoRoomToKeep(std::move(refusal));
  Status room = AskForRoom(admission->ask, &admission->may_wait);
  if (room.code() == StatusCode::kResourceExhausted || room.code() == StatusCode::kFailedPrecondition) return NoRoomToKeep(std::move(room));
  admission->no_swap = room.code() == StatusCode::kUnavailable && NothingToKeep();
  return room.code() != StatusCode::kUnavailable || admission->no_swap ? Status() : NoRoomToKeep(std::move(room));
}

// A frame for a chunk that is about to come in, and where it has no contents yet, room for what it makes necessary. On return the
// mutex may have been released. OK without a frame: as TakeFrame. *is_new: it has no contents; a slot that it has now is empty.
Status Engine::TakeFrameAndRoom(Chunk* chunk, WhenPinned when_pinned, Frame* frame, bool* is_new) {
  for (Admission admission;;) {
    uint64_t ask = 0;
    Status status = TakeFrame(chunk, when_pinned, frame, &ask);
    *is_new = !chunk->slot;
    if (status.code() == StatusCode::kResourceExhausted && *is_new && ask > 0 && admission.may_wait && admission.asks++ < Room::kAttemptsMax) {
      // What has a slot need not wait for room: it waits for those that have one, too, and are pinned now. In vain is no reason to give up
      // before a last look, since something may have been freed meanwhile.
      static_cast<void>(AskForRoom(ask, &admission.may_wait));
    } else {
      if (!status.ok() || !*frame || !*is_new) return status;
      status = AdmitOrLook(chunk, &admission);
      if (status.ok()) return status;
      *frame = Frame();
      ServeWaiters();
      status = AskFor(&admission, std::move(status));
      if (!status.ok()) return status;
    }
    if (PhaseOf(chunk) != Phase::kSwapped || Has(chunk, kDoomed)) return Status();
  }
}

// A chunk in memory whose contents are in a read-only slot is about to be changed. From then on it can leave only if swap has room for it,
// as a chunk without contents that comes in, and it is admitted or refused as such a one. OK: to be looked at again; it has no such slot any
// more, or has left meanwhile.
Status Engine::LeaveReadOnlySlot(Chunk* chunk) {
  for (Admission admission; PhaseOf(chunk) == Phase::kResident && HasReadOnlySlot(chunk) && !Has(chunk, kDoomed);) {
    Status status = AdmitOrLook(chunk, &admission);
    if (status.ok()) {
      if (HasReadOnlySlot(chunk)) static_cast<void>(DetachSlot(chunk));  // else it has got one in swap
      SetBits(chunk, kDirty);
    } else if (status = AskFor(&admission, std::move(status)); !status.ok()) {
      if (!PolicyMakesWay(status)) return status;
      admission = Admission();
    }
  }
  return Status();
}

}  // namespace ramspan
