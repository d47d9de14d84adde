// What `ramspan ctl` does with one memory server: asks it, orders it, and waits for its end. Each call is a connection of its own.
//
// Any thread; every call blocks, for a time that is given. Values only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/secret.h"
#include "common/service_order.h"
#include "common/socket_address.h"
#include "common/status.h"

namespace ramspan {

struct ServerAnswer {
  uint64_t instance = 0;               // of the server's process
  std::vector<ServiceReport> reports;  // the server's own is the last
};
// What the server answers to an order. kUnavailable: no answer in time, or the connection ended before the last report.
Result<ServerAnswer> Ask(const SocketPlace& place, const Secret& secret, const ServiceCommand& command, std::chrono::milliseconds at_most);

struct EndWaiting {
  std::chrono::milliseconds look_every{1000};
  std::chrono::milliseconds answer_max{10'000};
  std::chrono::milliseconds silent_max{60'000};  // then somebody should look why it does not answer
  int looks_without_progress = 10;               // then the user is told what may be the reason, once
  uint64_t instance = 0;                         // of the server that was told to drain; 0: of who answers first
};
// Waits for the end of a server that drains, and tells how much is left. Only what cannot be anything else counts as the end: its host
// says that nobody listens there any more, or another process does. Who believes it switches a host off, and what was not moved is lost.
// kFailedPrecondition: it lends again. kUnavailable: it has not answered for silent_max; what has become of it is not known.
Status AwaitEnd(const SocketPlace& place, const Secret& secret, const EndWaiting& waiting, const std::function<void(const std::string&)>& tell);

}  // namespace ramspan
