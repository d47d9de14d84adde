// managedArray and blockedArray over data four times the 16 MiB limit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>

#include "ramspan/blocked_array.h"
#include "ramspan/managed_array.h"
#include "ramspan/runtime.h"

namespace {

using ramspan::blockedArray;
using ramspan::ChunkBytes;
using ramspan::managedArray;

static_assert(std::ranges::input_range<managedArray<int>>);
static_assert(std::ranges::input_range<const managedArray<int>>);
static_assert(std::ranges::input_range<decltype(std::declval<managedArray<int>&>().blocks())>);

nlohmann::json Statistics() { return nlohmann::json::parse(ramspan::StatsJson()); }

TEST(ManagedArray, IsWalkedByBlocksAndByElements) {
  constexpr size_t kElements = (64 << 20) / 8 + 77;
  managedArray<uint64_t> a(kElements, ChunkBytes{256 << 10});
  size_t next = 0;
  for (auto block : a.blocks()) {
    EXPECT_EQ(block.first_index(), next);
    for (uint64_t& x : block) x = next++;
  }
  EXPECT_EQ(next, kElements);
  for (uint64_t& x : a) x *= 2;
  const managedArray<uint64_t>& read = a;
  uint64_t wrong = 0;
  next = 0;
  for (const uint64_t& x : read) wrong += x != 2 * next++;
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(next, kElements);
}

TEST(ManagedArray, TakesAlgorithmsOfRanges) {
  managedArray<int> a(100000, 3, ChunkBytes{4096});
  EXPECT_EQ(std::ranges::count(a, 3), 100000);
  std::ranges::for_each(a, [](int& x) { x = 4; });
  EXPECT_TRUE(std::ranges::all_of(std::as_const(a), [](int x) { return x == 4; }));
  EXPECT_EQ(std::as_const(a).block(a.chunk_count() - 1).size(), 100000 % a.chunk_elements());
}

TEST(ManagedArray, EmptyAndShort) {
  managedArray<double> none;
  for (double& x : none) x = 1;
  EXPECT_EQ(none.blocks().begin(), none.blocks().end());
  managedArray<double> one(1, 2.5);
  for (double& x : one) EXPECT_EQ(x, 2.5);
  struct Large {
    char bytes[10000];
  };
  EXPECT_EQ(managedArray<Large>(3, ChunkBytes{4096}).chunk_count(), 3u);  // never less than an element
}

TEST(ManagedArray, ReadingWritesNothing) {
  constexpr uint64_t kBytes = 32 << 20;
  const uint64_t before = Statistics()["tiers"]["file"]["bytes_out"];
  managedArray<uint64_t> a(kBytes / 8, uint64_t{1});
  uint64_t sum = 0;
  for (int sweep = 0; sweep < 2; ++sweep) {
    for (uint64_t x : std::as_const(a)) sum += x;
    for (const auto& block : std::as_const(a).blocks()) sum = std::accumulate(block.begin(), block.end(), sum);
  }
  EXPECT_EQ(sum, 4 * a.size());
  // Some of what was just made may stay in memory all the time, and what leaves was written when it left first.
  EXPECT_LE(Statistics()["tiers"]["file"]["bytes_out"].get<uint64_t>() - before, kBytes / 2 * 3) << "with what others have left";
}

TEST(BlockedArray, TwoDimensionsWithUnevenEnds) {
  blockedArray<double, 2> a({1000, 777}, {128, 100});
  EXPECT_EQ(a.block_counts(), (std::array<size_t, 2>{8, 8}));
  for (size_t bi = 0; bi < 8; ++bi) {
    for (size_t bj = 0; bj < 8; ++bj) {
      auto block = a.block({bi, bj});
      EXPECT_EQ(block.span().size(), block.shape()[0] * block.shape()[1]);
      for (size_t i = 0; i < block.shape()[0]; ++i) {
        for (size_t j = 0; j < block.shape()[1]; ++j) {
          block(i, j) = static_cast<double>((block.origin()[0] + i) * 777 + block.origin()[1] + j);
        }
      }
    }
  }
  const auto last = a.read({7, 7});
  EXPECT_EQ(last.shape(), (std::array<size_t, 2>{1000 - 7 * 128, 777 - 700}));
  EXPECT_EQ(last(last.shape()[0] - 1, last.shape()[1] - 1), 1000 * 777 - 1);
  EXPECT_EQ(a.read({1, 0})(0, 99), 128 * 777 + 99);
  const auto same = std::as_const(a).block({1, 0});
  static_assert(std::is_same_v<decltype(same.data()), const double*>, "a constant array gives blocks for reading");
  EXPECT_EQ(same(0, 99), 128 * 777 + 99);
}

// Their products wrapped: the array had no blocks, or blocks smaller than they said.
TEST(BlockedArray, ExtentsThatNoAddressCanSayAreRefused) {
  const size_t minus_one = static_cast<size_t>(-1);
  EXPECT_THROW((blockedArray<double, 2>({minus_one, 100}, {512, 512})), ramspan::Error);
  EXPECT_THROW((blockedArray<double, 2>({size_t{1} << 41, size_t{1} << 41}, {512, 512})), ramspan::Error);
  EXPECT_THROW((blockedArray<char, 2>({3, 0x5555555555555556}, {3, minus_one})), ramspan::Error);
  EXPECT_EQ((blockedArray<double, 2>({minus_one, 0}, {512, 512})).block_counts()[1], 0u);
  blockedArray<double, 2> one({10, 10}, {minus_one, minus_one});
  EXPECT_EQ(one.block_counts(), (std::array<size_t, 2>{1, 1}));
  EXPECT_EQ(one.read({0, 0}).shape(), (std::array<size_t, 2>{10, 10}));
}

template <typename F>
std::string ErrorOf(const F& call) {
  try {
    call();
    return "no error";
  } catch (const ramspan::Error& e) {
    return e.what();
  }
}

// It ended in SIGFPE.
TEST(BlockedArray, ABlockWithoutExtentIsRefused) {
  EXPECT_THAT(ErrorOf([] { blockedArray<double, 2>({100, 100}, {0, 32}); }), testing::HasSubstr("0 x 32 elements"));
  EXPECT_THAT(ErrorOf([] { blockedArray<double, 3>({0, 0, 0}, {1, 2, 0}); }), testing::HasSubstr("1 x 2 x 0 elements"));
}

// It ended in SIGSEGV, or was another block.
TEST(BlockedArray, ABlockOutsideIsRefused) {
  blockedArray<double, 2> a({100, 70}, {32, 32});  // 4 x 3 blocks
  const std::string words = "there is no block {4, 0}: there are 4 x 3, counted from 0";
  EXPECT_THAT(ErrorOf([&] { a.block({4, 0}); }), testing::HasSubstr(words));
  EXPECT_THAT(ErrorOf([&] { a.read({4, 0}); }), testing::HasSubstr(words));
  EXPECT_THAT(ErrorOf([&] { std::as_const(a).block({4, 0}); }), testing::HasSubstr(words));
  EXPECT_THAT(ErrorOf([&] { a.chunk({0, 3}); }), testing::HasSubstr("{0, 3}"));
  EXPECT_THAT(ErrorOf([&] { std::as_const(a).chunk({0, static_cast<size_t>(-1)}); }), testing::HasSubstr("{0, 18446744073709551615}"));
  a.prepareUse({4, 0});  // the one behind the last: a hint says nothing
  a.block({3, 2})(3, 5) = 1;
}

TEST(ManagedArray, ABlockOutsideIsRefused) {
  managedArray<double> a(1000, 1., ChunkBytes{800});
  const std::string words = "there is no block 10: there are 10, counted from 0";
  EXPECT_THAT(ErrorOf([&] { static_cast<void>(a.block(10)); }), testing::HasSubstr(words));
  EXPECT_THAT(ErrorOf([&] { static_cast<void>(std::as_const(a).block(10)); }), testing::HasSubstr(words));
  EXPECT_THAT(ErrorOf([&] { static_cast<void>(a.chunk(10)); }), testing::HasSubstr(words));
  EXPECT_THAT(ErrorOf([&] { static_cast<void>(std::as_const(a).chunk(10)); }), testing::HasSubstr(words));
  EXPECT_EQ(a.block(9)[99], 1.);
}

TEST(BlockedArray, ThreeDimensionsLargerThanTheLimit) {
  const std::array<size_t, 3> shape{100, 300, 250};  // 57 MiB
  blockedArray<double, 3> a(shape, {32, 64, 64});
  const auto each = [&](auto&& visit) {
    for (size_t x = 0; x < a.block_counts()[0]; ++x) {
      for (size_t y = 0; y < a.block_counts()[1]; ++y) {
        for (size_t z = 0; z < a.block_counts()[2]; ++z) visit(std::array<size_t, 3>{x, y, z});
      }
    }
  };
  const auto value = [&](const std::array<size_t, 3>& o, size_t i, size_t j, size_t k) {
    return static_cast<double>(((o[0] + i) * shape[1] + o[1] + j) * shape[2] + o[2] + k);
  };
  size_t elements = 0, wrong = 0;
  each([&](const auto& b) {
    auto block = a.block(b);
    elements += block.span().size();
    for (size_t i = 0; i < block.shape()[0]; ++i) {
      for (size_t j = 0; j < block.shape()[1]; ++j) {
        for (size_t k = 0; k < block.shape()[2]; ++k) block(i, j, k) = value(block.origin(), i, j, k);
      }
    }
  });
  EXPECT_EQ(elements, shape[0] * shape[1] * shape[2]);
  each([&](const auto& b) {
    const auto block = a.read(b);
    for (size_t i = 0; i < block.shape()[0]; ++i) {
      for (size_t j = 0; j < block.shape()[1]; ++j) {
        for (size_t k = 0; k < block.shape()[2]; ++k) wrong += block(i, j, k) != value(block.origin(), i, j, k);
      }
    }
  });
  EXPECT_EQ(wrong, 0u);
}

TEST(PinnedSpan, SaysWhetherItReadsOrWrites) {
  ramspan::managedPtr<int> data(1000, 7);
  {
    auto x = data.write();
    static_assert(std::is_same_v<decltype(x[0]), int&>);
    for (int& e : x) ++e;
    x[999] = 3;
  }
  const ramspan::managedPtr<int>& same = data;
  const auto x = same.read();
  static_assert(std::is_same_v<decltype(x[0]), const int&>);
  EXPECT_EQ(std::accumulate(x.begin(), x.end(), 0), 999 * 8 + 3);
  EXPECT_EQ(x.span().size(), 1000u);
  EXPECT_TRUE(ramspan::managedPtr<int>(size_t{0}).read().empty());
}

TEST(PinnedSpan, ReadingWritesNothing) {
  std::vector<ramspan::managedPtr<uint64_t>> data;
  for (size_t i = 0; i < 64; ++i) data.emplace_back((size_t{1} << 20) / 8, uint64_t{i});
  uint64_t sum = 0;
  const auto sweep = [&] {
    for (auto& one : data) sum += one.read()[77];
  };
  for (int i = 0; i < 2; ++i) sweep();
  const uint64_t before = Statistics()["tiers"]["file"]["bytes_out"];
  for (int i = 0; i < 4; ++i) sweep();
  EXPECT_EQ(sum, 6 * (63 * 64 / 2));
  EXPECT_LE(Statistics()["tiers"]["file"]["bytes_out"].get<uint64_t>() - before, 16 << 20) << "what was in memory may leave once";
}

// It kept its sizes without its blocks, and what says "Error where there is none" was a crash.
TEST(Views, WhatIsMovedFromIsEmpty) {
  ramspan::managedArray<double> array(1000, 1.0), other(std::move(array));
  EXPECT_EQ(array.size(), 0u);  // NOLINT: that is the test
  EXPECT_THROW(array.at(0), std::out_of_range);
  EXPECT_EQ(other.at(999), 1.0);
  array = std::move(other);
  EXPECT_EQ(other.size(), 0u);  // NOLINT: likewise
  EXPECT_EQ(array.at(999), 1.0);
  blockedArray<double, 2> blocks({100, 100}, {64, 64}), moved(std::move(blocks));
  EXPECT_THROW(blocks.block({0, 0}), ramspan::Error);  // NOLINT: likewise
  moved.block({1, 1});
  blocks = std::move(moved);
  EXPECT_THROW(moved.block({0, 0}), ramspan::Error);  // NOLINT: likewise
  blocks.block({1, 1});
}

}  // namespace
