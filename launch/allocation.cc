#include "launch/allocation.h"

#include <charconv>
#include <sstream>
#include <system_error>

namespace ramspan {

std::optional<int> PositiveNumber(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) return std::nullopt;
  return number;
}

Allocation SlurmAllocation(const std::function<const char*(const char*)>& getenv) {
  const auto variable = [&getenv](const char* name) {
    const char* value = getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  Allocation allocation;
  allocation.present = !variable("SLURM_JOB_ID").empty();
  if (!allocation.present) return allocation;
  std::string nodes = variable("SLURM_NNODES");
  if (nodes.empty()) nodes = variable("SLURM_JOB_NUM_NODES");
  allocation.nodes = PositiveNumber(nodes).value_or(1);
  allocation.tasks = PositiveNumber(variable("SLURM_NTASKS"));
  return allocation;
}

std::set<std::string> HostsOf(const std::string& text) {
  std::set<std::string> hosts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host;
    if (words >> host) hosts.insert(host.substr(0, host.find(':')));
  }
  return hosts;
}

}  // namespace ramspan
