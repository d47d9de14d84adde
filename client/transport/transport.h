// ServerTransport: the port through which a client reaches memory servers. It moves bytes and records; it knows no chunk, no
// slot and no lease. Each kind of network is one implementation (mpi_transport.h); tests have one within the process.
//
// Servers are numbered from 0. A number always means the same server: the list grows when one joins and never shrinks, a
// server that dies stays dead, and one that is started again is a new one. What Server says of one never changes.
//
// All of it is pure, so that a transport that wraps another one cannot forget a call. PlainTransport has the usual answers.
//
// One user at a time: records and completions come to whoever asks. Several tiers over one transport have a group of its servers each
// (server_groups.h).
//
// Thread-safety: Send and Receive by one thread at a time, everything else by any thread. Ownership: the caller owns
// buffers; between Start and the Collect that returns a transfer the transport may read and write its buffer, and the
// caller may touch neither (a buffer that is being written out may still be read).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/wire.h"

namespace ramspan {

class ServerTransport {
 public:
  struct Capabilities {
    const char* name = "";
    // A client reaches only what was leased to it. False: one job is one trust domain (docs/architecture.md).
    bool isolation = false;
    // A server's death is seen by its state, and transfers to it fail. False: it may end this process.
    bool survives_server_death = false;
    // By `ramspan run` as ranks of the job, by it as processes beside the job, or by the user with `ramspan server`. Messages name
    // what the user can do about them.
    enum class StartedBy : uint8_t { kRunAsRanks, kRunBesideJob, kUser };
    StartedBy started_by = StartedBy::kRunAsRanks;
  };

  // kDraining: what is there can be used, but no lease should be asked for any more.
  enum class ServerState : uint8_t { kAlive, kDraining, kDead };

  struct Server {
    std::string label;            // for messages, behind "memory server": "rank 3", "127.0.0.1:7000"
    int distance = 2;             // common/topology.h
    // Of its pool, and never more than this side knows to be there, whatever the server says: what bounds each store.
    uint64_t capacity_bytes = 0;
    // The pool in this process's memory, all of capacity_bytes, for load and store; null where only transfers get there.
    // It stays, with what was stored, when the server dies or is given up, also if it lives on.
    std::byte* mapped = nullptr;
    bool drains = false;  // it has said that it will end when it has been left; stays when it has ended
  };

  // A run of bytes between local memory and one server's pool. A slot may need several: they go into one batch.
  struct Transfer {
    uint32_t server = 0;
    bool is_write = false;
    void* buffer = nullptr;
    uint64_t offset = 0;  // in the server's pool
    size_t bytes = 0;
    void* cookie = nullptr;  // the caller's; comes back with the completion
  };
  // kOk: all bytes were moved, and those of a write are seen by every later read. Else kUnavailable: how much was moved is
  // not known; state(server) says whether trying again makes sense.
  struct Completion {
    void* cookie = nullptr;
    uint32_t server = 0;
    StatusCode result = StatusCode::kOk;
  };

  // A record as it came from a server. Nothing in it has been checked.
  struct Control {
    uint32_t server = 0;
    WireRecord record{};
  };

  virtual ~ServerTransport() = default;

  virtual Capabilities capabilities() const = 0;
  // A number that differs from client to client, so that they do not all begin with the same server.
  virtual uint32_t self() const = 0;

  virtual uint32_t servers() const = 0;
  virtual Server server(uint32_t number) const = 0;
  virtual ServerState state(uint32_t number) const = 0;

  // Begins the transfers of a batch, in any order; Collect returns one completion for each. Does not wait for bytes to move.
  // Allocates nothing once warm, but for a buffer that the network has to know first; where it does it may throw std::bad_alloc: then the first of the batch that was not begun is not known, so
  // who goes on after it begins them one by one. REQUIRES: each lies within its server's capacity.
  virtual void Start(std::span<const Transfer> batch) = 0;
  // Appends what has ended, of any thread's transfers; perhaps nothing. May block while bytes move. False: there was nothing
  // in flight that no other thread is already waiting for. It may throw std::bad_alloc: what it has appended has ended, and what it has
  // not comes with a later call.
  virtual bool Collect(std::vector<Completion>* done) = 0;

  // Sends without waiting. Records to one server arrive in order, or its state tells that it is dead. An answer may be lost
  // with the server only, but a caller that sends a request again does no harm.
  virtual void Send(uint32_t server, const WireMessage& message) = 0;
  // The next record that has come, from any server; does not wait.
  virtual std::optional<Control> Receive() = 0;

  // A range of a mapped pool is about to be used: its pages may be mapped here all at once.
  virtual void Prepare(uint32_t server, uint64_t offset, uint64_t bytes) = 0;

  // What a server wants back of its leases now, in bytes, and has not got: others have a right to it. It may change its mind.
  virtual uint64_t AskedBack(uint32_t server) = 0;
  // What this process has moved to and from a server until now, for its list of clients. Now and then.
  virtual void TellUsage(uint32_t server, uint64_t written_bytes, uint64_t read_bytes) = 0;

  // Other names of servers than those at the start: new ones are looked for and join, those that are not named any more are left
  // as if they drained. kInvalidArgument: what to write. kFailedPrecondition: the servers of this transport are ranks of its job.
  Status UseServers(const std::string& names) {
    Result<std::function<void()>> use = PrepareServers(names);
    if (use.ok()) use.value()();
    return use.ok() ? Status() : use.status();
  }
  // In two steps, for who has to know first that nothing fails: changes nothing. What it returns puts the names to use, once, and needs no heap.
  virtual Result<std::function<void()>> PrepareServers(const std::string& names) = 0;
  virtual std::string server_names() const = 0;

  // At the process's end: no server joins from now on. Returns when no thread is within the network's library for one, whose own end comes next; waits
  // some seconds for that at most.
  virtual void EndMeetings() noexcept = 0;

  // The pages of this memory go back to the kernel, and others will be at its addresses. A network that was told of a buffer there
  // may have pinned the pages that it had then, and has to be told anew before the next transfer. REQUIRES: none is in flight there.
  // Does not wait, makes no system call, allocates nothing: the caller holds the engine's mutex.
  virtual void ForgetMemory(std::span<std::byte> memory) noexcept = 0;
  // What ForgetMemory has left for later, because it takes system calls. Called every few ms.
  virtual void Upkeep() = 0;
  // Local buffers that the network knows now, and what this process spends to remember them.
  struct Registered {
    uint64_t buffers = 0, bytes = 0, metadata_bytes = 0;
  };
  virtual Registered registered() const = 0;
};

// What a transport answers whose servers are the job's own, for good, and whose network needs not be told of buffers.
class PlainTransport : public ServerTransport {
 public:
  void Prepare(uint32_t, uint64_t, uint64_t) override {}
  uint64_t AskedBack(uint32_t) override { return 0; }
  void TellUsage(uint32_t, uint64_t, uint64_t) override {}
  Result<std::function<void()>> PrepareServers(const std::string&) override { return FailedPrecondition("the servers of this job are ranks of it"); }
  std::string server_names() const override { return ""; }
  void EndMeetings() noexcept override {}
  void ForgetMemory(std::span<std::byte>) noexcept override {}
  void Upkeep() override {}
  Registered registered() const override { return {}; }
};

}  // namespace ramspan
