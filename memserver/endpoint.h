// Endpoint: the port through which a memory server meets its clients. The server's loop, sessions and lease table know no
// transport; an endpoint knows no lease. It owns the pool, because how memory can be reached is the transport's business.
//
// Clients are numbered [0, clients()) at the beginning; more may come (NextArrival). A number means the same client until its
// death was told; then it may be given to another one.
// Thread-safety: none; the server's loop is one thread. Ownership: the server borrows the endpoint.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/service_order.h"
#include "common/status.h"
#include "common/wire.h"
#include "memserver/lease_table.h"

namespace ramspan {

class Endpoint {
 public:
  // What a client has sent, as it came: nothing has been checked. Valid until the next call of Poll.
  struct Message {
    uint32_t client = 0;  // a number that is no client's: a stranger
    std::span<const std::byte> record;
  };

  virtual ~Endpoint() = default;

  virtual std::string label() const = 0;  // for messages, behind "memory server": "rank 3", "127.0.0.1:7000"
  virtual uint32_t clients() const = 0;
  virtual uint64_t pool_bytes() const = 0;
  // One pool that all clients reach, whose pages the server's loop makes resident; empty where each lease has memory of
  // its own, which Provide makes.
  virtual std::span<std::byte> pool() { return {}; }
  // A lease is about to be granted: its memory and the client's way to it. False: the system has no memory
  // for it; an endpoint whose leases have memory of their own says why.
  virtual bool Provide(uint32_t /*client*/, const Lease& /*lease*/) { return true; }
  // A lease came back, or its client is gone: nobody may reach the memory any more.
  virtual void Reclaim(const Lease& /*lease*/) {}

  // Whether the server goes on when the last client has left, until ShouldEnd.
  virtual bool is_service() const { return false; }
  virtual bool ShouldEnd() const { return false; }

  // Some client moves bytes by calls that stand still while this server does not poll, although it is not concerned.
  virtual bool needs_polling() const = 0;

  // The next message, or none. Does not wait; gives the transport what it needs to make progress. An error means that the
  // transport is lost. Clients' transfers may need many calls, so it costs little.
  virtual Status Poll(std::optional<Message>* message) = 0;

  // kSome: there may be something for Poll to do. kNone: there is nothing. kUnknown: this transport cannot wait, and has not;
  // only Poll tells.
  enum class Arrival { kSome, kNone, kUnknown };
  // Waits, without using the core, until there may be something for Poll to do, at most `timeout`; with 0 it only looks. What
  // is to be done may go unseen by it, so the caller polls at least that often where a client waits.
  virtual Arrival Wait(std::chrono::microseconds /*timeout*/) { return Arrival::kUnknown; }

  // Progress alone: messages stay where they are.
  virtual void Progress() = 0;

  // Sends without waiting. False: it cannot be sent and never will be, because the client does not take its answers or is
  // gone; what was granted in it has to be taken back.
  [[nodiscard]] virtual bool Answer(uint32_t client, const WireMessage& message) = 0;

  // A client that has come since the last call, with a number that is nobody's.
  virtual std::optional<uint32_t> NextArrival() { return std::nullopt; }

  // How a client calls itself; empty: it does not.
  virtual std::string LabelOf(uint32_t /*client*/) { return ""; }

  // The job that it belongs to; empty: it does not say. What it has moved here, as it says itself.
  virtual std::string JobOf(uint32_t /*client*/) { return ""; }
  virtual ServiceUsage UsageOf(uint32_t /*client*/) { return {}; }
  // Tells it to give back leases until it has returned so many bytes in all since it came, as soon as it has found other places for
  // what is there; what it was told before counts no more.
  virtual void AskBack(uint32_t /*client*/, uint64_t /*bytes*/) {}

  // What `ramspan ctl` wants, from somebody who may; each order is answered by reports, the server's own last.
  struct Order {
    uint64_t from = 0;
    ServiceCommand command;
  };
  virtual std::optional<Order> NextOrder() { return std::nullopt; }
  // kLater: he has yet to take what was sent before; the same report again after the next Poll. kGone: he takes nothing any more.
  enum class Reported { kSent, kLater, kGone };
  virtual Reported Report(uint64_t /*from*/, const ServiceReport& /*report*/) { return Reported::kGone; }

  // From now on clients, those that come later too, are told that they should leave; or that they may stay.
  virtual void TellDraining(bool /*draining*/) {}

  // A client that is known to have died since the last call. Over MPI nobody learns of deaths: they end the job.
  virtual std::optional<uint32_t> NextDeath() { return std::nullopt; }
};

}  // namespace ramspan
