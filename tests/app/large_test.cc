// Chunks of more than 2 GiB: past every count that is an int, in MPI, in aio and in between.
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/app/app_fixture.h"

namespace ramspan {
namespace {

constexpr SweepSize kLarge = {.bytes = size_t{2} * 2049 * kMiB, .chunk_bytes = 2049 * kMiB, .threads = 1};

constexpr std::chrono::seconds kPatience{150};

class Large : public AppFixture {
 protected:
  void SetUp() override {
    AppFixture::SetUp();
    const auto free = static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    if (free < uint64_t{8} << 30) GTEST_SKIP() << "needs 8 GiB of free memory";
    struct statvfs disk {};
    if (statvfs(folder_.c_str(), &disk) != 0 || disk.f_bavail * disk.f_frsize < uint64_t{6} << 30) {
      GTEST_SKIP() << "needs 6 GiB of free disk";
    }
  }
};

TEST_F(Large, ChunksGoToFilesAndComeBack) {
  ExpectVerified(Run(Sweep(kLarge), {"RAMSPAN_MEMORY=2100MiB", StatsVariable()}, kPatience), kLarge);
  EXPECT_GT(Stats()["tiers"]["file"]["bytes_in"], kLarge.chunk_bytes);
}

TEST_F(Large, ChunksGoOverTheNetworkAndComeBack) {
  Words environment = kFar;
  environment.push_back(StatsVariable());
  const JobSize job = {.ranks = 1, .servers = 1, .memory = "2100MiB", .server_memory = "4300MiB"};
  ExpectVerified(Run(Job(job, Sweep(kLarge)), environment, kPatience), kLarge);
  EXPECT_GT(Stats()["tiers"]["remote"]["bytes_in"], kLarge.chunk_bytes);
  EXPECT_EQ(Stats()["tiers"]["file"]["bytes_out"], 0);
}

}  // namespace
}  // namespace ramspan
