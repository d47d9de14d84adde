// OfiEndpoint: the clients of a memory server that stands by itself. They come and go over stream sockets (common/link.h), prove
// that they know the secret, and then reach their leases by one-sided transfers over libfabric, or, on this host, by load and
// store: the memory of a near client's lease is a memory file that is handed to it alone.
//
// Isolation: each lease is registered by itself, with a key that only its client is told, and the registration ends with the
// lease; memory is made for one lease and never passed on (lease_memory.h).
//
// What strangers can cost here: kStrangersMax connections that have not yet proved anything (kNewStrangersMax of less than a second),
// each for greeting_max at most, with the descriptor that is kept for its data; the oldest of them goes when one more knocks. The fabric's own port is the provider's: tcp accepts
// everybody there, for as long as he stays, so strangers who can reach it may cost the server all its descriptors, and clients
// are sent away until they go: only a firewall or a network of its own helps against that (docs/operations.md).
//
// Thread-safety: as Endpoint says; End may be called by any thread or signal handler. Ownership: of everything.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/fabric.h"
#include "common/link.h"
#include "common/running_clock.h"
#include "common/socket_address.h"
#include "memserver/endpoint.h"
#include "memserver/fabric_threads.h"
#include "memserver/lease_memory.h"
#include "memserver/seldom.h"

namespace ramspan {

struct OfiEndpointOptions {
  uint64_t pool_bytes = 0;
  std::string listen;  // "host:port", with a host of this machine; empty: only clients of this host
  std::string socket;  // path of a Unix socket for clients of this host, or empty
  FabricOptions fabric;
  int threads = 1;     // that move bytes of far clients; the first is the server's loop
  std::chrono::milliseconds greeting_max{5000};  // of running time, for a stranger to prove that it knows the secret
};

class OfiEndpoint final : public Endpoint {
 public:
  static constexpr size_t kStrangersMax = 64, kNewStrangersMax = 512;
  // Who has proved to know the secret may take longer until it is there: it looks for a way over the fabric.
  static constexpr std::chrono::seconds kArrivalMax{30};

  // kInvalidArgument, kUnavailable: what to change. Clients of this host are welcome in any case, at a name without a file.
  static Result<std::unique_ptr<OfiEndpoint>> Open(const OfiEndpointOptions& options, const Secret& secret);
  ~OfiEndpoint() override;

  // What `listen` (or, where `near`, `socket`) names. kInvalidArgument, with what to write.
  static Result<SocketPlace> PlaceToListen(const std::string& where, bool near);
  // Where clients find it, with the port that was chosen; the Unix socket's path, or its name, without `listen`.
  const std::string& place() const { return place_; }
  const char* provider() const { return fabrics_ ? fabrics_->provider() : "none"; }
  uint64_t instance() const { return instance_; }  // of this process, as it introduces itself
  // Asks the server's loop to end.
  void End();

  std::string label() const override { return place_; }
  uint32_t clients() const override { return 0; }
  uint64_t pool_bytes() const override { return memory_->bytes(); }
  bool is_service() const override { return true; }
  bool ShouldEnd() const override { return ends_.load(std::memory_order_relaxed); }
  bool needs_polling() const override { return true; }
  Status Poll(std::optional<Message>* message) override;
  void Progress() override;
  Arrival Wait(std::chrono::microseconds timeout) override;
  bool Answer(uint32_t client, const WireMessage& message) override;
  bool Provide(uint32_t client, const Lease& lease) override;
  void Reclaim(const Lease& lease) override;
  std::optional<uint32_t> NextArrival() override;
  std::optional<uint32_t> NextDeath() override;
  std::string LabelOf(uint32_t client) override;
  std::string JobOf(uint32_t client) override;
  ServiceUsage UsageOf(uint32_t client) override;
  void AskBack(uint32_t client, uint64_t bytes) override;
  std::optional<Order> NextOrder() override;
  Reported Report(uint64_t from, const ServiceReport& report) override;
  void TellDraining(bool draining) override;

 private:
  struct Visitor;
  struct Listener {
    Descriptor socket;
    bool near = false;
    bool rests = false;  // who waits there cannot be taken in now
  };
  // How a lease's client reaches it.
  struct Provided {
    uint32_t client = 0;
    FabricRegion region;  // empty for a near client
  };

  // What tcp;ofi_rxm opens at a client's first transfer (measured). Where none is left, the client waits and neither side is told why; so as many are
  // kept for those who are here, and nobody is let in for whom there would be none.
  static constexpr size_t kDescriptorsOfAConnection = 1;
  // Ids of what epoll watches that is no visitor; visitors follow.
  static constexpr uint64_t kWakeId = 0, kFabricId = 1, kListenerId = 2, kFirstVisitorId = 16;

  OfiEndpoint(const OfiEndpointOptions& options, const Secret& secret);
  Status Make();
  Status AddListener(const std::string& where, bool near, SocketAddress* bound);
  Status OpenFabric(const std::string& host);
  bool NoteRefusal(const Status& why);
  Status Watch(int descriptor, uint64_t id);
  bool LookAtSockets(int wait_ms);
  void AcceptFrom(Listener& listener);
  bool AcceptOne(Listener& listener);
  void SendOneAway(Listener& listener);
  size_t ConnectionsToCome() const;
  bool HasDescriptorForALease() const;
  void SetResting(Listener& listener, bool rests);
  void NoteUnheard(const std::string& why);
  void DropExtraStrangers();
  void Visit(Visitor& visitor);
  void TellNews(Visitor& visitor);
  void TellAlive();
  bool TakeFrame(Visitor& visitor, Message* message);
  bool TakeOrder(Visitor& visitor, const LinkFrame& frame);
  void Greet(Visitor& visitor);
  void Welcome(Visitor& visitor, const Introduction& introduction);
  void LookForLateOnes();
  void Leave(uint64_t id);
  Visitor* ByNumber(uint32_t client);

  // Constant after Make.
  const OfiEndpointOptions options_;
  const Secret secret_;
  std::string place_, local_name_;
  uint64_t instance_ = 0;
  Descriptor epoll_, wake_;
  std::vector<Listener> listeners_;
  SocketFile socket_file_;  // options_.socket, once it is bound

  std::unique_ptr<LeaseMemory> memory_;
  std::unique_ptr<FabricThreads> fabrics_;      // null without `listen`
  FabricEndpoint* fabric_ = nullptr;            // the first, which is polled here; likewise
  std::map<uint64_t, Provided> provided_;       // by lease; before the endpoints that its regions were made for go
  Descriptor spare_;                            // given up for a moment when there are no more descriptors

  std::map<uint64_t, std::unique_ptr<Visitor>> visitors_;  // by a number that is never used again
  uint64_t next_id_ = 0;
  std::vector<uint64_t> visitor_of_client_;  // by client; 0: nobody
  std::deque<uint64_t> ready_;               // visitors that may have frames for us
  std::deque<uint32_t> arrivals_, deaths_;
  std::deque<Order> orders_;
  bool draining_ = false;
  std::vector<uint32_t> told_dead_, free_numbers_;
  WireRecord last_{};
  unsigned polls_ = 0;
  Seldom unheard_, sent_away_, known_sent_away_;
  Seldom refused_;  // leases, because the system has not what they need
  RunningClock clock_;
  RunningClock::time_point next_look_{};
  std::chrono::steady_clock::time_point looked_at_sockets_{};  // or told clients that they will be
  std::atomic<bool> ends_{false};  // publishes nothing but itself
};

}  // namespace ramspan
