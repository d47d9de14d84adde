// ForwardingTier: passes every call of the port on to another tier. Tests derive from it and change the calls that they are about; since
// all of SwapTier is pure, none can be forgotten here. Thread-safety and ownership: the tier's; it is borrowed.
#pragma once

#include "client/swap/swap_tier.h"

namespace ramspan {

class ForwardingTier : public SwapTier {
 public:
  explicit ForwardingTier(SwapTier* to) : to_(*to) {}
  ForwardingTier(const ForwardingTier&) = delete;
  ForwardingTier& operator=(const ForwardingTier&) = delete;

  Capabilities capabilities() const noexcept override { return to_.capabilities(); }
  Capabilities CapabilitiesOf(SlotRef slot) const noexcept override { return to_.CapabilitiesOf(slot); }
  Result<SlotRef> Reserve(size_t bytes) override { return to_.Reserve(bytes); }
  Result<SlotRef> TryReserve(size_t bytes) override { return to_.TryReserve(bytes); }
  Status MakeRoom(size_t bytes, Patience patience) override { return to_.MakeRoom(bytes, patience); }
  bool ShouldMove(SlotRef slot, size_t bytes) const noexcept override { return to_.ShouldMove(slot, bytes); }
  SlotRef TryMoveUp(SlotRef slot, size_t bytes) override { return to_.TryMoveUp(slot, bytes); }
  bool MayCut(SlotRef slot, size_t bytes) const noexcept override { return to_.MayCut(slot, bytes); }
  bool IsLost(SlotRef slot, size_t bytes) const noexcept override { return to_.IsLost(slot, bytes); }
  uint32_t LostWith(SlotRef slot, size_t bytes) const override { return to_.LostWith(slot, bytes); }
  bool StandsStill(SlotRef slot, size_t bytes) noexcept override { return to_.StandsStill(slot, bytes); }
  bool HasLeaving() const noexcept override { return to_.HasLeaving(); }
  bool IsLeaving(SlotRef slot, size_t bytes) const noexcept override { return to_.IsLeaving(slot, bytes); }
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override {
    return to_.TryExchange(given, bytes, taken);
  }
  void Free(SlotRef slot, size_t bytes) noexcept override { to_.Free(slot, bytes); }
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override { to_.SubmitWrite(batch); }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override { to_.SubmitRead(batch); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override { return to_.Poll(done, wait); }
  void ForgetMemory(std::span<std::byte> memory) noexcept override { to_.ForgetMemory(memory); }
  void Upkeep() override { to_.Upkeep(); }
  TierStats stats() const noexcept override { return to_.stats(); }
  uint64_t metadata_bytes() const noexcept override { return to_.metadata_bytes(); }
  std::vector<ServerStats> servers() const override { return to_.servers(); }

 private:
  SwapTier& to_;
};

}  // namespace ramspan
