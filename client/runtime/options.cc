#include "client/runtime/options.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "client/swap/swap_tier.h"
#include "common/log.h"
#include "common/raise.h"
#include "common/reserve_addresses.h"
#include "common/topology.h"
#include "common/units.h"
#include "ramspan/errors.h"

namespace ramspan {

ProgramOptions& ProgramOptions::Get() {
  static auto* options = new ProgramOptions;  // outlives every static object of the program
  return *options;
}

void MergeOptions(const Options& options, Options* merged) {
  Options& all = *merged;
  const auto take = [](auto& to, const auto& from) {
    if (from) to = from;
  };
  take(all.memory, options.memory);
  take(all.swapMemory, options.swapMemory);
  take(all.memoryManager, options.memoryManager);
  take(all.swap, options.swap);
  take(all.swapfiles, options.swapfiles);
  take(all.enableDMA, options.enableDMA);
  take(all.policy, options.policy);
  take(all.transport, options.transport);
  take(all.servers, options.servers);
  take(all.serverKeyFile, options.serverKeyFile);
  take(all.fabricProvider, options.fabricProvider);
  take(all.checksum, options.checksum);
  take(all.preemptive, options.preemptive);
  take(all.debug, options.debug);
  take(all.bundles, options.bundles);
  take(all.stats, options.stats);
  take(all.trace, options.trace);
  take(all.customConfig, options.customConfig);
  all.rambrain = all.rambrain || options.rambrain;
}

namespace {
// Tables, and the stack of the mover.
constexpr uint64_t kAddressesBesideLimit = uint64_t{16} << 20;
// Frames are in a range that is as large as the limit at least, and the program wants to go on mapping files and starting threads.
constexpr uint64_t kShareOfAddresses = 4;

// What this process may still map.
struct AddressesLeft {
  uint64_t bytes = std::numeric_limits<uint64_t>::max();
  const char* limited_by = nullptr;  // as a shell sets it; null: nothing here limits it
};
AddressesLeft LookForAddresses() {
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  uint64_t all = 0, skipped = 0, data = 0;  // pages; the sixth number is that of private pages that can be written
  std::ifstream statm("/proc/self/statm");
  statm >> all >> skipped >> skipped >> skipped >> skipped >> data;
  AddressesLeft left;
  const auto look_at = [&left](auto resource, uint64_t used, const char* name) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    const uint64_t bytes = limit.rlim_cur > used ? limit.rlim_cur - used : 0;
    if (bytes < left.bytes) left = {bytes, name};
  };
  look_at(RLIMIT_AS, all * page_bytes, "ulimit -v");
  look_at(RLIMIT_DATA, data * page_bytes, "ulimit -d");
  return left;
}
}  // namespace

uint64_t DefaultMemory() {
  const char* local_ranks = std::getenv("MPI_LOCALNRANKS");
  const uint64_t ranks = local_ranks ? std::max(1, std::atoi(local_ranks)) : 1;
  return std::max<uint64_t>(std::min(AvailableMemory() / 2 / ranks, LookForAddresses().bytes / kShareOfAddresses), 1 << 20);
}

Status CheckAddresses(const Config& config) {
  const uint64_t wanted = config.memory + kAddressesBesideLimit;
  const AddressRange room = ReserveAddresses(wanted, wanted);
  if (room.begin != nullptr) {
    munmap(room.begin, room.bytes);
    return {};
  }
  return NoAddresses(config);
}

Status NoAddresses(const Config& config) {
  const auto from = config.source.find("memory");
  const std::string limit = "the memory limit of " + FormatBytes(config.memory) + (from == config.source.end() ? "" : " (" + from->second + ")");
  const AddressesLeft left = LookForAddresses();
  if (left.limited_by == nullptr) {
    return InvalidArgument(limit + " has no room in what the kernel promises this process (vm.overcommit_memory = 2?): set RAMSPAN_MEMORY lower");
  }
  const bool helps = config.memory / 2 > left.bytes / kShareOfAddresses;  // the default is that share already
  return InvalidArgument(limit + " has no room in the addresses that this process may have, of which " + FormatBytes(left.bytes) + " are left: raise `" +
                         left.limited_by + "`, or set RAMSPAN_MEMORY " + (helps ? "to a quarter of them" : "lower"));
}

void WarnIfOverMachine(const Config& config) {
  const uint64_t available = AvailableMemory();
  const char* rank = std::getenv("PMI_RANK");
  if (config.memory <= available || (rank != nullptr && std::atoi(rank) != 0)) return;
  const auto from = config.source.find("memory");
  LogWarning("the memory limit of %s%s is more than the %s that this process can have now (memory cgroup, free memory): the "
             "kernel may kill it. Set RAMSPAN_MEMORY, or ramspan run --memory, below that",
             FormatBytes(config.memory).c_str(),
             from == config.source.end() ? "" : (" (" + from->second + ")").c_str(), FormatBytes(available).c_str());
}

std::string SwapfileMask(const Config& config) {
  if (!config.swapfiles.empty()) return config.swapfiles;
  const char* tmpdir = std::getenv("TMPDIR");
  return std::string(tmpdir && *tmpdir ? tmpdir : "/tmp") + "/ramspan-%d-%d.swap";
}

uint64_t HalfOfFreeDisk(const std::string& mask) {
  struct statvfs fs;
  const size_t slash = mask.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : mask.substr(0, slash + 1);
  if (statvfs(directory.c_str(), &fs) != 0) return kSwapGranule;
  return std::max<uint64_t>(static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize / 2, kSwapGranule);
}

void CheckFixedKeys(const Config& now, const Config& next, bool servers_are_outside) {
  const auto fixed = [](bool same, const char* key, const char* why = "it cannot change in a running program; set it before the first managedPtr") {
    if (!same) Raise(ConfigError("configuration read again: the key " + std::string(key) + " differs, but " + why));
  };
  fixed(next.memory_manager == now.memory_manager, "memoryManager");
  fixed(next.swap == now.swap, "swap");
  fixed(next.swapfiles == now.swapfiles, "swapfiles");
  fixed(next.enable_dma == now.enable_dma, "enableDMA");
  fixed(next.transport == now.transport, "transport");
  fixed(next.servers == now.servers || (servers_are_outside && !next.servers.empty()), "servers",
        "in a running program other servers may be named only where it started with some, and not none at all; name one before the first managedPtr (dir:FOLDER may be empty)");
  fixed(next.server_key_file == now.server_key_file, "serverKeyFile");
  fixed(next.fabric_provider == now.fabric_provider, "fabricProvider");
  fixed(next.checksum == now.checksum, "checksum");
  fixed(next.debug == now.debug, "debug");
  fixed(next.bundles == now.bundles, "bundles");
}

}  // namespace ramspan
