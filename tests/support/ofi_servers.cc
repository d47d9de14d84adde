#include "tests/support/ofi_servers.h"

#include <fcntl.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/descriptor.h"
#include "memserver/server_loop.h"

namespace ramspan {

Secret TestSecret(const std::string& text) { return Secret::From(std::as_bytes(std::span(text))).value(); }

// The endpoint, but for what the test says of it.
class OfiServers::Guarded final : public Endpoint {
 public:
  explicit Guarded(Server* server) : server_(*server), real_(*server->endpoint) {}
  std::string label() const override { return real_.label(); }
  uint32_t clients() const override { return real_.clients(); }
  uint64_t pool_bytes() const override { return real_.pool_bytes(); }
  bool is_service() const override { return real_.is_service(); }
  bool ShouldEnd() const override { return real_.ShouldEnd(); }
  bool needs_polling() const override { return real_.needs_polling(); }
  Status Poll(std::optional<Message>* message) override {
    while (server_.frozen && !server_.killed) {
      server_.is_frozen = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    server_.is_frozen = false;
    return server_.killed ? Unavailable("killed") : real_.Poll(message);
  }
  void Progress() override { real_.Progress(); }
  Arrival Wait(std::chrono::microseconds timeout) override { return real_.Wait(std::min(timeout, std::chrono::microseconds(5000))); }
  bool Answer(uint32_t client, const WireMessage& message) override { return real_.Answer(client, message); }
  bool Provide(uint32_t client, const Lease& lease) override {
    if (!real_.Provide(client, lease)) return false;
    server_.leased_bytes += lease.bytes;
    return true;
  }
  void Reclaim(const Lease& lease) override {
    real_.Reclaim(lease);
    server_.leased_bytes -= lease.bytes;
  }
  std::optional<uint32_t> NextArrival() override { return real_.NextArrival(); }
  std::string JobOf(uint32_t client) override { return real_.JobOf(client); }
  void AskBack(uint32_t client, uint64_t bytes) override { real_.AskBack(client, bytes); }
  std::optional<uint32_t> NextDeath() override { return real_.NextDeath(); }

 private:
  Server& server_;
  OfiEndpoint& real_;
};

OfiServers::OfiServers(const Options& options) {
  for (uint32_t i = 0; i < options.servers; ++i) {
    servers_.push_back(std::make_unique<Server>());
    std::promise<void> opened;
    servers_.back()->thread = std::thread(Run, options, servers_.back().get(), &opened);
    opened.get_future().wait();
  }
}

OfiServers::~OfiServers() {
  for (uint32_t i = 0; i < servers_.size(); ++i) Kill(i);
}

// A socket belongs to the network of the thread that makes it.
void OfiServers::Run(const Options& options, Server* server, std::promise<void>* opened) {
  if (!options.network.empty()) {
    const Descriptor network(open(options.network.c_str(), O_RDONLY | O_CLOEXEC));
    RS_CHECK(setns(network.number(), CLONE_NEWNET) == 0, "%s: %s", options.network.c_str(), std::strerror(errno));
  }
  auto endpoint = OfiEndpoint::Open({.pool_bytes = options.pool_bytes, .listen = options.listen, .socket = "", .fabric = options.fabric, .threads = options.threads, .greeting_max = options.greeting_max}, TestSecret());
  RS_CHECK(endpoint.ok(), "%s", endpoint.status().message().c_str());
  server->endpoint = std::move(endpoint).value();
  server->place = server->endpoint->place();
  opened->set_value();
  Guarded guarded(server);
  static_cast<void>(ramspan::Serve(guarded).ok());
  server->endpoint.reset();
}

std::string OfiServers::names() const {
  std::string names;
  for (const SocketPlace& place : places()) names += (names.empty() ? "" : ",") + place.text();
  return names;
}

std::vector<SocketPlace> OfiServers::places() const {
  std::vector<SocketPlace> places;
  for (const auto& server : servers_) places.push_back(ParseSocketPlace(server->place).value());
  return places;
}

void OfiServers::Kill(uint32_t number) {
  servers_[number]->killed = true;
  if (servers_[number]->thread.joinable()) servers_[number]->thread.join();
}

void OfiServers::Freeze(uint32_t number, bool frozen) {
  servers_[number]->frozen = frozen;
  while (frozen && !servers_[number]->is_frozen) std::this_thread::yield();
}

}  // namespace ramspan
