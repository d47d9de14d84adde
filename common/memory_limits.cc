#include "common/memory_limits.h"

#include <algorithm>
#include <charconv>
#include <fcntl.h>
#include <optional>
#include <unistd.h>

namespace ramspan {
namespace {

constexpr int kKernelListMax = 1 << 14;     // more cores or nodes than Linux can have
constexpr size_t kKernelFileMax = 1 << 20;  // a bound for a file that never ends

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return number;
}

std::string_view TakeUntil(std::string_view* text, char separator) {
  const size_t end = text->find(separator);
  const std::string_view head = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return head;
}

// The number that follows `name` as a word of its own ("MemAvailable:   123 kB", "inactive_file 123").
std::optional<uint64_t> Field(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    std::string_view line = TakeUntil(&text, '\n');
    const size_t at = line.find(name);
    // "Node 0 MemFree:" has words before the name, but "total_inactive_file" is another name.
    if (at == std::string_view::npos || (at > 0 && line[at - 1] != ' ')) continue;
    line.remove_prefix(at + name.size());
    if (line.empty() || (line.front() != ' ' && line.front() != '\t')) continue;
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t")));
    return ParseNumber(line);
  }
  return std::nullopt;
}

uint64_t KilobytesField(std::string_view text, std::string_view name) { return Field(text, name).value_or(0) * 1024; }

// How the two versions of the memory controller call the same things.
struct CgroupNames {
  std::vector<const char*> limits;
  const char* usage;
  const char* inactive_file;  // a field of memory.stat, descendants counted
};
const CgroupNames& NamesV1() {
  static const CgroupNames names{{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file"};
  return names;
}
// memory.high is no hard limit, but a job above it is slowed down until it is of no use.
const CgroupNames& NamesV2() {
  static const CgroupNames names{{"memory.max", "memory.high"}, "memory.current", "inactive_file"};
  return names;
}

uint64_t OneCgroupMemory(const std::string& folder, const CgroupNames& names) {
  uint64_t limit = kNoMemoryLimit;
  for (const char* file : names.limits) {
    const std::optional<uint64_t> bytes = ParseNumber(ReadKernelFile(folder + "/" + file));  // "max" is no number
    if (bytes) limit = std::min(limit, *bytes);
  }
  if (limit == kNoMemoryLimit) return kNoMemoryLimit;
  const uint64_t usage = ParseNumber(ReadKernelFile(folder + "/" + names.usage)).value_or(0);
  // File pages that nobody used lately count as usage, but the kernel drops them before it refuses memory.
  const uint64_t reclaimable = Field(ReadKernelFile(folder + "/memory.stat"), names.inactive_file).value_or(0);
  const uint64_t held = usage - std::min(usage, reclaimable);
  return limit - std::min(limit, held);
}

// Without ".", ".." and empty parts: a cgroup namespace shows what is above its root as "/../..", and cannot open it.
std::vector<std::string> PathParts(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const std::string_view part = TakeUntil(&path, '/');
    if (!part.empty() && part != "." && part != "..") parts.emplace_back(part);
  }
  return parts;
}

// A container may see its host's path here while its own cgroup is mounted at the root: what does not exist is no
// bound, and the root itself is always looked at.
uint64_t CgroupPathMemory(const std::string& root, std::string_view path, const CgroupNames& names) {
  std::string folder = root;
  uint64_t least = OneCgroupMemory(folder, names);
  for (const std::string& part : PathParts(path)) {
    folder += "/" + part;
    least = std::min(least, OneCgroupMemory(folder, names));
  }
  return least;
}

std::vector<int> CpusetNodes(const std::string& proc_root) {
  constexpr std::string_view kName = "Mems_allowed_list:";
  const std::string status = ReadKernelFile(proc_root + "/self/status");
  std::string_view rest = status;
  while (!rest.empty()) {
    std::string_view line = TakeUntil(&rest, '\n');
    if (!line.starts_with(kName)) continue;
    line.remove_prefix(kName.size());
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t")));
    return ParseKernelList(line);
  }
  return {};
}

bool ListHas(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    if (TakeUntil(&list, ',') == word) return true;
  }
  return false;
}

}  // namespace

std::string ReadKernelFile(const std::string& path) {
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char buffer[4096];
  ssize_t got = 0;
  while (text.size() < kKernelFileMax && (got = ::read(fd, buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<size_t>(got));
  }
  ::close(fd);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::vector<int> ParseKernelList(std::string_view text) {
  std::vector<int> members;
  while (!text.empty()) {
    std::string_view range = TakeUntil(&text, ',');
    const std::optional<uint64_t> first = ParseNumber(TakeUntil(&range, '-'));
    const std::optional<uint64_t> last = range.empty() ? first : ParseNumber(range);
    if (!first || !last || *last >= kKernelListMax) continue;
    for (uint64_t member = *first; member <= *last; ++member) members.push_back(static_cast<int>(member));
  }
  return members;
}

uint64_t MachineMemory(const std::string& proc_root) {
  const std::string meminfo = ReadKernelFile(proc_root + "/meminfo");
  const uint64_t available = KilobytesField(meminfo, "MemAvailable:");
  if (available > 0) return available;
  // Some containers hide the field: what is free is then the most that can be promised.
  const uint64_t free = KilobytesField(meminfo, "MemFree:");
  return free > 0 ? free : kNoMemoryLimit;
}

uint64_t CgroupMemory(const std::string& proc_root, const std::string& cgroup_root) {
  const std::string memberships = ReadKernelFile(proc_root + "/self/cgroup");
  std::string_view rest = memberships;
  uint64_t least = kNoMemoryLimit;
  while (!rest.empty()) {
    std::string_view path = TakeUntil(&rest, '\n');  // "id:controllers:path", and the path may hold colons
    const std::string_view id = TakeUntil(&path, ':');
    const std::string_view controllers = TakeUntil(&path, ':');
    if (ListHas(controllers, "memory")) {
      least = std::min(least, CgroupPathMemory(cgroup_root + "/" + std::string(controllers), path, NamesV1()));
    } else if (id == "0" && controllers.empty()) {
      // Version 2 is mounted at the root, or, beside version 1, at "unified".
      least = std::min(least, CgroupPathMemory(cgroup_root, path, NamesV2()));
      least = std::min(least, CgroupPathMemory(cgroup_root + "/unified", path, NamesV2()));
    }
  }
  return least;
}

uint64_t NodesMemory(const std::string& proc_root, const std::string& node_root, const std::vector<int>& policy_nodes) {
  const std::vector<int> nodes = ParseKernelList(ReadKernelFile(node_root + "/has_memory"));
  if (nodes.size() < 2) return kNoMemoryLimit;
  const std::vector<int> cpuset = CpusetNodes(proc_root);
  const auto is_in = [](const std::vector<int>& list, int node) {
    return list.empty() || std::find(list.begin(), list.end(), node) != list.end();
  };
  uint64_t total = 0;
  bool all = true;
  for (const int node : nodes) {
    if (!is_in(cpuset, node) || !is_in(policy_nodes, node)) {
      all = false;
      continue;
    }
    const std::string meminfo = ReadKernelFile(node_root + "/node" + std::to_string(node) + "/meminfo");
    for (const char* field : {"MemFree:", "Active(file):", "Inactive(file):"}) total += KilobytesField(meminfo, field);
  }
  return all || total == 0 ? kNoMemoryLimit : total;
}

}  // namespace ramspan
