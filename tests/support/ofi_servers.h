// OfiServers: memory servers as `ramspan server` runs them, each on a thread of this process instead of in a process of its own, so
// that a test can stop one in the middle and take it away.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "memserver/ofi_endpoint.h"

namespace ramspan {

Secret TestSecret(const std::string& text = "the secret of these tests");

class OfiServers {
 public:
  struct Options {
    uint32_t servers = 1;
    uint64_t pool_bytes = uint64_t{32} << 20;
    std::string listen = "127.0.0.1:0";
    FabricOptions fabric;
    std::chrono::milliseconds greeting_max{5000};
    int threads = 1;
    std::string network;  // a file that names the network namespace in which they are; empty: this thread's
  };
  explicit OfiServers(const Options& options);
  ~OfiServers();

  std::vector<SocketPlace> places() const;
  std::string names() const;  // as in the key `servers`
  OfiEndpoint& endpoint(uint32_t number) { return *servers_[number]->endpoint; }
  // As if its process had been killed: everything that it had open is closed.
  void Kill(uint32_t number);
  // Serves nothing and answers nothing until it goes on; its sockets stay open.
  void Freeze(uint32_t number, bool frozen);
  // What is leased of its pool; of a server that is not frozen.
  uint64_t leased_bytes(uint32_t number) const { return servers_[number]->leased_bytes; }

 private:
  class Guarded;
  struct Server {
    std::unique_ptr<OfiEndpoint> endpoint;
    std::string place;
    std::atomic<bool> frozen{false}, killed{false}, is_frozen{false};
    std::atomic<uint64_t> leased_bytes{0};
    std::thread thread;
  };
  // Opens the server, says so, and serves until it is killed.
  static void Run(const Options& options, Server* server, std::promise<void>* opened);

  std::vector<std::unique_ptr<Server>> servers_;
};

}  // namespace ramspan
