#include "common/topology.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <hwloc.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "common/memory_limits.h"
#include "common/spare_cores.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// A fake /proc, /sys/fs/cgroup and node folder below a temporary folder.
class FakeMachine : public testing::Test {
 protected:
  FakeMachine() {
    std::string name = testing::TempDir() + "ramspan-topology-XXXXXX";
    root_ = ::mkdtemp(name.data());
    Write("proc/meminfo", "MemTotal:       2048000 kB\nMemFree:         512000 kB\nMemAvailable:   1024000 kB\n");
  }
  ~FakeMachine() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void WriteV1(const std::string& path, uint64_t limit, uint64_t usage, uint64_t file) {
    const std::string folder = "cgroup/memory" + path;
    Write(folder + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    Write(folder + "/memory.usage_in_bytes", std::to_string(usage) + "\n");
    Write(folder + "/memory.stat", "inactive_file 7\ntotal_inactive_file " + std::to_string(file) + "\n");
  }
  void WriteV2(const std::string& path, const std::string& limit, uint64_t usage, uint64_t file) {
    const std::string folder = "cgroup" + path;
    Write(folder + "/memory.max", limit + "\n");
    Write(folder + "/memory.current", std::to_string(usage) + "\n");
    Write(folder + "/memory.stat", "anon 5\ninactive_file " + std::to_string(file) + "\nactive_file 9\n");
  }
  std::string proc() const { return root_ / "proc"; }
  uint64_t Available() const { return AvailableMemory(root_ / "proc", root_ / "cgroup"); }
  uint64_t Nodes(const std::vector<int>& policy) const { return NodesMemory(proc(), root_ / "node", policy); }

  std::filesystem::path root_;
};
using AvailableMemoryOf = FakeMachine;

TEST_F(AvailableMemoryOf, AMachineWithoutCgroupsIsMemAvailable) { EXPECT_EQ(Available(), 1024000u * 1024); }

TEST_F(AvailableMemoryOf, AnOldKernelWithoutMemAvailableIsMemFree) {
  Write("proc/meminfo", "MemTotal: 2048000 kB\nMemFree: 512000 kB\n");
  EXPECT_EQ(Available(), 512000u * 1024);
}

TEST_F(AvailableMemoryOf, AMachineThatTellsNothingIsSaneAndNotZero) {
  EXPECT_EQ(AvailableMemory(root_ / "nowhere", root_ / "nowhere"), 1024 * kMiB);
}

TEST_F(AvailableMemoryOf, CgroupV1CountsUsageLessInactiveFilePages) {
  Write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/job\n0::/\n");
  WriteV1("/job", 300 * kMiB, 200 * kMiB, 50 * kMiB);
  EXPECT_EQ(Available(), 150 * kMiB);
}

TEST_F(AvailableMemoryOf, CgroupV1LooksAtAllAncestors) {
  Write("proc/self/cgroup", "4:memory:/a/b/c\n");
  WriteV1("", 9223372036854771712u, 0, 0);
  WriteV1("/a", 100 * kMiB, 40 * kMiB, 0);
  WriteV1("/a/b", 9223372036854771712u, 40 * kMiB, 0);
  WriteV1("/a/b/c", 500 * kMiB, 40 * kMiB, 0);
  EXPECT_EQ(Available(), 60 * kMiB);
}

TEST_F(AvailableMemoryOf, CgroupV1MountedWithAnotherControllerIsFound) {
  Write("proc/self/cgroup", "4:cpu,memory:/a\n");
  Write("cgroup/cpu,memory/a/memory.limit_in_bytes", "104857600\n");
  EXPECT_EQ(Available(), 100 * kMiB);
}

TEST_F(AvailableMemoryOf, CgroupV2LooksAtAllAncestorsAndMaxIsNoLimit) {
  Write("proc/self/cgroup", "0::/user.slice/job:1.scope\n");
  WriteV2("/user.slice", "209715200", 100 * kMiB, 30 * kMiB);
  WriteV2("/user.slice/job:1.scope", "max", 100 * kMiB, 0);
  EXPECT_EQ(Available(), 130 * kMiB);
}

TEST_F(AvailableMemoryOf, CgroupV2HighCountsAsALimit) {
  Write("proc/self/cgroup", "0::/job\n");
  WriteV2("/job", "max", 10 * kMiB, 0);
  Write("cgroup/job/memory.high", "52428800\n");
  EXPECT_EQ(Available(), 40 * kMiB);
}

TEST_F(AvailableMemoryOf, CgroupV2BesideV1IsFoundUnderUnified) {
  Write("proc/self/cgroup", "1:cpu:/\n0::/job\n");
  WriteV2("/unified/job", "52428800", 0, 0);
  EXPECT_EQ(Available(), 50 * kMiB);
}

TEST_F(AvailableMemoryOf, AContainerSeesItsOwnLimitAtTheMountRoot) {
  Write("proc/self/cgroup", "4:memory:/docker/0123456789abcdef\n");
  WriteV1("", 80 * kMiB, 10 * kMiB, 0);
  EXPECT_EQ(Available(), 70 * kMiB);
}

TEST_F(AvailableMemoryOf, APathAboveTheCgroupNamespaceStaysWithinTheRoot) {
  Write("proc/self/cgroup", "0::/../../other\n");
  WriteV2("", "52428800", 0, 0);
  Write("memory.max", "1\n");  // what "..", taken literally, would reach
  EXPECT_EQ(Available(), 50 * kMiB);
}

TEST_F(AvailableMemoryOf, AFullCgroupStillGivesALegalLimit) {
  Write("proc/self/cgroup", "0::/job\n");
  WriteV2("/job", "52428800", 60 * kMiB, 0);
  EXPECT_EQ(Available(), 2 * kMiB);
}

TEST_F(AvailableMemoryOf, GarbageInTheFilesIsNoLimit) {
  Write("proc/self/cgroup", "\n:::\nx\n0::\n4:memory\n7:memory:/g\n");
  WriteV2("", "-5", 1, 1);
  Write("cgroup/memory/g/memory.limit_in_bytes", "lots");
  EXPECT_EQ(Available(), 1024000u * 1024);
}

TEST_F(FakeMachine, NodesBoundMemoryOnlyWhereTheProcessIsConfined) {
  Write("node/has_memory", "0-1\n");
  for (int node : {0, 1}) {
    const std::string start = "Node " + std::to_string(node) + " ";
    Write("node/node" + std::to_string(node) + "/meminfo",
          start + "MemTotal: 9000000 kB\n" + start + "MemFree: 1024 kB\n" + start + "Active(file): 1024 kB\n" + start +
              "Inactive(file): 2048 kB\n");
  }
  Write("proc/self/status", "Name: x\nMems_allowed_list:\t0-1\n");
  EXPECT_EQ(Nodes({}), kNoMemoryLimit);
  EXPECT_EQ(Nodes({1}), 4 * kMiB);
  EXPECT_EQ(Nodes({0, 1}), kNoMemoryLimit);
  Write("proc/self/status", "Name: x\nMems_allowed_list:\t1\nMore: 0\n");
  EXPECT_EQ(Nodes({}), 4 * kMiB);
  Write("node/has_memory", "0\n");
  EXPECT_EQ(Nodes({}), kNoMemoryLimit);
}

TEST(ParseKernelList, ReadsRangesAndLeavesOutGarbage) {
  EXPECT_EQ(ParseKernelList("0-3,5"), (std::vector<int>{0, 1, 2, 3, 5}));
  EXPECT_EQ(ParseKernelList("7"), (std::vector<int>{7}));
  EXPECT_TRUE(ParseKernelList("").empty());
  EXPECT_TRUE(ParseKernelList("3-1").empty());
  EXPECT_EQ(ParseKernelList("x,2,-,0-999999999999"), (std::vector<int>{2}));
}

TEST(Topology, ThisMachineHasMemoryAndCores) {
  EXPECT_GE(AvailableMemory(), 2 * kMiB);
  EXPECT_LE(AvailableMemory(), MachineMemory("/proc") + 64 * kMiB);
  EXPECT_GE(UsableCores(), 1);
}

// Also those that others have begun here: a sanitizer's, for one.
void BindAllThreads(const cpu_set_t& cores) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    ASSERT_EQ(::sched_setaffinity(std::stoi(task.path().filename()), sizeof cores, &cores), 0);
  }
}

TEST(Topology, UsableCoresFollowTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  BindAllThreads(one);
  EXPECT_EQ(UsableCores(), 1);
  BindAllThreads(before);
  EXPECT_EQ(UsableCores(), CPU_COUNT(&before));
}

TEST(Topology, ABoundThreadLeavesAllOtherThreadsWhereTheyAre) {
  cpu_set_t before, after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  bool bound = false;
  int cores_of_thread = 0;
  std::thread([&] {
    bound = BindThreadToSpareCore(1);
    cpu_set_t mine;
    ASSERT_EQ(::sched_getaffinity(0, sizeof mine, &mine), 0);
    cores_of_thread = CPU_COUNT(&mine);
  }).join();
  ASSERT_EQ(::sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  EXPECT_GE(cores_of_thread, 1);
  if (!bound) {
    EXPECT_EQ(cores_of_thread, CPU_COUNT(&before));
  }
}

TEST(Topology, NoCoreIsSpareWhenTheApplicationUsesAllOfThem) {
  const int online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (UsableCores() < online) GTEST_SKIP() << "this test may not use all cores";
  EXPECT_FALSE(BindThreadToSpareCore(online));
}

TEST(Topology, BindingMemoryKeepsItsBytes) {
  const size_t bytes = 4 * kMiB;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 7, bytes);
  int policy = MPOL_DEFAULT;
  const int node = BindMemoryToLocalNode(memory, bytes);
  if (node >= 0) {
    ASSERT_EQ(syscall(SYS_get_mempolicy, &policy, nullptr, 0, static_cast<char*>(memory) + bytes - 1, MPOL_F_ADDR), 0);
    EXPECT_EQ(policy, MPOL_PREFERRED);
  }
  EXPECT_EQ(static_cast<char*>(memory)[bytes - 1], 7);
  ::munmap(memory, bytes);
  EXPECT_EQ(BindMemoryToLocalNode(nullptr, 0), -1);
}

// What numactl says was overruled.
TEST(Topology, MemoryIsBoundToNoNodeWhereTheProcessHasAPolicy) {
  std::thread([] {  // a policy is a thread's
    const unsigned long first_node = 1;
    if (syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, &first_node, 64) != 0) GTEST_SKIP() << "no memory policies here";
    void* memory = ::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_EQ(BindMemoryToLocalNode(memory, kMiB), -1);
    ::munmap(memory, kMiB);
  }).join();
}

TEST(Topology, DistanceGrowsFromNodeToHostToNetwork) {
  const Location here = MyLocation();
  EXPECT_EQ(Distance(here, here), here.numa_node >= 0 ? 0 : 1);
  Location other_node = here;
  other_node.numa_node = here.numa_node + 1;
  EXPECT_EQ(Distance(here, other_node), 1);
  Location unknown = here;
  unknown.numa_node = -1;
  EXPECT_EQ(Distance(unknown, unknown), 1);
  Location other_host = here;
  other_host.host[0] ^= 1;
  EXPECT_EQ(Distance(here, other_host), 2);
}

TEST(Topology, LocationsOfOneProcessAreEqualToTheLastByte) {
  const Location a = MyLocation();
  const Location b = MyLocation();
  EXPECT_EQ(std::memcmp(a.host, b.host, sizeof a.host), 0);
  EXPECT_LT(std::strlen(a.host), sizeof a.host);
  EXPECT_GT(std::strlen(a.host), 50u);
}

// Two packages with a NUMA node each, two cores each, two hardware threads a core: cores {0,1} {2,3} | {4,5} {6,7}.
class SpareCoresOf : public testing::Test {
 protected:
  SpareCoresOf() {
    EXPECT_EQ(hwloc_topology_init(&machine_), 0);
    EXPECT_EQ(hwloc_topology_set_synthetic(machine_, "pack:2 numa:1 core:2 pu:2"), 0);
    EXPECT_EQ(hwloc_topology_load(machine_), 0);
  }
  ~SpareCoresOf() override { hwloc_topology_destroy(machine_); }

  std::string Spare(const char* mask_text, int threads) {
    const CpuSet mask(hwloc_bitmap_alloc());
    hwloc_bitmap_list_sscanf(mask.get(), mask_text);
    const CpuSet spare = SpareCores(machine_, mask.get(), threads);
    char text[64];
    hwloc_bitmap_list_snprintf(text, sizeof text, spare.get());
    return text;
  }

  hwloc_topology_t machine_ = nullptr;
};

TEST_F(SpareCoresOf, HalfANodeAreTheOtherCoresOfThatNode) { EXPECT_EQ(Spare("0-1", 2), "2-3"); }
TEST_F(SpareCoresOf, AWholeNodeAreTheCoresOfTheOtherNode) { EXPECT_EQ(Spare("0-3", 4), "4-7"); }
TEST_F(SpareCoresOf, ABusyCoreDoNotIncludeItsHyperThread) { EXPECT_EQ(Spare("0,2,4,6", 4), ""); }
TEST_F(SpareCoresOf, AMaskLargerThanTheApplicationAreTheLastOfTheMask) {
  EXPECT_EQ(Spare("0-7", 3), "6-7");
  EXPECT_EQ(Spare("0-7", 1), "2-7");
  EXPECT_EQ(Spare("0,2,4,6", 3), "6");
}
TEST_F(SpareCoresOf, AFullyUsedMachineAreNone) {
  EXPECT_EQ(Spare("0-7", 4), "");
  EXPECT_EQ(Spare("0-7", 8), "");
}

TEST(SpareCores, OneCoreIsNeverSpare) {
  hwloc_topology_t machine;
  ASSERT_EQ(hwloc_topology_init(&machine), 0);
  ASSERT_EQ(hwloc_topology_set_synthetic(machine, "pu:1"), 0);
  ASSERT_EQ(hwloc_topology_load(machine), 0);
  const CpuSet mask(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(machine)));
  EXPECT_TRUE(hwloc_bitmap_iszero(SpareCores(machine, mask.get(), 0).get()));
  hwloc_topology_destroy(machine);
}

}  // namespace
}  // namespace ramspan
