// MemServer: the answers of one memory server. Bytes of a control message in, the answer out; it knows neither the
// transport nor the clock's sleep, so tests and fuzzers drive it directly. A message that is not valid is counted,
// logged now and then, and has no other effect.
//
// Thread-safety: none; one thread. Ownership: of sessions and leases; the pool itself is somebody else's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/running_clock.h"
#include "common/wire.h"
#include "memserver/lease_table.h"
#include "memserver/session.h"

namespace ramspan {

struct MemServerOptions {
  uint64_t pool_bytes = 0;
  uint32_t clients = 0;  // that are here from the beginning
  std::string label;     // for messages
  // Makes the memory of a lease ready before its client has it; false when the system has no memory left. Ahead of the grant,
  // because a client's store into a page that cannot be had would be a SIGBUS.
  std::function<bool(const Lease& lease)> provide;
  // The lease is nobody's any more, before it can be granted again.
  std::function<void(const Lease& lease)> reclaim;
  // A client should give back leases, because others have a right to them, until it has returned `bytes` in all since it came; what it
  // was told before counts no more. Null: nobody can be told, so nobody is.
  std::function<void(uint32_t client, uint64_t bytes)> ask_back;
  // A client should give back what it does not use. Null: nobody can be told.
  std::function<void(uint32_t client)> ask_for_spare;
};

class MemServer {
 public:
  // What clients announce counts in running time: after a suspension their transfers still go on.
  using Clock = RunningClock;

  explicit MemServer(MemServerOptions options);

  // One message from `client` (any number: unknown ones are ignored); returns the answer to send, if any.
  std::optional<WireMessage> Handle(uint32_t client, std::span<const std::byte> record, Clock::time_point now);

  // The answer that Handle has just returned could not be sent: what it newly grants is free again.
  void Withdraw(uint32_t client, const WireMessage& answer);

  // One more client, with a number that is not in use: the next one, or that of a client that has said bye or died.
  void NoteArrival(uint32_t client, const std::string& job = "");
  // The client is gone without a bye: its leases come back, and nobody waits for it.
  void NoteDeath(uint32_t client);

  // Some client moves bytes by RMA now: the loop must keep calling MPI, or those transfers stall.
  bool RmaIsActive(Clock::time_point now) const;

  // Often: looks now and then after what clients were asked to give back.
  void Upkeep(Clock::time_point now);

  // While it drains it grants nothing; clients are told that it is full.
  void SetDraining(bool draining) { is_draining_ = draining; }
  bool is_draining() const { return is_draining_; }

  // As LeaseTable's; who holds too much then is asked for it.
  void SetLent(uint64_t bytes, Clock::time_point now);
  void SetQuota(const std::string& job, std::optional<uint64_t> bytes, Clock::time_point now);

  // All clients have said bye or died.
  bool Done() const { return draining_ == sessions_.size(); }
  // True: all of them found everybody alive. kFailedPrecondition: some did and some did not, although they agree on it
  // before they say so; those who did wait for the others, so the job has to be ended. REQUIRES: Done().
  Result<bool> LeaveTogether() const;
  // REQUIRES: Done(). Closes the sessions.
  void Finish();

  const LeaseTable& leases() const { return leases_; }
  size_t sessions() const { return sessions_.size(); }  // clients that are here, and those that were
  const ClientSession& session(uint32_t client) const { return sessions_[client]; }

 private:
  WireMessage GrantOrRefuse(uint32_t client, const WireMessage& request, Clock::time_point now);
  FullReason NoteRefusal(uint32_t client, const WireMessage& request, const Status& why, Clock::time_point now);
  bool AskForSpare(uint32_t client, Clock::time_point now);
  void AskBack(Clock::time_point now);
  void SettleClaims(Clock::time_point now);
  void NoteBad(uint32_t client, const Status& why);

  const MemServerOptions options_;
  LeaseTable leases_;
  std::vector<ClientSession> sessions_;
  std::vector<Clock::time_point> active_until_;  // by client
  std::vector<WireMessage> granted_;             // by client: the last grant, for a request that is sent again
  uint64_t new_lease_ = 0;                       // granted by the last request; 0 if it got an old one or none
  size_t draining_ = 0;       // clients that have said bye or died
  bool is_draining_ = false;  // the server itself
  Clock::time_point next_upkeep_{};
  struct Waiting {
    Clock::time_point began{}, last{};
  };
  std::vector<Waiting> waiting_;        // by client: for memory, with no other place
  std::optional<Clock::time_point> spare_asked_at_;  // all but one, for what they do not use
  size_t byes_together_ = 0, byes_alone_ = 0;
};

}  // namespace ramspan
