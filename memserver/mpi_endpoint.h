// MpiEndpoint: the clients of an MpiWorld. MPICH moves nothing for a target that is outside MPI, so a server with clients
// on other nodes has to be polled while they transfer.
//
// Thread-safety: as Endpoint says. Ownership: borrows the world.
#pragma once

#include <memory>
#include <vector>

#include "common/mpi_control.h"
#include "common/mpi_world.h"
#include "memserver/endpoint.h"

namespace ramspan {

class MpiEndpoint final : public Endpoint {
 public:
  explicit MpiEndpoint(MpiWorld& world);

  int name() const override { return world_.rank(); }
  uint32_t clients() const override { return static_cast<uint32_t>(world_.clients().size()); }
  std::span<std::byte> pool() override { return {world_.pool(), world_.pool_bytes()}; }
  bool needs_polling() const override { return needs_polling_; }
  Status Poll(std::optional<Message>* message) override;
  void Progress() override;
  bool Answer(uint32_t client, const WireMessage& message) override;

 private:
  MpiWorld& world_;
  bool needs_polling_ = false;
  std::vector<uint32_t> client_of_rank_;  // by world rank; UINT32_MAX for a server
  std::vector<std::unique_ptr<ControlSender>> senders_;  // by client
  ControlMessage last_;
};

}  // namespace ramspan
