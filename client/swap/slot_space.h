// SlotSpace: the slots of one tier, cut from regions (leases of server memory, swap files) by buddy allocators.
// A chunk takes exactly its granules: the buddy block is trimmed, so nothing is wasted inside. Where no region has one
// free run that is long enough, a slot is made of several extents, and its SlotRef then names a row of a side table.
//
// Thread-safety: none of its own; the tier guards it with its mutex. Moves no bytes, asks nobody for memory: growing
// is the tier's business (AddRegion). Its memory is reported by metadata_bytes().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "client/swap/swap_tier.h"
#include "common/buddy_allocator.h"

namespace ramspan {

// A run of bytes in one region: [offset, offset + bytes), both multiples of the granule (the last extent's bytes are
// cut to the chunk's exact length by Resolve).
struct Extent {
  uint32_t region = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

class SlotSpace {
 public:
  // `regions_max`: fewer than there can be, for tests.
  explicit SlotSpace(size_t regions_max = slot_bits::kRegionsMax);
  ~SlotSpace();

  // A new region of `bytes` (multiple of the granule), at offsets [0, bytes). Returns its index; indices are reused
  // after RemoveRegion. Empty: there are as many regions as a slot can name, 65535; then nothing is added.
  std::optional<uint32_t> AddRegion(uint64_t bytes);
  bool MayAddRegion() const { return regions_in_use_ < regions_max_; }
  size_t regions() const { return regions_in_use_; }
  size_t regions_max() const { return regions_max_; }
  // The region no longer gives slots, but slots in it can still be freed (a dead server, a draining lease).
  void CloseRegion(uint32_t region);
  void OpenRegion(uint32_t region);  // it gives slots again
  // REQUIRES: RegionUsed(region) == 0.
  void RemoveRegion(uint32_t region);
  uint64_t RegionUsed(uint32_t region) const;  // bytes
  uint64_t RegionFree(uint32_t region) const;  // bytes; 0 when closed

  // A slot for `bytes` > 0, or an empty SlotRef when the open regions together have not enough room.
  // `preferred` is tried first, then the others in index order.
  SlotRef Reserve(size_t bytes, uint32_t preferred = 0);
  void Free(SlotRef slot, size_t bytes) noexcept;
  // Makes what the next Reserve of so many bytes allocates, whatever room it finds: it throws nothing then, and what it has not needed
  // goes with it. Else Reserve may throw std::bad_alloc, and has taken nothing.
  void PrepareRow(size_t bytes);
  // As Reserve, of all that the open regions have left, and the rest in those that `open_more` opens: no more is taken there than is needed.
  // Throws nothing. REQUIRES: PrepareRow(bytes); together they have enough.
  SlotRef ReserveRest(size_t bytes, const std::function<void()>& open_more);
  // So many of `given`, from the first on, have to be freed before Reserve gives a slot for `bytes`. Empty: all are too few.
  std::optional<size_t> NeededOf(std::span<const HeldSlot> given, size_t bytes) const;

  // Appends the slot's extents to *extents, in the order of the chunk's bytes; their lengths sum to `bytes`.
  void Resolve(SlotRef slot, size_t bytes, std::vector<Extent>* extents) const;

  // Whether `says` is true of an extent of the slot; later ones are not asked then. Allocates nothing.
  template <typename F>
  bool AnyExtentOf(SlotRef slot, size_t bytes, const F& says) const {
    if (!slot_bits::IsRow(slot)) return says(OnlyExtentOf(slot, bytes));
    uint64_t left = bytes;
    for (const Extent& e : RowOf(slot)) {
      if (left == 0) break;
      const uint64_t n = std::min(left, e.bytes);
      if (says(Extent{e.region, e.offset, n})) return true;
      left -= n;
    }
    return false;
  }

  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t scattered_bytes() const;  // of slots of several extents. Looks at each of them.
  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t capacity_bytes() const { return used_bytes() + free_bytes(); }  // of closed regions, what is still used
  // Looks at nothing: it is asked under the engine's mutex.
  uint64_t metadata_bytes() const;
  size_t row_buckets() const { return rows_.bucket_count(); }  // each change of it moves all rows

  // Every region's allocator is valid, used + free is each region's size, rows lie inside used space. For tests.
  bool IsValid() const;

 private:
  struct Region;
  const Region& At(uint32_t region) const;
  Extent OnlyExtentOf(SlotRef slot, size_t bytes) const;  // REQUIRES: it has one
  std::span<const Extent> RowOf(SlotRef slot) const;      // of several
  uint64_t FreeOf(size_t region) const;  // bytes for slots, of any index
  std::optional<uint64_t> Take(size_t region, uint64_t units);
  void GiveBack(const Extent& extent) noexcept;
  void PrepareNode();
  void ForgetSpareRow();
  SlotRef ReserveAnywhere(size_t bytes, uint32_t preferred);
  SlotRef ReserveScattered(uint64_t units, uint32_t preferred);
  uint64_t TakeExtents(uint64_t units, uint32_t preferred, std::vector<Extent>* extents);
  SlotRef MakeRow(std::vector<Extent>* extents);

  const size_t regions_max_;
  size_t regions_in_use_ = 0;
  std::vector<std::unique_ptr<Region>> regions_;  // null: the index is free
  size_t first_free_ = 0;                         // those before it give no slots: they are full, closed, or none
  // Slots of several extents, by row number.
  using Rows = std::unordered_map<uint64_t, std::vector<Extent>>;
  Rows rows_;
  Rows::node_type spare_;  // a row that PrepareRow has made and nobody has needed yet
  uint64_t next_row_ = 0;
  uint64_t row_bytes_ = 0;  // of memory that the rows take: RowBytes of each, summed
  // Sums over the regions, of which there may be ten thousands.
  uint64_t used_bytes_ = 0, free_bytes_ = 0, region_metadata_ = 0;
};

}  // namespace ramspan
