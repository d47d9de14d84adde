// FabricThreads: the endpoints of a memory server's fabric, one for each progress thread. Each has a domain of its own, so that the threads
// share no lock of the provider's; a client gets the endpoint that has the fewest clients and stays there. The first one is polled by the
// server's loop, every other by a thread of its own, which spins while transfers come and for a millisecond after them, and then sleeps
// until the provider's descriptor wakes it (where there is none, it looks every millisecond).
//
// Thread-safety: none, but for the threads inside; endpoints may be used by any thread. Ownership: of endpoints and threads. Regions that were
// made for an endpoint must go before this.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/descriptor.h"
#include "common/fabric.h"

namespace ramspan {

class FabricThreads {
 public:
  // REQUIRES: threads >= 1. The same errors as FabricDomain::OpenAt.
  static Result<std::unique_ptr<FabricThreads>> Open(const std::string& host, const FabricOptions& options, int threads);
  ~FabricThreads();
  FabricThreads(const FabricThreads&) = delete;
  FabricThreads& operator=(const FabricThreads&) = delete;

  // For one more client; given back by Leave.
  size_t Join();
  void Leave(size_t number) { --lanes_[number]->clients; }
  FabricEndpoint& endpoint(size_t number) { return *lanes_[number]->endpoint; }
  const char* provider() const { return lanes_[0]->domain->provider(); }
  size_t clients(size_t number) const { return lanes_[number]->clients; }

 private:
  struct Lane {
    std::shared_ptr<FabricDomain> domain;
    std::unique_ptr<FabricEndpoint> endpoint;
    size_t clients = 0;
    std::thread thread;  // of all but the first
  };
  FabricThreads() = default;
  void Run(FabricEndpoint* endpoint) const;

  std::vector<std::unique_ptr<Lane>> lanes_;
  Descriptor wake_;  // readable for ever when the threads should end
  std::atomic<bool> ends_{false};  // publishes nothing but itself
};

}  // namespace ramspan
