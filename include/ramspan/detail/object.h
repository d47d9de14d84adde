// Object: what a managedPtr holds: a chunk of its own, or, for less than a page, a place in a bundle: a chunk that many
// small objects of about one size share and that is swapped as one. A small object costs 8 bytes beside its data, in a
// table that is never swapped and stands apart from the chunk. Private to Ramspan although installed (resident.h).
//
// A table is aligned to its size, so that an object's address leads to the head of its table; the size is in the three
// low bits of the handle, which are 0 for a chunk of its own. Value type; nothing here blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ramspan/detail/resident.h"

namespace ramspan::detail {

struct SmallObject {
  std::atomic<uint32_t> refs;  // managedPtrs that share it
  uint16_t bytes;              // exact; of a free place: the index of the next free one
  std::atomic<uint16_t> uses;  // pins without an adhereTo (AddUse)
};
static_assert(sizeof(SmallObject) == 8);

// The first part of a table's head; constant while the table has objects.
struct BundleHead {
  static constexpr size_t kBytes = 64;  // of the whole head; the objects follow
  ChunkHead* chunk;
  uint32_t object_bytes;  // from one place in the chunk to the next
};

class Object {
 public:
  static constexpr uintptr_t kTagMask = 7;
  static constexpr size_t TableBytes(uintptr_t tag) { return size_t{512} << tag; }

  Object() = default;
  explicit Object(ChunkHead* chunk) : word_(reinterpret_cast<uintptr_t>(chunk)) {}
  Object(SmallObject* small, uintptr_t tag) : word_(reinterpret_cast<uintptr_t>(small) | tag) {}

  explicit operator bool() const { return word_ != 0; }
  bool operator==(Object other) const { return word_ == other.word_; }
  bool operator!=(Object other) const { return word_ != other.word_; }
  uintptr_t word() const { return word_; }  // distinct for distinct objects

  bool is_small() const { return __builtin_expect((word_ & kTagMask) != 0, 0); }
  SmallObject* small() const { return reinterpret_cast<SmallObject*>(word_ & ~kTagMask); }  // REQUIRES: is_small()
  BundleHead* bundle() const {                                                              // the same
    return reinterpret_cast<BundleHead*>(word_ & ~(TableBytes(word_ & kTagMask) - 1));
  }
  uint32_t index() const {  // the same
    const uintptr_t at = word_ & (TableBytes(word_ & kTagMask) - 1) & ~kTagMask;
    return static_cast<uint32_t>((at - BundleHead::kBytes) / sizeof(SmallObject));
  }

  ChunkHead* chunk() const { return is_small() ? bundle()->chunk : reinterpret_cast<ChunkHead*>(word_); }
  uint32_t offset() const { return is_small() ? index() * bundle()->object_bytes : 0; }  // bytes into the chunk
  uint64_t bytes() const { return is_small() ? small()->bytes : chunk()->bytes; }        // REQUIRES: not null
  std::atomic<uint32_t>& refs() const { return is_small() ? small()->refs : chunk()->refs; }

 private:
  uintptr_t word_ = 0;
};

// Objects of this many bytes and more have a chunk of their own.
inline constexpr size_t kSmallBytesEnd = 4096;

// `bytes` > 0 with one reference, contents indeterminate. Blocks only where descriptors have outgrown their part of the
// memory limit. Throws OutOfMemory when it can never fit, ConfigError when the runtime cannot start.
RAMSPAN_API Object CreateObject(size_t bytes, size_t alignment);
// REQUIRES: no pin, no reference. Never blocks.
RAMSPAN_API void FreeObject(Object object) noexcept;

// A pin that belongs to no thread and no adhereTo; returns the object's place. Blocks and throws as a pull.
RAMSPAN_API void* AddUse(Object object, bool write);
// Ends `n` of them; false, with nothing done, when the object has not so many.
RAMSPAN_API bool EndUses(Object object, uint32_t n) noexcept;

// `function` is called once when the process exits, while all data can still be reached: remote memory is given up after it.
// One function at most; the same one again has no effect.
RAMSPAN_API void CallBeforeEnd(void (*function)()) noexcept;

// For destructors that cannot throw: says that an object's elements were given up without their destructors.
RAMSPAN_API void ReportLostDestructors(Object object, const char* why) noexcept;

template <typename T>
T* ElementsAt(void* frame, uint32_t offset) {
  return static_cast<T*>(static_cast<void*>(static_cast<char*>(frame) + offset));
}

}  // namespace ramspan::detail
