// RetirableTier: forwards to a tier that may have to go while others still call: remote memory ends with MPI_Finalize, a
// swap that the program made when it unmakes it; the program and the mover do not. Closed, it gives no more slots. Retired,
// the tier inside is destroyed and what its slots held is lost: IsLost says so, reads fail with kDataLoss, and writes that
// were under way have failed, because nobody could read them.
//
// Thread-safety: as SwapTier says. Ownership: owns the tier.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "client/swap/swap_tier.h"
#include "common/mutex.h"

namespace ramspan {

class RetirableTier final : public SwapTier {
 public:
  explicit RetirableTier(std::unique_ptr<SwapTier> tier, std::string ended = "ended with MPI_Finalize");

  void Close() { closed_.store(true, std::memory_order_relaxed); }
  void Reopen() { closed_.store(false, std::memory_order_relaxed); }
  // `call` while the tier inside is there, and stays for as long; false: it is gone.
  template <typename F>
  bool WhileThere(const F& call) const {
    const Use use(this, counted_);
    if (use) call();
    return static_cast<bool>(use);
  }
  // Waits for calls inside and for its own requests in flight, whatever other tiers do; Poll returns those afterwards.
  void Retire();

  Capabilities capabilities() const noexcept override { return capabilities_; }
  Capabilities CapabilitiesOf(SlotRef slot) const noexcept override;
  bool ShouldMove(SlotRef slot, size_t bytes) const noexcept override;
  SlotRef TryMoveUp(SlotRef slot, size_t bytes) override;
  bool IsLost(SlotRef slot, size_t bytes) const noexcept override;
  uint32_t LostWith(SlotRef slot, size_t bytes) const override;
  bool StandsStill(SlotRef slot, size_t bytes) noexcept override;
  bool HasLeaving() const noexcept override;
  bool IsLeaving(SlotRef slot, size_t bytes) const noexcept override;
  Result<SlotRef> Reserve(size_t bytes) override;
  Result<SlotRef> TryReserve(size_t bytes) override;
  Status MakeRoom(size_t bytes, Patience patience) override;
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override;
  bool MayCut(SlotRef slot, size_t bytes) const noexcept override;
  void Free(SlotRef slot, size_t bytes) noexcept override;
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override;
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override;
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override;
  void ForgetMemory(std::span<std::byte> memory) noexcept override;
  void Upkeep() override;
  TierStats stats() const noexcept override;
  uint64_t metadata_bytes() const noexcept override;
  std::vector<ServerStats> servers() const override;

 private:
  // Keeps the tier inside from being destroyed; null when `ended` is set already. seq_cst on both sides (here: count, then
  // look; Retire: mark, then wait for the count), so one of the two sees the other.
  class Use {
   public:
    explicit Use(const RetirableTier* self) : Use(self, self->retired_) {}
    Use(const RetirableTier* self, const std::atomic<bool>& ended) : self_(self) {
      self_->users_.fetch_add(1);
      tier_ = ended.load() ? nullptr : self_->tier_.get();
    }
    ~Use() { self_->users_.fetch_sub(1); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    SwapTier* operator->() const { return tier_; }
    explicit operator bool() const { return tier_ != nullptr; }

   private:
    const RetirableTier* const self_;
    SwapTier* tier_;
  };
  void WaitForUsers() const;
  Status Ended() const;
  void Keep(IoRequest* request) RS_REQUIRES(mutex_);
  void Refuse(std::span<IoRequest* const> batch, StatusCode code);

  std::unique_ptr<SwapTier> tier_;
  const std::string name_;  // lives longer than the tier's own
  Capabilities capabilities_;  // constant after construction
  const std::string ended_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> retired_{false};  // nothing new may begin
  std::atomic<bool> counted_{false};  // nothing is in flight any more; last_ is final, and publishes it
  mutable std::atomic<uint64_t> users_{0};
  std::atomic<uint64_t> in_flight_{0};  // requests in the tier inside
  TierStats last_;  // written before counted_ is set; likewise:
  std::vector<ServerStats> last_servers_;

  mutable Mutex mutex_{LockRank::kTier};
  IoRequest* kept_ RS_GUARDED_BY(mutex_) = nullptr;  // ended with the tier or came after it; Poll returns them
};

}  // namespace ramspan
