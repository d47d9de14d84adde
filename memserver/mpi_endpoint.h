// MpiEndpoint: the clients of an MpiWorld. MPICH moves nothing for a target that is outside MPI, so a server with clients
// on other nodes has to be polled while they transfer. Where the network's library watches its sockets by epoll, Wait waits
// for those; where messages of far clients turn out to come without a word from them, it does no more.
//
// Thread-safety: as Endpoint says. Ownership: borrows the world.
#pragma once

#include <memory>
#include <vector>

#include "common/event_descriptors.h"
#include "common/mpi_control.h"
#include "common/mpi_world.h"
#include "memserver/endpoint.h"
#include "memserver/wait_trust.h"

namespace ramspan {

class MpiEndpoint final : public Endpoint {
 public:
  explicit MpiEndpoint(MpiWorld& world);

  std::string label() const override { return "rank " + std::to_string(world_.rank()); }
  uint32_t clients() const override { return static_cast<uint32_t>(world_.clients().size()); }
  uint64_t pool_bytes() const override { return world_.pool_bytes(); }
  std::span<std::byte> pool() override { return {world_.pool(), world_.pool_bytes()}; }
  bool needs_polling() const override { return needs_polling_; }
  Status Poll(std::optional<Message>* message) override;
  Arrival Wait(std::chrono::microseconds timeout) override;
  void Progress() override;
  bool Answer(uint32_t client, const WireMessage& message) override;

 private:
  MpiWorld& world_;
  bool needs_polling_ = false;
  std::vector<uint32_t> client_of_rank_;  // by world rank; UINT32_MAX for a server
  std::vector<std::unique_ptr<ControlSender>> senders_;  // by client
  ControlMessage last_;
  EventDescriptors events_;
  WaitTrust trust_;
};

}  // namespace ramspan
