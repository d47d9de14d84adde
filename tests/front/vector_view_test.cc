// Views of vectors: what they hold, what references into them are good for, how they give way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <list>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ramspan/managed_vector.h"
#include "ramspan/runtime.h"

namespace {

using namespace ramspan::literals;
using ramspan::access;
using ramspan::managedVector;
using ramspan::uninitialized;

// A view that holds all blocks knows their places; those of blocks that it gives up have other data soon.
TEST(ManagedVector, WhatAViewHasLetGoIsNotFoundAnyMore) {
  constexpr size_t kBlocks = 128, kEach = 1024;
  managedVector<uint64_t> x(kBlocks * kEach, ramspan::VectorOptions{0, ramspan::access::random});
  ASSERT_EQ(x.block_count(), kBlocks);
  for (size_t b = 0; b < kBlocks; ++b) x[b * kEach] = b + 1;
  const auto gathers = x.cview();
  const auto writes = x.view();
  const auto sum = [](const auto& v) {
    uint64_t sum = 0;
    for (size_t pass = 0; pass < 8; ++pass) {
      for (size_t k = 0; k < kBlocks; ++k) sum += v[k * 37 % kBlocks * kEach];
    }
    return sum;
  };
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(sum(gathers), 8 * kBlocks * (kBlocks + 1) / 2);
    EXPECT_EQ(sum(writes), 8 * kBlocks * (kBlocks + 1) / 2);
    // Nearly all memory: views let go what they may spare. Tests before this one have left descriptors.
    ramspan::managedPtr<char> others(ramspan::MemoryLimit() - ramspan::GetStatistics().overhead - (size_t{1} << 20));
    auto bytes = others.write();
    std::fill(bytes.begin(), bytes.end(), char{0x5a});
  }
}

// Each view would hold four blocks at first, and more: 10 MiB of 16, which others need, too, and descriptors. Three of each must do.
// What the threads of `#pragma omp parallel for` did to one view made above it: wrong elements, now and then a segmentation fault.
TEST(ManagedVector, AViewOfAnotherThreadIsAnError) {
  constexpr size_t kCount = 64 << 10;
  managedVector<double> x(kCount, 1.0);
  const auto writes = x.view();
  const auto reads = x.cview();
  double sum = 0;
  for (size_t i = 0; i < kCount; ++i) sum += reads[i] + (writes[i] += 1);
  EXPECT_EQ(sum, 3.0 * kCount);
  int refused = 0;
  std::thread([&] {
    const auto try_all = [&](const auto& view) {
      double other = 0;
      try {
        for (size_t i = 0; i < kCount; ++i) other += view[i];
      } catch (const ramspan::Error& e) {
        refused += std::string(e.what()).find("each thread needs its own") != std::string::npos;
      }
      return other;
    };
    const auto own = x.cview();
    EXPECT_EQ(try_all(own), 2.0 * kCount);
    EXPECT_LT(try_all(writes), 2.0 * kCount);
    EXPECT_LT(try_all(reads), 2.0 * kCount);
  }).join();
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(writes[kCount - 1] + reads[0], 4.0);
}

TEST(ManagedVector, ManyViewsShareMemory) {
  constexpr size_t kVectors = 40, kElements = 128_KiB;
  std::vector<managedVector<uint64_t>> x;
  for (size_t i = 0; i < kVectors; ++i) x.emplace_back(kElements, uninitialized);  // 40 MiB
  const auto work = [&](size_t first) {
    struct Cursor {
      explicit Cursor(managedVector<uint64_t>& vector) : view(vector.view()) {}
      ramspan::vectorView<uint64_t> view;
    };
    std::list<Cursor> cursors;
    for (size_t i = first; i < first + kVectors / 2; ++i) cursors.emplace_back(x[i]);
    for (size_t k = 0; k < kElements; k += 64) {
      const ramspan::vectorView<uint64_t>* before = &cursors.back().view;
      for (const Cursor& cursor : cursors) {
        cursor.view[k] = (*before)[kElements - 64 - k] + k;
        before = &cursor.view;
      }
    }
  };
  std::thread other(work, kVectors / 2);
  work(0);
  other.join();
  EXPECT_GT(x[0][64], 0u);
}

// The view had let the block go when it came back to it, which it had left for one other only: a reference to it led to somebody else's memory.
TEST(ManagedVector, AReferenceOutlivesAVisitToOneOtherBlock) {
  constexpr size_t kBlock = 64_KiB / sizeof(uint64_t);
  managedVector<uint64_t> x(16 * kBlock, 0), big(64_MiB / sizeof(uint64_t), 0);
  std::atomic<bool> done{false};
  std::thread other([&] {  // so that whatever is not pinned leaves
    std::minstd_rand random(1);
    while (!done) big[random() % big.size()] += 1;
  });
  uint64_t moved = 0, rounds = 0;
  for (const auto begin = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - begin < std::chrono::seconds(1); ++rounds) {
    for (size_t b = 0; b < 8; ++b) {
      auto v = x.view();
      uint64_t* const here = &v[b * kBlock];
      v[(b + 4) * kBlock] = rounds;  // in its place in the view's table of four
      moved += &v[b * kBlock] != here;
      *here = rounds;
    }
  }
  done = true;
  other.join();
  EXPECT_EQ(moved, 0u) << rounds << " rounds";
}

// Memory is full, so that another view needs what this one may spare. These two references are not among that.
TEST(ManagedVector, ReferencesToTwoBlocksOutliveTheNeedOfAnotherView) {
  constexpr size_t kBlock = 64_KiB / sizeof(uint64_t);
  managedVector<uint64_t> x(16 * kBlock, 0), big(64_MiB / sizeof(uint64_t), 0);
  auto v = x.view();
  for (size_t b = 0; b < 4; ++b) v[b * kBlock] = b;
  uint64_t &first = v[0], &second = v[kBlock];  // both are held; neither was entered last
  first = 111;
  second = 222;
  std::list<ramspan::pinnedBlock<uint64_t>> pins;
  const auto pin_until_full = [&](size_t block) {
    try {
      for (;; ++block) {
        pins.push_back(big.block(block));
        std::fill(pins.back().begin(), pins.back().end(), 0xdead);
      }
    } catch (const ramspan::OutOfMemory&) {
    }
  };
  pin_until_full(0);
  auto w = big.view();
  try {
    w[60_MiB / sizeof(uint64_t)] = 1;
  } catch (const ramspan::OutOfMemory&) {
  }
  pin_until_full(500);
  EXPECT_EQ(first, 111u);
  EXPECT_EQ(second, 222u);
}

// The library asked for the limit within what must not throw.
TEST(ManagedVector, AViewInAForkedChildReadsOrThrows) {
  managedVector<uint64_t> x(32_MiB / sizeof(uint64_t), 5);
  const pid_t child = fork();
  if (child == 0) {
    int read = 0, thrown = 0;
    auto v = std::as_const(x).view();
    for (size_t i = 0; i < x.size(); i += x.block_elements()) {
      try {
        read += v[i] == 5;
      } catch (const ramspan::Error&) {
        ++thrown;
      }
    }
    _exit(read + thrown == static_cast<int>(x.block_count()) && read > 0 && thrown > 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Another vector's element was written.
TEST(ManagedVector, IsNotAssignedToUnderAView) {
  managedVector<int> x(100, 1), y(100, 2);
  const auto view = x.view();
  EXPECT_THROW(x.assign(100, 3), ramspan::Error);
  EXPECT_THROW(x = y, ramspan::Error);
  view[7] = 4;
  EXPECT_EQ(x[7], 4);
}

// Pins and overwrites blocks until there is no memory for one more, so that all that is not pinned leaves.
std::list<ramspan::pinnedBlock<uint64_t>> PinUntilFull(managedVector<uint64_t>* big) {
  std::list<ramspan::pinnedBlock<uint64_t>> pins;
  EXPECT_THROW(
      for (size_t b = 0;; ++b) {
        pins.push_back(big->block(b));
        std::fill(pins.back().begin(), pins.back().end(), 0xdead);
      },
      ramspan::OutOfMemory);
  return pins;
}

// A view that has room for all blocks looks them up by itself.
TEST(ManagedVector, ReferencesThatWereLookedUpOutliveTheNeedOfAnotherView) {
  constexpr size_t kBlock = 64_KiB / sizeof(uint64_t), kBlocks = 32;
  managedVector<uint64_t> x(kBlocks * kBlock, 0);  // 2 MiB
  auto v = x.view();
  std::minstd_rand random(1);
  for (size_t k = 0; k < 20 * kBlocks; ++k) v[random() % kBlocks * kBlock + 1] = 1;
  ASSERT_EQ(ramspan::detail::BlockCache::HeldBytes(), 2_MiB);
  uint64_t &first = v[20 * kBlock + 1], &second = v[7 * kBlock + 1];
  first = 111;
  second = 222;
  managedVector<uint64_t> big(64_MiB / sizeof(uint64_t), 0);
  auto pins = PinUntilFull(&big);
  EXPECT_EQ(first, 111u);
  EXPECT_EQ(second, 222u);
  pins.clear();
  EXPECT_EQ(&v[7 * kBlock + 1], &second) << "it was held";
  EXPECT_EQ(v[20 * kBlock + 1], 111u);
  for (size_t b = 0; b < kBlocks; ++b) EXPECT_EQ(v[b * kBlock + 1], b == 20 ? 111u : b == 7 ? 222u : 1u);
}

// Looks at blocks at random until the view holds all of them, which are no more than half of the memory. Returns the sum of what it has read.
uint64_t HoldAll(const managedVector<uint64_t>& x, const ramspan::vectorView<const uint64_t>& v) {
  std::minstd_rand random(1);
  uint64_t sum = 0;
  for (size_t k = 0; k < 20 * x.block_count(); ++k) sum += v[random() % x.block_count() * x.block_elements() + 1];
  EXPECT_EQ(ramspan::detail::BlockCache::HeldBytes(), x.size() * sizeof(uint64_t));
  return sum;
}

// They held a quarter of the memory although nothing else was in it: 1.6 times the time in a search of a graph that is a fourth of the memory.
TEST(ManagedVector, ViewsHoldAllThatLeavesAnEighthOfTheMemoryAndNotWhenThereIsMore) {
  const uint64_t room = ramspan::MemoryLimit() - ramspan::GetStatistics().overhead;  // other tests have left descriptors
  managedVector<uint64_t> x(room * 4 / 5 / 64_KiB * 64_KiB / sizeof(uint64_t), 1);
  const auto v = x.cview();
  uint64_t sum = HoldAll(x, v);
  const managedVector<uint64_t> more(ramspan::MemoryLimit() / sizeof(uint64_t), 2);
  std::minstd_rand random(1);
  for (int k = 0; k < 40; ++k) {  // they begin with less, and take more as long as nobody wants it
    for (size_t n = 0; n < 20 * x.block_count(); ++n) sum += v[random() % x.block_count() * x.block_elements() + 1];
    EXPECT_LE(ramspan::detail::BlockCache::HeldBytes(), room / 4);
  }
  EXPECT_EQ(sum, 41 * 20 * x.block_count());
}

// A window that goes through a vector needs few blocks at a time, in turns: they were looked up in the slow way for ever (a sparse matrix's product took 2.3 times as long as with std::vector).
TEST(ManagedVector, AWindowThatGoesThroughWhatFitsHoldsIt) {
  constexpr size_t kBlocks = 40, kEach = 8192;
  managedVector<double> x(kBlocks * kEach, 1.0);
  double sum = 0;
  const auto v = x.cview();
  for (size_t i = kEach; i + kEach < v.size(); i += 512) sum += v[i - kEach] + v[i] + v[i + kEach];
  EXPECT_EQ(sum, 3.0 * static_cast<double>(kBlocks - 2) * kEach / 512);
  EXPECT_GT(ramspan::detail::BlockCache::HeldBytes(), kBlocks / 4 * kEach * sizeof(double));  // not the five it began with
}

// Blocks at distances of a power of two took turns in one entry of the table, whatever its size: 13 to 150 ns for each element instead of 4.
TEST(ManagedVector, BlocksAtDistancesOfAPowerOfTwoAreHeldAtOnce) {
  managedVector<uint64_t> x(24_MiB / sizeof(uint64_t), 0, {.chunk = 4_KiB});  // more than the memory
  const size_t block = x.block_elements();
  for (size_t i = 0; i < x.size(); i += block) x[i] = i;
  for (const auto& [streams, distance] : {std::pair<size_t, size_t>{2, 2048}, {4, 1024}, {6, 1024}, {12, 512}, {32, 128}, {40, 150}}) {
    const auto v = x.cview();
    const auto w = x.view();
    uint64_t sum = 0;
    for (size_t round = 0; round < std::max<size_t>(20, 250 / streams); ++round) {  // until entries are as many as have a table of places anyway, it takes more
      for (size_t k = 0; k < streams; ++k) sum += v[k * distance * block] - w[k * distance * block];
    }
    EXPECT_EQ(sum, 0u);
    EXPECT_GE(ramspan::detail::BlockCache::HeldBytes(), 2 * streams * block * sizeof(uint64_t)) << streams << " at " << distance;
  }
}

// A walk along a column took what it goes through once for what comes back, and held four times as much.
TEST(ManagedVector, AStrideThroughAVectorHoldsFewBlocks) {
  managedVector<uint64_t> x(24_MiB / sizeof(uint64_t), 3, {.chunk = 4_KiB});
  const size_t block = x.block_elements();
  for (const size_t stride : {11, 16, 17, 21, 22, 31, 33}) {
    const auto v = x.cview();
    uint64_t sum = 0;
    for (size_t b = 0; b < 4 * x.block_count(); b += stride) sum += v[b % x.block_count() * block];
    EXPECT_EQ(sum, 3 * ((4 * x.block_count() - 1) / stride + 1));
    EXPECT_LE(ramspan::detail::BlockCache::HeldBytes(), 5 * block * sizeof(uint64_t)) << stride;
  }
}

// Where blocks are found by a table of places the oldest makes way; not one that a reference names.
TEST(ManagedVector, AReferenceToTheOldestBlockOutlivesOneThatIsEntered) {
  managedVector<uint64_t> x(24_MiB / sizeof(uint64_t), 0), big(64_MiB / sizeof(uint64_t), 0);
  const size_t block = x.block_elements();
  const auto v = x.view();
  for (int round = 0; round < 2; ++round) {
    for (size_t k = 0; k < 32; ++k) v[k * 8 * block] = 1;  // in turns, more than are remembered one by one
  }
  for (size_t b = 257; b < 300; ++b) v[b * block] = 1;
  ASSERT_EQ(ramspan::detail::BlockCache::HeldBytes(), 16 * block * sizeof(uint64_t)) << "as many as there are entries";
  uint64_t &first = v[284 * block + 1], &second = v[300 * block + 1];
  auto pins = PinUntilFull(&big);
  first = 111;
  second = 222;
  pins.clear();
  EXPECT_EQ(v[284 * block + 1], 111u);
  EXPECT_EQ(v[300 * block + 1], 222u);
  for (const auto& pin : {big.block(0), big.block(1)}) EXPECT_EQ(pin[1], 0xdeadu);
}

// A reader's latest block is not named by any reference: it was let go with the others, and read on where others' data was meanwhile.
TEST(ManagedVector, WhatAViewReadsElementByElementStaysWhenOthersNeedRoom) {
  const uint64_t room = ramspan::MemoryLimit() - ramspan::GetStatistics().overhead;
  managedVector<uint64_t> x(room * 4 / 5 / 64_KiB * 64_KiB / sizeof(uint64_t), 1);
  const size_t block = x.block_elements();
  ASSERT_GT(x.block_count(), 12u);
  const auto v = x.cview();
  uint64_t sum = HoldAll(x, v);
  EXPECT_EQ(v[3 * block], 1u);
  for (const size_t b : {5, 6, 7}) sum += v[b * block + 9];
  managedVector<uint64_t> more(ramspan::MemoryLimit() / sizeof(uint64_t), 2);
  for (int k = 0; k < 20; ++k) sum += v[(7 + k % 2) * block + 10];  // calls are heard
  std::list<ramspan::pinnedBlock<uint64_t>> pins;
  EXPECT_THROW(
      for (size_t b = 0;; ++b) {
        pins.push_back(more.block(b));
        std::fill(pins.back().begin(), pins.back().end(), 3);
      },
      ramspan::OutOfMemory);
  for (size_t i = 0; i < block; ++i) EXPECT_EQ(v[3 * block + i], 1u) << i;
  EXPECT_EQ(sum, 20 * x.block_count() + 23);
}

// It was told that all is pinned, by its own views.
TEST(ManagedVector, AViewGivesWayToAPullOfItsThread) {
  const uint64_t room = ramspan::MemoryLimit() - ramspan::GetStatistics().overhead;
  managedVector<uint64_t> x(room * 4 / 5 / 64_KiB * 64_KiB / sizeof(uint64_t), 1);
  const auto v = x.cview();
  uint64_t sum = HoldAll(x, v);
  managedVector<char> large(room * 4 / 5, 2, {.chunk = 256_KiB});
  std::list<ramspan::pinnedBlock<const char>> pins;
  for (size_t b = 0; b < large.block_count(); ++b) ASSERT_NO_THROW(pins.push_back(std::as_const(large).block(b))) << b;
  EXPECT_EQ(pins.front()[17], 2);
  EXPECT_EQ(v[200], 1u);
  EXPECT_EQ(sum, 20 * x.block_count());
}

// A view of x was a view of nothing when y, which has x's blocks since, had grown.
TEST(ManagedVector, ViewsGoWithTheBlocksThatAreSwapped) {
  managedVector<int> x(100, 1), y(200, 2);
  {
    const auto view = x.view();
    x.swap(y);
    view[7] = 4;
    EXPECT_EQ(y[7], 4);
    EXPECT_NO_THROW(x.resize(1'000'000));
    EXPECT_THROW(y.resize(1'000'000), ramspan::Error);
  }
  EXPECT_NO_THROW(y.resize(1'000'000));
}

// Two threads' views took all that a third one's pins had left, and waited for each other: OutOfMemory, with three blocks in use.
TEST(ManagedVector, ViewsGiveWayToEachOtherWhereOthersPinTheRest) {
  const size_t room = ramspan::MemoryLimit() - ramspan::GetStatistics().overhead;  // other tests have left descriptors
  managedVector<char> hot(room / 5 * 4, 1, {.chunk = 256_KiB});
  managedVector<uint64_t> x(4_MiB, uninitialized);
  for (size_t b = 0; b < x.block_count(); ++b) {
    auto block = x.block(b);
    for (size_t i = 0; i < block.size(); ++i) block[i] = block.first_index() + i;
  }
  const auto pinned = std::as_const(hot).span(0, hot.size());
  std::vector<std::thread> team;
  std::atomic<int> failed{0}, wrong{0};
  for (unsigned t = 0; t < 3; ++t) {
    team.emplace_back([&, t] {
      std::mt19937_64 random(t);
      try {
        const auto view = x.cview();
        for (int k = 0; k < 1500; ++k) {
          const size_t i = random() % x.size();
          wrong += view[i] != i;
        }
      } catch (const ramspan::OutOfMemory&) {
        ++failed;
      }
    });
  }
  for (std::thread& one : team) one.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(wrong, 0);
}

// The message named adhereTos where the program had none, and no number (findings of strangers).
TEST(ManagedVector, OutOfMemoryNamesWhatPins) {
  const uint64_t blocks = ramspan::MemoryLimit() / 1_MiB + 1;
  managedVector<char> x(blocks * 1_MiB, uninitialized, {.chunk = 1_MiB}), y(8_MiB, uninitialized, {.chunk = 1_MiB});
  struct Held {
    Held(const managedVector<char>& x, size_t at) : span(x.span(at * 1_MiB, 1_MiB)) {}
    ramspan::vectorSpan<const char> span;
  };
  std::list<Held> spans;
  const auto fill = [&]() -> std::string {
    try {
      while (spans.size() < blocks) spans.emplace_back(x, spans.size());
    } catch (const ramspan::OutOfMemory& e) {
      return e.what();
    }
    return "all of the limit and one block more were pinned";
  };
  std::string text = fill();
  EXPECT_THAT(text, testing::HasSubstr(" (pins: " + std::to_string(spans.size()) + " of adhereTos or spans, in 1 thread) and no"));
  spans.clear();
  // Nothing is pinned, and it named pins.
  try {
    x.span(0, x.size());
    ADD_FAILURE() << "a span larger than the limit was made";
  } catch (const ramspan::OutOfMemory& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("at once: the memory limit of 16 MiB has room for"));
  }
  const auto view = y.cview();
  const char first = view[0];
  EXPECT_EQ(view[0], first);
  text = fill();
  EXPECT_THAT(text, testing::HasSubstr(": views and adhereTos pin all of the memory limit of 16 MiB (pins: " + std::to_string(spans.size()) + " of adhereTos or spans, in 1 thread; 1 other, of views, bundles or further adhereTos)"));
}

// Views held what had been used last, which is what has to leave first in sweeps: seven times the traffic. What was pinned when it should have left
// came back to the search one chunk at a time: three times.
TEST(ManagedVector, SweepsByViewsMoveWhatHasToMove) {
  const uint64_t room = ramspan::MemoryLimit() - ramspan::GetStatistics().overhead;
  managedVector<uint64_t> x(room * 3 / 2 / sizeof(uint64_t), 1);
  uint64_t sum = 0;
  const auto sweeps = [&](int n) {
    const uint64_t before = ramspan::GetStatistics().bytes_in;
    for (int k = 0; k < n; ++k) {
      const auto view = x.cview();
      for (size_t i = 0; i < view.size(); ++i) sum += view[i];
    }
    return ramspan::GetStatistics().bytes_in - before;
  };
  sweeps(6);  // then the order is known
  const uint64_t moved = sweeps(8), all = 8 * x.size() * sizeof(uint64_t);
  EXPECT_LT(moved, all / 2) << "a third has to move";
  EXPECT_EQ(sum, 14 * x.size());
}

// What a view holds and may spare was in the way of a lower limit.
TEST(ManagedVector, AViewGivesWayToALowerLimit) {
  managedVector<uint64_t> x(1_MiB, 1);
  const uint64_t limit = ramspan::MemoryLimit();
  const auto view = x.cview();
  uint64_t sum = 0;
  for (size_t round = 0; round < 3; ++round) {
    for (size_t i = 0; i < x.size(); i += 1000) sum += view[i];
  }
  EXPECT_NO_THROW(ramspan::SetMemoryLimit(ramspan::GetStatistics().overhead + 2_MiB));
  ramspan::SetMemoryLimit(limit);
  EXPECT_EQ(sum, 3 * ((x.size() - 1) / 1000 + 1));
}

// A queue that was read by a view while it grew was read where it had been: wrong results, or a crash.
TEST(ManagedVector, DoesNotGrowUnderAView) {
  managedVector<int> x(10, 1);
  x.reserve(12);
  {
    auto v = x.view();
    x.push_back(2);  // there is room
    EXPECT_EQ(v.size(), 10u);
    while (x.size() < x.capacity()) x.push_back(3);
    EXPECT_THROW(x.push_back(4), ramspan::Error);
    EXPECT_EQ(x.size(), x.capacity());
    EXPECT_EQ(v[9], 1);
  }
  x.push_back(4);
  x.resize(100000);
  {
    const auto v = std::as_const(x).view();
    EXPECT_THROW(x.resize(5), ramspan::Error);
    EXPECT_EQ(x.size(), 100000u);
    EXPECT_EQ(v[12], x[12]);
  }
  const size_t capacity = x.block_elements();
  x.clear();
  EXPECT_EQ(x.capacity(), capacity) << "for what comes next";
}

// The second one was read into the place of the first, or the first one's block was let go.
TEST(ManagedVector, TwoRunsOfAViewAreValidTogether) {
  managedVector<uint64_t> x(4_MiB);  // twice the memory
  for (size_t b = 0; b < x.block_count(); ++b) {
    auto block = x.block(b);
    for (size_t i = 0; i < block.size(); ++i) block[i] = block.first_index() + i;
  }
  const managedVector<uint64_t> other(4_MiB, 7);
  for (const bool random_order : {false, true}) {
    x.advise(random_order ? ramspan::advice::random : ramspan::advice::normal);
    const auto v = x.cview();
    std::minstd_rand random(1);
    size_t wrong = 0;
    for (int k = 0; k < 5000; ++k) {
      const size_t i = random() % x.size(), j = k % 2 == 0 ? random() % x.size() : i ^ 8, n = 1 + random() % 20;
      const auto a = v.run(i, n), b = v.run(j, 1);
      if (k % 100 == 0) {
        const auto rest = other.span(0, other.size() / 8);  // makes views let go what they may
        wrong += rest[5] != 7;
      }
      wrong += a[0] != i || a[a.size() - 1] != i + a.size() - 1 || b[0] != j;
    }
    EXPECT_EQ(wrong, 0u) << random_order;
  }
}

// In threads with several views each they took as much as the limit, beside it.
TEST(ManagedVector, TablesOfViewsCountInTheLimit) {
  managedVector<uint64_t> x(4_MiB / sizeof(uint64_t), 1, ramspan::VectorOptions{1024});
  const uint64_t before = ramspan::GetStatistics().overhead;
  uint64_t sum = 0;
  {
    std::minstd_rand random(1);
    const auto look = [&](const auto& view) {
      for (size_t k = 0; k < 20 * x.block_count(); ++k) sum += view[random() % x.size()];
    };
    const auto v = x.cview();
    look(v);
    const uint64_t with_one = ramspan::GetStatistics().overhead;
    EXPECT_GT(with_one, before + x.block_count() * 16);
    const auto w = x.cview();
    look(w);
    EXPECT_LE(ramspan::GetStatistics().overhead, before + ramspan::MemoryLimit() / 64);
  }
  EXPECT_EQ(ramspan::GetStatistics().overhead, before);
  EXPECT_EQ(sum, 40 * x.block_count());
}

TEST(ManagedVector, RunsOfAViewAreWhatLiesInOneBlock) {
  constexpr size_t n = size_t{5} << 20;  // 40 MB in 16 MiB
  managedVector<uint64_t> x(n);
  {
    auto to = x.view();
    for (size_t i = 0; i < n;) {
      for (uint64_t& e : to.run(i, n - i)) e = 3 * i++;
    }
  }
  const size_t block = x.block_elements();
  for (const bool random : {false, true}) {
    if (random) x.advise(ramspan::advice::random);
    const auto from = x.cview();
    EXPECT_EQ(from.run(block - 3, 100).size(), 3u);
    EXPECT_EQ(from.run(5, 100).size(), 100u);
    EXPECT_EQ(from.run(n - 1, 100).size(), 1u);
    size_t i = 0, wrong = 0;
    for (size_t k = 0; k < 3000; ++k) {
      i = (i + 1'234'567) % n;
      const size_t count = std::min<size_t>(1 + k % 50, n - i);
      size_t e = i;
      while (e < i + count) {
        const auto run = from.run(e, i + count - e);
        ASSERT_GT(run.size(), 0u);
        ASSERT_LE(run.size(), i + count - e);
        for (const uint64_t value : run) wrong += value != 3 * e++;
      }
      ASSERT_EQ(e, i + count);
    }
    EXPECT_EQ(wrong, 0u);
  }
}


}  // namespace
