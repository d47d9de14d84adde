// What bounds a process's memory, each read from text files below a given root, so that tests can fake a machine. Used
// by topology.cc only. hwloc is not asked: its totals are wrong in some virtual machines, and it knows no usage.
// Pure but for reading those files. Any thread. Missing or odd files mean "no bound", never an error.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace ramspan {

inline constexpr uint64_t kNoMemoryLimit = std::numeric_limits<uint64_t>::max();

// MemAvailable of <proc_root>/meminfo, in bytes.
uint64_t MachineMemory(const std::string& proc_root);

// The smallest (limit - usage + inactive file pages) of the process's cgroup and all its ancestors, for cgroup v1, v2
// and hybrid layouts below cgroup_root, whose membership is in <proc_root>/self/cgroup.
uint64_t CgroupMemory(const std::string& proc_root, const std::string& cgroup_root);

// Free and file pages of the NUMA nodes that this process is confined to: by its cpuset (<proc_root>/self/status) and,
// unless that is empty, by `policy_nodes`. kNoMemoryLimit where that is all nodes, or there is only one.
// node_root: /sys/devices/system/node or its like.
uint64_t NodesMemory(const std::string& proc_root, const std::string& node_root, const std::vector<int>& policy_nodes);

// "0-3,5" -> {0, 1, 2, 3, 5}, the kernel's notation for sets of cores and nodes; what is malformed is left out.
std::vector<int> ParseKernelList(std::string_view text);

// A whole small file of /proc or /sys without the last newline; empty when it cannot be read.
std::string ReadKernelFile(const std::string& path);

}  // namespace ramspan
