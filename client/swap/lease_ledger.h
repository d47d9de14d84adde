// LeaseLedger: what this process has asked of the memory servers and what it holds of them, so that an answer is
// believed only as far as it is possible. A server that lies can refuse service, but it can make this process neither
// store outside of the memory that is mapped, nor put two chunks into one place.
//
// A grant is taken when it answers the request that is outstanding, lies within what this side knows to be there, is as
// large as was asked for (within both bounds), and overlaps nothing that is held.
//
// Pure bookkeeping; no thread-safety of its own (the asking role's thread).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/wire.h"

namespace ramspan {

class LeaseLedger {
 public:
  enum class Verdict {
    kTake,      // a grant; from now on it is held
    kFull,      // the server says no to the request
    kBroken,    // answers the request with what cannot be; the lease, if it is not one of ours, is to be given back
    kGiveBack,  // a grant that nobody waits for, a late one say: to be given back
    kIgnore,    // nobody waits for it, and it grants nothing new
  };

  // The request that is outstanding is the last one.
  void NoteRequest(uint32_t server, const WireMessage& request);
  // The server has not answered it yet: asking again means to send it again.
  const WireMessage* Outstanding(uint32_t server) const;

  // `limit_bytes`: what is there of the server's pool. REQUIRES: a message that Decode returned.
  Verdict Judge(uint32_t server, const WireMessage& answer, uint64_t limit_bytes);
  bool Holds(uint32_t server, uint64_t lease) const;
  void NoteReturned(uint32_t server, uint64_t lease);

 private:
  struct Held {
    uint64_t bytes = 0;
    uint64_t lease = 0;
  };
  struct Server {
    std::optional<WireMessage> outstanding;
    std::map<uint64_t, Held> by_offset;
    std::map<uint64_t, uint64_t> offset_of_lease;
  };

  Server& At(uint32_t server);
  static bool OverlapsHeld(const Server& server, uint64_t offset, uint64_t bytes);

  std::vector<Server> servers_;
};

}  // namespace ramspan
