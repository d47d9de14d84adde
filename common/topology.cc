#include "common/topology.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <string_view>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "common/memory_limits.h"
#include "common/spare_cores.h"

namespace ramspan {
namespace {

// MPICH 4.0 with UCX takes 4.1 MiB of /dev/shm for each rank (measured with 3 and 4 ranks) when it starts; what it takes
// later is a page here and there.
constexpr uint64_t kSharedMemoryOfRank = uint64_t{5} << 20;
constexpr uint64_t kSharedMemorySlack = uint64_t{8} << 20;
constexpr const char* kProcRoot = "/proc";
constexpr const char* kCgroupRoot = "/sys/fs/cgroup";
constexpr const char* kNodeRoot = "/sys/devices/system/node";
constexpr uint64_t kLeastMemory = uint64_t{2} << 20;
constexpr uint64_t kBlindMemory = uint64_t{1} << 30;
constexpr size_t kBitsPerWord = 8 * sizeof(unsigned long);
constexpr size_t kMaskBits = 8192;  // NR_CPUS of the largest kernels
constexpr size_t kMaskWords = kMaskBits / kBitsPerWord;

// The machine as hwloc sees it, or nullptr. Loaded at the first call that cannot do without (about 1.5 ms and 0.85 MiB
// for 2 cores, more for more), then constant until the process ends, so any thread may read it.
hwloc_topology_t Machine() {
  static const hwloc_topology_t machine = []() -> hwloc_topology_t {
    hwloc_topology_t topology = nullptr;
    if (hwloc_topology_init(&topology) != 0) return nullptr;
    // Only cores and nodes are asked for; caches, devices and measured distances cost time and memory.
    hwloc_topology_set_cache_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_icache_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_NO_DISTANCES | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS |
                                           HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS);
    if (hwloc_topology_load(topology) == 0) return topology;
    hwloc_topology_destroy(topology);
    return nullptr;
  }();
  return machine;
}

using MaskWords = std::array<unsigned long, kMaskWords>;

bool HasBit(const MaskWords& words, size_t bit) { return words[bit / kBitsPerWord] >> (bit % kBitsPerWord) & 1; }

// The nodes of a binding memory policy (numactl --membind, the batch system), or none. Asked of the kernel, since hwloc
// does not tell MPOL_PREFERRED, which limits nothing, from MPOL_BIND.
std::vector<int> PolicyNodes() {
  MaskWords words{};
  int policy = MPOL_DEFAULT;
  std::vector<int> nodes;
  if (::syscall(SYS_get_mempolicy, &policy, words.data(), kMaskBits, nullptr, 0) != 0) return nodes;
  if ((policy & ~MPOL_MODE_FLAGS) != MPOL_BIND) return nodes;
  for (size_t bit = 0; bit < kMaskBits; ++bit) {
    if (HasBit(words, bit)) nodes.push_back(static_cast<int>(bit));
  }
  return nodes;
}

// The union of all threads' affinity masks: after OMP_PROC_BIND the main thread's own says one core.
CpuSet ProcessMask() {
  CpuSet mask(hwloc_bitmap_alloc());
  DIR* tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return mask;
  while (const dirent* task = ::readdir(tasks)) {
    const int thread = std::atoi(task->d_name);
    MaskWords words{};
    auto* set = reinterpret_cast<cpu_set_t*>(words.data());
    // A thread that ended meanwhile has no mask; "." and ".." are no thread.
    if (thread <= 0 || ::sched_getaffinity(thread, sizeof words, set) != 0) continue;
    for (size_t bit = 0; bit < kMaskBits; ++bit) {
      if (HasBit(words, bit)) hwloc_bitmap_set(mask.get(), static_cast<unsigned>(bit));
    }
  }
  ::closedir(tasks);
  return mask;
}

uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

uint64_t AvailableMemory(const std::string& proc_root, const std::string& cgroup_root) {
  const uint64_t least = std::min(MachineMemory(proc_root), CgroupMemory(proc_root, cgroup_root));
  // Nothing readable at all (no /proc): a guess that any machine can honour beats a limit of 2^64.
  return least == kNoMemoryLimit ? kBlindMemory : std::max(least, kLeastMemory);
}

uint64_t AvailableMemory() {
  const uint64_t nodes = NodesMemory(kProcRoot, kNodeRoot, PolicyNodes());
  return std::max(kLeastMemory, std::min(AvailableMemory(kProcRoot, kCgroupRoot), nodes));
}

uint64_t SharedMemoryFree() {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return 0;
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

uint64_t SharedMemoryRoom(uint64_t free, int ranks_to_come) {
  return free - std::min(free, kSharedMemorySlack + kSharedMemoryOfRank * static_cast<uint64_t>(ranks_to_come));
}

int UsableCores() { return std::max(1, hwloc_bitmap_weight(ProcessMask().get())); }

bool BindThreadToSpareCore(int application_threads) {
  const CpuSet mask = ProcessMask();
  const int usable = hwloc_bitmap_weight(mask.get());
  // All cores are the application's, and busy: no need to load hwloc to know that none is spare.
  if (usable <= 0 || (usable <= application_threads && usable >= ::sysconf(_SC_NPROCESSORS_ONLN))) return false;
  hwloc_topology_t machine = Machine();
  if (machine == nullptr) return false;
  const CpuSet spare = SpareCores(machine, mask.get(), application_threads);
  if (hwloc_bitmap_iszero(spare.get())) return false;
  // Refused where a cpuset or a sandbox forbids it: the thread then stays where it is, which is only slower.
  return hwloc_set_cpubind(machine, spare.get(), HWLOC_CPUBIND_THREAD) == 0;
}

int BindMemoryToLocalNode(void* begin, uint64_t bytes) {
  int policy = MPOL_DEFAULT;
  unsigned cpu = 0, node = 0;
  if (begin == nullptr || bytes == 0 || ::getcpu(&cpu, &node) != 0 || node >= kMaskBits) return -1;
  if (::syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0) != 0 || (policy & ~MPOL_MODE_FLAGS) != MPOL_DEFAULT) return -1;
  MaskWords words{};
  words[node / kBitsPerWord] = 1UL << (node % kBitsPerWord);
  return ::syscall(SYS_mbind, begin, bytes, MPOL_PREFERRED, words.data(), kMaskBits, 0) == 0 ? static_cast<int>(node) : -1;
}

Location MyLocation() {
  Location location;
  std::memset(&location, 0, sizeof location);  // all 64 bytes are compared and sent
  char hostname[256] = "";
  ::gethostname(hostname, sizeof hostname - 1);
  const std::string boot = ReadKernelFile("/proc/sys/kernel/random/boot_id");
  // Two containers of one machine share the boot id but not their shared memory: the host name tells them apart.
  std::snprintf(location.host, sizeof location.host, "%.36s-%016llx", boot.c_str(),
                static_cast<unsigned long long>(Fnv1a(hostname)));
  unsigned cpu = 0, node = 0;
  location.numa_node = ::getcpu(&cpu, &node) == 0 ? static_cast<int>(node) : -1;
  return location;
}

int Distance(const Location& a, const Location& b) {
  if (std::memcmp(a.host, b.host, sizeof a.host) != 0) return 2;
  return a.numa_node >= 0 && a.numa_node == b.numa_node ? 0 : 1;
}

}  // namespace ramspan
