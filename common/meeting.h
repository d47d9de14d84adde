// Meeting: a client or a controller (`ramspan ctl`) meets a server: connects, proves and is proved to, and hears the server's introduction. What is left to do is the
// client's own introduction (a controller has none). Any thread; blocks, for a time that is given.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "common/link.h"
#include "common/socket_address.h"

namespace ramspan {

struct Meeting {
  std::unique_ptr<Link> link;
  Introduction introduction;  // the server's

  // kUnavailable: nobody answers there, or not in time, or not before the descriptor `until` becomes readable (-1: none). kFailedPrecondition: somebody does, who is no server of ours.
  static Result<Meeting> With(const SocketPlace& place, const Secret& secret, std::chrono::milliseconds at_most,
                             Handshake::Role role = Handshake::Role::kClient, int until = -1);
  // By the first of its addresses that answers. REQUIRES: there is one.
  static Result<Meeting> With(std::span<const SocketAddress> addresses, const Secret& secret, std::chrono::milliseconds at_most,
                             Handshake::Role role = Handshake::Role::kClient, int until = -1);

  // The server's next frame. kUnavailable: the link has ended, or nothing has come in time.
  Status Receive(LinkFrame* frame, std::chrono::milliseconds at_most);
};

// How this process calls itself to servers: "program[pid]@host".
std::string OwnLabel();
// The job that this process belongs to, by a name that all of its processes share and no other job's do: what the batch system or the
// launcher calls it. A process without one is a job of its own: its label.
std::string OwnJob();

}  // namespace ramspan
