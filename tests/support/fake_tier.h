// FakeTier: a SwapTier in memory for simulations. Requests complete in a seeded random order after a random number of
// virtual steps; a step passes at each Poll, and a Poll that may wait jumps to the next completion. No thread, no
// clock: one seed and one order of calls replay one run.
//
// It is a strict tier: an RS_CHECK stops a caller who changes a buffer that is being written out (I3), frees or
// rewrites a slot with I/O in flight (I4), uses a slot after Free, reads what was never written, or names another size.
// It is a nasty one: a buffer that is read into is filled with garbage at Submit, and a failed or short write leaves
// garbage in the slot.
//
// Thread-safety: any thread. Ownership: as SwapTier says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <vector>

#include "client/swap/swap_tier.h"
#include "tests/support/fault_plan.h"

namespace ramspan {

struct FakeTierOptions {
  uint64_t seed = 1;
  uint64_t capacity_bytes = uint64_t{64} << 20;
  uint64_t delay_steps_max = 8;  // a request takes 1 to this many steps
  double empty_poll_rate = 0;    // Polls that return nothing although they could, as after a timeout
  double reserve_waits_rate = 0; // TryReserves that say that only Reserve can tell
  bool full_asks = false;        // TryReserve says so whenever it is full, as files do
  bool synchronous = false;      // completes within Submit
  bool checksums = false;
  bool read_only = false;        // it says so; a test fills its slots behind the engine's back
  const char* name = "fake";
  FaultRates rates;
};

class FakeTier : public PlainTier {
 public:
  explicit FakeTier(const FakeTierOptions& options = {});
  ~FakeTier() override;

  Capabilities capabilities() const noexcept override;
  bool IsLost(SlotRef slot, size_t bytes) const noexcept override;
  Result<SlotRef> Reserve(size_t bytes) override;
  Result<SlotRef> TryReserve(size_t bytes) override;
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override;
  void Free(SlotRef slot, size_t bytes) noexcept override;
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override { Submit(batch, true); }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override { Submit(batch, false); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override;
  TierStats stats() const noexcept override;

  FaultPlan& faults() { return faults_; }
  // Lets virtual time pass without a Poll.
  void Step(uint64_t steps = 1);
  void SetCapacity(uint64_t bytes);
  // A tier that is gone: Reserve says kUnavailable, requests fail with it from now on.
  void SetGone(bool gone);
  uint64_t now() const;
  size_t in_flight() const;  // submitted, not yet returned by Poll
  size_t slots() const;

 private:
  struct Slot {
    size_t bytes = 0;
    bool written = false;
    uint32_t readers = 0;
    bool writer = false;
    std::vector<std::byte> data;
  };
  struct Pending {
    IoRequest* request;
    uint64_t due;
    Fault fault;
    uint64_t written_checksum;  // of the buffer at Submit
  };

  void Submit(std::span<IoRequest* const> batch, bool is_write);
  void FreeLocked(SlotRef slot, size_t bytes);
  Slot& SlotOf(const IoRequest& request);
  void Complete(const Pending& pending);
  void CompleteWrite(const Pending& pending, Slot* slot);
  void CompleteRead(const Pending& pending, Slot* slot);
  void Garble(std::byte* at, size_t bytes);

  const FakeTierOptions options_;
  FaultPlan faults_;

  mutable std::mutex mutex_;  // guards what follows
  std::mt19937_64 random_;
  uint64_t capacity_bytes_;
  bool gone_ = false;
  uint64_t now_ = 0;
  uint64_t next_slot_ = 1;  // never reused, so that a stale slot is noticed
  std::map<uint64_t, Slot> slots_;
  std::vector<Pending> pending_;
  TierStats stats_;
};

}  // namespace ramspan
