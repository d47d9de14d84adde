#include "launch/leftovers.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "launch/process.h"
#include "launch/run_folder.h"
#include "tests/support/refuse_system_call.h"
#include "tests/support/send_signal.h"

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

// The server's socket lay in a path that is none: "memory server 1 ended with status 2".
TEST(RunFolder, ARelativeTmpdirIsMadeWhole) {
  const std::string here = fs::current_path();
  const std::string parent = RunFolderParent("./tmp");
  EXPECT_EQ(parent, here.size() + 4 <= 70 ? here + "/tmp" : "/tmp");
  EXPECT_EQ(RunFolderParent("/scratch/me"), "/scratch/me");
  EXPECT_EQ(RunFolderParent(""), "/tmp");
  EXPECT_EQ(NameRunFolder("tmp")[0], '/');
}

TEST_F(LeftoversTest, OnlyUnusedSegmentsOfMpiAreRemoved) {
  const int64_t since_ns = RealtimeNs() - 1'000'000'000;
  const std::string dead = Make("mpich_shar_tmpAbCdEf"), also_dead = Make("ucx_shm_posix_12ab"), other = Make("postgres");
  const std::string open_path = Make("ucx_shm_posix_open"), mapped_path = Make("mpich_shar_tmpMapped");
  const UniqueFd open_fd(open(open_path.c_str(), O_RDONLY | O_CLOEXEC));
  UniqueFd map_fd(open(mapped_path.c_str(), O_RDWR | O_CLOEXEC));
  void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, map_fd.get(), 0);
  map_fd.Reset();
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_GE(SweepSharedMemory(folder_, since_ns, {}), 2);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_FALSE(fs::exists(also_dead));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_TRUE(fs::exists(open_path));
  EXPECT_TRUE(fs::exists(mapped_path));
  munmap(mapped, 4096);
}

TEST_F(LeftoversTest, SegmentsOlderThanTheJobStay) {
  const std::string path = Make("mpich_shar_tmpOld");
  SweepSharedMemory(folder_, RealtimeNs() + 10'000'000'000, {});
  EXPECT_TRUE(fs::exists(path));
}

// The number of a segment made by a process that is dead now.
int SegmentOfTheDead(ProcessId* maker) {
  int fds[2];
  EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const int id = shmget(IPC_PRIVATE, 4096, 0600);
    _exit(write(fds[1], &id, sizeof id) == sizeof id ? 0 : 1);
  }
  *maker = Identify(pid);
  int id = -1;
  EXPECT_EQ(read(fds[0], &id, sizeof id), static_cast<ssize_t>(sizeof id));
  waitpid(pid, nullptr, 0);
  close(fds[0]);
  close(fds[1]);
  return id;
}

bool SegmentExists(int id) {
  shmid_ds segment{};
  return shmctl(id, IPC_STAT, &segment) == 0;
}

// Segments of any dead process of the user were removed, also those that a program leaves for its successor.
TEST_F(LeftoversTest, ASystemVSegmentIsRemovedOnceItsMakerIsDeadIfThatWasARank) {
  const int64_t since_ns = RealtimeNs() - 2'000'000'000;
  ProcessId rank, stranger;
  const int of_rank = SegmentOfTheDead(&rank), of_stranger = SegmentOfTheDead(&stranger);
  const int mine = shmget(IPC_PRIVATE, 4096, 0600);
  EXPECT_EQ(SweepSharedMemory(folder_, since_ns, {rank, Identify(getpid())}), 1);
  EXPECT_FALSE(SegmentExists(of_rank));
  EXPECT_TRUE(SegmentExists(of_stranger));
  EXPECT_TRUE(SegmentExists(mine));
  shmctl(mine, IPC_RMID, nullptr);
  shmctl(of_stranger, IPC_RMID, nullptr);
}

// A living process that was given the number of a dead rank may be between making its segment and using it.
TEST_F(LeftoversTest, ASegmentOfALivingProcessWithADeadRanksNumberStays) {
  const int segment = shmget(IPC_PRIVATE, 4096, 0600);
  ProcessId dead = Identify(getpid());
  dead.start += 1;
  EXPECT_EQ(SweepSharedMemory(folder_, 0, {dead}), 0);
  EXPECT_TRUE(SegmentExists(segment));
  shmctl(segment, IPC_RMID, nullptr);
}

// A folder on a file system that has no locks (Lustre without -o flock) could not be owned, and no job ran.
TEST_F(LeftoversTest, AFolderWithoutLocksCanBeOwned) {
  const std::string job = MakeRunFolder(NameRunFolder(folder_)).value();
  const pid_t child = fork();
  if (child == 0) {
    if (!RefuseSystemCall(__NR_flock, ENOSYS)) _exit(77);
    _exit(OwnRunFolder(job).ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(status, 0);
}

TEST_F(LeftoversTest, AFolderIsSweptWhenItsOwnersAndProcessesAreDead) {
  const std::string job = MakeRunFolder(NameRunFolder(folder_)).value();
  Result<UniqueFd> owner = OwnRunFolder(job);
  ASSERT_TRUE(owner.ok()) << owner.status().message();
  ProcessId rank;
  const int segment = SegmentOfTheDead(&rank);
  RecordProcess(job, rank);
  const std::string living = MakeRunFolder(NameRunFolder(folder_)).value();
  { EXPECT_TRUE(OwnRunFolder(living).ok()); }  // its launcher is dead, but a rank of it lives
  RecordProcess(living, Identify(getpid()));
  const std::string fresh = MakeRunFolder(NameRunFolder(folder_)).value();  // its launcher is about to own it
  EXPECT_EQ(SweepOrphans(folder_, folder_), 0);
  EXPECT_TRUE(SegmentExists(segment));
  owner.value().Reset();
  EXPECT_EQ(SweepOrphans(folder_, folder_), 1);
  EXPECT_FALSE(SegmentExists(segment));
  EXPECT_FALSE(fs::exists(job));
  EXPECT_TRUE(fs::exists(living));
  EXPECT_TRUE(fs::exists(fresh));
}

// Containers of one pod share /dev/shm and do not see each other's processes: a living job's file seemed to be unused.
TEST_F(LeftoversTest, FilesStayBeforeAJobWhereOthersProcessesCannotBeSeen) {
  const std::string path = Make("mpich_shar_tmpAbCdEf");
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWPID | CLONE_NEWIPC) != 0) _exit(77);
    const pid_t first = fork();  // of the new namespaces
    if (first == 0) _exit(SweepOrphans(folder_, folder_));
    int status = -1;
    waitpid(first, &status, 0);
    _exit(status == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "needs the right to make namespaces (unshare)";
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(fs::exists(path));
}

// On a file system that hosts share, the lock and the numbers of another host mean nothing here.
// Everything was killed between the folder and its mark; or it is just being made.
TEST_F(LeftoversTest, AFolderWithoutAMarkGoesWhenItIsTooOldToBeJustBeingMade) {
  const fs::path made = folder_ + "/ramspan-run-abcdef";
  fs::create_directory(made);
  std::ofstream(made / "owner.new") << "half a mark";
  SweepOrphans(folder_, folder_);
  EXPECT_TRUE(fs::exists(made));
  fs::last_write_time(made, fs::file_time_type::clock::now() - std::chrono::minutes(2));
  SweepOrphans(folder_, folder_);
  EXPECT_FALSE(fs::exists(made));
}

TEST_F(LeftoversTest, AFolderOfAnotherHostStays) {
  const std::string job = MakeRunFolder(NameRunFolder(folder_)).value();
  { EXPECT_TRUE(OwnRunFolder(job).ok()); }
  std::ofstream(job + "/owner") << "another boot/pid:[1]";
  EXPECT_EQ(SweepOrphans(folder_, folder_), 0);
  EXPECT_TRUE(fs::exists(job));
}

TEST_F(LeftoversTest, AKilledProcessIsEndingBeforeItHasEnded) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  EXPECT_FALSE(IsEnding(child));
  SendSignal(child, SIGKILL);
  EXPECT_TRUE(IsEnding(child));
  waitpid(child, nullptr, 0);
}

TEST_F(LeftoversTest, AUsedNumberIsNotTheSameProcess) {
  ProcessId self = Identify(getpid());
  EXPECT_TRUE(IsAlive(self));
  ++self.start;
  EXPECT_FALSE(IsAlive(self));
}

}  // namespace
}  // namespace ramspan
