#include "memserver/lease_table.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "common/check.h"

namespace ramspan {
namespace {

uint64_t RoundDown(uint64_t bytes) { return bytes / kLeaseGranule * kLeaseGranule; }

// No name that a client could tell.
std::string OwnJob(uint32_t client) { return "\n" + std::to_string(client); }

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
      wants_(clients),
      asked_back_(clients),
      lent_bytes_(pool_bytes_),
      free_bytes_(pool_bytes_) {
  for (uint32_t client = 0; client < clients; ++client) jobs_.push_back(OwnJob(client));
  RS_CHECK(pool_bytes_ > 0, "a pool of %llu bytes for %u clients",
           static_cast<unsigned long long>(pool_bytes), clients);
}

void LeaseTable::Welcome(uint32_t client, const std::string& job) {
  RS_CHECK(client <= held_.size() && (client == held_.size() || retired_[client]), "client %u is here already", client);
  if (client == held_.size()) {
    held_.push_back(0);
    retired_.push_back(false);
    jobs_.emplace_back();
    wants_.emplace_back();
    asked_back_.push_back(0);
  }
  retired_[client] = false;
  jobs_[client] = job.empty() ? OwnJob(client) : job;
  const auto here = static_cast<uint32_t>(std::count(retired_.begin(), retired_.end(), false));
  lease_bytes_max_ = QuarterShare(pool_bytes_, here, uint64_t{256} << 20);
  reserve_bytes_ = QuarterShare(pool_bytes_, here, uint64_t{64} << 20);
}

uint64_t LeaseTable::QuotaOf(uint32_t client) const {
  const auto own = quotas_.find(jobs_[client]);
  return own == quotas_.end() ? quota_ : own->second;
}

uint64_t LeaseTable::HeldByJobOf(uint32_t client) const {
  uint64_t held = 0;
  for (uint32_t other = 0; other < held_.size(); ++other) {
    if (jobs_[other] == jobs_[client]) held += held_[other];
  }
  return held;
}

// Of the client's job.
uint64_t LeaseTable::ShareOf(uint32_t client) const {
  std::set<std::string_view> here;
  for (uint32_t other = 0; other < held_.size(); ++other) {
    if (!retired_[other]) here.insert(jobs_[other]);
  }
  return std::min(QuotaOf(client), RoundDown(lent_bytes_ / std::max<size_t>(here.size(), 1)));
}

uint64_t LeaseTable::FreeFor(uint32_t client) const {
  uint64_t promised = 0;
  for (uint32_t other = 0; other < held_.size(); ++other) {
    if (other == client || retired_[other]) continue;
    promised += std::max(reserve_bytes_ - std::min(reserve_bytes_, held_[other]), wants_[other].bytes);
  }
  const uint64_t out = pool_bytes_ - free_bytes_, held = HeldByJobOf(client);
  const uint64_t free = lent_bytes_ - std::min(lent_bytes_, out), quota = QuotaOf(client);
  return std::min(free - std::min(free, promised), quota - std::min(quota, held));
}

// ---- Fair shares ----

uint64_t LeaseTable::NoteWant(uint32_t client, uint64_t bytes, Time now) {
  uint64_t claimed = HeldByJobOf(client);  // by its job
  for (uint32_t other = 0; other < held_.size(); ++other) {
    if (other != client && jobs_[other] == jobs_[client]) claimed += wants_[other].bytes;
  }
  const uint64_t share = ShareOf(client);
  const uint64_t may_claim = share - std::min(share, claimed);
  wants_[client] = {.bytes = RoundDown(std::min({bytes, may_claim, lease_bytes_max_})), .until = now + kWantLasts};
  return wants_[client].bytes;
}

// What the client's job holds and has not been asked for.
uint64_t LeaseTable::LeftWithJobOf(uint32_t client) const {
  uint64_t left = 0;
  for (uint32_t other = 0; other < held_.size(); ++other) {
    if (jobs_[other] == jobs_[client]) left += held_[other] - std::min(held_[other], asked_back_[other]);
  }
  return left;
}

// Of all clients, or those of one job (null: all): who can give back the most before its job is down at its share. At most `bytes`.
LeaseTable::Claim LeaseTable::FindClaim(uint64_t bytes, const std::string* job) const {
  Claim claim;
  for (uint32_t client = 0; client < held_.size(); ++client) {
    if (retired_[client] || (job != nullptr && jobs_[client] != *job)) continue;
    const uint64_t left = LeftWithJobOf(client), share = ShareOf(client);
    const uint64_t may = std::min(held_[client] - std::min(held_[client], asked_back_[client]), left - std::min(left, share));
    if (may > claim.bytes) claim = {client, may};
  }
  claim.bytes = std::min(claim.bytes, bytes);
  return claim;
}

void LeaseTable::AddClaims(uint64_t bytes, const std::string* job, std::vector<Claim>* claims) {
  while (bytes > 0) {
    const Claim claim = FindClaim(bytes, job);
    if (claim.bytes == 0) return;  // nobody holds more than a share
    asked_back_[claim.client] += claim.bytes;
    bytes -= claim.bytes;
    claims->push_back(claim);
  }
}

std::vector<LeaseTable::Claim> LeaseTable::AskBack(Time now) {
  std::vector<Claim> claims;
  uint64_t wanted = 0;
  for (uint32_t client = 0; client < held_.size(); ++client) {
    if (wants_[client].until < now) wants_[client] = {};
    wanted += wants_[client].bytes;
    const uint64_t left = LeftWithJobOf(client), quota = QuotaOf(client);
    if (!retired_[client] && left > quota) AddClaims(left - quota, &jobs_[client], &claims);
  }
  const uint64_t out = pool_bytes_ - free_bytes_;
  const uint64_t coming = lent_bytes_ + awaited_bytes();
  if (out + wanted > coming) AddClaims(out + wanted - coming, nullptr, &claims);
  return claims;
}

uint64_t LeaseTable::awaited_bytes() const { return std::accumulate(asked_back_.begin(), asked_back_.end(), uint64_t{0}); }

void LeaseTable::SetLent(uint64_t bytes) { lent_bytes_ = std::clamp(RoundDown(bytes), kLeaseGranule, pool_bytes_); }

void LeaseTable::SetQuota(const std::string& job, uint64_t bytes) {
  if (job.empty()) quota_ = bytes;
  else quotas_[job] = bytes;
}

// ---- Leases ----

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
  wants_[client].bytes -= std::min(wants_[client].bytes, lease.bytes);
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
  wants_[client] = {};
  asked_back_[client] = 0;
  jobs_[client] = OwnJob(client);
  retired_[client] = true;
}

void LeaseTable::Release(std::map<uint64_t, Lease>::iterator lease) {
  const Lease& l = lease->second;
  if (released_) released_(l);
  space_.Free(l.offset / kLeaseGranule, l.bytes / kLeaseGranule);
  held_[l.client] -= l.bytes;
  asked_back_[l.client] -= std::min(asked_back_[l.client], l.bytes);
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
