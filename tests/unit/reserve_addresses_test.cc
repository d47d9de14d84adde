#include "common/reserve_addresses.h"

#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "common/slot_ref.h"

namespace ramspan {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

uint64_t AddressesTaken() {  // bytes; 0: not known
  FILE* const file = fopen("/proc/self/statm", "re");
  uint64_t pages = 0;
  if (file == nullptr || fscanf(file, "%lu", &pages) != 1) pages = 0;
  if (file != nullptr) fclose(file);
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// What a child may reserve that has `left` bytes of addresses more than this process: its range, and what it has taken in all.
struct Reserved {
  uint64_t bytes = 0, taken = 0;
};
Reserved ReserveWith(uint64_t left, uint64_t most, uint64_t least, bool half = false) {
  Reserved said;
  int ends[2];
  if (pipe(ends) != 0) return said;
  const pid_t child = fork();
  if (child == 0) {
    const uint64_t before = AddressesTaken();
    const rlimit limit{before + left, before + left};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
    if (half) LeaveHalfOfAddresses();
    said.bytes = ReserveAddresses(most, least).bytes;
    said.taken = AddressesTaken() - before;
    _exit(write(ends[1], &said, sizeof said) == sizeof said ? 0 : 1);
  }
  close(ends[1]);
  if (read(ends[0], &said, sizeof said) != sizeof said) said = {};
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return said;
}

TEST(ReserveAddresses, LeavesToOthersWhatIsTheirsAndTakesAllElse) {
  const Reserved most = ReserveWith(kAddressesOfOthers + 300 * kMiB, 1 << 30, 10 * kMiB);
  EXPECT_LE(most.bytes, 300 * kMiB);
  EXPECT_GE(most.bytes, 290 * kMiB);
  EXPECT_LE(most.taken, most.bytes + 2 * kMiB) << "what was to be left to others was kept";
}

TEST(ReserveAddresses, LeavesHalfWhereAProgramKnowsNothingOfIt) {
  const Reserved most = ReserveWith(2000 * kMiB, uint64_t{1} << 40, 10 * kMiB, true);
  EXPECT_LE(most.bytes, 1000 * kMiB);
  EXPECT_GE(most.bytes, 950 * kMiB);
}

// A part for others that begins within a page cannot be given back: the whole range and the part stay taken.
TEST(ReserveAddresses, ALeastThatIsNoWholePageIsRoundedUpAndThePartOfOthersIsGivenBack) {
  const uint64_t least = 10 * kMiB + 1;
  const Reserved little = ReserveWith(kAddressesOfOthers + least + kMiB / 2 + kMiB / 4, 1 << 30, least);
  EXPECT_EQ(little.bytes, RoundUpToGranule(least));
  EXPECT_LE(little.taken, least + 2 * kMiB) << "what was to be left to others was kept";
}

TEST(ReserveAddresses, TheLeastMayBeAllThereIs) {
  EXPECT_EQ(ReserveWith(20 * kMiB, 1 << 30, 16 * kMiB).bytes, 16 * kMiB);
  EXPECT_EQ(ReserveWith(10 * kMiB, 1 << 30, 16 * kMiB).bytes, 0u) << "not even the least has room";
}

// A terabyte came at once where a program had locked all that comes.
TEST(ReserveAddressesDeathTest, MakesNoPagesWhereAllThatComesIsLocked) {
  EXPECT_EXIT(
      {
        if (mlockall(MCL_FUTURE) != 0) _exit(77);
        const AddressRange range = ReserveAddresses(uint64_t{256} << 20, uint64_t{1} << 20);
        if (range.begin == nullptr) _exit(77);  // it may not lock as much
        std::vector<unsigned char> there(range.bytes / 4096);
        if (mincore(range.begin, range.bytes, there.data()) != 0) _exit(2);
        range.begin[5] = 1;
        _exit(std::count(there.begin(), there.end(), 0) == static_cast<ptrdiff_t>(there.size()) ? 77 : 1);
      },
      testing::ExitedWithCode(77), "");
}

}  // namespace
}  // namespace ramspan
