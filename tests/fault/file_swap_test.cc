// What file_swap answers when the disk, the directory, the limits or the process fail it. Nothing may hang, die or stay
// behind; what was written stays readable.
#include "client/swap/file_swap.h"
#include "tests/support/send_signal.h"
#include "tests/support/sizes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sched.h>
#include <string>
#include <thread>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/sizes.h"

namespace ramspan {
namespace {

namespace fs = std::filesystem;

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A directory of its own for each test, and what the tests do in it.
class FileSwapFault : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::path(testing::TempDir()) / "ramspan-fault-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr) << std::strerror(errno);
    directory_ = fs::canonical(name);
  }
  void TearDown() override {
    if (mounted_) umount2(directory_.c_str(), MNT_DETACH);
    fs::remove_all(directory_);
  }

  FileSwapOptions Options(bool direct, uint64_t bytes_max) const {
    FileSwapOptions options;
    options.mask = directory_.string() + "/swap-%d-%d";
    options.bytes_max = bytes_max;
    options.direct = direct;
    options.file_bytes = kMiB;
    return options;
  }
  std::unique_ptr<FileSwap> Make(const FileSwapOptions& options) const {
    Result<std::unique_ptr<FileSwap>> swap = FileSwap::Create(options);
    EXPECT_TRUE(swap.ok()) << swap.status().message();
    return swap.ok() ? std::move(swap).value() : nullptr;
  }
  bool DirectoryIsEmpty() const { return fs::is_empty(directory_); }

  // A file system of `bytes` on the directory, in a mount namespace of this process alone; false without the right to.
  bool MountSmallDisk(uint64_t bytes) {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    const std::string size = "size=" + std::to_string(bytes);
    mounted_ = mount("ramspan-test", directory_.c_str(), "tmpfs", 0, size.c_str()) == 0;
    return mounted_;
  }

  fs::path directory_;
  bool mounted_ = false;
};

// One slot with a buffer and its last written pattern.
class Held {
 public:
  Held(FileSwap& swap, SlotRef slot, size_t bytes) : swap_(swap), bytes_(RoundUpToGranule(bytes)) {
    buffer_ = static_cast<char*>(std::aligned_alloc(kSwapGranule, bytes_));
    request_.slot = slot;
    request_.buffer = buffer_;
    request_.bytes = bytes;
  }
  ~Held() {
    swap_.Free(request_.slot, request_.bytes);
    std::free(buffer_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  StatusCode Write(char pattern) {
    std::memset(buffer_, pattern, bytes_);
    return Transfer(true);
  }
  StatusCode Read() {
    std::memset(buffer_, 0, bytes_);
    return Transfer(false);
  }
  bool HoldsOnly(char pattern) const {
    return std::all_of(buffer_, buffer_ + request_.bytes, [&](char c) { return c == pattern; });
  }

 private:
  StatusCode Transfer(bool is_write) {
    std::array<IoRequest*, 1> batch{&request_};
    is_write ? swap_.SubmitWrite(batch) : swap_.SubmitRead(batch);
    std::array<IoRequest*, 1> done{};
    EXPECT_EQ(swap_.Poll(done, std::chrono::seconds(30)), 1u);
    return request_.result;
  }

  FileSwap& swap_;
  const size_t bytes_;
  char* buffer_;
  IoRequest request_;
};

// Slots of `bytes` until the swap refuses; *why receives its words.
std::vector<std::unique_ptr<Held>> FillUp(FileSwap& swap, size_t bytes, size_t slots_max, Status* why) {
  std::vector<std::unique_ptr<Held>> held;
  while (held.size() < slots_max) {
    Result<SlotRef> slot = swap.Reserve(bytes);
    if (!slot.ok()) {
      *why = slot.status();
      break;
    }
    held.push_back(std::make_unique<Held>(swap, slot.value(), bytes));
  }
  return held;
}

// Runs `body` in a child; its exit status, or -signal.
template <typename Body>
int InChild(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void LimitFileSize(rlim_t bytes) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = std::min(bytes, limit.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

// With a small `ulimit -f` and many descriptors there could be more files than a slot can name, which ended the program.
TEST_F(FileSwapFault, AFileThatNoSlotCouldNameIsNotMade) {
  FileSwapOptions options = Options(false, 64 * kMiB);
  options.file_bytes = 64 * kKiB;
  options.files_max = 3;
  const auto swap = Make(options);
  std::vector<SlotRef> slots;
  Result<SlotRef> slot = swap->Reserve(64 * kKiB);
  for (; slot.ok() && slots.size() < 100; slot = swap->Reserve(64 * kKiB)) slots.push_back(slot.value());
  EXPECT_EQ(slot.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Contains(slot.status().message(), "there are 3 of them")) << slot.status().message();
  for (const SlotRef one : slots) swap->Free(one, 64 * kKiB);
}

TEST_F(FileSwapFault, AMissingDirectoryIsNamedWithItsRemedy) {
  FileSwapOptions options = Options(true, kMiB);
  options.mask = directory_.string() + "/nowhere/swap-%d-%d";
  const auto swap = FileSwap::Create(options);
  ASSERT_FALSE(swap.ok());
  EXPECT_EQ(swap.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Contains(swap.status().message(), directory_.string() + "/nowhere")) << swap.status().message();
  EXPECT_TRUE(Contains(swap.status().message(), "TMPDIR")) << swap.status().message();
  EXPECT_TRUE(Contains(swap.status().message(), "swapfiles")) << swap.status().message();
}

TEST_F(FileSwapFault, AnUnwritableDirectoryIsNamedWithItsRemedy) {
  ASSERT_EQ(chmod(directory_.c_str(), 0555), 0);
  const FileSwapOptions options = Options(true, kMiB);
  // Root may write anywhere, so a child tries as nobody.
  const int result = InChild([&] {
    if (geteuid() == 0 && (chmod(directory_.c_str(), 0555) != 0 || setgid(65534) != 0 || setuid(65534) != 0)) return 2;
    const auto swap = FileSwap::Create(options);
    return !swap.ok() && swap.status().code() == StatusCode::kFailedPrecondition &&
                   Contains(swap.status().message(), "TMPDIR")
               ? 0
               : 1;
  });
  EXPECT_EQ(result, 0);
}

TEST_F(FileSwapFault, AFileIsNoDirectory) {
  std::ofstream(directory_ / "file") << "x";
  FileSwapOptions options = Options(false, kMiB);
  options.mask = directory_.string() + "/file/swap-%d-%d";
  const auto swap = FileSwap::Create(options);
  ASSERT_FALSE(swap.ok());
  EXPECT_EQ(swap.status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(FileSwapFault, MasksAndSizesThatCannotWorkAreRefused) {
  for (const char* mask : {"", "/tmp/swap", "/tmp/swap-%d", "/tmp/%d-%s", "/tmp/%d-%d-%d", "/tmp/%d-%d-100%"}) {
    FileSwapOptions options = Options(true, kMiB);
    options.mask = mask;
    const auto swap = FileSwap::Create(options);
    ASSERT_FALSE(swap.ok()) << mask;
    EXPECT_EQ(swap.status().code(), StatusCode::kInvalidArgument) << mask;
  }
  EXPECT_FALSE(FileSwap::Create(Options(true, 0)).ok());
}

TEST_F(FileSwapFault, NoNameIsEverSeenInTheDirectory) {
  for (bool direct : {false, true}) {
    const auto swap = Make(Options(direct, 8 * kMiB));
    ASSERT_NE(swap, nullptr);
    EXPECT_TRUE(DirectoryIsEmpty());
    EXPECT_EQ(swap->stats().slot_bytes_capacity, 0u) << "a program that never swaps needs no file";
    Status why;
    const auto held = FillUp(*swap, kMiB, 100, &why);
    EXPECT_EQ(held.size(), 8u);
    EXPECT_TRUE(DirectoryIsEmpty());
  }
}

// An mqueue file system is everywhere, and has neither nameless files nor direct I/O.
TEST_F(FileSwapFault, WhereFilesNeedANameItIsUnlinkedAtOnceAndNamesOfOthersArePassedOver) {
  if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    GTEST_SKIP() << "may not mount";
  }
  mounted_ = unshare(CLONE_NEWIPC) == 0 && mount("ramspan-test", directory_.c_str(), "mqueue", 0, nullptr) == 0;
  if (!mounted_) GTEST_SKIP() << "no mqueue file system";
  const FileSwapOptions options = Options(true, kMiB);
  const fs::path taken = directory_ / ("swap-" + std::to_string(getpid()) + "-0");
  const int other = open(taken.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  ASSERT_GE(other, 0) << std::strerror(errno);
  uint64_t number = 0;
  const Result<AioFile> file = AioFile::Create(options.mask, true, &number);
  EXPECT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(number, 2u);
  EXPECT_FALSE(file.ok() && file.value().direct());
  EXPECT_TRUE(fs::exists(taken)) << "a file of another process is not ours to remove";
  const auto swap = Make(options);
  EXPECT_TRUE(swap != nullptr && swap->capabilities().synchronous) << "buffered instead";
  close(other);
  unlink(taken.c_str());
  EXPECT_TRUE(DirectoryIsEmpty());
}

TEST_F(FileSwapFault, AFixedSizeIsNotExceeded) {
  const auto swap = Make(Options(true, 5 * kMiB + 100));
  Status why;
  const auto held = FillUp(*swap, 300 * kKiB, 100, &why);
  EXPECT_EQ(why.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Contains(why.message(), "swapMemory")) << why.message();
  EXPECT_TRUE(Contains(why.message(), "autoextendable")) << why.message();
  EXPECT_LE(swap->stats().slot_bytes_capacity, 5 * kMiB + 100);
  EXPECT_GE(held.size() * 300 * kKiB, 4 * kMiB);
}

TEST_F(FileSwapFault, AutoextendableIsNoAdviceWhereItIsInForce) {
  FileSwapOptions options = Options(true, 1 * kMiB);
  options.policy = SwapPolicy::kAutoextendable;
  const auto swap = Make(options);
  Result<SlotRef> slot = swap->Reserve(uint64_t{1} << 50);  // no disk has room for it
  ASSERT_EQ(slot.status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(Contains(slot.status().message(), "autoextendable")) << slot.status().message();
  EXPECT_TRUE(Contains(slot.status().message(), "swapfiles")) << slot.status().message();
}

TEST_F(FileSwapFault, AutoextendableGrowsBeyondTheLimit) {
  FileSwapOptions options = Options(true, 2 * kMiB);
  options.policy = SwapPolicy::kAutoextendable;
  const auto swap = Make(options);
  Status why;
  const auto held = FillUp(*swap, kMiB, 20, &why);
  ASSERT_EQ(held.size(), 20u) << why.message();
  for (size_t i = 0; i < held.size(); ++i) ASSERT_EQ(held[i]->Write(static_cast<char>('a' + i)), StatusCode::kOk);
  for (size_t i = 0; i < held.size(); ++i) {
    ASSERT_EQ(held[i]->Read(), StatusCode::kOk);
    EXPECT_TRUE(held[i]->HoldsOnly(static_cast<char>('a' + i)));
  }
}

// It made another file, or was full, beside files that had room.
TEST_F(FileSwapFault, ALowerLimitThatIsNoneLeavesRoomOfItsFilesInUse) {
  FileSwapOptions options = Options(false, 32 * kMiB);
  options.policy = SwapPolicy::kAutoextendable;
  options.warn_of_growth = true;
  const auto swap = Make(options);
  Status why;
  auto held = FillUp(*swap, kMiB, 30, &why);
  ASSERT_EQ(held.size(), 30u) << why.message();
  held.resize(10);
  const auto files = [&] {
    uint64_t free = 0, whole = 0, scattered = 0;
    swap->Fragmentation(&free, &whole, &scattered);
    return free + whole + scattered;
  };
  const uint64_t before = files();
  ASSERT_TRUE(swap->SetLimit(12 * kMiB).ok());
  const auto more = FillUp(*swap, kMiB, 20, &why);
  EXPECT_EQ(more.size(), 20u) << why.message();
  EXPECT_EQ(files(), before);
  testing::internal::CaptureStderr();
  const auto beyond = FillUp(*swap, kMiB, 20, &why);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(beyond.size(), 20u) << why.message();
  EXPECT_TRUE(Contains(said, "grow beyond swapMemory (12 MiB)")) << "what was set, and not what the files have: " << said;
}

TEST_F(FileSwapFault, AutoextendableLeavesTheDiskSomeRoom) {
  if (!MountSmallDisk(40 * kMiB)) GTEST_SKIP() << "may not mount";
  FileSwapOptions options = Options(false, kMiB);
  options.policy = SwapPolicy::kAutoextendable;
  const auto swap = Make(options);
  Status why;
  const auto held = FillUp(*swap, kMiB, 100, &why);
  EXPECT_EQ(why.code(), StatusCode::kResourceExhausted) << why.message();
  EXPECT_GE(held.size(), 30u);
  struct statvfs disk {};
  ASSERT_EQ(statvfs(directory_.c_str(), &disk), 0);
  EXPECT_GE(disk.f_bavail * 20, disk.f_blocks) << "5% are for others";
}

TEST_F(FileSwapFault, InteractiveAsksAndGrowsByWhatWasGranted) {
  FileSwapOptions options = Options(true, 2 * kMiB);
  options.policy = SwapPolicy::kInteractive;
  int asked = 0;
  uint64_t granted = 0;
  options.ask = [&](uint64_t wanted, const std::string& message) {
    EXPECT_TRUE(Contains(message, directory_.string())) << message;
    granted += wanted;
    return ++asked <= 3;
  };
  const auto swap = Make(options);
  Status why;
  auto held = FillUp(*swap, kMiB, 50, &why);
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(held.size(), 5u) << "2 MiB and three grants of 1 MiB";
  EXPECT_EQ(why.code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(swap->Reserve(kMiB).ok());
  EXPECT_EQ(asked, 4) << "a no is not asked again";
  held.pop_back();
  const Result<SlotRef> again = swap->Reserve(kMiB);
  ASSERT_TRUE(again.ok()) << "what was freed serves without a question";
  swap->Free(again.value(), kMiB);
}

TEST_F(FileSwapFault, InteractiveWithoutATerminalIsAClearFailure) {
  FileSwapOptions options = Options(true, kMiB);
  options.policy = SwapPolicy::kInteractive;
  const int result = InChild([&] {
    setsid();  // no controlling terminal, whoever runs the test
    const int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0) return 2;
    auto swap = FileSwap::Create(options);
    if (!swap.ok() || !swap.value()->Reserve(kMiB).ok()) return 3;
    const Result<SlotRef> second = swap.value()->Reserve(kMiB);
    if (second.ok() || second.status().code() != StatusCode::kResourceExhausted) return 4;
    return Contains(second.status().message(), "no terminal") ? 0 : 5;
  });
  EXPECT_EQ(result, 0);
}

TEST_F(FileSwapFault, AFullDiskIsNoticedAtReserveAndLosesNothing) {
  if (!MountSmallDisk(16 * kMiB)) GTEST_SKIP() << "may not mount";
  for (bool direct : {false, true}) {
    const auto swap = Make(Options(direct, 1024 * kMiB));
    Status why;
    auto held = FillUp(*swap, 512 * kKiB, 100, &why);
    EXPECT_EQ(why.code(), StatusCode::kResourceExhausted);
    EXPECT_TRUE(Contains(why.message(), directory_.string()) && Contains(why.message(), "swapfiles")) << why.message();
    EXPECT_GE(held.size(), 28u) << "the last files are made as small as needed";
    for (size_t i = 0; i < held.size(); ++i) ASSERT_EQ(held[i]->Write(static_cast<char>(i + 1)), StatusCode::kOk);
    for (size_t i = 0; i < held.size(); ++i) {
      ASSERT_EQ(held[i]->Read(), StatusCode::kOk);
      EXPECT_TRUE(held[i]->HoldsOnly(static_cast<char>(i + 1)));
    }
    held.pop_back();
    const Result<SlotRef> again = swap->Reserve(512 * kKiB);
    ASSERT_TRUE(again.ok());
    swap->Free(again.value(), 512 * kKiB);
  }
}

TEST_F(FileSwapFault, ADiskThatIsFullAtTheStartStopsNoProgramThatDoesNotSwap) {
  if (!MountSmallDisk(kMiB)) GTEST_SKIP() << "may not mount";
  std::ofstream(directory_ / "hog") << std::string(2 * kMiB, 'x');
  const auto swap = Make(Options(true, 64 * kMiB));
  ASSERT_NE(swap, nullptr);
  EXPECT_EQ(swap->Reserve(kMiB).status().code(), StatusCode::kResourceExhausted);
  fs::remove(directory_ / "hog");
  const Result<SlotRef> slot = swap->Reserve(512 * kKiB);
  ASSERT_TRUE(slot.ok()) << slot.status().message();
  swap->Free(slot.value(), 512 * kKiB);
}

TEST_F(FileSwapFault, ASmallFileSizeLimitMeansMoreFilesNotASignal) {
  LimitFileSize(256 * kKiB);
  testing::internal::CaptureStderr();
  const auto swap = Make(Options(true, 16 * kMiB));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(Contains(said, "may not be larger than 256 KiB each (`ulimit -f`)")) << said;
  Status why;
  const auto held = FillUp(*swap, kMiB, 4, &why);
  ASSERT_EQ(held.size(), 4u) << why.message();
  for (const auto& one : held) EXPECT_EQ(one->Write('f'), StatusCode::kOk);
  for (const auto& one : held) EXPECT_EQ(one->Read(), StatusCode::kOk);
  LimitFileSize(RLIM_INFINITY);
}

TEST_F(FileSwapFault, AFileSizeLimitOfNothingIsNamed) {
  LimitFileSize(0);
  // Direct I/O is proved by a write of 4 KiB, which this limit would answer with a signal.
  const auto swap = Make(Options(true, kMiB));
  const Result<SlotRef> slot = swap->Reserve(kKiB);
  LimitFileSize(RLIM_INFINITY);
  ASSERT_FALSE(slot.ok());
  EXPECT_EQ(slot.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Contains(slot.status().message(), "ulimit -f")) << slot.status().message();
}

// The file system takes back what it promised. A lowered file size limit does it on any: EFBIG (with SIGXFSZ, ignored).
TEST_F(FileSwapFault, AWriteWithoutRoomFailsAndItsFileTakesNoNewSlots) {
  for (bool direct : {false, true}) {
    const auto swap = Make(Options(direct, 8 * kMiB));
    Status why;
    auto held = FillUp(*swap, 512 * kKiB, 2, &why);
    ASSERT_EQ(held.size(), 2u) << why.message();
    ASSERT_EQ(held[0]->Write('a'), StatusCode::kOk);
    auto* const before = std::signal(SIGXFSZ, SIG_IGN);
    LimitFileSize(512 * kKiB);
    EXPECT_EQ(held[1]->Write('b'), StatusCode::kResourceExhausted);
    LimitFileSize(RLIM_INFINITY);
    std::signal(SIGXFSZ, before);
    EXPECT_EQ(swap->stats().errors, 1u);
    EXPECT_EQ(swap->stats().slot_bytes_capacity, swap->stats().slot_bytes_used) << "the only file is closed: nothing is free";
    EXPECT_EQ(held[0]->Read(), StatusCode::kOk);
    EXPECT_TRUE(held[0]->HoldsOnly('a'));
    held.pop_back();
    const Result<SlotRef> elsewhere = swap->Reserve(512 * kKiB);
    ASSERT_TRUE(elsewhere.ok()) << "another file serves: " << elsewhere.status().message();
    Held other(*swap, elsewhere.value(), 512 * kKiB);
    EXPECT_EQ(other.Write('c'), StatusCode::kOk);
    held.clear();
    EXPECT_EQ(swap->stats().slot_bytes_used, 512 * kKiB);
  }
}

// A quota was full for one write, and what its file had free was counted in the limit for as long as anything else lay there.
TEST_F(FileSwapFault, AFileThatHadNoRoomForAMomentTakesSlotsAgain) {
  FileSwapOptions options = Options(false, kMiB);
  options.policy = SwapPolicy::kFail;
  options.closed_for = std::chrono::milliseconds(200);
  const auto swap = Make(options);
  Status why;
  auto held = FillUp(*swap, 512 * kKiB, 2, &why);
  ASSERT_EQ(held.size(), 2u) << why.message();
  auto* const before = std::signal(SIGXFSZ, SIG_IGN);
  LimitFileSize(512 * kKiB);
  EXPECT_EQ(held[1]->Write('b'), StatusCode::kResourceExhausted);
  LimitFileSize(RLIM_INFINITY);
  std::signal(SIGXFSZ, before);
  held.pop_back();
  EXPECT_FALSE(swap->Reserve(512 * kKiB).ok());
  std::this_thread::sleep_for(options.closed_for);
  EXPECT_TRUE(swap->TryReserve(512 * kKiB).ok());
}

// The descriptor of the (nameless) swap file in `directory`, found as an outsider would.
int FindSwapFile(const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = fs::read_symlink(entry.path(), error).string();
    if (!error && Contains(target, directory.string() + "/")) return std::stoi(entry.path().filename().string());
  }
  return -1;
}

TEST_F(FileSwapFault, AFileThatLostItsEndIsDataLossNotZeros) {
  for (bool direct : {false, true}) {
    const auto swap = Make(Options(direct, 8 * kMiB));
    Status why;
    auto held = FillUp(*swap, 600 * kKiB, 1, &why);
    ASSERT_EQ(held.size(), 1u) << why.message();
    ASSERT_EQ(held[0]->Write('a'), StatusCode::kOk);
    const int fd = FindSwapFile(directory_);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(ftruncate(fd, 100 * kKiB), 0);
    EXPECT_EQ(held[0]->Read(), StatusCode::kDataLoss);
  }
}

TEST_F(FileSwapFault, NoDescriptorLeftIsNamed) {
  const auto swap = Make(Options(true, 8 * kMiB));
  static_cast<void>(swap->stats());  // the first call of all: UBSan needs a pipe to look whether it is a FileSwap, and remembers that
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest_free = dup(STDERR_FILENO);
  close(lowest_free);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(lowest_free);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Result<SlotRef> slot = swap->Reserve(kKiB);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(slot.ok());
  EXPECT_EQ(slot.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Contains(slot.status().message(), "ulimit -n")) << slot.status().message();
}

TEST_F(FileSwapFault, AKilledProcessLeavesNoFile) {
  for (bool direct : {false, true}) {
    std::array<int, 2> ready{};
    ASSERT_EQ(pipe(ready.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      const auto swap = Make(Options(direct, 64 * kMiB));
      Status why;
      auto held = FillUp(*swap, kMiB, 16, &why);
      for (char pattern = 1;; ++pattern) {
        for (auto& one : held) {
          if (one->Write(pattern) != StatusCode::kOk) _exit(1);
        }
        if (pattern == 1 && write(ready[1], "!", 1) != 1) _exit(1);
      }
    }
    close(ready[1]);
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1) << "the child did not get to swap";
    close(ready[0]);
    EXPECT_TRUE(DirectoryIsEmpty()) << "a name exists while the child lives";
    ASSERT_EQ(SendSignal(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_TRUE(DirectoryIsEmpty());
  }
}

TEST_F(FileSwapFault, ADirectoryThatVanishedMakesTheTierUnavailable) {
  const auto swap = Make(Options(true, 8 * kMiB));
  fs::remove_all(directory_);
  const Result<SlotRef> slot = swap->Reserve(kMiB);
  ASSERT_FALSE(slot.ok());
  EXPECT_EQ(slot.status().code(), StatusCode::kUnavailable) << "so that the next tier is tried";
}

}  // namespace
}  // namespace ramspan
