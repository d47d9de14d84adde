#include "launch/leftovers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "launch/process.h"

namespace ramspan {
namespace {

namespace fs = std::filesystem;

class LeftoversTest : public testing::Test {
 protected:
  LeftoversTest() {
    std::string name = testing::TempDir() + "leftovers-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~LeftoversTest() override { fs::remove_all(folder_); }
  std::string Make(const std::string& name) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << "some bytes";
    return path;
  }
  std::string folder_;
};

TEST_F(LeftoversTest, OnlyUnusedSegmentsOfMpiAreRemoved) {
  const int64_t since_ns = RealtimeNs() - 1'000'000'000;
  const std::string dead = Make("mpich_shar_tmpAbCdEf"), also_dead = Make("ucx_shm_posix_12ab"), other = Make("postgres");
  const std::string open_path = Make("ucx_shm_posix_open"), mapped_path = Make("mpich_shar_tmpMapped");
  const UniqueFd open_fd(open(open_path.c_str(), O_RDONLY | O_CLOEXEC));
  UniqueFd map_fd(open(mapped_path.c_str(), O_RDWR | O_CLOEXEC));
  void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, map_fd.get(), 0);
  map_fd.Reset();
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_GE(SweepSharedMemory(folder_, since_ns), 2);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_FALSE(fs::exists(also_dead));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_TRUE(fs::exists(open_path));
  EXPECT_TRUE(fs::exists(mapped_path));
  munmap(mapped, 4096);
}

TEST_F(LeftoversTest, SegmentsOlderThanTheJobStay) {
  const std::string path = Make("mpich_shar_tmpOld");
  SweepSharedMemory(folder_, RealtimeNs() + 10'000'000'000);
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(LeftoversTest, ASystemVSegmentIsRemovedOnceItsMakerIsDead) {
  const int64_t since_ns = RealtimeNs() - 2'000'000'000;
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const pid_t maker = fork();
  if (maker == 0) {
    const int id = shmget(IPC_PRIVATE, 4096, 0600);
    _exit(write(fds[1], &id, sizeof id) == sizeof id ? 0 : 1);
  }
  int id = -1;
  ASSERT_EQ(read(fds[0], &id, sizeof id), static_cast<ssize_t>(sizeof id));
  ASSERT_GE(id, 0);
  waitpid(maker, nullptr, 0);
  const int mine = shmget(IPC_PRIVATE, 4096, 0600);
  SweepSharedMemory(folder_, since_ns);
  shmid_ds segment{};
  EXPECT_NE(shmctl(id, IPC_STAT, &segment), 0);
  EXPECT_EQ(shmctl(mine, IPC_STAT, &segment), 0);
  shmctl(mine, IPC_RMID, nullptr);
  close(fds[0]);
  close(fds[1]);
}

}  // namespace
}  // namespace ramspan
