// StoreSwap: the SwapTier of a program's own SwapStore. Slots are numbers that are never given twice; room is counted
// in exact bytes against the store's capacity. Transfers are done in the submitting thread. Whatever the store throws stays
// here and becomes a failed request, or part of the message of a refused one.
// Thread-safety: as SwapTier says; no lock of its own is held across a call of the store. Does not own the store.
#pragma once

#include <atomic>
#include <optional>
#include <string>

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
  Status MakeRoom(size_t bytes) override;  // the store hears of no slot
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
  bool Move(IoRequest* request, bool is_write) noexcept;
  // What `call` throws, as text; nothing if it returns.
  template <typename F>
  static std::optional<std::string> Thrown(const F& call) noexcept;
  bool HasRoom(size_t bytes) const RS_EXCLUDES(mutex_);
  uint64_t Capacity() const;  // what the store said last, where it throws now

  SwapStore* const store_;
  const std::string name_;
  mutable std::atomic<uint64_t> capacity_{0};  // publishes nothing
  mutable Mutex mutex_{LockRank::kTier};
  uint64_t used_bytes_ RS_GUARDED_BY(mutex_) = 0;  // exact
  uint64_t next_slot_ RS_GUARDED_BY(mutex_) = 1;
  IoRequest* done_ RS_GUARDED_BY(mutex_) = nullptr;
  TierStats stats_ RS_GUARDED_BY(mutex_);
};

}  // namespace ramspan
