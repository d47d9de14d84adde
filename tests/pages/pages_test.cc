// The page mode in one process: RAMSPAN_MEMORY=8MiB and RAMSPAN_PAGE_FAULTS come from the test list.
#include "ramspan/pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "ramspan/adhere_to.h"
#include "ramspan/errors.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/rs_malloc.h"
#include "ramspan/runtime.h"

namespace ramspan {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

struct Pages {
  explicit Pages(size_t n) : bytes(n), begin(static_cast<char*>(AllocatePages(n))) {}
  ~Pages() { FreePages(begin); }
  const size_t bytes;
  char* const begin;
};

TEST(Pages, WhatWasWrittenIsReadAfterItHasLeft) {
  constexpr size_t kWords = 24 * kMiB / sizeof(uint64_t);
  std::vector<uint64_t, PagedAllocator<uint64_t>> words(kWords);
  for (size_t i = 0; i < kWords; ++i) words[i] = i * 0x9e3779b97f4a7c15;
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < kWords; ++i) ASSERT_EQ(words[i], i * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(round));
    for (uint64_t& word : words) ++word;
  }
  const PageStatistics pages = GetPageStatistics();
  EXPECT_GT(pages.blocks_out, 2 * 16 * kMiB / pages.block_bytes);
  EXPECT_EQ(pages.stuck, 0u);
  EXPECT_LE(GetStatistics().memory_used, 8 * kMiB);
}

TEST(Pages, FreshOnesAreZerosAlsoWhereOthersWere) {
  for (int round = 0; round < 3; ++round) {
    Pages pages(16 * kMiB);
    for (size_t i = 0; i < pages.bytes; i += 512) ASSERT_EQ(pages.begin[i], 0);
    memset(pages.begin, 0x5a, pages.bytes);
  }
}

TEST(Pages, ThoseThatAreAllZerosTakeNoSwap) {
  const uint64_t before = GetStatistics().bytes_out;
  Pages pages(64 * kMiB);
  for (size_t i = 0; i < pages.bytes; i += 4096) ASSERT_EQ(static_cast<volatile char*>(pages.begin)[i], 0);
  EXPECT_LT(GetStatistics().bytes_out - before, pages.bytes / 8);
  EXPECT_GT(GetPageStatistics().zero_blocks, 0u);
}

TEST(Pages, NoIncrementIsLostBetweenThreads) {
  constexpr int kThreads = 4, kAdds = 3'000;
  constexpr size_t kCounters = 24 * kMiB / sizeof(uint64_t);
  Pages pages(kCounters * sizeof(uint64_t));
  auto* const counters = reinterpret_cast<std::atomic<uint64_t>*>(pages.begin);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(t));
      for (int i = 0; i < kAdds; ++i) counters[random() % kCounters].fetch_add(1, std::memory_order_relaxed);
    });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t sum = 0;
  for (size_t i = 0; i < kCounters; ++i) sum += counters[i].load(std::memory_order_relaxed);
  EXPECT_EQ(sum, uint64_t{kThreads} * kAdds);
}

TEST(Pages, OneInstructionMayTouchSeveralBlocks) {
  const size_t block = GetPageStatistics().block_bytes == 0 ? 64 << 10 : GetPageStatistics().block_bytes;
  Pages from(16 * kMiB), to(16 * kMiB);
  for (size_t i = 0; i < from.bytes; ++i) from.begin[i] = static_cast<char>(i % 251);
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const size_t at = (1 + random() % (from.bytes / block - 2)) * block - 13, where = (1 + random() % (to.bytes / block - 2)) * block - 7;
    memcpy(to.begin + where, from.begin + at, 64);
    ASSERT_EQ(memcmp(to.begin + where, from.begin + at, 64), 0);
    ASSERT_EQ(to.begin[where], static_cast<char>(at % 251));
  }
}

TEST(Pages, AreSharedWithManagedPtrsLimit) {
  Pages pages(16 * kMiB);
  std::vector<managedPtr<char>> objects;
  for (int i = 0; i < 16; ++i) objects.emplace_back(kMiB);
  for (size_t i = 0; i < 16; ++i) {
    adhereTo<char> glue(objects[i]);
    memset(static_cast<char*>(glue), static_cast<int>(i), kMiB);
    memset(pages.begin + i * kMiB, static_cast<int>(100 + i), kMiB);
  }
  for (size_t i = 0; i < 16; ++i) {
    const adhereTo<char> glue(objects[i]);
    const char* const bytes = glue;
    ASSERT_EQ(bytes[i], static_cast<char>(i));
    ASSERT_EQ(pages.begin[i * kMiB + i], static_cast<char>(100 + i));
  }
  EXPECT_LE(GetStatistics().memory_used, 8 * kMiB);
}

TEST(Pages, DiscardedOnesAreZeros) {
  Pages pages(4 * kMiB);
  memset(pages.begin, 1, pages.bytes);
  discard(pages.begin + 1000, 2 * kMiB);
  EXPECT_EQ(pages.begin[999], 1);
  for (size_t i = 1000; i < 1000 + 2 * kMiB; ++i) ASSERT_EQ(pages.begin[i], 0) << i;
  EXPECT_EQ(pages.begin[1000 + 2 * kMiB], 1);
}

TEST(Pages, RandomAllocationsKeepTheirBytes) {
  struct One {
    unsigned char* begin;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<One> all;
  std::mt19937_64 random(7);
  for (int i = 0; i < 400; ++i) {
    const size_t bytes = random() % (600 << 10);
    if (all.size() < 60 && random() % 2 == 0) {
      const auto mark = static_cast<unsigned char>(random());
      auto* const begin = static_cast<unsigned char*>(random() % 4 == 0 ? rs_aligned_alloc(size_t{1} << (4 + random() % 16), bytes) : rs_malloc(bytes));
      ASSERT_NE(begin, nullptr);
      memset(begin, mark, bytes);
      all.push_back({begin, bytes, mark});
    } else if (!all.empty()) {
      One& one = all[random() % all.size()];
      for (size_t b = 0; b < one.bytes; b += 97) ASSERT_EQ(one.begin[b], one.mark);
      if (random() % 2 == 0) {
        one.begin = static_cast<unsigned char*>(rs_realloc(one.begin, bytes + 1));
        for (size_t b = 0; b < std::min(bytes, one.bytes); b += 97) ASSERT_EQ(one.begin[b], one.mark);
        one.bytes = bytes + 1;
        memset(one.begin, one.mark, one.bytes);
      } else {
        rs_free(one.begin);
        std::swap(one, all.back());
        all.pop_back();
      }
    }
  }
  for (const One& one : all) rs_free(one.begin);
}

TEST(Pages, SystemCallsFindWhatHasLeftWhereTheKernelWaits) {
  Pages pages(24 * kMiB);
  for (size_t i = 0; i < pages.bytes; i += 4096) pages.begin[i] = static_cast<char>(i >> 12);
  if (!GetPageStatistics().serves_system_calls) GTEST_SKIP() << "in a handler of SIGBUS system calls fail";
  FILE* const file = tmpfile();
  ASSERT_EQ(write(fileno(file), pages.begin, pages.bytes), static_cast<ssize_t>(pages.bytes));
  Pages back(pages.bytes);
  ASSERT_EQ(pread(fileno(file), back.begin, back.bytes, 0), static_cast<ssize_t>(back.bytes));
  EXPECT_EQ(memcmp(pages.begin, back.begin, back.bytes), 0);
  fclose(file);
}

TEST(Pages, AForkedChildNeverReadsZeros) {
  Pages pages(24 * kMiB);
  memset(pages.begin, 7, pages.bytes);
  for (int round = 0; round < 3; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      close(STDERR_FILENO);
      for (size_t i = 0; i < pages.bytes; i += 4096) {
        if (static_cast<volatile char*>(pages.begin)[i] != 7) _exit(1);
      }
      _exit(0);
    }
    for (size_t i = 0; i < pages.bytes; i += 4096) ASSERT_EQ(pages.begin[i], 7);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(GetPageStatistics().stuck, 0u);
}

}  // namespace
}  // namespace ramspan
