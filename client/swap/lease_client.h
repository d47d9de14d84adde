// LeaseClient: this process's conversation with the memory servers about leases. Sends requests and returns, and hands
// out the answers as they come; a deadline is the caller's. Answers are believed only as far as they are possible
// (lease_ledger.h).
//
// Thread-safety: none; one thread at a time (LeaseKeeper's asking role). Ownership: borrows the transport.
#pragma once

#include <cstdint>
#include <optional>

#include "client/swap/lease_ledger.h"
#include "client/transport/transport.h"
#include "common/wire.h"

namespace ramspan {

class LeaseClient {
 public:
  struct Answer {
    uint32_t server = 0;
    // kLeaseGrant, or kFull: also in place of a grant that cannot be. Or kSpare, which nobody asked for.
    WireMessage message;
  };

  explicit LeaseClient(ServerTransport& transport) : transport_(transport) {}

  // Sends. While an earlier request to this server is unanswered, that one is sent again instead, because a server answers
  // a request that it knows as before. `needed`: what somebody waits for, bytes. Returns the request that was sent.
  WireMessage Ask(uint32_t server, uint64_t want, uint64_t minimum, uint64_t needed = 0, bool no_other_place = false);
  void Return(uint32_t server, uint64_t lease);

  // The next answer that has arrived, from any server. Does not wait.
  std::optional<Answer> Next();

 private:
  std::optional<Answer> Judge(uint32_t server, const WireMessage& message);

  ServerTransport& transport_;
  LeaseLedger ledger_;
};

}  // namespace ramspan
