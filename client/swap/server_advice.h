// What messages say when memory servers are full or dead. What the user can do depends on who has started the servers: ranks of a job
// and servers beside it are options of `ramspan run`; others are started by `ramspan server`, and used again when they come back.
//
// Thread-safety: any thread. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "client/transport/transport.h"

namespace ramspan {

using ServersStartedBy = ServerTransport::Capabilities::StartedBy;

// `largest_bytes`: what the largest of them lends.
std::string ServersAreFull(ServersStartedBy by, uint64_t largest_bytes);
// This program holds so many leases, of near servers or of far ones, and there can be no more.
std::string NoMoreLeasesFit(size_t leases, uint64_t bytes);
std::string AllServersAreDead(ServersStartedBy by);
// None has been found since the start: the places are folders.
std::string NoServerYet();
// `bytes` of this program's slots were there. Near: what is mapped outlives its server, so nothing is lost.
std::string AServerHasDied(ServersStartedBy by, const std::string& label, uint64_t bytes, bool near);

}  // namespace ramspan
