// TieredSwap: several tiers as one, the best first. Each chunk goes to the first tier that takes it, and from then on
// its slot says where it is: bits 60..63 of a SlotRef are the tier's index + 1, stripped while a request is with its
// tier. So tiers are not nested, and there are at most 15. Which tiers get new slots, and in which turn, may change at
// any time; chunks that live elsewhere stay there and are written over where they are. A tier to which a write has failed
// is the last choice for a while.
//
// Thread-safety: as SwapTier says; it has no lock of its own. Add and SetOrder: one thread at a time. Ownership: owns its
// tiers.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/swap/swap_tier.h"

namespace ramspan {

class TieredSwap final : public SwapTier {
 public:
  static constexpr size_t kTiersMax = slot_bits::kTiersMax;

  // Chunks move up only into a tier that has had room for so long: who has just been asked for room, or has lent some for a moment,
  // would send them down again.
  static constexpr std::chrono::milliseconds kRoomLasts{2000};

  // REQUIRES: 1 to kTiersMax tiers, none of them a TieredSwap.
  explicit TieredSwap(std::vector<std::unique_ptr<SwapTier>> tiers, std::chrono::milliseconds room_lasts = kRoomLasts);
  // REQUIRES: nothing in flight.
  ~TieredSwap() override;

  // What holds for every slot: synchronous, checksums and read_only only if all tiers are, the smallest max_in_flight.
  Capabilities capabilities() const noexcept override;
  Capabilities CapabilitiesOf(SlotRef slot) const noexcept override;

  // From the first tier that does not answer kResourceExhausted or kUnavailable; those that stand still come last. When all do: kResourceExhausted if
  // one of them is only full, else kUnavailable, with every tier's name and message.
  Result<SlotRef> Reserve(size_t bytes) override;
  Result<SlotRef> TryReserve(size_t bytes) override;
  // In the first tier that can; errors as Reserve's.
  Status MakeRoom(size_t bytes, Patience patience) override;
  // Within the tier of the first slot, if it is among those that get new slots.
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override;
  bool MayCut(SlotRef slot, size_t bytes) const noexcept override;
  void Free(SlotRef slot, size_t bytes) noexcept override;
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override { Submit(batch, true); }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override { Submit(batch, false); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override;
  void ForgetMemory(std::span<std::byte> memory) noexcept override;
  void Upkeep() override;

  // Sums over the tiers.
  TierStats stats() const noexcept override;
  uint64_t metadata_bytes() const noexcept override;
  // Of the tiers one after the other.
  std::vector<ServerStats> servers() const override;

  // The tiers that get new slots, the best first. Empty: no chunk can leave for swap any more.
  void SetOrder(std::span<const size_t> order);
  std::vector<size_t> order() const;
  bool is_closed() const { return order_.load(std::memory_order_acquire) == 0; }  // the order is empty
  // One more tier, not yet in the order; its index, or kTiersMax when there is no place. `reuse` is an index that no slot
  // names any more (its tier answers calls that are under way, but holds nothing); the old tier is kept till the end.
  size_t Add(std::unique_ptr<SwapTier> tier, size_t reuse = kTiersMax);

  size_t tier_count() const { return count_.load(std::memory_order_acquire); }
  // REQUIRES: i < tier_count().
  const SwapTier& tier(size_t i) const { return *At(i); }

  // A slot of this object for one that the tier itself has made.
  static SlotRef SlotIn(size_t tier, SlotRef slot);
  // Which tier a slot of this object is in.
  size_t TierIndexOf(SlotRef slot) const;

  // What is below moves up by and by: of the bytes that leave memory, changed or not, one in four, into a tier that has had room for a
  // while. So a chunk that leaves unchanged, and has to be written to move, costs a sweep a quarter more at most; and who has just got
  // room, which others may want, does not get everything at once.
  //
  // ShouldMove: asked once for each changed chunk that leaves. Or writes to the chunk's own tier fail, or its slot stands
  // still: then at once. Takes no lock
  // as long as nobody stands still: what tiers have free is noted with each slot, and looked up by Upkeep. Who comes too late gets a slot where the chunk is.
  bool ShouldMove(SlotRef slot, size_t bytes) const noexcept override;
  SlotRef TryMoveUp(SlotRef slot, size_t bytes) override;
  bool IsLost(SlotRef slot, size_t bytes) const noexcept override;
  uint32_t LostWith(SlotRef slot, size_t bytes) const override;
  bool StandsStill(SlotRef slot, size_t bytes) noexcept override;
  bool HasLeaving() const noexcept override;
  bool IsLeaving(SlotRef slot, size_t bytes) const noexcept override;

 private:
  // Asks the tiers in their order until one does not answer that it is full or gone. `ask` gets a tier's index. `words`: gets what
  // each tier says; null: nobody reads it, and nothing is allocated. `last`: tiers that are asked behind all others, a bit each at their
  // index + 1; and those that answer kAborted are asked once more at the end, *again is true then.
  template <typename F>
  Status AskInTurn(std::string* words, uint32_t last, const F& ask);
  // The first slot that some tier gives, in their order.
  template <typename F>
  Result<SlotRef> ReserveInTurn(std::string* words, size_t bytes, const F& reserve);
  void Submit(std::span<IoRequest* const> batch, bool is_write);
  void NoteFree(size_t i);
  bool TakeRest(size_t i) const;
  bool SavesUp(int64_t size) const;
  bool HasLastingRoom(size_t i, int64_t size) const;
  size_t PollTier(size_t i, std::span<IoRequest*> done, std::chrono::microseconds wait);
  size_t PollAll(std::span<IoRequest*> done);
  bool WaitTurn(std::span<IoRequest*> done, std::chrono::microseconds wait, size_t* count);

  SwapTier* At(size_t i) const { return tiers_[i].load(std::memory_order_acquire); }

  std::vector<std::unique_ptr<SwapTier>> owned_;  // touched by Add only
  // Counts of tiers whose places were used again: sums must never fall. Relaxed: statistics.
  struct Past {
    std::atomic<uint64_t> bytes_written{0}, bytes_read{0}, writes{0}, reads{0}, errors{0};
  } past_;
  std::array<std::atomic<SwapTier*>, kTiersMax> tiers_{};
  std::atomic<size_t> count_{0};  // release: after the pointer is there
  // Four bits a place, from the lowest: index + 1, 0 ends it. One word, so that a change needs no lock.
  std::atomic<uint64_t> order_{0};
  // Requests with each tier: raised before its Submit, lowered when its Poll has returned them. A count that is read
  // too high costs one Poll that finds nothing; a thread always sees its own, so relaxed order is enough.
  std::array<std::atomic<uint64_t>, kTiersMax> in_flight_{};
  // Slots for which a tier is passed over because a write to it failed. Relaxed: a hint.
  mutable std::array<std::atomic<uint32_t>, kTiersMax> rest_{};
  // Bytes that are free in each tier, as far as known. Relaxed: a hint, which the next Upkeep sets right. Less than 0 when a
  // tier has grown to give a slot.
  std::array<std::atomic<int64_t>, kTiersMax> free_{};
  // Since when it had room in each tier, of the steady clock, as Upkeep has seen it; 0: it has none now. Relaxed: a hint.
  std::array<std::atomic<int64_t>, kTiersMax> room_since_ns_{};
  mutable std::atomic<int64_t> left_below_{0};  // bytes that left, or stayed, below since something moved up. Relaxed: a hint
  std::atomic<int64_t> others_full_until_ns_{0};  // of the steady clock: but for room of last choice. Relaxed: a hint
  const std::chrono::nanoseconds room_lasts_;
  std::atomic<size_t> turn_{0};  // where the next Poll begins
};

}  // namespace ramspan
