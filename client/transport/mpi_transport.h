// MpiTransport: the servers of an MPI job. Those of this node are mapped (mpi_near.h), the others are reached by one-sided
// MPI (mpi_rma.h); control messages go over the world's control communicator. There is no isolation: every rank of a job
// can reach all of every pool. A server's death ends the job, sooner or later.
//
// Thread-safety: as ServerTransport says. Ownership: borrows the world, which must not be left before the last call.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "client/transport/mpi_rma.h"
#include "client/transport/mpi_watchdog.h"
#include "client/transport/transport.h"
#include "common/mpi_control.h"
#include "common/mpi_world.h"

namespace ramspan {

class MpiTransport final : public PlainTransport {
 public:
  explicit MpiTransport(MpiWorld& world, MpiWatchdog::Options watchdog = MpiWatchdog::DefaultOptions());

  Capabilities capabilities() const override { return {.name = "mpi"}; }
  uint32_t self() const override { return static_cast<uint32_t>(world_.rank()); }
  uint32_t servers() const override { return static_cast<uint32_t>(world_.servers().size()); }
  Server server(uint32_t number) const override;
  ServerState state(uint32_t number) const override {
    return world_.IsDead(number) ? ServerState::kDead : ServerState::kAlive;
  }
  void Start(std::span<const Transfer> batch) override { rma_.Start(batch); }
  bool Collect(std::vector<Completion>* done) override { return rma_.Collect(done); }
  void Send(uint32_t server, const WireMessage& message) override;
  std::optional<Control> Receive() override;
  void Prepare(uint32_t server, uint64_t offset, uint64_t bytes) override;
  void Upkeep() override;

  // MPI's own, in this process: what connects there after the job has been joined is closed on exec (close_on_exec.h), too. Once, before the first Upkeep.
  void WatchEventQueues(std::vector<int> queues) { event_queues_ = std::move(queues); }

  // For those who leave the job.
  MpiWatchdog& watchdog() { return watchdog_; }
  // Waits a little for records that are still on their way; nothing is sent afterwards.
  void EndSending() { sender_.Finish(); }

 private:
  MpiWorld& world_;
  MpiWatchdog watchdog_;
  MpiRma rma_;
  ControlSender sender_;
  // A server may connect some ms after it has answered, on a busy machine later, and hardly ever anew: looked for after 10 ms, 20, 40 and so on.
  static constexpr int64_t kFirstLookNs = 10'000'000;
  std::vector<int> event_queues_;
  std::atomic<int64_t> looks_at_ns_{0}, looks_next_in_ns_{kFirstLookNs};
};

}  // namespace ramspan
