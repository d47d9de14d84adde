#include "client/swap/slot_space.h"

#include <algorithm>
#include <new>
#include <utility>

#include "common/check.h"

namespace ramspan {
namespace {

// What std::unordered_map spends on a row: node, hash chain and bucket, on the generous side.
constexpr uint64_t kRowOverheadBytes = 80;
// Places in a list of extents that is new: most slots of several extents have few. More are added as they are needed.
constexpr size_t kExtentsFirst = 16;

uint64_t RowBytes(const std::vector<Extent>& extents) { return kRowOverheadBytes + extents.capacity() * sizeof(Extent); }

uint64_t UnitsFor(size_t bytes) { return RoundUpToGranule(bytes) / kSwapGranule; }

// In address order, neighbours joined: fewer transfers, and often one extent where several blocks were taken.
void SortAndJoin(std::vector<Extent>* extents) {
  std::sort(extents->begin(), extents->end(), [](const Extent& a, const Extent& b) {
    return a.region != b.region ? a.region < b.region : a.offset < b.offset;
  });
  size_t last = 0;
  for (size_t i = 1; i < extents->size(); ++i) {
    Extent& into = (*extents)[last];
    const Extent& next = (*extents)[i];
    if (next.region == into.region && next.offset == into.offset + into.bytes) {
      into.bytes += next.bytes;
    } else {
      (*extents)[++last] = next;
    }
  }
  extents->resize(last + 1);
}

}  // namespace

struct SlotSpace::Region {
  explicit Region(uint64_t region_bytes) : buddy(region_bytes / kSwapGranule) {}

  uint64_t bytes() const { return buddy.units() * kSwapGranule; }
  uint64_t free_bytes() const { return closed ? 0 : buddy.free_units() * kSwapGranule; }
  uint64_t used_bytes() const { return (buddy.units() - buddy.free_units()) * kSwapGranule; }
  uint64_t metadata_bytes() const { return sizeof(Region) + buddy.metadata_bytes(); }

  BuddyAllocator buddy;  // in granules
  bool closed = false;
};

SlotSpace::SlotSpace(size_t regions_max) : regions_max_(std::min(regions_max, slot_bits::kRegionsMax)) {}
SlotSpace::~SlotSpace() = default;

const SlotSpace::Region& SlotSpace::At(uint32_t region) const {
  RS_CHECK(region < regions_.size() && regions_[region] != nullptr, "no swap region %u", region);
  return *regions_[region];
}

std::optional<uint32_t> SlotSpace::AddRegion(uint64_t bytes) {
  RS_CHECK(bytes > 0 && bytes % kSwapGranule == 0, "a region of %llu bytes", static_cast<unsigned long long>(bytes));
  if (!MayAddRegion()) return std::nullopt;
  size_t index = 0;
  while (index < regions_.size() && regions_[index] != nullptr) ++index;
  if (index == regions_.size()) regions_.emplace_back();
  regions_[index] = std::make_unique<Region>(bytes);
  first_free_ = std::min(first_free_, index);
  ++regions_in_use_;
  free_bytes_ += bytes;
  region_metadata_ += regions_[index]->metadata_bytes();
  return static_cast<uint32_t>(index);
}

void SlotSpace::CloseRegion(uint32_t region) {
  free_bytes_ -= At(region).free_bytes();
  regions_[region]->closed = true;
}

void SlotSpace::OpenRegion(uint32_t region) {
  const uint64_t before = At(region).free_bytes();
  regions_[region]->closed = false;
  first_free_ = std::min<size_t>(first_free_, region);
  free_bytes_ += regions_[region]->free_bytes() - before;
}

void SlotSpace::RemoveRegion(uint32_t region) {
  RS_CHECK(At(region).used_bytes() == 0, "region %u is removed with %llu bytes in use", region,
           static_cast<unsigned long long>(RegionUsed(region)));
  free_bytes_ -= At(region).free_bytes();
  region_metadata_ -= At(region).metadata_bytes();
  regions_[region].reset();
  --regions_in_use_;
}

std::optional<uint64_t> SlotSpace::Take(size_t region, uint64_t units) {
  const std::optional<uint64_t> unit = regions_[region]->buddy.Allocate(units);
  if (unit) {
    used_bytes_ += units * kSwapGranule;
    free_bytes_ -= units * kSwapGranule;
  }
  return unit;
}

void SlotSpace::GiveBack(const Extent& extent) noexcept {
  Region& region = *regions_[extent.region];
  region.buddy.Free(extent.offset / kSwapGranule, extent.bytes / kSwapGranule);
  used_bytes_ -= extent.bytes;
  first_free_ = std::min<size_t>(first_free_, extent.region);
  free_bytes_ += region.closed ? 0 : extent.bytes;
}

uint64_t SlotSpace::RegionUsed(uint32_t region) const { return At(region).used_bytes(); }
uint64_t SlotSpace::RegionFree(uint32_t region) const { return At(region).free_bytes(); }
uint64_t SlotSpace::FreeOf(size_t region) const { return region < regions_.size() && regions_[region] != nullptr ? regions_[region]->free_bytes() : 0; }

SlotRef SlotSpace::Reserve(size_t bytes, uint32_t preferred) {
  const SlotRef slot = ReserveAnywhere(bytes, preferred);
  ForgetSpareRow();
  return slot;
}

// What PrepareRow has made for the worst case was not needed. It counts as metadata, so it would take memory from frames.
void SlotSpace::ForgetSpareRow() {
  if (!spare_.empty() && spare_.mapped().capacity() > kExtentsFirst) spare_.mapped() = std::vector<Extent>();
}

SlotRef SlotSpace::ReserveAnywhere(size_t bytes, uint32_t preferred) {
  RS_CHECK(bytes > 0, "a slot of no bytes");
  const uint64_t units = UnitsFor(bytes);
  const auto try_region = [&](size_t r) -> SlotRef {
    if (FreeOf(r) == 0) return {};
    const std::optional<uint64_t> unit = Take(r, units);
    return unit ? slot_bits::FromGranule(static_cast<uint32_t>(r), *unit) : SlotRef{};
  };
  if (SlotRef slot = try_region(preferred)) return slot;
  while (first_free_ < regions_.size() && FreeOf(first_free_) == 0) ++first_free_;
  for (size_t r = first_free_; r < regions_.size(); ++r) {
    if (SlotRef slot = r == preferred ? SlotRef{} : try_region(r)) return slot;
  }
  return free_bytes() >= units * kSwapGranule ? ReserveScattered(units, preferred) : SlotRef{};
}

void SlotSpace::PrepareRow(size_t bytes) {
  PrepareNode();
  spare_.mapped().reserve(UnitsFor(bytes));  // at worst each granule is an extent
}

void SlotSpace::PrepareNode() {
  // Not each time: reserve() takes the nearest size, be it smaller, and would rehash all rows now and again.
  const size_t rows = rows_.size() + 1;
  const bool is_new = rows_.bucket_count() < 2;  // its one bucket is for none
  if (is_new || static_cast<float>(rows) > rows_.max_load_factor() * static_cast<float>(rows_.bucket_count())) rows_.reserve(2 * rows);
  if (spare_.empty()) {
    Rows one;
    one.emplace(0, std::vector<Extent>());
    spare_ = one.extract(one.begin());
  }
}

// The largest free blocks of one region after the other, so that there are few extents: their list grows as they come, since a place for
// each granule would be 6 MiB for a slot of 1 GiB.
SlotRef SlotSpace::ReserveScattered(uint64_t units, uint32_t preferred) {
  PrepareNode();
  std::vector<Extent>& extents = spare_.mapped();
  extents.clear();
  try {
    units = TakeExtents(units, preferred, &extents);
  } catch (const std::bad_alloc&) {
    for (const Extent& e : extents) GiveBack(e);
    extents.clear();
    throw;
  }
  RS_CHECK(units == 0, "%llu granules short of what was counted free", static_cast<unsigned long long>(units));
  return MakeRow(&extents);
}

SlotRef SlotSpace::ReserveRest(size_t bytes, const std::function<void()>& open_more) {
  std::vector<Extent>& extents = spare_.mapped();
  extents.clear();
  uint64_t units = TakeExtents(UnitsFor(bytes), 0, &extents);
  open_more();
  units = TakeExtents(units, 0, &extents);
  RS_CHECK(units == 0, "%llu granules short of what was counted free", static_cast<unsigned long long>(units));
  const SlotRef slot = MakeRow(&extents);
  ForgetSpareRow();
  return slot;
}

// Of spare_'s extents.
SlotRef SlotSpace::MakeRow(std::vector<Extent>* extents) {
  SortAndJoin(extents);
  if (extents->size() == 1) return slot_bits::FromGranule(extents->front().region, extents->front().offset / kSwapGranule);
  extents->shrink_to_fit();
  const uint64_t row = next_row_++;
  row_bytes_ += RowBytes(*extents);
  spare_.key() = row;
  rows_.insert(std::move(spare_));
  return slot_bits::FromRow(row);
}

// Returns how many units it has not found.
uint64_t SlotSpace::TakeExtents(uint64_t units, uint32_t preferred, std::vector<Extent>* extents) {
  const auto take_from = [&](size_t r) {
    if (FreeOf(r) == 0) return;
    const BuddyAllocator& buddy = regions_[r]->buddy;
    while (units > 0 && buddy.largest_free_block() > 0) {
      if (extents->size() == extents->capacity()) extents->reserve(std::max(kExtentsFirst, 2 * extents->size()));  // before the block is taken
      const uint64_t take = std::min(units, buddy.largest_free_block());
      const uint64_t unit = Take(r, take).value();
      extents->push_back({static_cast<uint32_t>(r), unit * kSwapGranule, take * kSwapGranule});
      units -= take;
    }
  };
  take_from(preferred);
  for (size_t r = 0; r < regions_.size() && units > 0; ++r) {
    if (r != preferred) take_from(r);
  }
  return units;
}

void SlotSpace::Free(SlotRef slot, size_t bytes) noexcept {
  AnyExtentOf(slot, RoundUpToGranule(bytes), [this](const Extent& e) {
    GiveBack(e);
    return false;
  });
  if (!slot_bits::IsRow(slot)) return;
  const auto row = rows_.find(slot_bits::RowOf(slot));
  row_bytes_ -= RowBytes(row->second);
  rows_.erase(row);
}

std::optional<size_t> SlotSpace::NeededOf(std::span<const HeldSlot> given, size_t bytes) const {
  const uint64_t needed = UnitsFor(bytes) * kSwapGranule;
  uint64_t there = free_bytes();
  for (size_t n = 0;; ++n) {
    if (there >= needed) return n;
    if (n == given.size()) return std::nullopt;
    AnyExtentOf(given[n].slot, RoundUpToGranule(given[n].bytes), [&](const Extent& e) {
      there += At(e.region).closed ? 0 : e.bytes;
      return false;
    });
  }
}

Extent SlotSpace::OnlyExtentOf(SlotRef slot, size_t bytes) const {
  RS_CHECK(slot && slot == slot_bits::WithoutTier(slot) && !slot_bits::IsFar(slot) && bytes > 0, "slot %llx of %zu bytes is not of this tier",
           static_cast<unsigned long long>(slot.bits), bytes);
  const uint64_t region_and_one = slot_bits::RegionPlusOne(slot);
  const uint64_t offset = slot_bits::GranuleOf(slot) * kSwapGranule;
  RS_CHECK(region_and_one > 0, "slot %llx names no region", static_cast<unsigned long long>(slot.bits));
  const auto region = static_cast<uint32_t>(region_and_one - 1);
  RS_CHECK(offset < At(region).bytes() && RoundUpToGranule(bytes) <= At(region).bytes() - offset,
           "slot %llx of %zu bytes leaves its region", static_cast<unsigned long long>(slot.bits), bytes);
  return {region, offset, bytes};
}

std::span<const Extent> SlotSpace::RowOf(SlotRef slot) const {
  RS_CHECK(slot == slot_bits::WithoutTier(slot) && !slot_bits::IsFar(slot), "slot %llx is not of this tier",
           static_cast<unsigned long long>(slot.bits));
  const auto row = rows_.find(slot_bits::RowOf(slot));
  RS_CHECK(row != rows_.end(), "no slot %llx", static_cast<unsigned long long>(slot.bits));
  return row->second;
}

void SlotSpace::Resolve(SlotRef slot, size_t bytes, std::vector<Extent>* extents) const {
  if (!slot_bits::IsRow(slot)) {
    extents->push_back(OnlyExtentOf(slot, bytes));
    return;
  }
  RS_CHECK(bytes > 0, "a slot of no bytes");
  uint64_t left = bytes;
  for (const Extent& e : RowOf(slot)) {
    RS_CHECK(left > 0, "slot %llx is larger than %zu bytes", static_cast<unsigned long long>(slot.bits), bytes);
    extents->push_back({e.region, e.offset, std::min(left, e.bytes)});
    left -= extents->back().bytes;
  }
  RS_CHECK(left == 0, "slot %llx is smaller than %zu bytes", static_cast<unsigned long long>(slot.bits), bytes);
}

uint64_t SlotSpace::scattered_bytes() const {
  uint64_t sum = 0;
  for (const auto& [row, extents] : rows_) {
    for (const Extent& extent : extents) sum += RoundUpToGranule(extent.bytes);
  }
  return sum;
}

uint64_t SlotSpace::metadata_bytes() const {
  // The buckets double when all are taken (2.02 for each row then): that is paid for row by row, so that none is a large step for the budget.
  const uint64_t buckets = std::max<uint64_t>(rows_.bucket_count() * sizeof(void*), rows_.size() * 17);
  return regions_.capacity() * sizeof(regions_[0]) + region_metadata_ + buckets + row_bytes_ + (spare_.empty() ? 0 : RowBytes(spare_.mapped()));
}

bool SlotSpace::IsValid() const {
  std::vector<uint64_t> scattered(regions_.size(), 0);
  uint64_t row_bytes = 0;
  for (const auto& [row, extents] : rows_) {
    row_bytes += RowBytes(extents);
    if (extents.size() < 2) return false;
    for (const Extent& e : extents) {
      if (e.region >= regions_.size() || regions_[e.region] == nullptr || e.bytes == 0) return false;
      if (e.offset % kSwapGranule != 0 || e.bytes % kSwapGranule != 0) return false;
      if (e.offset + e.bytes > regions_[e.region]->bytes()) return false;
      scattered[e.region] += e.bytes;
    }
  }
  size_t in_use = 0;
  uint64_t used = 0, free = 0, metadata = 0;
  for (size_t r = 0; r < regions_.size(); ++r) {
    used += regions_[r] ? regions_[r]->used_bytes() : 0;
    free += regions_[r] ? regions_[r]->free_bytes() : 0;
    metadata += regions_[r] ? regions_[r]->metadata_bytes() : 0;
    if (regions_[r] && (!regions_[r]->buddy.IsValid() || scattered[r] > regions_[r]->used_bytes())) return false;
    in_use += regions_[r] != nullptr;
    if (r < first_free_ && FreeOf(r) != 0) return false;
  }
  return row_bytes == row_bytes_ && in_use == regions_in_use_ && used == used_bytes_ && free == free_bytes_ && metadata == region_metadata_;
}

}  // namespace ramspan
