#include "memserver/lease_table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"

namespace ramspan {
namespace {

uint64_t RoundDown(uint64_t bytes) { return bytes / kLeaseGranule * kLeaseGranule; }

// A quarter of an even share between the clients, within [granule, most].
uint64_t QuarterShare(uint64_t pool_bytes, uint32_t clients, uint64_t most) {
  return std::clamp(RoundDown(pool_bytes / clients / 4), kLeaseGranule, most);
}

}  // namespace

LeaseTable::LeaseTable(uint64_t pool_bytes, uint32_t clients, std::function<void(const Lease&)> released)
    : pool_bytes_(RoundDown(pool_bytes)),
      released_(std::move(released)),
      lease_bytes_max_(QuarterShare(pool_bytes, std::max(clients, 1u), uint64_t{256} << 20)),
      reserve_bytes_(QuarterShare(pool_bytes, std::max(clients, 1u), uint64_t{64} << 20)),
      space_(pool_bytes_ / kLeaseGranule),
      held_(clients),
      retired_(clients),
      free_bytes_(pool_bytes_) {
  RS_CHECK(pool_bytes_ > 0, "a pool of %llu bytes for %u clients",
           static_cast<unsigned long long>(pool_bytes), clients);
}

void LeaseTable::Welcome(uint32_t client) {
  RS_CHECK(client <= held_.size() && (client == held_.size() || retired_[client]), "client %u is here already", client);
  if (client == held_.size()) {
    held_.push_back(0);
    retired_.push_back(false);
  }
  retired_[client] = false;
  const auto here = static_cast<uint32_t>(std::count(retired_.begin(), retired_.end(), false));
  lease_bytes_max_ = QuarterShare(pool_bytes_, here, uint64_t{256} << 20);
  reserve_bytes_ = QuarterShare(pool_bytes_, here, uint64_t{64} << 20);
}

uint64_t LeaseTable::FreeFor(uint32_t client) const {
  uint64_t promised = 0;
  for (uint32_t other = 0; other < held_.size(); ++other) {
    if (other != client && !retired_[other]) promised += reserve_bytes_ - std::min(reserve_bytes_, held_[other]);
  }
  return free_bytes_ - std::min(free_bytes_, promised);
}

Result<Lease> LeaseTable::Grant(uint32_t client, uint64_t want, uint64_t minimum) {
  RS_CHECK(client < held_.size() && !retired_[client], "lease for client %u, which is not here", client);
  if (space_.largest_free_block() * kLeaseGranule < minimum) {
    return ResourceExhausted("no free run of " + std::to_string(minimum) + " bytes");
  }
  const uint64_t allowed = RoundDown(std::min({want, lease_bytes_max_, FreeFor(client)}));
  if (allowed < minimum) {
    return minimum > lease_bytes_max_ ? ResourceExhausted("no lease is that large")
                                      : Unavailable("what is free is promised to other clients");
  }
  // A block of n granules needs a free buddy of the next power of two; the largest free one is always good for itself.
  uint64_t units = allowed / kLeaseGranule;
  std::optional<uint64_t> first = space_.Allocate(units);
  if (!first) {
    units = std::min(units, space_.largest_free_block());
    first = space_.Allocate(units);
  }
  RS_CHECK(first.has_value(), "a free run of %llu granules could not be allocated",
           static_cast<unsigned long long>(units));
  const Lease lease{next_id_++, *first * kLeaseGranule, units * kLeaseGranule, client};
  leases_.emplace(lease.id, lease);
  held_[client] += lease.bytes;
  free_bytes_ -= lease.bytes;
  return lease;
}

Status LeaseTable::Return(uint32_t client, uint64_t lease) {
  auto found = leases_.find(lease);
  if (found == leases_.end() || found->second.client != client) {
    return InvalidArgument("client " + std::to_string(client) + " holds no lease " + std::to_string(lease));
  }
  Release(found);
  return {};
}

bool LeaseTable::Holds(uint32_t client, uint64_t lease) const {
  const auto found = leases_.find(lease);
  return found != leases_.end() && found->second.client == client;
}

void LeaseTable::Retire(uint32_t client) {
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    auto next = std::next(lease);
    if (lease->second.client == client) Release(lease);
    lease = next;
  }
  retired_[client] = true;
}

void LeaseTable::Release(std::map<uint64_t, Lease>::iterator lease) {
  const Lease& l = lease->second;
  if (released_) released_(l);
  space_.Free(l.offset / kLeaseGranule, l.bytes / kLeaseGranule);
  held_[l.client] -= l.bytes;
  free_bytes_ += l.bytes;
  leases_.erase(lease);
}

bool LeaseTable::IsValid() const {
  std::vector<uint64_t> held(held_.size());
  std::map<uint64_t, uint64_t> by_offset;
  uint64_t sum = 0;
  for (const auto& [id, lease] : leases_) {
    if (id != lease.id || id >= next_id_ || lease.offset + lease.bytes > pool_bytes_) return false;
    held[lease.client] += lease.bytes;
    sum += lease.bytes;
    by_offset[lease.offset] = lease.bytes;
  }
  uint64_t end = 0;
  for (const auto& [offset, bytes] : by_offset) {
    if (offset < end) return false;
    end = offset + bytes;
  }
  return held == held_ && by_offset.size() == leases_.size() && sum == pool_bytes_ - free_bytes_ &&
         space_.free_units() * kLeaseGranule == free_bytes_ && space_.IsValid();
}

}  // namespace ramspan
