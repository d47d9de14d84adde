// Endpoint: the port through which a memory server meets its clients. The server's loop, sessions and lease table know no
// transport; an endpoint knows no lease. It owns the pool, because how memory can be reached is the transport's business.
//
// Clients are numbered [0, clients()); a number always means the same client.
// Thread-safety: none; the server's loop is one thread. Ownership: the server borrows the endpoint.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/status.h"
#include "common/wire.h"

namespace ramspan {

class Endpoint {
 public:
  // What a client has sent, as it came: nothing has been checked. Valid until the next call of Poll.
  struct Message {
    uint32_t client = 0;  // a number that is no client's: a stranger
    std::span<const std::byte> record;
  };

  virtual ~Endpoint() = default;

  virtual int name() const = 0;  // for messages: an MPI rank
  virtual uint32_t clients() const = 0;
  virtual std::span<std::byte> pool() = 0;

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

  // A client that is known to have died since the last call. Over MPI nobody learns of deaths: they end the job.
  virtual std::optional<uint32_t> NextDeath() { return std::nullopt; }
};

}  // namespace ramspan
