// StoreSwap: the SwapTier of a program's own SwapStore. Slots are numbers that are never given twice; room is counted
// in exact bytes against the store's capacity. Transfers are done in the submitting thread.
// Thread-safety: as SwapTier says; no lock is held across a call of the store, but for Capacity. Does not own the store.
#pragma once

#include <string>
#include <unordered_map>

#include "client/swap/swap_tier.h"
#include "common/mutex.h"
#include "ramspan/extend.h"

namespace ramspan {

class StoreSwap final : public SwapTier {
 public:
  explicit StoreSwap(SwapStore* store) : store_(store), name_(store->Name()) {}

  Capabilities capabilities() const override;
  Result<SlotRef> Reserve(size_t bytes) override;
  Result<SlotRef> TryReserve(size_t bytes) override;
  void Free(SlotRef slot, size_t bytes) override;
  void SubmitWrite(std::span<IoRequest* const> batch) override { Submit(batch, true); }
  void SubmitRead(std::span<IoRequest* const> batch) override { Submit(batch, false); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override;
  TierStats stats() const override;  // in granules, as every tier's
  uint64_t used_bytes() const {
    MutexLock lock(mutex_);
    return used_bytes_;
  }

 private:
  void Submit(std::span<IoRequest* const> batch, bool is_write);
  bool Extend(size_t bytes) noexcept;
  bool Move(IoRequest* request, bool is_write) noexcept;

  SwapStore* const store_;
  const std::string name_;
  mutable Mutex mutex_{LockRank::kTier};
  uint64_t used_bytes_ RS_GUARDED_BY(mutex_) = 0;  // exact
  uint64_t next_slot_ RS_GUARDED_BY(mutex_) = 1;
  IoRequest* done_ RS_GUARDED_BY(mutex_) = nullptr;
  TierStats stats_ RS_GUARDED_BY(mutex_);
};

}  // namespace ramspan
