// OfiTransport: memory servers that are processes of their own, outside of any MPI job: found at places (host:port, or the /path of
// a Unix socket), known by a shared secret, reached over libfabric or, on this host, by load and store. A server may die, and new
// ones may come: what is configured and not there is looked for again and again, and joins with a number of its own.
//
// A thread of the transport's keeps the links: it takes what servers send, asks silent ones whether they are there, and gives up
// who does not answer, or moves nothing of what is in flight, for silence_max of running time (common/running_clock.h). It looks at transfers
// itself where nobody collects them. Another one
// looks who is named, and for places where no server was found: to look up a name, to read a folder of a parallel file system or to wait
// for somebody who does not answer may take seconds.
//
// Thread-safety: as ServerTransport says. Ownership: of servers, links and threads; borrows buffers until their transfers end.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/transport/ofi_places.h"
#include "client/transport/ofi_server.h"
#include "client/transport/seek_rounds.h"
#include "client/transport/transport.h"
#include "common/fabric.h"
#include "common/running_clock.h"
#include "common/socket_address.h"

namespace ramspan {

struct OfiOptions {
  std::string servers;  // their names, as in the key `servers` (common/rendezvous.h)
  FabricOptions fabric;
  // False: also servers of this host are reached over the network. For tests.
  bool near = true;
  ServerTransport::Capabilities::StartedBy started_by = ServerTransport::Capabilities::StartedBy::kUser;
  // Running time. Above what a loaded host keeps a server from answering, and below what a program's user takes for a hang.
  std::chrono::milliseconds silence_max{30'000};
  std::chrono::milliseconds connect_max{10'000};  // at the start
  uint32_t servers_max = 256;                     // that are ever met. Fewer for tests
};

class OfiTransport final : public ServerTransport {
 public:
  // Connects to all places, as far as they answer; says who does not. kUnavailable: none does, and there is no folder where one may
  // be found later.
  static Result<std::unique_ptr<OfiTransport>> Open(const OfiOptions& options, const Secret& secret);
  ~OfiTransport() override;

  Capabilities capabilities() const override {
    return {.name = "ofi", .isolation = true, .survives_server_death = true, .started_by = options_.started_by};
  }
  uint32_t self() const override { return self_; }
  uint32_t servers() const override { return count_.load(std::memory_order_acquire); }
  Server server(uint32_t number) const override {
    Server server = servers_[number]->description();
    server.drains = servers_[number]->is_draining();
    return server;
  }
  ServerState state(uint32_t number) const override {
    const OfiServer& server = *servers_[number];
    return server.is_dead() ? ServerState::kDead : server.is_draining() ? ServerState::kDraining : ServerState::kAlive;
  }
  void Start(std::span<const Transfer> batch) override;
  bool Collect(std::vector<Completion>* done) override;
  void Send(uint32_t server, const WireMessage& message) override { servers_[server]->Send(message); }
  std::optional<Control> Receive() override;
  void Prepare(uint32_t server, uint64_t offset, uint64_t bytes) override { servers_[server]->Prepare(offset, bytes); }
  uint64_t AskedBack(uint32_t server) override { return servers_[server]->AskedBack(); }
  void TellUsage(uint32_t server, uint64_t written, uint64_t read) override { servers_[server]->TellUsage(written, read); }
  Result<std::function<void()>> PrepareServers(const std::string& names) override;
  std::string server_names() const override { return places_.names(); }
  void EndMeetings() noexcept override;
  void ForgetMemory(std::span<std::byte> memory) noexcept override;
  void Upkeep() override;
  Registered registered() const override;

  // Places at which no server was found. Constant from Open to the first look for them, 3 s later; for tests.
  size_t places_missing() const;

 private:
  // Places and servers that were started again in their stead; a job that sees more has another problem.
  static constexpr uint32_t kServersMax = 256;
  // Of one server, for the thread that keeps its link.
  struct Watched {
    int descriptor = -1;
    uint64_t arrivals = 0, ended = 0, collected = 0;
    RunningClock::time_point last_arrival{}, last_end{}, last_ping{}, last_collected{};
    RunningClock::time_point wanted{};  // when it was seen to be, the last time
  };
  struct Sought {
    SocketPlace place;
    bool in_folder = false;
    bool wanted = true;            // false: it is not named any more
    uint32_t number = UINT32_MAX;  // of the server that was found there
    SeekRounds::Turn turn;
  };

  OfiTransport(const OfiOptions& options, const Secret& secret);
  // Of an eventfd.
  static void Signal(const Descriptor& event);
  static void Forget(const Descriptor& event);

  std::span<const std::shared_ptr<OfiRegistrations>> networks() const {
    return {networks_.data(), network_count_.load(std::memory_order_acquire)};
  }
  void SleepUntilArrival();
  // The thread of the links.
  void KeepLinks();
  void NapWithoutHeap() const;
  void WaitForLinks();
  void Judge(RunningClock::time_point now);

  // ofi_seek.cc: how servers are met, and the thread that seeks them.
  Status Connect(Sought* sought, std::chrono::milliseconds at_most);
  Result<std::unique_ptr<OfiServer>> Meet(const SocketPlace& place, std::chrono::milliseconds at_most);
  Result<std::unique_ptr<OfiLane>> OpenLane(const Introduction& introduction, FabricAddress* here);
  uint32_t NumberOf(uint64_t instance) const;  // of a server that lives; UINT32_MAX: none
  void Seek();
  void Follow();
  void Want(const std::vector<OfiPlaces::Place>& places);
  bool IsMissing(const Sought& sought) const;
  void SeekMissing();
  void SeekAt(Sought* sought);
  void LeaveUnwanted();

  // Constant after construction.
  const OfiOptions options_;
  const Secret secret_;
  const uint32_t self_;

  // A server is there, whole, before count_ says so (release), and stays until the end.
  std::array<std::unique_ptr<OfiServer>, kServersMax> servers_;
  std::atomic<uint32_t> count_{0};
  std::atomic<uint32_t> receive_next_{0}, collect_next_{0};  // whose turn it is; any order will do
  OfiPlaces places_;
  // A batch was begun, or something ended. Publishes nothing.
  std::atomic<std::chrono::steady_clock::time_point> last_news_{};

  // A network is there before network_count_ says so (release), and stays until the end: ForgetMemory takes no lock to look.
  std::array<std::shared_ptr<OfiRegistrations>, kServersMax> networks_;
  std::atomic<uint32_t> network_count_{0};

  // Open's, then the seeking thread's alone.
  std::vector<Sought> sought_;
  SeekRounds seek_rounds_;
  bool said_no_more_ = false;
  bool follows_ = false;  // who is named is not known to the end yet
  std::chrono::steady_clock::time_point next_look_{};

  // The links' thread's alone.
  std::array<Watched, kServersMax> watched_;
  uint32_t watched_count_ = 0;
  RunningClock clock_;

  Descriptor ended_;   // readable from the end on
  Descriptor joined_;  // readable when a server has joined since the links' thread looked last
  Descriptor news_;    // readable when other servers are named since the seeking thread looked last
  std::atomic<bool> ends_{false};  // publishes nothing but itself
  // Each sets the one and then looks at the other (seq_cst): a meeting that does not see the end is waited for.
  std::atomic<bool> meets_no_more_{false}, is_meeting_{false};
  std::thread links_, seeker_;
};

}  // namespace ramspan
