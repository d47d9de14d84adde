// RemoteSwap: the SwapTier whose slots are in the memory of servers. Joins its two halves: LeaseKeeper has the room and
// says where a slot's bytes lie, RemoteIo moves them. Which network that is, only the transport knows.
//
// Servers are near or far. Near: their pools are mapped here, and Submit copies with the checksum fused (synchronous).
// Far: transfers, which Poll collects.
//
// Thread-safety: as SwapTier says. Ownership: borrows the transport, which must outlive it.
#pragma once

#include <atomic>

#include "client/swap/lease_keeper.h"
#include "client/swap/remote_io.h"
#include "client/swap/swap_tier.h"

namespace ramspan {

class RemoteSwap final : public PlainTier {
 public:
  explicit RemoteSwap(ServerTransport& transport, const RemoteSwapOptions& options = {});
  // REQUIRES: nothing in flight, the transport still connected. Gives all leases back; slots that were not freed are gone
  // with them.

  // Of the tier: synchronous only as long as every server is near; CapabilitiesOf tells it slot by slot.
  Capabilities capabilities() const noexcept override { return CapabilitiesOfSide(!room_.AnyFar()); }
  Capabilities CapabilitiesOf(SlotRef slot) const noexcept override { return CapabilitiesOfSide(!slot_bits::IsFar(slot)); }
  bool IsLost(SlotRef slot, size_t bytes) const noexcept override { return room_.LostWith(slot, bytes) != kNoServer; }
  uint32_t LostWith(SlotRef slot, size_t bytes) const override { return room_.LostWith(slot, bytes); }
  bool StandsStill(SlotRef slot, size_t bytes) noexcept override { return room_.StandsStill(slot, bytes); }
  bool HasLeaving() const noexcept override { return room_.HasLeaving(); }
  bool IsLeaving(SlotRef slot, size_t bytes) const noexcept override { return room_.IsLeaving(slot, bytes); }

  // Waits at most answer_timeout for a server's answer. kResourceExhausted: all are full (asked again after 20 ms to 1 s).
  // kUnavailable: all are dead.
  Result<SlotRef> Reserve(size_t bytes) override { return room_.Reserve(bytes); }
  Result<SlotRef> TryReserve(size_t bytes) override { return room_.TryReserve(bytes); }
  Status MakeRoom(size_t bytes, Patience patience) override;
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override {
    return room_.TryExchange(given, bytes, taken);
  }
  bool MayCut(SlotRef slot, size_t bytes) const noexcept override {
    return !slot_bits::IsRow(slot) && !room_.IsLeaving(slot, bytes) && !IsLost(slot, bytes);
  }
  void Free(SlotRef slot, size_t bytes) noexcept override { room_.Free(slot, bytes); }

  // Where the server is dead, writes end with kUnavailable and reads with kDataLoss; the log names server and remedy.
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override { Submit(batch, true); }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override { Submit(batch, false); }
  // With far requests in flight it may block for them, whatever `wait` says.
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override;
  void ForgetMemory(std::span<std::byte> memory) noexcept override { transport_.ForgetMemory(memory); }
  void Upkeep() override;
  TierStats stats() const noexcept override;
  uint64_t metadata_bytes() const noexcept override;
  std::vector<ServerStats> servers() const override;

 private:
  static Capabilities CapabilitiesOfSide(bool near);
  void Submit(std::span<IoRequest* const> batch, bool is_write);
  void NoteWait(int64_t now_ns);

  ServerTransport& transport_;
  LeaseKeeper room_;
  RemoteIo io_;
  std::atomic<int64_t> looked_ns_{0};      // of the steady clock: when a thread that waits has looked last who is silent. Relaxed: a hint
  std::atomic<int64_t> told_usage_ns_{0};  // of the steady clock: when it was told last
};

}  // namespace ramspan
