// Budget: the user's memory limit and what is charged to it. I1: frames (in use, cached or in flight) + metadata <= total(),
// the limit. Metadata (descriptors of objects and of transfers, slot tables, tables of small objects; not the KiB of pins of each thread) is charged without
// asking: evicting must never wait for it (I5). A small reserve, kept free of frames, absorbs its growth until the next eviction.
//
// A program written for Rambrain means by its limit bytes of data: its data fills it to the last byte. For such a program
// metadata has a share of its own beside the limit, and takes from the frames only what goes beyond that.
//
// Thread-safety: ChargeMetadata from any thread; the rest is guarded by the engine's mutex.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace ramspan {

class Budget {
 public:
  explicit Budget(uint64_t limit, bool metadata_beside_limit = false)
      : metadata_beside_limit_(metadata_beside_limit), limit_(limit) {}

  uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  void set_limit(uint64_t limit) { limit_.store(limit, std::memory_order_relaxed); }

  void ChargeMetadata(uint64_t bytes) { metadata_.fetch_add(bytes, std::memory_order_relaxed); }
  // What the tiers take. What frames leave to them follows in steps of half the reserve, so that a slot that is scattered over
  // swap, and needs a few bytes more for it, takes nothing from frames.
  void SetTierMetadata(uint64_t bytes) {
    tier_metadata_.store(bytes, std::memory_order_relaxed);
    const uint64_t charged = tier_charged_.load(std::memory_order_relaxed);
    if (bytes < charged || bytes > charged + reserve() / 2) tier_charged_.store(bytes, std::memory_order_relaxed);
    tier_most_.store(TiersMayGrow() ? 0 : std::max(bytes, tier_most_.load(std::memory_order_relaxed)), std::memory_order_relaxed);
  }
  // Whether they may take as much: where they must not grow, what they have had since. What was given back there may be taken again.
  bool TiersMayTake(uint64_t bytes) const {
    return TiersMayGrow() || bytes <= std::max(tier_metadata_.load(std::memory_order_relaxed), tier_most_.load(std::memory_order_relaxed));
  }
  uint64_t metadata() const {
    return metadata_.load(std::memory_order_relaxed) + tier_metadata_.load(std::memory_order_relaxed);
  }

  // What metadata may take beside the limit. 0 where the limit is strict.
  uint64_t beside_limit() const { return metadata_beside_limit_ ? std::max(limit() / 8, kBesideLimitMin) : 0; }
  // What frames and metadata take together, at most.
  uint64_t total() const { return limit() + beside_limit(); }

  // The largest object that there is.
  void set_largest(uint64_t bytes) { largest_.store(bytes, std::memory_order_relaxed); }
  // What metadata must leave to frames: the largest object must still be readable, and without an eighth of the limit descriptors would fill
  // memory until nothing that they describe can be used. An eighth is 16 frames of a 64 KiB chunk in 8 MiB, so that each thread of a node has its
  // pins; half of it would be little for many threads, twice of it would cost objects in small limits.
  uint64_t floor() const { return std::max(limit() / kDataShare, largest()); }
  static constexpr uint64_t kDataShare = 8;

  // What frames may take, not more than the limit: the total without metadata and its reserve, which holds the steps in which metadata grows
  // without asking (a 64 KiB slab of descriptors, the bitmaps of a lease or a swap file). Up to the floor they may use the reserve up.
  uint64_t frames_limit() const { return std::min(limit(), std::max(frames_beside_reserve(), std::min(floor(), frames_beside_metadata()))); }
  uint64_t frames_beside_reserve() const {
    const uint64_t apart = metadata_.load(std::memory_order_relaxed) + tier_charged_.load(std::memory_order_relaxed) + reserve();
    return total() > apart ? total() - apart : 0;
  }
  // Whether the tiers may take one more step, for which half of the reserve is there. They know no budget: who asks them for a slot has to ask
  // here first. With less than the floor, so that objects may be exchanged for others where new descriptors are refused already.
  bool TiersMayGrow() const {
    const uint64_t step = reserve() / 2;
    return tier_metadata_.load(std::memory_order_relaxed) <= step || frames_beside_metadata() >= std::max(limit() / kLeastShare, largest()) + step;
  }
  // The same at most, when nothing is in swap any more: the tables of slots go with these.
  uint64_t frames_limit_without_swap() const {
    const uint64_t apart = metadata_.load(std::memory_order_relaxed) + reserve_min();
    return std::min(limit(), total() > apart ? total() - apart : 0);
  }

 private:
  // Half of it is for one step of the tiers: at most 64 KiB, or 1/32 of what they take now (SwapFileMaker::UsualStep).
  uint64_t reserve() const {
    return std::max(reserve_min(), tier_metadata_.load(std::memory_order_relaxed) / 16);
  }
  uint64_t reserve_min() const { return std::clamp<uint64_t>(limit() / 128, 128 << 10, 1 << 20); }
  // Enough for the metadata of 16 384 objects, so that a limit of a few MiB, too, can be filled many times over.
  static constexpr uint64_t kBesideLimitMin = 2 << 20;

  static constexpr uint64_t kLeastShare = 32;

  uint64_t largest() const {
    const uint64_t largest = largest_.load(std::memory_order_relaxed);
    return largest <= limit() ? largest : 0;  // a limit that was lowered may be less than it
  }
  uint64_t frames_beside_metadata() const {
    const uint64_t taken = metadata();
    return total() > taken ? total() - taken : 0;
  }

  const bool metadata_beside_limit_;
  std::atomic<uint64_t> limit_;
  std::atomic<uint64_t> metadata_{0};
  std::atomic<uint64_t> tier_metadata_{0};
  std::atomic<uint64_t> largest_{0};
  std::atomic<uint64_t> tier_most_{0};     // what they have taken at most since they must not grow
  std::atomic<uint64_t> tier_charged_{0};  // as much of it as frames leave room for, beside the reserve
};

}  // namespace ramspan
