// SlotRef: the place of one chunk in swap, and the one file that lays out its bits. It stands in common/ because chunks,
// frames and tiers all speak of slots and granules, and must not know each other.
//
//   bits      meaning                                            set and read by
//   60..63    index of the tier + 1; 0: not in a TieredSwap      tiered_swap
//   59        "far": the slot's server is on another node        remote_swap
//   58        the slot has several extents: 0..57 are a row      slot_space
//   40..55    region + 1                                         slot_space (one extent)
//   0..39     granule within the region                          slot_space (one extent)
//
// Tiers that have no regions (mapped files, a program's store) use bits 0..58 as a number of their own.
// Thread-safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ramspan {

// The granule of slots and frames: both are cut in multiples of it and, with it, meet O_DIRECT's alignment.
inline constexpr size_t kSwapGranule = 4096;

inline constexpr size_t RoundUpToGranule(size_t bytes) { return (bytes + kSwapGranule - 1) & ~(kSwapGranule - 1); }

// Opaque to all but the tier that made it; 0 is "no slot".
struct SlotRef {
  uint64_t bits = 0;
  explicit operator bool() const { return bits != 0; }
  bool operator==(const SlotRef&) const = default;
};

// One function for each question and each change; the masks are not for use elsewhere.
namespace slot_bits {

inline constexpr int kTierShift = 60;
inline constexpr uint64_t kFar = uint64_t{1} << 59;
inline constexpr uint64_t kRow = uint64_t{1} << 58;
inline constexpr int kRegionShift = 40;
inline constexpr uint64_t kTierMask = uint64_t{15} << kTierShift;
inline constexpr uint64_t kGranuleMask = (uint64_t{1} << kRegionShift) - 1;
inline constexpr uint64_t kRegionMask = uint64_t{0xffff} << kRegionShift;

inline constexpr size_t kTiersMax = 15;       // four bits, of which 0 says "none"
inline constexpr size_t kRegionsMax = 65535;  // sixteen bits likewise

// The index of the tier within a tiered swap, + 1; 0: the slot is as its own tier made it.
inline constexpr uint64_t TierPlusOne(SlotRef slot) { return slot.bits >> kTierShift; }
// REQUIRES: tier < kTiersMax, no tier set yet.
inline constexpr SlotRef WithTier(SlotRef slot, size_t tier) { return {slot.bits | (uint64_t{tier} + 1) << kTierShift}; }
inline constexpr SlotRef WithoutTier(SlotRef slot) { return {slot.bits & ~kTierMask}; }

inline constexpr bool IsFar(SlotRef slot) { return (slot.bits & kFar) != 0; }
inline constexpr SlotRef WithFar(SlotRef slot) { return {slot.bits | kFar}; }
inline constexpr SlotRef WithoutFar(SlotRef slot) { return {slot.bits & ~kFar}; }

inline constexpr SlotRef FromRow(uint64_t row) { return {kRow | row}; }
inline constexpr bool IsRow(SlotRef slot) { return (slot.bits & kRow) != 0; }
// REQUIRES: IsRow(slot).
inline constexpr uint64_t RowOf(SlotRef slot) { return slot.bits & (kRow - 1); }

// REQUIRES: region < kRegionsMax, granule <= kGranuleMask.
inline constexpr SlotRef FromGranule(uint32_t region, uint64_t granule) {
  return {(uint64_t{region} + 1) << kRegionShift | granule};
}
// REQUIRES: !IsRow(slot). Region + 1; 0: the slot names no region.
inline constexpr uint64_t RegionPlusOne(SlotRef slot) { return (slot.bits & kRegionMask) >> kRegionShift; }
inline constexpr uint64_t GranuleOf(SlotRef slot) { return slot.bits & kGranuleMask; }
// What begins so many bytes behind the slot's begin. REQUIRES: !IsRow(slot), it is a tier's with regions, `offset` is within it and a multiple of the granule.
inline constexpr SlotRef PartOf(SlotRef slot, uint64_t offset) { return {slot.bits + offset / kSwapGranule}; }

}  // namespace slot_bits
}  // namespace ramspan
