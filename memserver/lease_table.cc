#include "memserver/lease_table.h"

#include <algorithm>
#include <string>
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
      space_(pool_bytes_ / kLeaseGranule),
      clients_(clients),
      lent_bytes_(pool_bytes_),
      free_bytes_(pool_bytes_) {
  RS_CHECK(pool_bytes_ > 0, "a pool of %llu bytes for %u clients",
           static_cast<unsigned long long>(pool_bytes), clients);
  for (uint32_t client = 0; client < clients; ++client) Join(&clients_[client], OwnJob(client));
  CountAnew();
}

void LeaseTable::Welcome(uint32_t client, const std::string& job) {
  RS_CHECK(client <= clients_.size() && (client == clients_.size() || clients_[client].job == nullptr), "client %u is here already", client);
  if (client == clients_.size()) clients_.emplace_back();
  Join(&clients_[client], job.empty() ? OwnJob(client) : job);
  CountAnew();
}

void LeaseTable::Join(Client* client, const std::string& job) {
  client->job_name = job;
  client->job = &jobs_[job];
  ++client->job->clients;
}

LeaseTable::Job& LeaseTable::JobOf(const Client& client) const {
  RS_CHECK(client.job != nullptr, "a client that is not here");
  return *client.job;
}

uint64_t LeaseTable::QuotaOf(uint32_t client) const { return JobOf(clients_[client]).quota; }

uint64_t LeaseTable::ShareOf(const Job& job) const {
  return std::min(job.quota, RoundDown(lent_bytes_ / std::max<size_t>(jobs_.size(), 1)));
}

uint64_t LeaseTable::PartOf(const Job& job) const { return RoundDown(ShareOf(job) / std::max(job.clients, 1u)); }

// ---- Sums ----

// What depends on who is here, on what is lent and on quotas: all promises.
void LeaseTable::CountAnew() {
  uint32_t here = 0;
  for (auto& [name, job] : jobs_) {
    const auto own = quotas_.find(name);
    job.quota = own == quotas_.end() ? quota_ : own->second;
    here += job.clients;
  }
  lease_bytes_max_ = QuarterShare(lent_bytes_, std::max(here, 1u), uint64_t{256} << 20);
  reserve_bytes_ = QuarterShare(lent_bytes_, std::max(here, 1u), uint64_t{64} << 20);
  for (Client& client : clients_) {
    if (client.job != nullptr) Promise(&client);
  }
}

void LeaseTable::Promise(Client* client) {
  Job& job = JobOf(*client);
  job.clients_promised -= client->promised;
  client->promised = std::max(reserve_bytes_ - std::min(reserve_bytes_, client->held), client->wants);
  job.clients_promised += client->promised;
  PromiseJob(&job);
}

void LeaseTable::PromiseJob(Job* job) {
  const uint64_t share = ShareOf(*job);
  all_.promised -= job->promised;
  job->promised = std::min(job->clients_promised, share - std::min(share, job->held));
  all_.promised += job->promised;
}

void LeaseTable::SetHeld(Client* client, uint64_t bytes) {
  Job& job = JobOf(*client);
  job.held += bytes - client->held;  // may wrap on its way to what is right
  client->held = bytes;
  Promise(client);
}

void LeaseTable::SetWants(Client* client, uint64_t bytes, uint64_t in_job) {
  for (Sums* const sum : {&all_, static_cast<Sums*>(&JobOf(*client))}) {
    sum->wants += bytes - client->wants;
    sum->wants_in_job += in_job - client->wants_in_job;
  }
  client->wants = bytes;
  client->wants_in_job = in_job;
  Promise(client);
}

void LeaseTable::SetAskedBack(Client* client, uint64_t bytes) {
  all_.asked_back += bytes - client->asked_back;
  JobOf(*client).asked_back += bytes - client->asked_back;
  client->asked_back = bytes;
}

// ---- Fair shares ----

uint64_t LeaseTable::FreeFor(uint32_t number) const {
  const Client& client = clients_[number];
  const Job& job = JobOf(client);
  const uint64_t out = pool_bytes_ - free_bytes_, free = lent_bytes_ - std::min(lent_bytes_, out);
  // What others of its job wait for from within the job. What the job is promised covers a part of that already.
  const uint64_t within = std::min(job.wants_in_job - client.wants_in_job, job.clients_promised - job.promised);
  const uint64_t others = all_.promised - std::min(job.promised, client.promised) + within;
  const uint64_t open = free - std::min(free, others);
  // What it wants was asked back for it, beside what the others want.
  const uint64_t others_want = all_.wants - client.wants;
  const uint64_t own = std::min(client.wants, free - std::min(free, others_want));
  return std::min(std::max(open, own), job.quota - std::min(job.quota, job.held + job.wants_in_job - client.wants_in_job));
}

bool LeaseTable::QuotaAllows(uint32_t client, uint64_t bytes) const {
  const Job& job = JobOf(clients_[client]);
  return job.quota - std::min(job.quota, job.held) >= bytes;
}

uint64_t LeaseTable::NoteWant(uint32_t number, uint64_t bytes, uint64_t needed, Time now) {
  Client& client = clients_[number];
  const Job& job = JobOf(client);
  const uint64_t claimed = job.held + job.wants - client.wants, share = ShareOf(job), part = PartOf(job);
  const uint64_t of_all = RoundDown(share - std::min(share, claimed)), of_job = RoundDown(std::min(needed, part - std::min(part, client.held)));
  const uint64_t wants = RoundDown(std::min({bytes, std::max(of_all, of_job), lease_bytes_max_}));
  // What was asked for ahead takes nothing from what somebody waits for.
  if (needed == 0 && wants <= client.wants && client.wants_until >= now) return client.wants;
  SetWants(&client, wants, std::max(wants - std::min(wants, of_all), needed == 0 ? std::min(client.wants_in_job, wants) : 0));
  client.wants_until = now + kWantLasts;
  next_forget_ = std::min(next_forget_, client.wants_until);
  return client.wants;
}

void LeaseTable::ForgetOldWants(Time now) {
  if (now <= next_forget_) return;
  next_forget_ = Time::max();
  for (Client& client : clients_) {
    if (client.wants == 0) continue;
    if (client.wants_until < now) SetWants(&client, 0, 0);
    else next_forget_ = std::min(next_forget_, client.wants_until);
  }
}

// Of all clients, or those of one job (null: all): who can give back the most before its job is down at its share, or itself at its part of that. At most `bytes`.
LeaseTable::Claim LeaseTable::FindClaim(uint64_t bytes, const Job* job, Down down, Time now) const {
  Claim claim;
  for (uint32_t number = 0; number < clients_.size(); ++number) {
    const Client& client = clients_[number];
    if (client.job == nullptr || (job != nullptr && client.job != job) || client.wants > 0 || now < client.spared_until) continue;
    const uint64_t left = client.job->held - client.job->asked_back, share = ShareOf(*client.job);
    const uint64_t own = client.held - client.asked_back, part = PartOf(*client.job);
    const uint64_t may = down == Down::kToPartsOfClients ? own - std::min(own, part) : std::min(own, left - std::min(left, share));
    if (may > claim.bytes) claim = {number, may};
  }
  claim.bytes = std::min(claim.bytes, bytes);
  return claim;
}

void LeaseTable::AddClaims(uint64_t bytes, const Job* job, Down down, Time now, std::vector<Claim>* claims) {
  while (bytes > 0) {
    const Claim claim = FindClaim(bytes, job, down, now);
    if (claim.bytes == 0) return;  // nobody holds more than a share
    Client& client = clients_[claim.client];
    if (client.asked_back == 0) {
      client.gives_until = now + kGivesWithin;
      client.has_given = false;
    }
    SetAskedBack(&client, client.asked_back + claim.bytes);
    bytes -= claim.bytes;
    claims->push_back(claim);
  }
}

std::vector<LeaseTable::Claim> LeaseTable::AskBack(Time now) {
  ForgetOldWants(now);
  std::vector<Claim> claims;
  for (const auto& [name, job] : jobs_) {
    const uint64_t left = job.held - job.asked_back;
    if (left > job.quota) AddClaims(left - job.quota, &job, Down::kToSharesOfJobs, now, &claims);
    const uint64_t for_others = all_.asked_back - job.asked_back, needed = NeededBack();
    const uint64_t in_job = std::max(std::min(job.wants_in_job, needed - std::min(needed, for_others)), std::min(job.wants_in_job, AboveQuota(job)));
    if (in_job > job.asked_back) AddClaims(in_job - job.asked_back, &job, Down::kToPartsOfClients, now, &claims);
  }
  const uint64_t needed = NeededBack();
  if (needed > all_.asked_back) AddClaims(needed - all_.asked_back, nullptr, Down::kToSharesOfJobs, now, &claims);
  return claims;
}

uint64_t LeaseTable::AboveQuota(const Job& job) {
  const uint64_t would = job.held + job.wants_in_job;
  return would - std::min(would, job.quota);
}

// For what is wanted, and for a pool that lends less than is out.
uint64_t LeaseTable::NeededBack() const {
  const uint64_t out = pool_bytes_ - free_bytes_;
  return out + all_.wants - std::min(out + all_.wants, lent_bytes_);
}

std::vector<uint32_t> LeaseTable::TakeBack(Time now) {
  ForgetOldWants(now);
  uint64_t for_quotas = 0;
  for (const auto& [name, job] : jobs_) for_quotas += AboveQuota(job);
  std::vector<uint32_t> changed;
  for (uint32_t number = 0; number < clients_.size() && all_.asked_back > 0; ++number) {
    Client& client = clients_[number];
    if (client.asked_back == 0) continue;
    if (std::exchange(client.has_given, false)) client.gives_until = now + kGivesWithin;
    const bool gives_nothing = client.gives_until < now;
    if (gives_nothing) client.spared_until = now + kSparedFor;
    // Of the job: what its quota asks for stays asked for.
    const uint64_t quota_wants = AboveQuota(*client.job);
    const uint64_t not_for_quota = client.job->asked_back - std::min(client.job->asked_back, quota_wants);
    const uint64_t surplus = all_.asked_back - std::min(all_.asked_back, std::max(NeededBack(), for_quotas));
    const uint64_t less = gives_nothing ? client.asked_back : std::min({client.asked_back, not_for_quota, surplus});
    if (less == 0) continue;
    SetAskedBack(&client, client.asked_back - less);
    changed.push_back(number);
  }
  return changed;
}

void LeaseTable::SetLent(uint64_t bytes) {
  lent_bytes_ = std::min(RoundDown(bytes), pool_bytes_);
  CountAnew();
}

void LeaseTable::SetQuota(const std::string& job, std::optional<uint64_t> bytes) {
  if (job.empty()) quota_ = bytes.value_or(UINT64_MAX);
  else if (bytes) quotas_[job] = *bytes;
  else quotas_.erase(job);
  CountAnew();
}

// ---- Leases ----

Result<Lease> LeaseTable::Grant(uint32_t client, uint64_t want, uint64_t minimum) {
  RS_CHECK(client < clients_.size() && clients_[client].job != nullptr, "lease for client %u, which is not here", client);
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
  free_bytes_ -= lease.bytes;
  Client& holder = clients_[client];
  SetHeld(&holder, holder.held + lease.bytes);
  const uint64_t wants = holder.wants - std::min(holder.wants, lease.bytes);
  SetWants(&holder, wants, std::min(holder.wants_in_job, wants));
  return lease;
}

Status LeaseTable::Return(uint32_t client, uint64_t lease) {
  auto found = leases_.find(lease);
  if (found == leases_.end() || found->second.client != client) {
    return InvalidArgument("client " + std::to_string(client) + " holds no lease " + std::to_string(lease));
  }
  Client& holder = clients_[client];
  const uint64_t bytes = found->second.bytes;
  holder.returned += bytes;
  holder.has_given = true;
  SetAskedBack(&holder, holder.asked_back - std::min(holder.asked_back, bytes));
  Release(found);
  return {};
}

void LeaseTable::Undo(uint64_t lease) {
  const auto found = leases_.find(lease);
  RS_CHECK(found != leases_.end(), "lease %llu was just made", static_cast<unsigned long long>(lease));
  Release(found);
}

bool LeaseTable::Holds(uint32_t client, uint64_t lease) const {
  const auto found = leases_.find(lease);
  return found != leases_.end() && found->second.client == client;
}

void LeaseTable::Retire(uint32_t number) {
  Client& client = clients_[number];
  if (client.job == nullptr) return;
  SetAskedBack(&client, 0);
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    auto next = std::next(lease);
    if (lease->second.client == number) Release(lease);
    lease = next;
  }
  SetWants(&client, 0, 0);
  Job& job = JobOf(client);
  job.clients_promised -= client.promised;
  PromiseJob(&job);
  if (--job.clients == 0) jobs_.erase(client.job_name);
  client = {};
  CountAnew();
}

void LeaseTable::Release(std::map<uint64_t, Lease>::iterator lease) {
  const Lease& l = lease->second;
  if (released_) released_(l);
  space_.Free(l.offset / kLeaseGranule, l.bytes / kLeaseGranule);
  free_bytes_ += l.bytes;
  Client& client = clients_[l.client];
  SetHeld(&client, client.held - l.bytes);
  leases_.erase(lease);
}

bool LeaseTable::IsValid() const {
  std::vector<uint64_t> held(clients_.size());
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
  Sums all;
  for (size_t i = 0; i < clients_.size(); ++i) {
    const Client& client = clients_[i];
    if (client.held != held[i] || client.asked_back > client.held) return false;
    if (client.wants_in_job > client.wants) return false;
    all.wants += client.wants;
    all.wants_in_job += client.wants_in_job;
    all.asked_back += client.asked_back;
  }
  uint64_t in_jobs = 0;
  for (const auto& [name, job] : jobs_) {
    in_jobs += job.held;
    all.promised += job.promised;
  }
  if (all.wants != all_.wants || all.wants_in_job != all_.wants_in_job || all.asked_back != all_.asked_back || all.promised != all_.promised || in_jobs != sum) return false;
  return by_offset.size() == leases_.size() && sum == pool_bytes_ - free_bytes_ &&
         space_.free_units() * kLeaseGranule == free_bytes_ && space_.IsValid();
}

}  // namespace ramspan
