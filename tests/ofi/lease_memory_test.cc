#include "memserver/lease_memory.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>

#include "common/topology.h"
#include "tests/support/mapping_flags.h"
#include "tests/support/no_more_files.h"
#include "tests/support/sizes.h"

namespace {
int interruptions = 0;  // of the next calls of fallocate, as signals cause them in older kernels
}

extern "C" int fallocate(int file, int mode, off_t offset, off_t length) {
  if (interruptions > 0) return --interruptions, errno = EINTR, -1;
  return static_cast<int>(syscall(SYS_fallocate, file, mode, offset, length));
}

namespace ramspan {
namespace {

void FreeAll(LeaseMemory* memory) {
  while (memory->has_dropped()) memory->FreeSome();
}

// A server that was suspended meanwhile refused the lease for want of memory.
TEST(LeaseMemory, ASignalWhileItIsMadeRefusesNoLease) {
  LeaseMemory memory(kMiB, [] {});
  interruptions = 3;
  EXPECT_TRUE(memory.MakeShared(0, kMiB).ok());
  EXPECT_EQ(interruptions, 0);
}

TEST(LeaseMemory, IsZeroAndSomewhereElseWhenItIsMadeAgain) {
  int steps = 0;
  LeaseMemory memory(4 * kMiB, [&] { ++steps; });
  std::set<std::byte*> places;
  for (int round = 0; round < 40; ++round) {
    ASSERT_TRUE(memory.MakePrivate(kMiB, kMiB).ok());
    const std::span<std::byte> bytes = memory.private_memory(kMiB);
    ASSERT_EQ(bytes.size(), kMiB);
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; })) << round;
    EXPECT_TRUE(places.insert(bytes.data()).second) << "who still writes to an earlier lease would write here";
    std::fill(bytes.begin(), bytes.end(), std::byte{0xab});
    memory.Drop(kMiB);
  }
  EXPECT_EQ(steps, 160) << "others may be served while it is made";
}

TEST(LeaseMemory, WhoWritesToADroppedLeaseHarmsNobodyAndTheBytesGoBack) {
  LeaseMemory memory(2 * kMiB, [] {});
  ASSERT_TRUE(memory.MakePrivate(0, kMiB).ok());
  std::byte* const place = memory.private_memory(0).data();
  std::fill_n(place, kMiB, std::byte{1});
  memory.Drop(0);
  FreeAll(&memory);
  EXPECT_EQ(place[4096], std::byte{0}) << "its memory went back";
  std::fill_n(place, kMiB, std::byte{2});  // a provider that still copies here
  ASSERT_TRUE(memory.MakePrivate(0, kMiB).ok());
  const std::span<std::byte> next = memory.private_memory(0);
  EXPECT_TRUE(std::all_of(next.begin(), next.end(), [](std::byte b) { return b == std::byte{0}; }));
  memory.Drop(0);
  FreeAll(&memory);
  EXPECT_EQ(place[4096], std::byte{0});
  EXPECT_DEATH(memory.private_memory(0), "no private lease");
}

size_t MappingsOfThisProcess() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

// The system allows a process 65530 mappings (vm.max_map_count). A server that outlives jobs makes more leases than that.
TEST(LeaseMemory, TheMappingsOfDroppedLeasesDoNotAddUp) {
  LeaseMemory memory(8 * kMiB, [] {});
  const auto round = [&](int i) {
    const uint64_t bytes = (1 + static_cast<uint64_t>(i) % 3) * (kMiB / 16);  // no multiple of a huge page
    ASSERT_TRUE(memory.MakePrivate(0, bytes).ok());
    ASSERT_TRUE(memory.MakePrivate(4 * kMiB, bytes).ok());
    std::fill_n(memory.private_memory(0).data(), bytes, std::byte{1});
    memory.Drop(0);
    std::fill_n(memory.private_memory(4 * kMiB).data(), bytes, std::byte{1});
    memory.Drop(4 * kMiB);
  };
  for (int i = 0; i < 20; ++i) round(i);
  const size_t before = MappingsOfThisProcess();
  for (int i = 0; i < 500; ++i) round(i);
  EXPECT_LT(MappingsOfThisProcess(), before + 50);
}

uint64_t ResidentBytes() {
  uint64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * 4096;
}

// The leases of a client that ended were given back in one go: nobody heard from the server for seconds (3 s for 10.7 GiB), and clients of other hosts gave it up.
TEST(LeaseMemory, WhatIsDroppedGoesBackInSteps) {
  constexpr uint64_t kLease = 16 * kMiB, kLeases = 4;
  LeaseMemory memory(2 * kLeases * kLease, [] {});
  for (uint64_t i = 0; i < kLeases; ++i) ASSERT_TRUE(memory.MakePrivate(i * kLease, kLease).ok());
  for (uint64_t i = kLeases; i < 2 * kLeases; ++i) ASSERT_TRUE(memory.MakeShared(i * kLease, kLease).ok());
  for (uint64_t i = 0; i < 2 * kLeases; ++i) i % 2 == 0 ? memory.Drop(i * kLease) : memory.Leave(i * kLease);
  uint64_t steps = 0, most = 0;
  for (; memory.has_dropped(); ++steps) {
    const uint64_t before = ResidentBytes();
    memory.FreeSome();
    most = std::max(most, before - std::min(before, ResidentBytes()));
  }
  EXPECT_EQ(steps, kLeases * kLease / (2 * kMiB) + kLeases / 2 * (kLease / (2 * kMiB) + 1));
  EXPECT_LE(most, 3 * kMiB);
}

// What a job gives back is lent to the next one before it has gone back to the system: a server may not have both.
TEST(LeaseMemory, ANewLeaseFirstGivesBackWhatWasDropped) {
  constexpr uint64_t kLease = 64 * kMiB;
  LeaseMemory memory(2 * kLease, [] {});
  ASSERT_TRUE(memory.MakePrivate(0, kLease).ok());
  const uint64_t before = ResidentBytes();
  memory.Drop(0);
  ASSERT_TRUE(memory.MakePrivate(kLease, kLease).ok());
  EXPECT_LT(ResidentBytes(), before + 4 * kMiB);
  EXPECT_FALSE(memory.has_dropped());
}

// As many mappings as a process may have (vm.max_map_count), which a client can bring about by the sizes of its leases. What came back then ended the server.
TEST(LeaseMemoryDeathTest, WhereNoMappingIsLeftALeaseThatComesBackIsTaken) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs mappings of its own";
#endif
  const auto lend = [] {
    constexpr uint64_t kLease = 2 * kMiB;
    LeaseMemory memory(uint64_t{8} << 40, [] {});
    for (uint64_t i = 0; i < 3; ++i) {
      if (!memory.MakePrivate(i * kLease, kLease).ok()) _exit(1);
    }
    std::byte* const middle = memory.private_memory(kLease).data();
    std::fill_n(middle, kLease, std::byte{1});
    while (mmap(nullptr, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {  // each a mapping of its own
    }
    memory.Drop(kLease);
    FreeAll(&memory);
    if (*middle != std::byte{0}) _exit(2);
    const Status made = memory.MakePrivate(3 * kLease, uint64_t{2} << 40);  // beyond the addresses that it has
    std::fprintf(stderr, "%s\n", made.c_str());
    _exit(made.ok() ? 3 : 0);
  };
  EXPECT_EXIT(lend(), testing::ExitedWithCode(0), "has taken 1 TiB of them .* start this server again");
}

TEST(LeaseMemory, WhatIsNotThereMayBeDropped) {
  LeaseMemory memory(kMiB, [] {});
  memory.Drop(0);
}

TEST(LeaseMemory, WhatIsMissingIsNamed) {
  LeaseMemory memory(kMiB, [] {});
  NoMoreFiles none;
  const Status made = memory.MakeShared(0, kMiB);
  EXPECT_EQ(made.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(made.message().find("ulimit -n"), std::string::npos) << made.message();
}

// Each lease takes new addresses. Where they are limited a server that outlives jobs comes to their end, and said: let it lend less.
TEST(LeaseMemoryDeathTest, WhereAddressesAreUsedUpTheRemedyIsNamed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory needs addresses without limit";
#endif
  const auto use_up = [] {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit limit{pages * 4096 + 256 * kMiB, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    LeaseMemory memory(kMiB, [] {});
    for (int round = 0; round < 1000; ++round) {
      if (const Status made = memory.MakePrivate(0, kMiB); !made.ok()) {
        std::fprintf(stderr, "%s\n", made.c_str());
        _exit(0);
      }
      memory.Drop(0);
    }
    _exit(1);
  };
  EXPECT_EXIT(use_up(), testing::ExitedWithCode(0), "start this server again");
}

// A server that may have no more memory ended when a lease came back.
TEST(LeaseMemoryDeathTest, WhereNoMemoryIsPromisedALeaseIsRefusedAndOneThatComesBackIsTaken) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory has no limit";
#endif
  const auto lend = [] {
    LeaseMemory memory(4 * kMiB, [] {});
    if (!memory.MakePrivate(0, kMiB).ok()) _exit(1);
    rlimit limit{};
    getrlimit(RLIMIT_DATA, &limit);
    const rlimit none{kMiB / 4, limit.rlim_max};
    setrlimit(RLIMIT_DATA, &none);
    const Status refused = memory.MakePrivate(2 * kMiB, kMiB);
    if (refused.ok()) _exit(2);
    memory.Drop(0);
    setrlimit(RLIMIT_DATA, &limit);
    if (!memory.MakePrivate(0, kMiB).ok() || !memory.MakePrivate(2 * kMiB, kMiB).ok()) _exit(3);
    std::fill_n(memory.private_memory(2 * kMiB).data(), kMiB, std::byte{1});
    const std::span<std::byte> other = memory.private_memory(0);
    if (!std::all_of(other.begin(), other.end(), [](std::byte b) { return b == std::byte{0}; })) _exit(4);
    std::fprintf(stderr, "%s\n", refused.c_str());
    _exit(0);
  };
  EXPECT_EXIT(lend(), testing::ExitedWithCode(0), "ulimit -d");
}

// MPOL_DEFAULT where the kernel has no policies, or no answer.
int PolicyAt(const std::byte* address) {
  int policy = MPOL_DEFAULT;
  return syscall(SYS_get_mempolicy, &policy, nullptr, 0, address, MPOL_F_ADDR) == 0 ? policy : MPOL_DEFAULT;
}

// The pages of a lease were on whichever nodes the scheduler moved the server to meanwhile; those of shared ones were never huge where the system
// gives huge ones to who asks.
TEST(LeaseMemory, IsOfOneNodeAndAsksForHugePages) {
  std::string shared_flags;
  int shared_policy = MPOL_DEFAULT;
  bool is_shared = false;
  LeaseMemory memory(8 * kMiB, [&] {
    std::byte* begin = nullptr;
    if (!is_shared || !shared_flags.empty()) return;
    shared_flags = FlagsOfMapping(nullptr, "memfd:ramspan-lease", &begin);
    shared_policy = PolicyAt(begin);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % (2 * kMiB), 0u) << "else it could not have any";
  });
  ASSERT_TRUE(memory.MakePrivate(0, 4 * kMiB).ok());
  const std::byte* const lease = memory.private_memory(0).data();
  is_shared = true;
  ASSERT_TRUE(memory.MakeShared(4 * kMiB, 4 * kMiB).ok());
  EXPECT_EQ(FlagsOfMapping(nullptr, "memfd:ramspan-lease"), "") << "it is mapped only while it is made";
  if (SystemKnowsHugePages()) {
    EXPECT_PRED1(AsksForHugePages, FlagsOfMapping(lease));
    EXPECT_PRED1(AsksForHugePages, shared_flags);
  }
  // As for any memory of this process, which may be bound, or the kernel may refuse it.
  void* const page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (BindMemoryToLocalNode(page, 4096) >= 0) {
    EXPECT_EQ(PolicyAt(lease), MPOL_PREFERRED);
    EXPECT_EQ(shared_policy, MPOL_PREFERRED);
  }
  munmap(page, 4096);
}

TEST(LeaseMemory, ASharedLeaseIsAllThere) {
  LeaseMemory memory(kMiB, [] {});
  ASSERT_TRUE(memory.MakeShared(0, kMiB).ok());
  struct stat status {};
  ASSERT_EQ(fstat(memory.shared_descriptor(0), &status), 0);
  EXPECT_EQ(status.st_size, ssize_t{kMiB});
  EXPECT_GE(status.st_blocks * 512, ssize_t{kMiB});
}

}  // namespace
}  // namespace ramspan
