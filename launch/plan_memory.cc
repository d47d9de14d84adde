// How much memory each rank and each server gets, and whether this host has it.
#include <algorithm>

#include "common/topology.h"
#include "common/units.h"
#include "launch/planner.h"

namespace ramspan {
namespace {

constexpr uint64_t kSmallestMemory = 1 << 20, kLargestMemory = uint64_t{1} << 46;  // as of the key memory

}  // namespace

Result<uint64_t> Planner::Size(const char* option, const std::string& text) const {
  Result<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return InvalidArgument(std::string(option) + ": " + bytes.status().message());
  if (bytes.value() < kSmallestMemory) {
    return InvalidArgument(std::string(option) + " " + text + ": at least " + FormatBytes(kSmallestMemory) +
                           UnitsForgotten(text));
  }
  if (bytes.value() > kLargestMemory) return InvalidArgument(std::string(option) + " " + text + ": at most " + FormatBytes(kLargestMemory));
  return bytes;
}

Status Planner::CheckMemory() {
  if (!options_.memory.empty()) {
    if (Result<uint64_t> bytes = Size("--memory", options_.memory); !bytes.ok()) return bytes.status();
    memory_ = options_.memory;
  }
  uint64_t servers_take = AllServers() > 0 ? facts_.available_memory / 2 : 0;  // the servers' own default
  const bool by_option = !options_.server_memory.empty();
  const std::string text = by_option ? options_.server_memory : Setting("RAMSPAN_SERVER_MEMORY");
  if (!text.empty()) {
    Result<uint64_t> bytes = Size(by_option ? "--server-memory" : "RAMSPAN_SERVER_MEMORY", text);
    if (!bytes.ok()) return bytes.status();
    if (AllServers() == 0) {
      if (by_option) plan_.notes.push_back(std::string("--server-memory has no effect ") + (options_.transport == "none" ? "with --transport none" : "without servers (-s)"));
    } else if (Status status = CheckServerMemory(bytes.value()); !status.ok()) {
      return status;
    } else {
      servers_take = bytes.value() * static_cast<uint64_t>(AllServers());
      server_memory_ = text;
    }
  }
  WarnOfMemory(servers_take);
  const bool limited = facts_.app_memory_configured || UserHas("RAMSPAN_MEMORY") || UserHas("RAMSPAN_CONFIG");
  if (memory_.empty() && !limited) ChooseMemory(servers_take);
  return {};
}

// Which host a server lands on is mpiexec's choice, so that only a job on this host alone can be checked here; the
// servers themselves check it everywhere.
Status Planner::CheckServerMemory(uint64_t server_bytes) {
  if (plan_.several_hosts) return {};
  const uint64_t servers = static_cast<uint64_t>(AllServers());
  // Servers outside of MPI lend files in memory that are not in /dev/shm.
  const uint64_t shared = plan_.servers == 0 ? UINT64_MAX : SharedMemoryRoom(facts_.shared_memory_free, plan_.ranks + plan_.servers);
  const bool shared_is_smaller = shared < facts_.available_memory;
  const uint64_t room = std::min(facts_.available_memory, shared);
  if (server_bytes <= room / servers) return {};
  std::string what = std::to_string(servers) + (servers == 1 ? " server" : " servers") + " of " +
                     FormatBytes(server_bytes) + (servers == 1 ? " does" : " do") + " not fit: this host has " + FormatBytes(room) +
                     (shared_is_smaller ? " for servers in /dev/shm" : " of memory available") + ". Remedy: ";
  const uint64_t each_mib = (room / servers) >> 20;
  what += each_mib > 0 ? "--server-memory " + std::to_string(each_mib) + "MiB or less" : "fewer servers (-s), or -s 0: files only";
  if (shared_is_smaller) what += ", or enlarge it (mount -o remount,size=SIZE /dev/shm; in a container: --shm-size)";
  return ResourceExhausted(what);
}

// No error: limits that are never reached are legal, and memory may become free.
void Planner::WarnOfMemory(uint64_t servers_take) {
  const std::string text = memory_.empty() ? Setting("RAMSPAN_MEMORY") : memory_;
  const Result<uint64_t> bytes = ParseBytes(text);
  if (plan_.several_hosts || text.empty() || !bytes.ok()) return;
  const auto ranks = static_cast<uint64_t>(plan_.ranks);
  const uint64_t all = bytes.value() > (UINT64_MAX - servers_take) / ranks ? UINT64_MAX : bytes.value() * ranks + servers_take;
  if (all <= facts_.available_memory) return;
  std::string what = "warning: " + std::to_string(plan_.ranks) + (plan_.ranks == 1 ? " rank of " : " ranks of ") +
                     FormatBytes(bytes.value());
  if (AllServers() > 0) what += " and " + FormatBytes(servers_take) + " for the servers";
  plan_.notes.push_back(what + " make " + FormatBytes(all) + ", but this host has " +
                        FormatBytes(facts_.available_memory) +
                        " of memory available: a job that uses its limits is killed. Lower --memory or --server-memory");
}

// Each process's own default is half of what is available, which several of them on one host must not take at once.
void Planner::ChooseMemory(uint64_t servers_take) {
  if (plan_.several_hosts || (plan_.ranks == 1 && AllServers() == 0)) return;
  const uint64_t left = facts_.available_memory - std::min(servers_take, facts_.available_memory);
  const uint64_t mebibytes = std::max<uint64_t>(1, (left / 2 / static_cast<uint64_t>(plan_.ranks)) >> 20);
  memory_ = std::to_string(mebibytes) + "MiB";
  plan_.notes.push_back("--memory " + memory_ + " for each compute rank (half of what the servers leave, shared)");
}

}  // namespace ramspan
