// FaultTier: any tier, with faults: forwards everything to the real one and spoils what its FaultPlan says. A failed
// request never reaches the real tier; a wrong byte of a write shows when the slot is read.
//
// Thread-safety: any thread. Ownership: owns the real tier.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "client/swap/swap_tier.h"
#include "tests/support/fault_plan.h"

namespace ramspan {

class FaultTier final : public SwapTier {
 public:
  explicit FaultTier(std::unique_ptr<SwapTier> real, uint64_t seed = 1, const FaultRates& rates = {})
      : real_(std::move(real)), faults_(seed, rates) {}

  Capabilities capabilities() const noexcept override { return real_->capabilities(); }
  Capabilities CapabilitiesOf(SlotRef slot) const noexcept override { return real_->CapabilitiesOf(slot); }
  Result<SlotRef> Reserve(size_t bytes) override;
  Result<SlotRef> TryReserve(size_t bytes) override;
  Status MakeRoom(size_t bytes, Patience patience) override;
  bool IsLost(SlotRef slot, size_t bytes) const noexcept override { return real_->IsLost(slot, bytes); }
  uint32_t LostWith(SlotRef slot, size_t bytes) const override { return real_->LostWith(slot, bytes); }
  SlotRef TryMoveUp(SlotRef slot, size_t bytes) override { return real_->TryMoveUp(slot, bytes); }
  bool MayCut(SlotRef slot, size_t bytes) const noexcept override { return real_->MayCut(slot, bytes); }
  bool StandsStill(SlotRef slot, size_t bytes) noexcept override { return real_->StandsStill(slot, bytes); }
  bool HasLeaving() const noexcept override { return real_->HasLeaving(); }
  bool IsLeaving(SlotRef slot, size_t bytes) const noexcept override { return real_->IsLeaving(slot, bytes); }
  bool ShouldMove(SlotRef slot, size_t bytes) const noexcept override { return real_->ShouldMove(slot, bytes); }
  std::vector<ServerStats> servers() const override { return real_->servers(); }
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override;
  void Free(SlotRef slot, size_t bytes) noexcept override;
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override { Submit(batch, true); }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override { Submit(batch, false); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override;
  void ForgetMemory(std::span<std::byte> memory) noexcept override { real_->ForgetMemory(memory); }
  void Upkeep() override { real_->Upkeep(); }
  TierStats stats() const noexcept override;
  uint64_t metadata_bytes() const noexcept override { return real_->metadata_bytes(); }

  FaultPlan& faults() { return faults_; }
  SwapTier& real() { return *real_; }

 private:
  void Submit(std::span<IoRequest* const> batch, bool is_write);
  size_t TakeFailed(std::span<IoRequest*> done);
  void Spoil(IoRequest* request);

  const std::unique_ptr<SwapTier> real_;
  FaultPlan faults_;

  mutable std::mutex mutex_;               // guards what follows; not held while the real tier is called
  std::deque<IoRequest*> failed_;          // completed here
  std::map<IoRequest*, Fault> to_spoil_;   // in flight in the real tier
  std::set<uint64_t> wrong_slots_;         // written with a wrong byte
  uint64_t errors_ = 0;
};

}  // namespace ramspan
