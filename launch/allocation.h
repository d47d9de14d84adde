// What a job may use: the allocation of a batch system, the hosts of a host file. Pure; any thread.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

namespace ramspan {

// A whole number of at least 1, and nothing else.
std::optional<int> PositiveNumber(const std::string& text);

// What SLURM tells inside an allocation; hydra reads the list of nodes by itself.
struct Allocation {
  bool present = false;
  int nodes = 1;
  std::optional<int> tasks;
};
Allocation SlurmAllocation(const std::function<const char*(const char*)>& getenv);

// The names in a hydra host file: "host[:slots] [options]", one a line, "#" begins a comment.
std::set<std::string> HostsOf(const std::string& text);

}  // namespace ramspan
