// Of OfiEndpoint: somebody on one of its sockets.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "memserver/ofi_endpoint.h"
#include "memserver/usage_meter.h"

namespace ramspan {

// Somebody on a socket: a stranger until the handshake and the introduction are over, then a client.
struct OfiEndpoint::Visitor {
  Visitor(uint64_t the_id, Descriptor socket, const Secret& secret, bool is_near)
      : id(the_id), near(is_near), link(std::move(socket), Handshake::Role::kServer, secret) {}
  const uint64_t id;
  const bool near;
  Link link;
  RunningClock::time_point greeting_ends{};
  bool waits_to_write = false, is_ready = false;
  bool greeted = false, introduced_itself = false;
  uint32_t client = 0;  // from here on meaningful when it has introduced itself
  size_t fabric = 0;    // of a far client that was greeted: the number of its endpoint here
  uint64_t peer = 0;    // and what it is called there
  std::string label, job;
  // What it has yet to be told: the newest alone counts. A client that takes nothing (it is suspended) costs these places, however much is said to it.
  std::optional<uint64_t> give_back;
  std::optional<bool> draining;
  UsageMeter usage;
};

}  // namespace ramspan
