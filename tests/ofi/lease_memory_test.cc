#include "memserver/lease_memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

namespace ramspan {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(LeaseMemory, IsZeroWhenItIsMadeAgain) {
  int steps = 0;
  const auto memory = LeaseMemory::Reserve(4 * kMiB, [&] { ++steps; }).value();
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(memory->MakePrivate(kMiB, kMiB).ok());
    const std::span<std::byte> bytes = memory->private_memory(kMiB);
    ASSERT_EQ(bytes.size(), kMiB);
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; })) << round;
    std::fill(bytes.begin(), bytes.end(), std::byte{0xab});
    memory->Drop(kMiB);
  }
  EXPECT_EQ(steps, 8) << "others may be served while it is made";
}

TEST(LeaseMemory, DroppedMemoryCannotBeReached) {
  const auto memory = LeaseMemory::Reserve(kMiB, [] {}).value();
  ASSERT_TRUE(memory->MakePrivate(0, kMiB).ok());
  std::byte* place = memory->private_memory(0).data();
  memory->Drop(0);
  EXPECT_DEATH(*const_cast<volatile std::byte*>(place) = std::byte{1}, "");
  EXPECT_DEATH(memory->private_memory(0), "no private lease");
}

TEST(LeaseMemory, WhatIsNotThereMayBeDropped) {
  const auto memory = LeaseMemory::Reserve(kMiB, [] {}).value();
  memory->Drop(0);
}

TEST(LeaseMemory, ASharedLeaseIsAllThere) {
  const auto memory = LeaseMemory::Reserve(kMiB, [] {}).value();
  ASSERT_TRUE(memory->MakeShared(0, kMiB).ok());
  struct stat status {};
  ASSERT_EQ(fstat(memory->shared_descriptor(0), &status), 0);
  EXPECT_EQ(status.st_size, ssize_t{kMiB});
  EXPECT_GE(status.st_blocks * 512, ssize_t{kMiB});
}

}  // namespace
}  // namespace ramspan
