// LeaseTable: who holds which part of one server's pool. Pure bookkeeping: offsets in and out, no memory touched, no
// message known. A lease has an id that is never used twice, so that a late or repeated return hits nobody else.
//
// What is held back: a client may take what is free minus what the others are promised: each client that is still here and holds
// less than the reserve is promised the difference, as far as its job may hold it. So whoever comes late finds at least the reserve
// at once (a quarter of an even share of what is lent, at most 64 MiB). One lease is at most a quarter of an even share (at most
// 256 MiB), so that a few messages are enough and the pool is not gone in one.
//
// Fair shares: clients belong to jobs, and the share of a job is what is lent divided by the jobs that are here. As long as nobody
// else wants it, a job may hold more: all, if it is alone. When a client whose job is below its share gets no lease, what it wants is
// kept in mind for a while: it is promised to that client, and AskBack says who should give back so that it can be had, those
// furthest above their share first, and never below it. What comes then is for those who want it: reserves of clients that want
// nothing do not keep them from it, or several that come at once would wait for each other's. Within a job it is the same: a client that
// holds less than an even part of its job's share may claim it from those of its job that hold more. A job's quota is a limit of its own,
// share or not; a pool that lends less than before asks for the rest back in the same way.
//
// Cost: sums are kept for each job and for all, so that a request costs no walk over clients; one who comes or leaves, and an
// AskBack that asks for something, cost one.
//
// Conservation, checked by IsValid: sum of the clients' held bytes == sum of lease bytes == pool - free.
// Thread-safety: none; the server's loop is one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/buddy_allocator.h"
#include "common/running_clock.h"
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
  using Time = RunningClock::time_point;
  // A client that wants memory asks at least every second. Who has not asked for so long has no need any more.
  static constexpr std::chrono::seconds kWantLasts{10};
  // Who was asked and has given nothing back for so long has no other place for its data, or none now: others are asked.
  static constexpr std::chrono::seconds kGivesWithin{10};
  static constexpr std::chrono::seconds kSparedFor{30};  // then it is asked again

  // `pool_bytes` is cut down to a multiple of kLeaseGranule and must hold one; clients are numbered [0, clients). `released`
  // hears of each lease that comes back, before its place is free.
  LeaseTable(uint64_t pool_bytes, uint32_t clients, std::function<void(const Lease&)> released = nullptr);

  // One more client, with the next number or one that was retired. Shares are then counted anew, between those that are here.
  // `job`: the name of the job that it belongs to; empty: of one of its own.
  void Welcome(uint32_t client, const std::string& job = "");

  // The largest lease of at most `want` bytes (multiples of the granule) that pool, cap and quota allow.
  // kResourceExhausted: the pool has no `minimum` in one piece; kUnavailable: it has, but it is promised to others.
  Result<Lease> Grant(uint32_t client, uint64_t want, uint64_t minimum);

  // By the client. kInvalidArgument when there is no such lease or another client holds it.
  Status Return(uint32_t client, uint64_t lease);
  // The lease was just made, and the client has not heard of it.
  void Undo(uint64_t lease);

  bool Holds(uint32_t client, uint64_t lease) const;

  // All leases of the client come back, and it is promised nothing any more: it said bye, or it died.
  void Retire(uint32_t client);

  // The client was refused `bytes`. What it may claim of that is promised to it until it has it or does not ask any more.
  // Returns that. From others of its job it claims what it needs now only, `needed` (0: nobody waits): they may have no other place for it.
  uint64_t NoteWant(uint32_t client, uint64_t bytes, uint64_t needed, Time now);
  // Before a Grant: whoever wanted something and has not asked for it for so long has no right to it any more.
  void ForgetOldWants(Time now);
  // Who should give back how much now; each is told once, and what it then gives back counts against that.
  struct Claim {
    uint32_t client = 0;
    uint64_t bytes = 0;
  };
  std::vector<Claim> AskBack(Time now);
  // Now and then. What was asked back and is needed no more, or does not come, is not asked for any more: from whom.
  std::vector<uint32_t> TakeBack(Time now);
  // What the client will have returned since it came, once it has given back what it was asked for. So both sides agree on what is
  // left of that, whatever is under way between them.
  uint64_t ToBeReturnedBy(uint32_t client) const { return clients_[client].returned + clients_[client].asked_back; }

  // What was asked back and has not come yet.
  uint64_t awaited_bytes() const { return all_.asked_back; }

  // Lends at most so much from now on, rounded down to granules, and at most the pool. What is out above that comes back by AskBack.
  void SetLent(uint64_t bytes);
  // The most that a job may hold; UINT64_MAX: no limit. `job` empty: each job for which nothing else was said. Without `bytes`: nothing is
  // said of it any more (for `job` empty: no limit).
  void SetQuota(const std::string& job, std::optional<uint64_t> bytes);

  bool QuotaAllows(uint32_t client, uint64_t bytes) const;  // more
  uint64_t FreeFor(uint32_t client) const;  // bytes that shares and quota leave to this client
  uint64_t HeldBy(uint32_t client) const { return clients_[client].held; }
  uint64_t WantOf(uint32_t client) const { return clients_[client].wants; }  // what NoteWant has promised to it
  uint64_t QuotaOf(uint32_t client) const;
  uint64_t quota() const { return quota_; }  // of jobs that have none of their own; UINT64_MAX: no limit
  const std::map<std::string, uint64_t>& own_quotas() const { return quotas_; }  // by job, which need not be here
  uint64_t lent_bytes() const { return lent_bytes_; }
  uint64_t pool_bytes() const { return pool_bytes_; }
  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t lease_bytes_max() const { return lease_bytes_max_; }
  uint64_t reserve_bytes() const { return reserve_bytes_; }
  size_t leases() const { return leases_.size(); }
  bool IsValid() const;

 private:
  // Of a client, of a job, of all.
  struct Sums {
    uint64_t held = 0;
    uint64_t wants = 0;
    uint64_t wants_in_job = 0;  // of that, what only others of its job can give
    uint64_t asked_back = 0;  // told to give back, not yet come
    uint64_t promised = 0;    // to the client; to the clients of a job, but no more than its share leaves; to all jobs
  };
  struct Job : Sums {
    uint32_t clients = 0;           // that are here
    uint64_t clients_promised = 0;  // their sum, whatever the share
    uint64_t quota = UINT64_MAX;
  };
  struct Client : Sums {
    Job* job = nullptr;  // null: it is not here
    std::string job_name;
    Time wants_until{};
    uint64_t returned = 0;  // by itself, since it came
    bool has_given = false;  // since TakeBack looked
    Time gives_until{};      // if it gives nothing until then, others are asked
    Time spared_until{};
  };

  Job& JobOf(const Client& client) const;
  uint64_t ShareOf(const Job& job) const;
  uint64_t PartOf(const Job& job) const;  // of its share, each client's
  void Join(Client* client, const std::string& job);
  void CountAnew();
  void Promise(Client* client);
  void PromiseJob(Job* job);
  void SetHeld(Client* client, uint64_t bytes);
  void SetWants(Client* client, uint64_t bytes, uint64_t in_job);
  void SetAskedBack(Client* client, uint64_t bytes);
  void Release(std::map<uint64_t, Lease>::iterator lease);
  enum class Down : bool { kToSharesOfJobs, kToPartsOfClients };
  Claim FindClaim(uint64_t bytes, const Job* job, Down down, Time now) const;
  void AddClaims(uint64_t bytes, const Job* job, Down down, Time now, std::vector<Claim>* claims);
  uint64_t NeededBack() const;
  static uint64_t AboveQuota(const Job& job);  // with what its clients want of each other

  const uint64_t pool_bytes_;
  const std::function<void(const Lease&)> released_;
  uint64_t lease_bytes_max_ = kLeaseGranule;
  uint64_t reserve_bytes_ = kLeaseGranule;

  BuddyAllocator space_;  // in granules
  std::map<uint64_t, Lease> leases_;
  std::vector<Client> clients_;
  std::map<std::string, Job> jobs_;  // those with clients here
  Sums all_;
  Time next_forget_ = Time::max();  // no want ends before
  std::map<std::string, uint64_t> quotas_;
  uint64_t quota_ = UINT64_MAX;  // of jobs that have none of their own
  uint64_t lent_bytes_;
  uint64_t free_bytes_;  // of the pool
  uint64_t next_id_ = 1;
};

}  // namespace ramspan
