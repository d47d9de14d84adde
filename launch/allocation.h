// What a job may use: the allocation of a batch system, the hosts of a host file; and who of the job goes where in it. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"

namespace ramspan {

// A whole number of at least 1, and nothing else.
std::optional<int> PositiveNumber(const std::string& text);

struct HostSlots {
  std::string name;
  int slots = 0;  // processes that are, or may be, there
};

struct Allocation {
  std::string system;  // "SLURM", "PBS"; empty: there is none
  int nodes = 1;
  std::optional<int> tasks;
  std::vector<HostSlots> hosts;  // in the batch system's order; empty where it does not tell them in a form that is known here

  bool present() const { return !system.empty(); }
};
// SLURM tells it in the environment, PBS in the file that PBS_NODEFILE names, a line a task.
Allocation FindAllocation(const std::function<const char*(const char*)>& getenv, const std::function<Result<std::string>(const std::string&)>& read_file);

// "n[1-3,07-08],login" as SLURM writes lists of nodes: n1 n2 n3 n07 n08 login. Empty: it is no such list.
std::vector<std::string> ExpandNodes(const std::string& list);
// "2(x3),1" as SLURM writes tasks per node: 2 2 2 1. Empty: it is no such list.
std::vector<int> ExpandCounts(const std::string& list);

// Hosts in order, each once, with how many of either kind it gets.
struct Placement {
  std::vector<HostSlots> ranks, servers;
  bool servers_alone = false;  // no host has both
};
// Ranks fill the first hosts, as batch systems do it. Servers get what is left, the same number each; where nothing is left they are spread over all
// hosts, or, if they have to come behind the ranks (as ranks of one MPI job do), get the last slots. Nothing: there are fewer slots than ranks,
// or than both where servers share hosts and come behind.
std::optional<Placement> Place(const std::vector<HostSlots>& hosts, int ranks, int servers, bool servers_come_behind);
// "3 ranks on h1 h2, 1 server on h3"
std::string Describe(const Placement& placement);
// hydra's -hosts: "h1:2,h2:1".
std::string HostList(const std::vector<HostSlots>& hosts);

// hydra's host file: "host[:slots] [options]", one a line, "#" begins a comment. A host without slots has one, as hydra sees it.
struct HostFile {
  std::vector<HostSlots> hosts;  // in the file's order, each once; with the slots of all its lines unless the file is special
  uint64_t slots = 0;            // of all lines
  // Options, slots that are no number, a host that comes again after another one (an order of ranks), or more of either than a cluster
  // has: left to hydra.
  bool is_special = false;
};
HostFile ParseHostFile(const std::string& text);

}  // namespace ramspan
