// AioQueue and AioFile beneath file_swap: what the kernel refuses, cuts short or has no room for.
#include "client/transport/aio_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "client/policy/trace_file.h"
#include "client/swap/file_map.h"
#include "common/descriptor.h"
#include "tests/support/shortest_of.h"

namespace ramspan {
namespace {

constexpr size_t kBlock = 4096;

class AioQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    uint64_t number = 0;
    Result<AioFile> file = AioFile::Create(testing::TempDir() + "ramspan-aio-%d-%d", true, &number);
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_ = std::make_unique<AioFile>(std::move(file).value());
    ASSERT_TRUE(file_->Allocate(kFileBytes).ok());
    Result<std::unique_ptr<AioQueue>> queue = AioQueue::Create();
    if (!queue.ok()) GTEST_SKIP() << queue.status().message();
    queue_ = std::move(queue).value();
    buffer_ = static_cast<char*>(std::aligned_alloc(kBlock, kFileBytes));
    for (size_t i = 0; i < kFileBytes; ++i) buffer_[i] = static_cast<char>(i / kBlock);
  }
  void TearDown() override { std::free(buffer_); }

  // One block each, cookie = the block's number in `cookies_`.
  std::vector<AioTransfer> Blocks(bool is_write) {
    std::vector<AioTransfer> transfers;
    for (size_t i = 0; i < kBlocks; ++i) {
      transfers.push_back({file_->fd(), is_write, buffer_ + i * kBlock, i * kBlock, kBlock, &cookies_[i]});
    }
    return transfers;
  }
  size_t NumberOf(const AioCompletion& c) const {
    return static_cast<size_t>(static_cast<char*>(c.cookie) - cookies_.data());
  }
  // Starts all, reaping when the queue is full; completions by block number.
  std::vector<AioCompletion> RunAll(std::span<const AioTransfer> transfers) {
    std::vector<AioCompletion> results(kBlocks);
    const size_t expected = transfers.size();
    std::array<AioCompletion, 7> some;
    for (size_t done = 0; done < expected;) {
      transfers = transfers.subspan(queue_->Start(transfers));
      const size_t count = queue_->Reap(some, std::chrono::seconds(1));
      for (size_t i = 0; i < count; ++i) results[NumberOf(some[i])] = some[i];
      done += count;
    }
    return results;
  }

  static constexpr size_t kBlocks = 300;  // more than the queue holds
  static constexpr size_t kFileBytes = kBlocks * kBlock;
  std::unique_ptr<AioFile> file_;
  std::unique_ptr<AioQueue> queue_;
  char* buffer_ = nullptr;
  std::array<char, kBlocks> cookies_{};
};

TEST_F(AioQueueTest, MoreTransfersThanItHoldsAreTakenBitByBit) {
  std::vector<AioTransfer> writes = Blocks(true);
  EXPECT_LT(queue_->Start(std::span(writes).first(kBlocks)), kBlocks);
  queue_.reset();  // waits for what is in flight
  queue_ = AioQueue::Create().value();
  for (const AioCompletion& c : RunAll(writes)) EXPECT_EQ(c.error, 0);
  std::memset(buffer_, 0, kFileBytes);
  for (const AioCompletion& c : RunAll(Blocks(false))) EXPECT_EQ(c.bytes, kBlock);
  for (size_t i = 0; i < kFileBytes; ++i) ASSERT_EQ(buffer_[i], static_cast<char>(i / kBlock));
}

TEST_F(AioQueueTest, WhatTheKernelRefusesFailsAloneAndItsNeighboursGoOn) {
  std::vector<AioTransfer> writes = Blocks(true);
  writes[5].fd = -1;
  writes[6].fd = -1;
  const std::vector<AioCompletion> results = RunAll(writes);
  for (size_t i = 0; i < kBlocks; ++i) EXPECT_EQ(results[i].error, i == 5 || i == 6 ? EBADF : 0) << i;
}

TEST_F(AioQueueTest, AReadAcrossTheEndOfTheFileSaysHowFarItCame) {
  for (const AioCompletion& c : RunAll(Blocks(true))) ASSERT_EQ(c.error, 0);
  ASSERT_EQ(ftruncate(file_->fd(), 3 * kBlock), 0);
  const AioTransfer read{file_->fd(), false, buffer_, kBlock, 8 * kBlock, &cookies_[0]};
  const std::vector<AioCompletion> results = RunAll({&read, 1});
  EXPECT_EQ(results[0].error, ENODATA);
  EXPECT_EQ(results[0].bytes, 2 * kBlock);
  const AioCompletion now = TransferNow(read);
  EXPECT_EQ(now.error, ENODATA);
  EXPECT_EQ(now.bytes, 2 * kBlock);
}

TEST_F(AioQueueTest, ReapWithNothingInFlightWaitsNoLongerThanTold) {
  std::array<AioCompletion, 4> some;
  constexpr std::chrono::milliseconds kTold{5}, kFarLonger{500};
  EXPECT_LT(ShortestOf(kFarLonger, [&] { EXPECT_EQ(queue_->Reap(some, kTold), 0u); }), kFarLonger);
}

TEST(AioFile, TheDirectoryIsThatOfTheMask) {
  EXPECT_EQ(DirectoryOf("/scratch/me/s-%d-%d"), "/scratch/me");
  EXPECT_EQ(DirectoryOf("/s-%d-%d"), "/");
  EXPECT_EQ(DirectoryOf("s-%d-%d"), ".");
}

TEST(AioFile, AMovedFileIsClosedOnce) {
  uint64_t number = 0;
  Result<AioFile> made = AioFile::Create(testing::TempDir() + "ramspan-aio-%d-%d", false, &number);
  ASSERT_TRUE(made.ok());
  const int fd = made.value().fd();
  {
    AioFile moved = std::move(made).value();
    EXPECT_EQ(moved.fd(), fd);
    EXPECT_EQ(made.value().fd(), -1);
    EXPECT_FALSE(moved.direct());
  }
  EXPECT_EQ(write(fd, "x", 1), -1);
}

// 0: all went well.
int OpenWithoutStandardStreams(const std::string& folder, const std::string& path) {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(number);
  uint64_t number = 0;
  const Result<AioFile> swap = AioFile::Create(folder + "ramspan-aio-%d-%d", false, &number);
  const Result<std::unique_ptr<TraceFile>> trace = TraceFile::Create(path);
  const Result<std::shared_ptr<const MappedFile>> mapped = MappedFile::Open(path);
  if (!swap.ok() || !trace.ok() || !mapped.ok()) return 1;
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1) return 2;
  }
  FillStandardStreams();
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) == -1) return 3;
  }
  return write(STDERR_FILENO, "goes nowhere", 12) == 12 ? 0 : 4;
}

// What a program that was started with `2>&-` printed went over its swapped data (a stranger's run).
TEST(AioFileAndOthers, HaveNoNumberOfAStandardStream) {
  const std::string trace = testing::TempDir() + "ramspan-trace-" + std::to_string(getpid());
  EXPECT_EXIT(_exit(OpenWithoutStandardStreams(testing::TempDir(), trace)), testing::ExitedWithCode(0), "");
  unlink(trace.c_str());
}

// With `ulimit -n` of 700 and less they had the lowest free numbers, and a program that closed all descriptors had its next file overwritten.
int NumberWithFewOthers() {
  const rlimit few = {256, 256};
  return setrlimit(RLIMIT_NOFILE, &few) != 0 ? 1 : BeyondPrograms(open("/dev/null", O_RDONLY | O_CLOEXEC));
}
TEST(AioFileAndOthers, HaveHighNumbersWhereThereAreFew) { EXPECT_EXIT(_exit(NumberWithFewOthers()), testing::ExitedWithCode(192), ""); }

}  // namespace
}  // namespace ramspan
