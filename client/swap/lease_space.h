// LeaseSpace: slots cut from the leases that this process holds, of near servers or of far ones. Knows where each slot's
// bytes lie; asks nobody and moves nothing.
//
// Thread-safety: none of its own; LeaseKeeper guards it with its mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "client/swap/slot_space.h"
#include "client/swap/swap_tier.h"
#include "common/running_clock.h"

namespace ramspan {

// A run of a slot's bytes in one server's pool.
struct RemotePiece {
  uint32_t server = 0;
  uint64_t offset = 0;
  size_t bytes = 0;
  std::byte* mapped = nullptr;  // the same bytes in this process's memory; null: far
};

class LeaseSpace {
 public:
  using Time = RunningClock::time_point;

  struct Lease {
    uint32_t server = 0;
    uint64_t id = 0;
    uint64_t offset = 0;  // in the server's pool
    uint64_t bytes = 0;   // 0 while the index is unused
    int distance = 0;
    std::byte* mapped = nullptr;  // the lease's first byte
  };

  // `leases_max`: fewer than there can be, for tests.
  explicit LeaseSpace(size_t leases_max = slot_bits::kRegionsMax) : space_(leases_max) {}

  // False: there are as many as there can be, and this one is nobody's.
  bool Add(const Lease& lease);
  bool MayAdd() const { return space_.MayAddRegion(); }
  size_t leases() const { return space_.regions(); }
  size_t leases_max() const { return space_.regions_max(); }

  // An empty SlotRef when there is not enough room. The lease that had room last is taken, else the nearest server's.
  SlotRef Reserve(size_t bytes);
  void Free(SlotRef slot, size_t bytes) noexcept;
  // As SwapTier::TryExchange. What the leases that stay have no room for may lie in those that are to go back, but no more of it than is given up
  // there: what has no other place stays there, and whose slot it is does not matter.
  SlotRef Exchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken);
  // Whether `holds` says so of a server on which a piece of the slot lies.
  template <typename F>
  bool AnyServerOf(SlotRef slot, size_t bytes, const F& holds) const {
    return space_.AnyExtentOf(slot, bytes, [&](const Extent& one) { return holds(leases_[one.region].lease.server); });
  }
  // Appends the slot's pieces in the order of its bytes.
  void Locate(SlotRef slot, size_t bytes, std::vector<RemotePiece>* pieces) const;

  // The server is dead, or wants its memory back: its leases give no more slots. Returns the bytes of slots in them.
  uint64_t CloseServer(uint32_t server, bool is_dead);
  // The server lives, and wants `bytes` of its leases back: as many are closed, slots or not, fewer if there are no more, and the others
  // give slots. What is closed stays so, as long as it is needed; then those with the least in them are.
  void CloseSome(uint32_t server, uint64_t bytes);
  // Whether the server stands still: its leases give slots to ReserveSilent only, and to Exchange.
  void SetSilent(uint32_t server, bool silent);
  bool AnySilent() const { return silent_ > 0; }  // leases
  // As Reserve, also of those.
  SlotRef ReserveSilent(size_t bytes);
  // Slots in leases that are closed, of servers that live.
  uint64_t leaving_bytes() const;
  bool IsLeaving(SlotRef slot, size_t bytes) const;
  // Called every few ms. Takes out the leases that have been without slots for `idle_for`, as long as `keep_free` bytes
  // are left, or where no slot is left at all; and those of closed servers at once. Appends them, but
  // for those of dead servers that are not mapped here, which are nobody's.
  void TakeIdle(Time now, RunningClock::duration idle_for, uint64_t keep_free, std::vector<Lease>* idle);
  // Calls `f` with each lease of a server that is not dead.
  template <typename F>
  void ForEach(const F& f) const {
    for (const Held& held : leases_) {
      if (held.lease.bytes != 0 && !held.dead) f(held.lease);
    }
  }

  // What is leased and in use of each server that is not dead.
  void AddTo(std::span<ServerStats> servers) const;
  uint64_t used_bytes() const { return space_.used_bytes(); }
  uint64_t free_bytes() const { return space_.free_bytes(); }
  uint64_t capacity_bytes() const { return space_.capacity_bytes(); }
  uint64_t metadata_bytes() const { return space_.metadata_bytes() + leases_.capacity() * sizeof(Held); }

 private:
  struct Held {
    Lease lease;
    bool closed = false;
    bool dead = false;  // then also closed
    bool silent = false;  // gives no slots as long as it is
    bool seen_empty = false;  // by TakeIdle, which looks at a clock so that Free need not
    Time empty_since{};
    bool IsLost() const { return dead && lease.mapped == nullptr; }
  };

  // Lets leases of silent servers give slots as well, for the length of a scope.
  class SilentToo;

  void Settle(uint32_t lease);
  void ChoosePreferred(size_t bytes);
  void OpenLeaving(bool open);
  bool IsLeaving(const Extent& extent) const { return leases_[extent.region].closed && !leases_[extent.region].dead; }
  std::optional<size_t> NeededWithLeaving(std::span<const HeldSlot> given, size_t bytes) const;

  SlotSpace space_;
  std::vector<Held> leases_;  // by SlotSpace's index
  size_t silent_ = 0;         // leases of silent servers, closed ones too
  bool silent_too_ = false;   // SilentToo's
  uint32_t preferred_ = 0;    // the lease that had room last
};

}  // namespace ramspan
