// adhereTo<T>: the promise that a managedPtr's data is needed. A pin begins with the first pulled pointer and ends with
// the adhereTo; the pulled pointer is valid in between. The type of the pulled pointer decides: T* reads and writes,
// const T* reads (a chunk that was only read leaves memory without being written again).
//
// Thread-safety: an adhereTo may be pulled by several threads at once and may die on another thread than it was born
// on; construction, assignment and destruction need exclusive access. The managedPtr must outlive it.
#pragma once

#include <cstdint>
#include <utility>

#include "ramspan/detail/foreign_pin.h"
#include "ramspan/detail/held_pin.h"
#include "ramspan/detail/resident.h"
#include "ramspan/errors.h"
#include "ramspan/managed_ptr.h"

namespace ramspan {

template <typename T>
class adhereTo {
 public:
  // load_now starts to fetch the data in the background (it never waits); otherwise the first pull fetches it.
  RAMSPAN_INLINE explicit adhereTo(const managedPtr<T>& data, bool load_now = true)
      : chunk_(data.object_.chunk()), table_(detail::ThisThreadPins()), offset_(data.object_.offset()) {
    if (load_now && chunk_ &&
        __builtin_expect(!(chunk_->state.load(std::memory_order_relaxed) & detail::kReadable), 0)) {
      detail::PrefetchChunk(chunk_);
    }
  }
  explicit adhereTo(const managedPtr<T>* data, bool load_now = true) : adhereTo(*data, load_now) {}

  // The copy pins for itself if the original does, so it keeps the original's pulled pointers valid.
  adhereTo(const adhereTo& other) : chunk_(other.chunk_), table_(detail::ThisThreadPins()), offset_(other.offset_) {
    if (other.pinned()) Pull<false>();
  }
  RAMSPAN_INLINE adhereTo(adhereTo&& other) noexcept
      : chunk_(std::exchange(other.chunk_, nullptr)),
        table_(other.table_),
        offset_(other.offset_),
        slot_(std::exchange(other.slot_, detail::kNoPin)),
        foreign_(std::exchange(other.foreign_, 0)) {}
  adhereTo& operator=(adhereTo other) noexcept {
    std::swap(chunk_, other.chunk_);
    std::swap(table_, other.table_);
    std::swap(offset_, other.offset_);
    std::swap(slot_, other.slot_);
    std::swap(foreign_, other.foreign_);
    return *this;
  }
  RAMSPAN_INLINE ~adhereTo() {
    if (__builtin_expect(slot_ != detail::kNoPin, 1)) detail::Unpin(chunk_, table_, slot_);
    if (__builtin_expect(foreign_ != 0, 0)) detail::UnpinForeign(chunk_, foreign_);
  }

  // Pulls. Each blocks until the data is in memory. Throws OutOfMemory (more pinned than the limit allows), OutOfSwap,
  // DataLost, SwapUnavailable; Error where a signal handler pulls what another thread has made and has interrupted such a pull. Of a managedPtr without elements they give a null pointer.
  RAMSPAN_INLINE operator T*() & { return Pull<true>(); }              // NOLINT: implicit conversion is the interface
  RAMSPAN_INLINE operator const T*() & { return Pull<false>(); }       // NOLINT
  RAMSPAN_INLINE operator const T*() const& { return Pull<false>(); }  // NOLINT
  // Declared for their error message.
  RAMSPAN_INLINE operator T*() && { return PullOfTemporary(); }             // NOLINT
  RAMSPAN_INLINE operator const T*() && { return PullOfTemporary(); }       // NOLINT
  RAMSPAN_INLINE operator const T*() const&& { return PullOfTemporary(); }  // NOLINT

  // Declared for its error message: C++ cannot choose between the pulls above. A const adhereTo has one, and may be indexed.
  template <typename Index>
  T& operator[](const Index&) {
    static_assert(detail::kAlwaysFalse<Index>,
                  "an index does not say whether the adhereTo is to be read or written: pull a pointer first, T* x = glue; "
                  "x[i] (const T* x = glue; to read only)");
    __builtin_unreachable();
  }

 private:
  friend struct detail::PinAccess;
  template <typename>
  friend class pinnedSpan;
  // Pinned from the start, by calls that do not throw where they hold something: loops over blocks keep their variables in registers
  // (detail/held_pin.h says why).
  template <bool kWrite>
  RAMSPAN_INLINE static adhereTo Pinned(const managedPtr<T>& data) {
    detail::ChunkHead* const chunk = data.object_.chunk();
    if (chunk == nullptr) return adhereTo(nullptr, 0, nullptr, detail::kNoPin);
    detail::PinTable* const table = detail::t_pins;
    if (const unsigned slot = table == nullptr ? detail::PinTable::kInlineSlots : detail::EmptyInlineSlot(table); slot < detail::PinTable::kInlineSlots) {
      if (__builtin_expect(detail::StorePin<kWrite>(chunk, table, slot), 1)) return adhereTo(chunk, data.object_.offset(), table, slot);
      table->slots[slot].store(nullptr, std::memory_order_release);
    }
    detail::HeldPin pin;
    if (!detail::TryHeldPin(chunk, kWrite, &pin, detail::PinFor::kOnce)) detail::ThrowOfTry();
    return adhereTo(chunk, data.object_.offset(), detail::t_pins, pin.release());
  }
  const T* Elements() const { return chunk_ == nullptr ? nullptr : detail::ElementsAt<T>(chunk_->frame, offset_); }
  adhereTo(detail::ChunkHead* chunk, uint32_t offset, detail::PinTable* table, unsigned slot)
      : chunk_(chunk), table_(table), offset_(offset), slot_(slot) {}

  T* PullOfTemporary() const {
    static_assert(detail::kAlwaysFalse<T>,
                  "a pointer that is pulled from a temporary adhereTo dangles: the pin ends with the line. Name it, adhereTo<T> glue(data); T* x = glue;");
    return nullptr;
  }
  bool pinned() const {
    if (slot_ != detail::kNoPin || chunk_ == nullptr) return chunk_ != nullptr;
    const bool is_locked = detail::LockForeign(chunk_), is_pinned = foreign_ != 0;
    if (is_locked) detail::UnlockForeign(chunk_);
    return is_pinned;
  }
  // By a thread that did not make this adhereTo. Of several at once the first one's pin stays.
  template <bool kWrite>
  RAMSPAN_INLINE T* PullForeign() const {
    const detail::ForeignPin pin = detail::PinForeign(chunk_, kWrite);
    if (!detail::LockForeign(chunk_)) detail::ThrowCannotNote(chunk_, pin.word);
    const bool stays = foreign_ == 0;
    if (stays) foreign_ = pin.word;
    detail::UnlockForeign(chunk_);
    if (!stays) detail::UnpinForeign(chunk_, pin.word);
    return detail::ElementsAt<T>(pin.frame, offset_);
  }

  template <bool kWrite>
  RAMSPAN_INLINE T* Pull() const {
    if (__builtin_expect(chunk_ == nullptr, 0)) return nullptr;
    if (__builtin_expect(table_ != detail::t_pins, 0)) return PullForeign<kWrite>();
    if (__builtin_expect(slot_ == detail::kNoPin, 1)) {
      unsigned slot;
      void* frame = detail::Pin<kWrite>(chunk_, table_, &slot);
      slot_ = slot;
      return detail::ElementsAt<T>(frame, offset_);
    }
    if constexpr (kWrite) {  // pinned already, perhaps only for reading
      unsigned slot;
      void* frame = detail::Pin<true>(chunk_, table_, &slot);
      detail::Unpin(chunk_, table_, slot);
      return detail::ElementsAt<T>(frame, offset_);
    }
    return detail::ElementsAt<T>(chunk_->frame, offset_);
  }

  detail::ChunkHead* chunk_;
  detail::PinTable* table_;                   // of the thread that made this adhereTo
  uint32_t offset_;                           // of the elements in the chunk
  mutable unsigned slot_ = detail::kNoPin;    // that thread's pin; only it writes
  mutable uintptr_t foreign_ = 0;             // a pin by any other thread, as HeldPin::word() says it; 0: none. Under LockForeign (detail/foreign_pin.h)
};

}  // namespace ramspan

// Glue and pull in one line. ADHERETO shadows the managedPtr by a pointer of the same name (for class members);
// ADHERETOLOC gives the pointer a name of its own. Rambrain's macros.
#define RAMSPAN_CONCAT_(a, b) a##b
#define RAMSPAN_CONCAT(a, b) RAMSPAN_CONCAT_(a, b)
#define ADHERETOLOC(type, managed, local)                                   \
  ::ramspan::adhereTo<type> RAMSPAN_CONCAT(local, _glue)(managed); \
  type* local = RAMSPAN_CONCAT(local, _glue)
#define ADHERETOLOCCONST(type, managed, local)                                    \
  const ::ramspan::adhereTo<type> RAMSPAN_CONCAT(local, _glue)(managed); \
  const type* local = RAMSPAN_CONCAT(local, _glue)
#define ADHERETO(type, managed)                                               \
  ::ramspan::adhereTo<type> RAMSPAN_CONCAT(managed, _glue)(managed); \
  type* managed = RAMSPAN_CONCAT(managed, _glue)
#define ADHERETOCONST(type, managed)                                                \
  const ::ramspan::adhereTo<type> RAMSPAN_CONCAT(managed, _glue)(managed); \
  const type* managed = RAMSPAN_CONCAT(managed, _glue)

namespace ramspan::detail {
// Serialises the scopes that pull several pointers, so that no two threads each hold half of what they need.
class RAMSPAN_API IngredientsScope {
 public:
  IngredientsScope();   // blocks; throws Error within a call of a SwapStore or an EvictionPolicy
  ~IngredientsScope();
  IngredientsScope(const IngredientsScope&) = delete;
  IngredientsScope& operator=(const IngredientsScope&) = delete;
};
}  // namespace ramspan::detail
#define LISTOFINGREDIENTS ::ramspan::detail::IngredientsScope RAMSPAN_CONCAT(ramspan_ingredients_, __LINE__);
