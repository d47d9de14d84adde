// LeaseTable: who holds which part of one server's pool. Pure bookkeeping: offsets in and out, no memory touched, no
// message known. A lease has an id that is never used twice, so that a late or repeated return hits nobody else.
//
// Quota: a client may take what is free minus what the others are promised: each client that is still here and holds
// less than the reserve is promised the difference. So whoever comes late finds at least the reserve (a quarter of an
// even share, at most 64 MiB), and no fair share is enforced beyond that. One lease is at most a quarter of an even
// share (at most 256 MiB), so that a few messages are enough and the pool is not gone in one.
//
// Conservation, checked by IsValid: sum of the clients' held bytes == sum of lease bytes == pool - free.
// Thread-safety: none; the server's loop is one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "common/buddy_allocator.h"
#include "common/status.h"
#include "common/wire.h"

namespace ramspan {

struct Lease {
  uint64_t id = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint32_t client = 0;
};

class LeaseTable {
 public:
  // `pool_bytes` is cut down to a multiple of kLeaseGranule and must hold one; clients are numbered [0, clients). `released`
  // hears of each lease that comes back, before its place is free.
  LeaseTable(uint64_t pool_bytes, uint32_t clients, std::function<void(const Lease&)> released = nullptr);

  // One more client, with the next number or one that was retired. Shares are then counted anew, between those that are here.
  void Welcome(uint32_t client);

  // The largest lease of at most `want` bytes (multiples of the granule) that pool, cap and quota allow.
  // kResourceExhausted: the pool has no `minimum` in one piece; kUnavailable: it has, but it is promised to others.
  Result<Lease> Grant(uint32_t client, uint64_t want, uint64_t minimum);

  // kInvalidArgument when there is no such lease or another client holds it.
  Status Return(uint32_t client, uint64_t lease);

  bool Holds(uint32_t client, uint64_t lease) const;

  // All leases of the client come back, and it is promised nothing any more: it said bye, or it died.
  void Retire(uint32_t client);

  uint64_t FreeFor(uint32_t client) const;  // bytes that quota leaves to this client
  uint64_t HeldBy(uint32_t client) const { return held_[client]; }
  uint64_t pool_bytes() const { return pool_bytes_; }
  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t lease_bytes_max() const { return lease_bytes_max_; }
  uint64_t reserve_bytes() const { return reserve_bytes_; }
  size_t leases() const { return leases_.size(); }
  bool IsValid() const;

 private:
  void Release(std::map<uint64_t, Lease>::iterator lease);

  const uint64_t pool_bytes_;
  const std::function<void(const Lease&)> released_;
  uint64_t lease_bytes_max_;
  uint64_t reserve_bytes_;

  BuddyAllocator space_;  // in granules
  std::map<uint64_t, Lease> leases_;
  std::vector<uint64_t> held_;
  std::vector<bool> retired_;
  uint64_t free_bytes_;
  uint64_t next_id_ = 1;
};

}  // namespace ramspan
