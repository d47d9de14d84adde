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
  // What the tiers take.
  void SetTierMetadata(uint64_t bytes) { tier_metadata_.store(bytes, std::memory_order_relaxed); }
  uint64_t tier_metadata() const { return tier_metadata_.load(std::memory_order_relaxed); }
  uint64_t metadata() const {
    return metadata_.load(std::memory_order_relaxed) + tier_metadata();
  }

  // What metadata may take beside the limit. 0 where the limit is strict.
  uint64_t beside_limit() const { return BesideLimit(limit()); }
  // What frames and metadata take together, at most.
  uint64_t total() const { return limit() + beside_limit(); }

  // The largest object for which room is kept. REQUIRES: it fits beside metadata.
  void set_largest(uint64_t bytes) { largest_.store(bytes, std::memory_order_relaxed); }
  // What metadata must leave to frames: the largest object must still be readable, and without an eighth of the limit descriptors would fill
  // memory until nothing that they describe can be used. An eighth is 16 frames of a 64 KiB chunk in 8 MiB, so that each thread of a node has its
  // pins; half of it would be little for many threads, twice of it would cost objects in small limits.
  uint64_t floor() const { return std::max(limit() / kDataShare, largest()); }
  static constexpr uint64_t kDataShare = 8;

  // Of frames: what must be there so that all in swap can come back. As much of it as there has been room for is kept from metadata from now on.
  void Hold(uint64_t bytes) { held_.store(std::min(bytes, std::max(frames_usual(), held())), std::memory_order_relaxed); }

  uint64_t held() const { return held_.load(std::memory_order_relaxed); }
  // To what it was before a limit that was refused: Hold lets it rise no further than frames have.
  void RestoreHeld(uint64_t bytes) { held_.store(bytes, std::memory_order_relaxed); }

  // What frames may take, not more than the limit: the total without metadata and its reserve of two steps, in which metadata grows
  // without asking (a 64 KiB slab of descriptors, the bitmaps of a lease or a swap file, rows of slots in pieces). An eighth of the
  // limit, and what is held, leave little more than one step of it, and slots in pieces end before that (TiersMayTake): they take nothing of it.
  uint64_t frames_limit() const {
    const Now now = Look();
    return std::max(now.Usual(), std::min({now.limit, now.held, now.Beside(kHeldLeaves)}));
  }
  // The same but for what is held: new chunks without slots have to make do with it. The largest object may use the reserve up.
  uint64_t frames_usual() const { return Look().Usual(); }
  uint64_t frames_beside_growth() const { return Look().Beside(kHeldLeaves + kStep); }  // and metadata may still grow
  uint64_t frames_at_most() const { return std::min(limit(), Look().Beside(0)); }  // with nothing of the reserve left
  uint64_t frames_beside_reserve() const { return Look().Beside(kFramesLeave); }

  // The tiers know no budget: who asks them for a slot, or for room, has to ask here first.
  // Whether they may take a whole step, and frames still have what they must. A first one always: without it there is no swap. What is held
  // does not count, since with the step come slots. With less than the floor, so that objects may be exchanged for others where new descriptors are
  // refused already.
  bool TiersMayGrow() const { return tier_metadata() <= step() || frames_beside_growth() >= least(); }
  // Whether they may take so much more for a slot. One with which a chunk can leave makes less of what is held, by much more than it takes. One in
  // the place of others may take the last.
  enum class SlotFor { kSlotless, kExchange, kOther };
  bool TiersMayTake(uint64_t more, SlotFor use) const {
    const uint64_t needed = std::max(least(), use == SlotFor::kSlotless ? 0 : held());
    // The largest object may use the reserve up, so a first step is there for rows, too, where no more than that is held.
    if (tier_metadata() + more <= step() && held() <= largest() && Look().Beside(0) >= needed + more) return true;
    return Look().Beside(use == SlotFor::kOther ? kHeldLeaves + 1 : kHeldLeaves) >= needed + more;
  }
  // The size of most steps in which metadata grows: at most 64 KiB, or 1/32 of what the tiers take now (SwapFileMaker::UsualStep).
  uint64_t step() const { return Look().step; }

  // The same at most, when nothing is in swap any more: the tables of slots go with these.
  uint64_t frames_limit_without_swap() const {
    return std::min(limit(), Less(total(), metadata_.load(std::memory_order_relaxed) + ReserveMin(limit())));
  }

 private:
  // In quarters of a step. What frames leave beside metadata as it is, and what even those leave that must be there: a step, which may be a
  // little larger than most.
  static constexpr uint64_t kStep = 4, kFramesLeave = 2 * kStep, kHeldLeaves = kStep + 1;

  static uint64_t ReserveMin(uint64_t limit) { return std::clamp<uint64_t>(limit / 128, 128 << 10, 1 << 20); }
  uint64_t BesideLimit(uint64_t limit) const { return metadata_beside_limit_ ? std::max(limit / 8, kBesideLimitMin) : 0; }
  // Enough for the metadata of 16 384 objects, so that a limit of a few MiB, too, can be filled many times over.
  static constexpr uint64_t kBesideLimitMin = 2 << 20;

  static constexpr uint64_t kLeastShare = 32;

  uint64_t largest() const { return largest_.load(std::memory_order_relaxed); }
  // What the tables of swap must leave to frames.
  uint64_t least() const { return std::max(limit() / kLeastShare, largest()); }
  static uint64_t Less(uint64_t all, uint64_t apart) { return all > apart ? all - apart : 0; }
  // All of it, each loaded once: what frames may take is asked some ten times in a miss.
  struct Now {
    uint64_t limit, total, metadata, step, largest, held;
    uint64_t Beside(uint64_t quarters) const { return Less(total, metadata + quarters * step / kStep); }
    uint64_t Usual() const {
      return std::min(limit, std::max({Beside(kFramesLeave), std::min(limit / kDataShare, Beside(kHeldLeaves)), std::min(largest, Beside(0))}));
    }
  };
  Now Look() const {
    const uint64_t most = limit(), tiers = tier_metadata();
    return {most, most + BesideLimit(most), metadata_.load(std::memory_order_relaxed) + tiers, std::max(ReserveMin(most), tiers / 16) / 2, largest(), held()};
  }

  const bool metadata_beside_limit_;
  std::atomic<uint64_t> limit_;
  std::atomic<uint64_t> metadata_{0};
  std::atomic<uint64_t> tier_metadata_{0};
  std::atomic<uint64_t> largest_{0};
  std::atomic<uint64_t> held_{0};
};

}  // namespace ramspan
