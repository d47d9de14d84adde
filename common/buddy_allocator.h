// BuddyAllocator: binary buddies over [0, units), offsets in and offsets out; it never touches the memory it divides
// (which may be on another node). A request is trimmed to its exact number of units, so equal chunks waste nothing
// (Johnson & Davis 1992; the exact unit after the codestrokes report). Lowest address first, which keeps the high end
// free. State: one bitmap a level with a summary to find a free block without a scan; about 2.1 bits a unit, zero pages
// untouched until used.
//
// Thread-safety: none of its own; the owner guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace ramspan {

class BuddyAllocator {
 public:
  // Any number of units up to 2^40, not only powers of two. Allocates its bitmaps lazily (anonymous mapping). std::bad_alloc: there are no addresses for them.
  explicit BuddyAllocator(uint64_t units);
  ~BuddyAllocator();
  BuddyAllocator(const BuddyAllocator&) = delete;
  BuddyAllocator& operator=(const BuddyAllocator&) = delete;

  // The first of `units` > 0 consecutive units, aligned to the next power of two of `units`; nullopt when no block is
  // large enough. O(levels).
  std::optional<uint64_t> Allocate(uint64_t units);

  // Gives back [first, first + units): the whole of an allocation, or any part of one. A range that is not allocated
  // is an RS_CHECK. O(levels * log units).
  void Free(uint64_t first, uint64_t units);

  uint64_t free_units() const;
  uint64_t units() const;
  uint64_t largest_free_block() const;  // units; 0 when full
  uint64_t metadata_bytes() const;      // of bitmaps that can be touched

  // Every unit is in exactly one free block or allocated, no free block has a free buddy, counts agree. For tests.
  bool IsValid() const;

 private:
  struct Impl;
  Impl* impl_;
};

}  // namespace ramspan
