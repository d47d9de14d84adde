#include "client/preload/own_heap.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace ramspan::preload {
namespace {

void* Within(size_t bytes, size_t alignment = 16) {
  const detail::Inside inside;
  return OwnHeap::Allocate(bytes, alignment);
}

TEST(OwnHeap, OutsideOfRamspanItIsLibcsTurn) {
  EXPECT_EQ(OwnHeap::Allocate(100, 16), nullptr);
  EXPECT_EQ(Within(100, 8192), nullptr);  // more than a page: too
  void* const of_libc = malloc(100);
  EXPECT_FALSE(OwnHeap::Owns(of_libc));
  free(of_libc);
}

TEST(OwnHeap, BlocksAreWholeAlignedAndApart) {
  std::mt19937 random(1);
  struct Block {
    unsigned char* begin;
    size_t bytes;
    unsigned char value;
  };
  std::vector<Block> blocks;
  for (int i = 0; i < 20'000; ++i) {
    if (blocks.size() < 200 || random() % 2 == 0) {
      const size_t alignment = size_t{16} << random() % 9, bytes = random() % 100 == 0 ? random() % 3'000'000 : random() % 3000;
      auto* const begin = static_cast<unsigned char*>(Within(bytes, alignment));
      ASSERT_NE(begin, nullptr);
      ASSERT_TRUE(OwnHeap::Owns(begin));
      ASSERT_EQ(OwnHeap::Bytes(begin), bytes);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(begin) % alignment, 0u);
      const auto value = static_cast<unsigned char>(random());
      std::memset(begin, value, bytes);
      blocks.push_back({begin, bytes, value});
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const Block one = blocks.back();
      for (size_t at = 0; at < one.bytes; ++at) ASSERT_EQ(one.begin[at], one.value) << at;
      blocks.pop_back();
      if (random() % 2 == 0) {
        OwnHeap::Free(one.begin);
      } else {
        const detail::Inside inside;
        OwnHeap::Free(one.begin);
      }
    }
  }
  for (const Block& one : blocks) OwnHeap::Free(one.begin);
}

size_t ResidentPages() {
  size_t all = 0, resident = 0;
  FILE* const file = fopen("/proc/self/statm", "r");
  EXPECT_EQ(fscanf(file, "%zu %zu", &all, &resident), 2);
  fclose(file);
  return resident;
}

// What a program gives back is put aside, and used by who comes next.
TEST(OwnHeap, WhatAProgramGivesBackIsUsedAgain) {
  for (int i = 0; i < 1000; ++i) OwnHeap::Free(Within(10'000));
  const size_t before = ResidentPages();
  for (int i = 0; i < 50'000; ++i) OwnHeap::Free(Within(10'000));
  for (int i = 0; i < 200; ++i) OwnHeap::Free(Within(10'000'000));
  EXPECT_LT(ResidentPages(), before + 1000);
}

TEST(OwnHeap, ThreadsMayGiveBackEachOthers) {
  std::atomic<void*> shared[64] = {};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&shared, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 20'000; ++i) {
        const size_t bytes = 1 + random() % 500;
        void* const made = Within(bytes);
        std::memset(made, static_cast<int>(bytes), bytes);
        auto* const taken = static_cast<unsigned char*>(shared[random() % 64].exchange(made));
        if (taken == nullptr) continue;
        for (size_t at = 0; at < OwnHeap::Bytes(taken); ++at) EXPECT_EQ(taken[at], static_cast<unsigned char>(OwnHeap::Bytes(taken)));
        OwnHeap::Free(taken);
      }
    });
  }
  for (std::thread& one : threads) one.join();
  for (auto& one : shared) {
    if (void* const left = one.load()) OwnHeap::Free(left);
  }
}

// In whatever way a child is made, another thread may have the heap's lock just then; what is the parent's stays as it is.
TEST(OwnHeap, AChildBeginsWithOneOfItsOwn) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) OwnHeap::Free(Within(100));
  });
  auto* const kept = static_cast<unsigned char*>(Within(1000));
  std::memset(kept, 7, 1000);
  for (int i = 0; i < 200; ++i) {
    const pid_t child = i % 2 == 0 ? fork() : _Fork();
    if (child == 0) {
      alarm(20);
      if (i % 4 < 2) OwnHeap::Free(kept);  // before it has one, and then
      std::set<void*> made;
      for (int n = 0; n < 100; ++n) made.insert(Within(1000));
      if (made.size() != 100 || made.count(kept) != 0 || made.count(nullptr) != 0) _exit(1);
      if (i % 4 >= 2) OwnHeap::Free(kept);
      for (void* one : made) OwnHeap::Free(one);
      for (int n = 0; n < 200; ++n) {
        if (Within(1000) == kept) _exit(2);
      }
      for (int at = 0; at < 1000; ++at) {
        if (kept[at] != 7) _exit(3);
      }
      _exit(0);
    }
    int status = 1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << i;
  }
  stop = true;
  other.join();
  OwnHeap::Free(kept);
}

}  // namespace
}  // namespace ramspan::preload
