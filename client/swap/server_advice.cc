#include "client/swap/server_advice.h"

#include "common/units.h"

namespace ramspan {

std::string ServersAreFull(ServersStartedBy by, uint64_t largest_bytes) {
  const std::string full = "memory servers are full (" + FormatBytes(largest_bytes) + " each";
  if (by != ServersStartedBy::kUser) return full + "): more servers (-s) or more memory of each (--server-memory)";
  // A server says no and not why, so these words name what may be the reason, too.
  return full + ", less what `ramspan ctl` keeps back: drain, shrink, quota; `ramspan ctl list` shows it): more memory of each (ramspan server --memory), or more of them (servers = HOST:PORT,HOST:PORT)";
}

std::string NoMoreLeasesFit(size_t leases, uint64_t bytes) {
  return "memory servers have lent " + std::to_string(leases) + " pieces of " + FormatBytes(bytes / leases) + " on average, and a program can hold no more pieces of "
         "near servers or of far ones: more memory that is free in one run (fewer programs at a server, or servers of their own for large ones), or smaller data";
}

std::string AllServersAreDead(ServersStartedBy by) {
  if (by != ServersStartedBy::kUser) return "all memory servers of this job are dead: see their messages, and start the job again";
  return "all memory servers are dead: see their messages, and start them again; this program uses them again by itself";
}

std::string NoServerYet() {
  return "no memory server has been found yet where they write themselves down (servers = dir:DIR): start one (ramspan server --rendezvous DIR), "
         "and this program uses it by itself";
}

std::string AServerHasDied(ServersStartedBy by, const std::string& label, uint64_t bytes, bool near) {
  const std::string died = "memory server " + label + " died with " + FormatBytes(bytes) + " of this program's chunks";
  const bool can_come_back = by == ServersStartedBy::kUser;
  const std::string cause = ". Remedy: see why the server died (its own message, memory limits of " + std::string(near ? "this host)" : "its host), or what cut it off (the network)");
  const std::string again = ", and start it again: this program uses it again by itself";
  if (near) {
    return died + ", which are not lost: its memory is of this host, and stays until this program has freed them or moved them elsewhere" + cause +
           (can_come_back ? again : "; the job can go on without it");
  }
  return died + "; those that were nowhere else are lost" + cause + (can_come_back ? again : ", and start the job again where a chunk was lost");
}

}  // namespace ramspan
