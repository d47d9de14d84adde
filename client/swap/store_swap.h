// StoreSwap: the SwapTier of a program's own SwapStore. Slots are numbers that are never given twice; room is counted
// in exact bytes against the store's capacity. Transfers are done in the submitting thread. Whatever the store throws stays
// here and becomes a failed request, or part of the message of a refused one.
//
// TryReserve, Free and stats never call the store, because the engine asks them under its mutex: the capacity is what the
// store said last (it is asked when it seems full, with each write, and in Upkeep), and freed slots wait in a list until
// a call comes that may run the program's code: a write, MakeRoom, Upkeep, the destructor. A write begins when all of them
// are erased, so that the store never holds more than its capacity.
// Thread-safety: as SwapTier says; no lock of its own is held across a call of the store. Does not own the store.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "client/swap/swap_tier.h"
#include "common/mutex.h"
#include "ramspan/extend.h"

namespace ramspan {

class StoreSwap final : public PlainTier {
 public:
  explicit StoreSwap(SwapStore* store);
  ~StoreSwap() override;

  Capabilities capabilities() const noexcept override;
  Result<SlotRef> Reserve(size_t bytes) override;
  Result<SlotRef> TryReserve(size_t bytes) override;
  Status MakeRoom(size_t bytes, Patience) override;  // the store hears of no slot
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override;
  void Free(SlotRef slot, size_t bytes) noexcept override;
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override { Submit(batch, true); }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override { Submit(batch, false); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override;
  void Upkeep() override;
  TierStats stats() const noexcept override;  // in granules, as every tier's; the capacity as last asked
  void AskCapacity();                // REQUIRES, as of all that calls the store: no lock that the store could need
  uint64_t used_bytes() const {
    MutexLock lock(mutex_);
    return used_bytes_;
  }

 private:
  void Submit(std::span<IoRequest* const> batch, bool is_write);
  bool Move(IoRequest* request, bool is_write) noexcept;
  // The first characters of a text, without the heap.
  struct Words {
    char text[240];
  };
  // What `call` throws, as text; nothing if it returns.
  template <typename F>
  static std::optional<Words> Thrown(const F& call) noexcept;
  bool HasRoom(size_t bytes) const RS_EXCLUDES(mutex_);
  void EraseFreed() RS_EXCLUDES(mutex_);
  SlotRef Take(size_t bytes) RS_REQUIRES(mutex_);
  void PrepareFree(size_t more) RS_REQUIRES(mutex_);
  void FreeLocked(SlotRef slot, size_t bytes) RS_REQUIRES(mutex_);

  struct Freed {
    uint64_t slot;
    size_t bytes;
  };
  SwapStore* const store_;
  const std::string name_;
  std::atomic<bool> failing_[2] = {};  // the last read, the last write; for the log only
  mutable Mutex mutex_{LockRank::kTier};
  uint64_t capacity_ RS_GUARDED_BY(mutex_) = 0;   // what the store said last, also where it throws now
  uint64_t questions_ RS_GUARDED_BY(mutex_) = 0;  // for the capacity, ever
  uint64_t answered_ RS_GUARDED_BY(mutex_) = 0;   // which of them capacity_ is the answer to
  uint64_t used_bytes_ RS_GUARDED_BY(mutex_) = 0;  // exact
  uint64_t next_slot_ RS_GUARDED_BY(mutex_) = 1;
  size_t slots_held_ RS_GUARDED_BY(mutex_) = 0;
  IoRequest* done_ RS_GUARDED_BY(mutex_) = nullptr;
  // Not yet told to the store. Has room for all slots that are held, because Free must not need the heap.
  std::vector<Freed> freed_ RS_GUARDED_BY(mutex_);
  uint32_t erasing_ RS_GUARDED_BY(mutex_) = 0;      // calls of Erase under way
  CondVar erased_;                                  // erasing_ has become 0
  TierStats stats_ RS_GUARDED_BY(mutex_);
};

}  // namespace ramspan
