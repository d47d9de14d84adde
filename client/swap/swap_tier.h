// SwapTier: the port through which chunks leave for swap and come back. A tier moves bytes and reports completions; it
// knows no chunk and no state. The engine alone turns a completion into a transition.
//
// Thread-safety: every call may come from any thread at any time; a tier synchronises itself and holds none of its
// locks while it copies or waits. Ownership: the caller owns IoRequests and buffers; between Submit and the Poll that
// returns a request, the tier may read and write the request and its buffer, and the caller may touch neither (a
// buffer being WRITTEN OUT may still be read).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/slot_ref.h"
#include "common/status.h"

namespace ramspan {

// One transfer of one whole chunk.
struct IoRequest {
  // Set by the caller, constant in flight.
  SlotRef slot;
  void* buffer = nullptr;  // aligned to kSwapGranule; readable and writable up to RoundUpToGranule(bytes)
  size_t bytes = 0;        // exact; the same as at Reserve
  void* cookie = nullptr;  // the caller's

  // Set by the tier before Poll returns the request. Success means: all `bytes` were moved, and for a write that a
  // later read of the slot (from any thread) returns them.
  StatusCode result = StatusCode::kOk;
  bool is_write = false;  // by Submit; beside the result, because an engine keeps many of these
  size_t bytes_done = 0;
  // Tiers with Capabilities::checksums fill it with Checksum(buffer, bytes) of what they moved; others leave it.
  uint64_t checksum = 0;

  // For the tier's own use while the request is in flight (a list link and counts of outstanding parts).
  IoRequest* next = nullptr;
  uint32_t parts_left = 0, parts_to_begin = 0;
};

// A slot and the bytes for which it was reserved.
struct HeldSlot {
  SlotRef slot;
  size_t bytes = 0;
};

// Bytes; operations; what a tier can hold. A snapshot, not a consistent cut.
struct TierStats {
  uint64_t bytes_written = 0, bytes_read = 0;
  uint64_t writes = 0, reads = 0;
  uint64_t errors = 0;
  uint64_t slot_bytes_used = 0;      // granules now reserved
  // What is there now: granted leases, extended files (may grow). Of a place that is being left or stands still, only what it still holds: never
  // less than used.
  uint64_t slot_bytes_capacity = 0;
  uint64_t slot_bytes_leaving = 0;   // of the used ones, those that should be brought home (HasLeaving)
  uint64_t in_flight_sum = 0;  // over all requests that need a network: how many were under way when each began, itself included
  uint64_t metadata_bytes = 0;       // the tier's own bookkeeping, for the budget (I1)
  uint64_t registered_buffers = 0, registered_bytes = 0;  // frames that the network knows (FI_MR_LOCAL); 0 where it need not

  // UINT64_MAX is a capacity, too: a tier without a limit.
  static uint64_t SumOfCapacities(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }
  TierStats& operator+=(const TierStats& other) {
    bytes_written += other.bytes_written;
    bytes_read += other.bytes_read;
    writes += other.writes;
    reads += other.reads;
    errors += other.errors;
    slot_bytes_used += other.slot_bytes_used;
    slot_bytes_capacity = SumOfCapacities(slot_bytes_capacity, other.slot_bytes_capacity);
    slot_bytes_leaving += other.slot_bytes_leaving;
    in_flight_sum += other.in_flight_sum;
    metadata_bytes += other.metadata_bytes;
    registered_buffers += other.registered_buffers;
    registered_bytes += other.registered_bytes;
    return *this;
  }
};

// One memory server as this process has used it so far.
struct ServerStats {
  std::string name;              // as it calls itself, mostly where it listens
  const char* state = "alive";   // or "draining", "dead"
  bool near = false;             // reached by load and store
  uint64_t leased_bytes = 0;     // of its memory, for this process
  uint64_t slot_bytes_used = 0;  // granules in them that are reserved now
  uint64_t bytes_written = 0, bytes_read = 0;  // of transfers that were begun
};

// All of it is pure, so that a tier that wraps another one cannot forget a call: it would not compile. A tier with slots of one kind
// derives from PlainTier, which has the usual answers.
//
// Where the heap has no more: calls that are noexcept need none, or are told by a result. The others may throw std::bad_alloc, and
// nothing else; then they have changed nothing that the caller could see (no slot was given or taken, no completion is lost).
class SwapTier {
 public:
  struct Capabilities {
    const char* name = "";     // "remote", "file", ...: a key in the statistics
    bool synchronous = false;  // Submit copies before it returns: completions are ready at once
    bool checksums = false;    // fills IoRequest::checksum, fused with the copy
    // The bytes of its slots are somebody else's, and are read where they are: nothing is ever written there, no checksum of
    // ours is known for them, they take no room in swap, and they are not fetched ahead. Slots come from elsewhere than Reserve.
    bool read_only = false;
    size_t max_in_flight = 64; // more submitted requests than this make Submit block, or wait for their turn within the tier
  };

  virtual ~SwapTier() = default;

  virtual Capabilities capabilities() const noexcept = 0;

  // The same for requests on one slot, where a tier has several kinds (same-node and off-node servers; the tiers of a
  // tiered_swap). REQUIRES: the slot is reserved.
  virtual Capabilities CapabilitiesOf(SlotRef slot) const noexcept = 0;

  // A slot for `bytes` > 0 (rounded up to the granule inside). Does not wait for other requests to complete; may wait,
  // with a deadline, for a server's or file system's answer when the tier has to grow.
  // kResourceExhausted: full, message says what to enlarge. kUnavailable: the backend is gone.
  virtual Result<SlotRef> Reserve(size_t bytes) = 0;

  // The same without waiting. kMustAsk: only Reserve can tell, because it may ask a server or a file system for room. Called for each
  // chunk that leaves, under the engine's mutex: a refusal's message is a fixed text, Reserve and MakeRoom say what to do.
  virtual Result<SlotRef> TryReserve(size_t bytes) = 0;

  // Waits, as Reserve may, until `bytes` seem to fit, and takes nothing: OK means that it is worth while to look again. The
  // same errors as Reserve. A caller that holds nothing of a tier cannot outlive it by this call, as a slot would that is
  // given back later.
  // kAsk: for answers only. kWait: as Reserve, also for seconds until others make room; for who can but fail without it. kBrief: for answers
  // of those that do answer, for who may find room elsewhere; kAborted: with more patience there may be room here, too.
  enum class Patience { kBrief, kAsk, kWait };
  virtual Status MakeRoom(size_t bytes, Patience patience) = 0;

  // Whether the write of this changed chunk, which leaves now, should take a new slot: a faster tier than the slot's own has had room for a
  // while, or writes to its own fail (tiered_swap). Asked once for each that leaves.
  virtual bool ShouldMove(SlotRef slot, size_t bytes) const noexcept = 0;

  // For a chunk that leaves unchanged, so that it need not be written: a slot in a faster tier than its own, where it should be written
  // after all (tiered_swap). Mostly none. Does not wait.
  virtual SlotRef TryMoveUp(SlotRef slot, size_t bytes) = 0;

  // Whether a transfer to or from this slot is held up for longer by somebody who may go on (a memory server that has been stopped, a wire
  // that is out). For no slot: whether all the room that TryReserve could find for so many bytes is of that kind. Where there is room
  // elsewhere that is better. REQUIRES: the slot is reserved, or none.
  virtual bool StandsStill(SlotRef slot, size_t bytes) noexcept = 0;

  // True when what the slot holds can never be read again (its server died), so that a clean chunk in memory is the only
  // copy. REQUIRES: the slot is reserved; `bytes` as at Reserve.
  virtual bool IsLost(SlotRef slot, size_t bytes) const noexcept = 0;
  // The memory server whose death that was, by its number in servers(); kNoServer: none, or the slot is not lost. REQUIRES: as IsLost.
  static constexpr uint32_t kNoServer = UINT32_MAX;
  virtual uint32_t LostWith(SlotRef slot, size_t bytes) const = 0;

  // Part of the tier is about to go while the rest stays (a server that drains): whether slots are left there, which somebody
  // should bring home; and whether this slot is one of them. No new slot is there, but for what TryExchange puts in the place of others.
  // REQUIRES: as IsLost.
  virtual bool HasLeaving() const noexcept = 0;
  virtual bool IsLeaving(SlotRef slot, size_t bytes) const noexcept = 0;

  // One slot for `bytes` in the places of others, for a tier that is full, without waiting: the slots of `given` from the first
  // on, as many as are needed beside what is free there. *taken of them are gone then, as by Free. An empty slot: nothing has
  // changed, because they are too small together, or because the tier gives no new slots. In one step, since who gives a
  // slot back first might get none again. REQUIRES: at most kExchangeMax, all of the same tier of a tiered_swap and the same
  // side (near, far) of remote memory; each as for Free.
  static constexpr size_t kExchangeMax = 64;
  virtual SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) = 0;

  // Whether parts of the slot may be slots of their own from now on (slot_bits::PartOf), each to be given back by itself. Not where it is about to go, or
  // has several extents. REQUIRES: as IsLost.
  virtual bool MayCut(SlotRef slot, size_t bytes) const noexcept = 0;

  // Gives a slot back. REQUIRES: no request on it is in flight (I4); `bytes` as at Reserve.
  virtual void Free(SlotRef slot, size_t bytes) noexcept = 0;

  // Start transfers. Never fail as a call: a request that cannot start is completed with its error, kFailedPrecondition where the
  // heap had no more for it. Every request is returned by exactly one Poll. May block when more than max_in_flight are under way.
  virtual void SubmitWrite(std::span<IoRequest* const> batch) noexcept = 0;
  virtual void SubmitRead(std::span<IoRequest* const> batch) noexcept = 0;

  // Collects up to done.size() completed requests (of any submitter) and returns how many; waits up to `wait` for the
  // first one if there is none and something is in flight. Two threads may poll at once; each request goes to one.
  virtual size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) = 0;

  // The pages of this memory, from and to which may have been transferred, go back to the kernel; others will be at its addresses.
  // REQUIRES: nothing is in flight there. Does not wait: the caller holds the engine's mutex.
  virtual void ForgetMemory(std::span<std::byte> memory) noexcept = 0;

  // Background work that nobody waits for: leases ahead of need, retries of a sick server. Called by the mover every
  // few ms; may block briefly.
  virtual void Upkeep() = 0;

  virtual TierStats stats() const noexcept = 0;
  // That of stats() alone: the engine asks for it under its mutex.
  virtual uint64_t metadata_bytes() const noexcept = 0;
  // By so much it grows at most with one slot of so many bytes: a row of an extent a granule (slot_space.cc). More
  // comes with MakeRoom and Upkeep, and half a KiB once.
  static constexpr uint64_t TableBytesMax(size_t bytes) { return 128 + RoundUpToGranule(bytes) / kSwapGranule * 24; }
  // Where the tier is memory servers: all that there were so far, by their numbers.
  virtual std::vector<ServerStats> servers() const = 0;
};

// What a tier answers that asks nobody for room, has slots of one kind, and from which nothing moves or leaves by itself.
class PlainTier : public SwapTier {
 public:
  Capabilities CapabilitiesOf(SlotRef) const noexcept override { return capabilities(); }
  Result<SlotRef> TryReserve(size_t bytes) override { return Reserve(bytes); }
  Status MakeRoom(size_t bytes, Patience) override {
    const Result<SlotRef> slot = Reserve(bytes);
    if (!slot.ok()) return slot.status();
    Free(slot.value(), bytes);
    return Status();
  }
  bool ShouldMove(SlotRef, size_t) const noexcept override { return false; }
  SlotRef TryMoveUp(SlotRef, size_t) override { return {}; }
  bool StandsStill(SlotRef, size_t) noexcept override { return false; }
  bool IsLost(SlotRef, size_t) const noexcept override { return false; }
  uint32_t LostWith(SlotRef, size_t) const override { return kNoServer; }
  bool HasLeaving() const noexcept override { return false; }
  bool IsLeaving(SlotRef, size_t) const noexcept override { return false; }
  SlotRef TryExchange(std::span<const HeldSlot>, size_t, size_t*) override { return {}; }
  bool MayCut(SlotRef, size_t) const noexcept override { return false; }
  void ForgetMemory(std::span<std::byte>) noexcept override {}
  void Upkeep() override {}
  uint64_t metadata_bytes() const noexcept override { return stats().metadata_bytes; }
  std::vector<ServerStats> servers() const override { return {}; }
};

}  // namespace ramspan
