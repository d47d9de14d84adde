// What `ramspan ctl` says to a memory server that stands by itself, and what the server answers: one report for each client, and
// one of the server, which comes last. They travel in frames of common/link_frame.h; who sends an order has proved the secret
// as a controller, a role of its own. Values; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace ramspan {

enum class ServiceOrder : uint8_t { kList = 1, kStop = 2, kDrain = 3, kUndrain = 4 };
inline constexpr uint8_t kServiceOrderMax = 4;

struct ServiceReport {
  bool is_server = false;  // else of one client
  uint64_t held_bytes = 0;  // leased to it; of the server: to all
  uint64_t lent_bytes = 0;  // what the server lends; 0 of a client
  uint32_t clients = 0;     // of the server
  bool draining = false;    // of the server
  std::string label;        // who it is
  bool operator==(const ServiceReport&) const = default;
};

}  // namespace ramspan
