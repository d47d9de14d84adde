// Chunk: the descriptor of what is swapped as a whole, and THE state machine. 64 bytes, counted in the budget.
//
//   phase     event            to         when
//   Freed     kCreate          Swapped    no slot yet: contents indeterminate, no memory used
//   Swapped   kMaterialize     Resident   no slot: a frame without a read
//   Swapped   kBeginLoad       Loading    a frame is reserved, the read submitted
//   Loading   kFinishLoad      Resident   length and checksum right
//   Loading   kFailLoad        Swapped    retryable; waiters get the error
//   Loading   kLose            Lost       wrong checksum, server gone: sticky
//   Swapped   kLose            Lost       the swap in which its slot was is given up
//   Resident  kDrop            Swapped    unpinned and clean with a valid slot, or never written
//   Resident  kBeginWrite      Writing    unpinned and dirty; the frame may be read from Acquire on, not written
//   Writing   kFinishEvict     Swapped    nobody came
//   Writing   kFinishKeep      Resident   somebody pinned it meanwhile: clean
//   Writing   kFailWrite       Resident   still dirty: data is never dropped
//   Resident, Swapped, Lost    kFree -> Freed, when no I/O is in flight (else the chunk is doomed until it is done)
//   anything else: RS_CHECK
//
// Thread-safety: phases change only under the engine's mutex. The word is atomic because the resident path reads it and
// sets kReferenced and kDirty while it holds a pin, and counted pins come and go, without that mutex.
#pragma once

#include "common/check.h"
#include "common/slot_ref.h"
#include "ramspan/detail/resident.h"

namespace ramspan {

using detail::kDirty;
using detail::kReadable;
using detail::kReferenced;
using detail::kWritable;

enum class Phase : uint8_t { kFreed, kSwapped, kLoading, kResident, kWriting, kLost };
enum class Event : uint8_t {
  kCreate, kMaterialize, kBeginLoad, kFinishLoad, kFailLoad, kLose, kDrop, kBeginWrite, kFinishEvict, kFinishKeep,
  kFailWrite, kFree,
};

struct IoOp;

struct alignas(64) Chunk : detail::ChunkHead {
  SlotRef slot;       // empty: never written out
  uint64_t checksum;  // of the slot's bytes; 0: nothing has been written there yet, or (once in 2^64) that is it
  IoOp* op;           // the transfer in flight, in Loading and Writing
  uint32_t prev, next;  // the policy's list, by id
};
static_assert(sizeof(Chunk) == 64);

// Further bits of the state word.
inline constexpr uint64_t kPrefetched = 16;  // fetched ahead, not yet touched: closed, so that the first pin is seen
inline constexpr uint64_t kDoomed = 32;      // freed while I/O is in flight
inline constexpr uint64_t kReadOnlySlot = 64;  // what the slot's tier says of it (Capabilities::read_only); comes and goes with it
inline constexpr uint64_t kHasSlot = 128;      // `slot` is not empty, for who may not look at it without the engine's mutex
inline constexpr int kPhaseShift = 8;
inline constexpr uint64_t kPhaseMask = uint64_t{7} << kPhaseShift;
// The program's advice (include/ramspan/advice.h).
inline constexpr uint64_t kAdvisedKeep = 1 << 11, kAdvisedOnce = 1 << 12, kAdvisedSequential = 1 << 13, kAdvisedRandom = 1 << 14,
                          kAdvisedWillNeed = 1 << 15;  // until its first use
inline constexpr uint64_t kPages = 1 << 16;  // a block of pages (client/pages), whose number is in `refs`; constant after construction
inline constexpr uint64_t kOneCountedPin = uint64_t{1} << 32;

inline Phase PhaseOf(uint64_t word) { return static_cast<Phase>((word & kPhaseMask) >> kPhaseShift); }
inline Phase PhaseOf(const Chunk* c) { return PhaseOf(c->state.load(std::memory_order_acquire)); }
inline bool Has(const Chunk* c, uint64_t bit) { return c->state.load(std::memory_order_acquire) & bit; }
inline bool HasCountedPins(const Chunk* c) { return c->state.load(std::memory_order_acquire) >= kOneCountedPin; }

// Whether the slot is not ours to write. Such a chunk is never dirty: it leaves that slot before its first change, while there may still be
// no room for what it becomes (Engine::LeaveReadOnlySlot).
inline bool HasReadOnlySlot(const Chunk* c) { return Has(c, kReadOnlySlot); }
// What an open chunk lets pins do without the engine.
inline uint64_t OpenBits(const Chunk* c) { return HasReadOnlySlot(c) ? kReadable : kReadable | kWritable; }
// Whether a read that nobody has asked for yet may be begun. Read-only slots are read by who needs them, and so is what is used at random.
inline bool MayReadAhead(const Chunk* c) {
  const uint64_t word = c->state.load(std::memory_order_acquire);
  return PhaseOf(word) == Phase::kSwapped && c->slot && (word & (kDoomed | kReadOnlySlot | kAdvisedRandom)) == 0;
}

// Where `event` leads from `from`; false when the table has no such row.
bool NextPhase(Phase from, Event event, Phase* to);

// Takes the transition and, in the same atomic step, sets and clears flag bits. Release: what was written before
// (frame, bytes, slot) is seen by whoever then reads the word with acquire.
void Transition(Chunk* chunk, Event event, uint64_t set = 0, uint64_t clear = 0);

inline void SetBits(Chunk* c, uint64_t bits) { c->state.fetch_or(bits, std::memory_order_acq_rel); }
inline void ClearBits(Chunk* c, uint64_t bits) { c->state.fetch_and(~bits, std::memory_order_acq_rel); }
inline void ReplaceBits(Chunk* c, uint64_t old, uint64_t bits) {
  ClearBits(c, old);
  SetBits(c, bits);
}

}  // namespace ramspan
