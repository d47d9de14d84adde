// LeaseClient: this process's conversation with the memory servers about leases. Sends requests and returns, and hands
// out the answers as they come; a deadline is the caller's. Answers are believed only as far as they are possible: a
// grant that lies outside its server's pool is dropped.
//
// Thread-safety: none; one thread at a time (RemoteSwap's asking role). Ownership: borrows the world.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "common/mpi_world.h"
#include "common/wire.h"

namespace ramspan {

class LeaseClient {
 public:
  struct Answer {
    uint32_t server = 0;
    WireMessage message;  // kLeaseGrant or kFull
  };

  explicit LeaseClient(MpiWorld& world) : world_(world) {}
  ~LeaseClient();
  LeaseClient(const LeaseClient&) = delete;
  LeaseClient& operator=(const LeaseClient&) = delete;

  // Sends; an error of MPI marks the server dead.
  void Ask(uint32_t server, uint64_t want, uint64_t minimum);
  void Return(uint32_t server, uint64_t lease);

  // The next answer that has arrived, from any server. Does not wait.
  std::optional<Answer> Next();

 private:
  struct Unsent {
    WireRecord record;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void Send(uint32_t server, const WireMessage& message);
  bool ForgetSent();  // in order of sending; true when nothing is unsent

  MpiWorld& world_;
  std::deque<Unsent> unsent_;  // a deque: a record in flight may not move
  uint32_t sequence_ = 0;
};

}  // namespace ramspan
