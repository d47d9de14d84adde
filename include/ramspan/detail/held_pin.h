// HeldPin: one pin that somebody holds; it ends with this object. For code that pins by itself; an adhereTo is the
// program's. Private to Ramspan although installed (resident.h). Move-only.
// Thread-safety: none of its own; may be destroyed on another thread than it was made on.
#pragma once

#include <cstdint>
#include <utility>

#include "ramspan/detail/resident.h"

namespace ramspan::detail {

class HeldPin {
 public:
  HeldPin() = default;
  // Pins. Blocks and throws as a pull.
  HeldPin(ChunkHead* chunk, bool write) : table_(ThisThreadPins()) {
    write ? Pin<true>(chunk, table_, &slot_) : Pin<false>(chunk, table_, &slot_);
    chunk_ = chunk;
  }
  // Takes over a pin that was stored already; `slot` may be kCountedPin.
  HeldPin(ChunkHead* chunk, PinTable* table, unsigned slot) : chunk_(chunk), table_(table), slot_(slot) {}
  HeldPin(HeldPin&& other) noexcept
      : chunk_(std::exchange(other.chunk_, nullptr)), table_(other.table_), slot_(other.slot_) {}
  HeldPin& operator=(HeldPin&& other) noexcept {
    std::swap(chunk_, other.chunk_);
    std::swap(table_, other.table_);
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~HeldPin() {
    if (chunk_ != nullptr) Unpin(chunk_, table_, slot_);
  }

  explicit operator bool() const { return chunk_ != nullptr; }
  void* frame() const { return chunk_->frame; }  // REQUIRES: holds a pin
  // The slot in the table of the thread that pinned; the caller unpins from now on. REQUIRES: holds a pin.
  unsigned release() {
    chunk_ = nullptr;
    return slot_;
  }

  // A pin as one word: its slot's address, from which the table follows by alignment, with a bit set where the slot is beyond the table; 1 for a
  // counted one; never 0. In the library only (client/front/foreign_pin.cc).
  uintptr_t word() const;
  static HeldPin FromWord(ChunkHead* chunk, uintptr_t word);

 private:
  ChunkHead* chunk_ = nullptr;  // null: none
  PinTable* table_ = nullptr;
  unsigned slot_ = kNoPin;
};

// HeldPin(chunk, write) for loops: where a call may throw, g++ keeps a loop's variables in memory, and a sum takes four times as long. False: *pin
// is as it was, and ThrowOfTry throws what the pull of this thread's latest Try... has met.
// kLong: it takes none of the thread's slots, of which there are few, so that pins which come and go meanwhile find them free.
// kOnceInTable: what was kOnce for programs that were compiled when there were no slots beyond the table, of which it takes none.
enum class PinFor { kOnceInTable, kLong, kOnce };
RAMSPAN_API bool TryHeldPin(ChunkHead* chunk, bool write, HeldPin* pin, PinFor how_long) noexcept;
[[noreturn]] RAMSPAN_API void ThrowOfTry();
// What ThrowOfTry throws next: that a view was used by another thread than its own.
RAMSPAN_API void FailForOtherThread() noexcept;

}  // namespace ramspan::detail
