// The resident path: what a pin does when its chunk is in memory. Private to Ramspan although installed, because it is
// inlined into the program; it may change on any day.
//
// Protocol. A pin stores the chunk's address into a slot of the thread's own PinTable and THEN loads the chunk's state;
// the evictor closes the state (clears kReadable and kWritable) and THEN reads all tables. Each side must see the
// other's store if its own came second: a store-load order, which on the pin's side costs nothing because the evictor
// issues membarrier(PRIVATE_EXPEDITED) between its two steps: it makes every running thread execute a full fence.
// Where the kernel has no membarrier, a table's inline slots are filled for ever, so that each pin comes to PinInOtherSlot, whose
// StorePinFenced (client/front/store_pin.h) executes the fence.
//   slot release (store-release of null) -> evictor's acquire load: the pinner's accesses to the frame happen before the
//   eviction. state (store-release when a load finishes) -> pin's acquire load: the frame pointer and bytes are seen.
#pragma once

#include "ramspan/detail/cxx17.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ramspan/advice.h"

#define RAMSPAN_API __attribute__((visibility("default")))
// For what a pin consists of: one call that gets an adhereTo's address keeps all of it in memory, and a pin then takes half as long again.
// g++ refuses to inline it in functions for another architecture (target("arch=...")) than that of their file: -DRAMSPAN_INLINE=inline makes calls there.
#ifndef RAMSPAN_INLINE
#define RAMSPAN_INLINE __attribute__((always_inline)) inline
#endif

namespace ramspan::detail {

// Bits of a chunk's state word that the resident path reads. The rest belongs to client/chunk.
inline constexpr uint64_t kReadable = 1;    // a pin may read the frame at once
inline constexpr uint64_t kWritable = 2;    // a pin may write the frame at once
inline constexpr uint64_t kReferenced = 4;  // pinned since the bit was cleared
inline constexpr uint64_t kDirty = 8;       // the frame is newer than the slot

// The first half of a chunk descriptor.
struct ChunkHead {
  std::atomic<uint64_t> state;
  void* frame;     // published by a release store of state; constant while pinned
  uint64_t bytes;  // exact; constant after construction
  std::atomic<uint32_t> refs;  // managedPtrs that share the chunk
  uint32_t id;
};

// One thread's pins. Slots are filled by the owner, cleared by whoever destroys the adhereTo, read by evictors. The owner
// takes the first slot that it sees empty: the test is a predicted branch, where a bitmap or a stack index would be a
// chain of dependent loads and stores from pin to pin.
struct alignas(1024) PinTable {
  static constexpr unsigned kSlots = 64;
  static constexpr unsigned kInlineSlots = 4;    // tried by the inlined pin
  // The last ones are for elements of Rambrain's arrays, which nobody holds knowingly; adhereTos take those before them only.
  static constexpr unsigned kElementSlots = 8, kAdhereToSlots = kSlots - kElementSlots;
  std::atomic<bool> owned{false};                // a living thread uses the table
  std::atomic<ChunkHead*> waiting_for{nullptr};  // the owner waits for memory, for this chunk; or for a loop's end: that loop, with the lowest bit set (WaitsForLoopsEnd)
  std::atomic<ChunkHead*> slots[kSlots] = {};
  // Pins counted in chunks that the owner took, less those that it ended, at least 0: a guess where pins change hands.
  // Only the owner writes; the judge of deadlocks reads it (PinRegistry::Counted).
  std::atomic<int64_t> counted{0};
  std::atomic<uint64_t> pulls{0};  // through include/rambrain/; only the owner writes, so it needs no locked add
  uint32_t constructions = 0;  // of elements that are running, each within the one before it; only the owner's
  std::atomic<uint64_t> element_uses{0};  // by StorePinForOneUse; only the owner writes
};
static_assert(sizeof(PinTable) == 1024);
// What programs that are compiled already read and write, so it stays where it is as long as the library's soname does: new
// members come after all others.
static_assert(offsetof(PinTable, slots) == 16 && offsetof(PinTable, pulls) == 16 + 8 * PinTable::kSlots + 8);

// Slot numbers beyond the table: a pin counted in the chunk itself (there was no slot), and no pin at all. From kFirstBeyond on they are slots
// that a thread gets for many pins (client/front/more_pins.h).
inline constexpr unsigned kCountedPin = PinTable::kSlots;
inline constexpr unsigned kNoPin = PinTable::kSlots + 1;
inline constexpr unsigned kFirstBeyond = 2 * PinTable::kSlots;

extern RAMSPAN_API __thread PinTable* t_pins __attribute__((tls_model("initial-exec")));

// Gives the calling thread a table. Allocates; throws Error when the runtime cannot start.
RAMSPAN_API PinTable* MakePinTable();

// The rest of a pin whose slot is already stored: waits until the chunk is there. Blocks. Throws OutOfMemory, OutOfSwap,
// DataLost, SwapUnavailable; the slot has been released then.
RAMSPAN_API void* PinSlow(ChunkHead* chunk, PinTable* table, unsigned slot, bool write);
// A pin when the inline slots are taken: *slot becomes another one, also one beyond the table, or kCountedPin.
RAMSPAN_API void* PinInOtherSlot(ChunkHead* chunk, PinTable* table, unsigned* slot, bool write);
RAMSPAN_API void UnpinBeyondTable(ChunkHead* chunk, PinTable* table, unsigned slot) noexcept;
// The same for programs that were compiled when there were no slots beyond the table: *slot is none of those.
RAMSPAN_API void* PinWithoutSlot(ChunkHead* chunk, PinTable* table, unsigned* slot, bool write);
RAMSPAN_API void UnpinCounted(ChunkHead* chunk) noexcept;
// A hint: starts to fetch the chunk if it is not there. Never throws, does not wait for the data.
RAMSPAN_API void PrefetchChunk(ChunkHead* chunk) noexcept;

// Whether a loop whose calls run in several threads has failed in one of them: the calling thread's pins, within it, do not wait for other threads' any more, whose
// pins may last until the loop ends. Null outside of such loops.
extern RAMSPAN_API __thread const std::atomic<bool>* t_loop_failed __attribute__((tls_model("initial-exec")));
// The calling thread's part of that loop (what its calls have as t_loop_failed) is done, and it waits for the other threads: what it has pinned stays so until then. Null: it waits no more.
RAMSPAN_API void WaitsForLoopsEnd(const std::atomic<bool>* loop) noexcept;

// As advice.h says. Takes the engine's mutex for a moment. Nothing within code of the program's that Ramspan has called.
RAMSPAN_API void AdviseChunk(ChunkHead* chunk, advice what) noexcept;
// Bytes: half of the memory limit, which may be pinned or fetched together without hindering others.
RAMSPAN_API size_t HalfOfMemory() noexcept;

inline PinTable* ThisThreadPins() {
  PinTable* table = t_pins;
  return __builtin_expect(table != nullptr, 1) ? table : MakePinTable();
}

// The protocol's two steps on the pin's side, in this one place: the chunk is named in a slot that is empty, and then its
// state says whether the frame may be used at once. If not, the pin needs the engine (PinSlow).
template <bool kWrite>
inline bool StorePin(ChunkHead* chunk, PinTable* table, unsigned slot) {
  // Release: an evictor that finds this pin instead of the empty slot before it must still see what the owner did to the
  // frame of the pin before that.
  table->slots[slot].store(chunk, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the evictor's membarrier does the rest
  constexpr uint64_t kNeed = kReadable | kReferenced | (kWrite ? kWritable | kDirty : 0);
  return (chunk->state.load(std::memory_order_acquire) & kNeed) == kNeed;
}
// The same for one access to an element of a vector, of which there are millions a second: most of them leave no word of the use. Policies hear of
// a part, which tells them as well which chunks are used often, and costs a random read a tenth of what all would.
inline constexpr uint64_t kUsesHeardEvery = 64;
template <bool kWrite>
inline bool StorePinForOneUse(ChunkHead* chunk, PinTable* table, unsigned slot) {
  table->slots[slot].store(chunk, std::memory_order_release);  // as StorePin
  std::atomic_signal_fence(std::memory_order_seq_cst);
  constexpr uint64_t kNeed = kReadable | (kWrite ? kWritable | kDirty : 0);
  const uint64_t uses = table->element_uses.load(std::memory_order_relaxed) + 1;
  table->element_uses.store(uses, std::memory_order_relaxed);
  const uint64_t need = kNeed | (uses % kUsesHeardEvery == 0 ? kReferenced : 0);
  return (chunk->state.load(std::memory_order_acquire) & need) == need;
}
// The same for any slot, also beyond the table. Executes the fence where there is no membarrier: only the inlined pin needs none
// there, because its slots are then never empty.
bool StorePinAnywhere(ChunkHead* chunk, PinTable* table, unsigned slot, bool write);

// A pin in a slot that is empty.
template <bool kWrite>
inline void* PinInSlot(ChunkHead* chunk, PinTable* table, unsigned slot) {
  if (__builtin_expect(StorePin<kWrite>(chunk, table, slot), 1)) return chunk->frame;
  return PinSlow(chunk, table, slot, kWrite);
}

// The first inline slot that is empty, or kInlineSlots. Unrolled: as a loop each slot that is taken costs two jumps.
RAMSPAN_INLINE unsigned EmptyInlineSlot(const PinTable* table) {
  static_assert(PinTable::kInlineSlots == 4);
  // Acquire: if another thread emptied it, what that did to the old pin's frame is passed on by the next store there.
  const auto is_empty = [table](unsigned i) { return table->slots[i].load(std::memory_order_acquire) == nullptr; };
  if (__builtin_expect(is_empty(0), 1)) return 0;
  return is_empty(1) ? 1 : is_empty(2) ? 2 : is_empty(3) ? 3 : 4;
}

template <bool kWrite>
inline void* Pin(ChunkHead* chunk, PinTable* table, unsigned* slot) {
  const unsigned empty = EmptyInlineSlot(table);
  if (__builtin_expect(empty < PinTable::kInlineSlots, 1)) {
    *slot = empty;
    return PinInSlot<kWrite>(chunk, table, empty);
  }
  unsigned other;  // one of its own: whoever's address is passed on stays in memory, on all ways
  void* const frame = PinInOtherSlot(chunk, table, &other, kWrite);
  *slot = other;
  return frame;
}

inline void Unpin(ChunkHead* chunk, PinTable* table, unsigned slot) noexcept {
  if (__builtin_expect(slot >= PinTable::kSlots, 0)) return UnpinBeyondTable(chunk, table, slot);
  table->slots[slot].store(nullptr, std::memory_order_release);
}

// What people call the chunk's state: "in memory", "in use", "swapped out", ... May be old when it returns.
RAMSPAN_API const char* DescribeChunk(const ChunkHead* chunk) noexcept;
[[noreturn]] RAMSPAN_API void ThrowTooLarge(size_t n, size_t element_bytes);
[[noreturn]] RAMSPAN_API void ThrowTooDeep(size_t depth);
[[noreturn]] RAMSPAN_API void ThrowNone(const char* what, size_t index, size_t count);  // `what` is "block" or "row"
[[noreturn]] RAMSPAN_API void ThrowBesideViews();
[[noreturn]] RAMSPAN_API void ThrowOutOfHeap();
[[noreturn]] RAMSPAN_API void ThrowWhileGrowing(size_t old_bytes, size_t new_bytes, const char* why);
[[noreturn]] RAMSPAN_API void ThrowTooManyBlocks(size_t blocks, size_t block_bytes);
// Descriptors do not go back to the data when they are not needed any more, so it is not left to chance how many can be made.
inline void RefuseTooManyBlocks(size_t blocks, size_t block_bytes) {
  constexpr size_t kMany = 4096, kDescriptorBytes = 64;  // there is more to each block
  if (blocks < kMany) return;
  ThisThreadPins();  // starts the runtime, which knows the limit
  if (blocks > HalfOfMemory() / kDescriptorBytes) ThrowTooManyBlocks(blocks, block_bytes);
}
[[noreturn]] RAMSPAN_API void ThrowNoBlock(const size_t* index, const size_t* counts, size_t dimensions);
[[noreturn]] RAMSPAN_API void ThrowNoElement(const size_t* index, const size_t* counts, size_t dimensions);  // of a block
[[noreturn]] RAMSPAN_API void ThrowEmptyBlocks(const size_t* block_shape, size_t dimensions);

}  // namespace ramspan::detail
