// LocalServers: memory servers within this process, for tests of everything above the transport. Each is a real MemServer
// with a real pool; what is between it and its clients is made here, from a seed: delays, reordered transfers, lost
// answers, servers that stop for a while, die or join, and servers that lie.
//
// Nothing happens by itself: each Receive and each Collect of a client is one step of time, in which messages arrive and
// transfers end. So a test with one thread is the same at each run.
//
// Thread-safety: any thread, any call (one lock over all). Ownership: LocalTransports borrow the LocalServers.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "client/transport/transport.h"
#include "memserver/server.h"

namespace ramspan {

struct LocalServersOptions {
  uint64_t seed = 1;
  uint32_t servers = 1;
  uint32_t clients = 1;
  uint64_t pool_bytes = uint64_t{32} << 20;
  uint32_t near = 0;         // the first so many servers are mapped
  unsigned delay_max = 0;    // steps until a message arrives or a transfer ends: 0 to this
  double lose_answers = 0;   // the share of answers that never arrive
  // What a server says may be changed on its way. The server itself believes what it said.
  std::function<void(uint32_t server, WireMessage* answer)> tamper;
  // Before a client is told a server's state: it may change right then.
  std::function<void(uint32_t server)> before_state;
};

class LocalServers {
 public:
  explicit LocalServers(LocalServersOptions options);
  ~LocalServers();

  // The transport of one client, [0, clients). At most one at a time for each.
  std::unique_ptr<ServerTransport> Connect(uint32_t client);

  // For ever; what is in flight fails.
  void Kill(uint32_t server);
  // Answers and moves nothing until it is thawed.
  void Freeze(uint32_t server, bool frozen);
  void Drain(uint32_t server, bool draining = true);
  // What the server wants back from its clients, from each, and has not got.
  void AskBack(uint32_t server, uint64_t bytes);
  // One more server, far; returns its number.
  uint32_t Join();
  // Without a bye: its leases go back.
  void KillClient(uint32_t client);
  // Random bytes that arrive as if the server had sent them.
  void SendGarbage(uint32_t server, uint32_t client, const WireRecord& record);

  const MemServer& server(uint32_t number) const { return *servers_[number]->server; }
  uint64_t answers_lost() const { return answers_lost_; }

 private:
  friend class LocalTransport;
  struct Server {
    std::unique_ptr<MemServer> server;
    struct Freed {
      void operator()(std::byte* memory) const { std::free(memory); }
    };
    std::unique_ptr<std::byte, Freed> pool;  // by calloc: pages that no test needs are never made
    uint64_t asked_back = 0;
    bool near = false, dead = false, frozen = false, draining = false;
  };
  struct Message {
    uint32_t server = 0, client = 0;
    WireRecord record{};
    uint64_t due = 0;
  };
  struct Moving {
    uint32_t client = 0;
    ServerTransport::Transfer transfer;
    uint64_t due = 0;
  };

  void AddServer(bool near);
  uint64_t Due() { return now_ + random_() % (options_.delay_max + uint64_t{1}); }
  void Step();
  void Deliver(const Message& message);
  void Answer(uint32_t server, uint32_t client, WireMessage answer);
  StatusCode Move(const ServerTransport::Transfer& transfer);

  const LocalServersOptions options_;
  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  uint64_t now_ = 0;
  std::vector<std::unique_ptr<Server>> servers_;
  std::deque<Message> to_servers_, to_clients_;
  std::vector<Moving> moving_;
  uint64_t answers_lost_ = 0;
};

}  // namespace ramspan
