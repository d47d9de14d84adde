// Loops over several vectors at the same indices.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "ramspan/lockstep.h"
#include "ramspan/managed_vector.h"
#include "ramspan/runtime.h"

namespace {

using namespace ramspan::literals;
using ramspan::lockstep;
using ramspan::managedArray;
using ramspan::managedVector;
using ramspan::VectorOptions;

constexpr size_t kN = 1'500'001;  // 12 MB of doubles under 16 MiB

template <typename X>
std::vector<double> Values(const X& x) {
  std::vector<double> values;
  for (const auto block : x.blocks()) values.insert(values.end(), block.begin(), block.end());
  return values;
}

TEST(Lockstep, VectorsOfSeveralTypesAreUsedAtTheSameIndices) {
  managedVector<double> x(kN, 1.0);
  managedVector<float> y(kN);  // twice as many in a block
  managedArray<uint16_t> z(kN + 5, uint16_t{7}, {.value = 64_KiB});
  for (size_t i = 0; i < kN; i += 1000) y[i] = static_cast<float>(i);
  size_t next = 0;
  for (auto [first, end, to, a, b] : lockstep({0, kN}, x, std::as_const(y), std::as_const(z))) {
    static_assert(std::is_same_v<decltype(to[0]), double&> && std::is_same_v<decltype(a[0]), const float&> && std::is_same_v<decltype(b[0]), const uint16_t&>);
    EXPECT_EQ(first, next);
    next = end;
    for (size_t i = first; i < end; ++i) to[i] += a[i] + b[i];
  }
  EXPECT_EQ(next, kN);
  const std::vector<double> values = Values(x);
  for (size_t i = 0; i < kN; ++i) ASSERT_EQ(values[i], 8.0 + (i % 1000 == 0 ? static_cast<double>(static_cast<float>(i)) : 0)) << i;
}

// Reaches within a block, to the next one, and over several; loops that begin and end anywhere.
TEST(Lockstep, WhatIsReadAroundMayLieInOtherBlocks) {
  constexpr size_t n = 1003;
  managedVector<double> y(n, 0.0, VectorOptions{256});
  managedVector<double> from(n, 0.0, VectorOptions{128});  // blocks of 16 and of 32 elements
  std::vector<double> plain(n);
  for (size_t i = 0; i < n; ++i) from[i] = plain[i] = static_cast<double>(i * i % 97);
  for (const size_t reach : {1, 2, 7, 8, 9, 15, 16, 17, 40, 2000}) {
    for (const auto& [begin, stop] : {std::pair<size_t, size_t>(0, n), {1, n - 1}, {15, 17}, {16, 16}, {17, 900}, {1002, 1003}}) {
      std::vector<int> seen(n);
      for (auto [first, end, to, a] : lockstep({begin, stop, reach}, y, std::as_const(from))) {
        for (size_t i = first; i < end; ++i) {
          ++seen[i];
          to[i] = a[i - std::min(i, reach)] + 2 * a[i] + 4 * a[std::min(i + reach, n - 1)];
        }
      }
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(seen[i], i >= begin && i < stop) << reach << ' ' << i;
        if (seen[i] == 0) continue;
        ASSERT_EQ(y[i], plain[i - std::min(i, reach)] + 2 * plain[i] + 4 * plain[std::min(i + reach, n - 1)]) << reach << ' ' << i;
      }
    }
  }
}

TEST(Lockstep, PartsCanBeIndexed) {
  managedVector<double> x(kN, 0.0);
  const managedVector<double> y(kN, 3.0);
  const auto parts = lockstep({10, kN - 10, 4}, x, y);
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (size_t k; (k = next++) < parts.size();) {
        auto [first, end, to, from] = parts[k];
        for (size_t i = first; i < end; ++i) to[i] += from[i - 4] + from[i + 4];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<double> values = Values(x);
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0.0), 6.0 * (kN - 20));
  EXPECT_EQ(values[9] + values[kN - 10], 0);
}

// Three blocks of 4 MiB in 16 MiB: one thread at a time, and none gets OutOfMemory.
TEST(Lockstep, ThreadsWaitForEachOthersBlocks) {
  const VectorOptions large{4_MiB};
  constexpr size_t n = size_t{3} << 20;  // 24 MiB each
  managedVector<double> x(n, 1.0, large), y(n, 2.0, large), z(n, 3.0, large);
  const auto parts = lockstep({0, n, 1}, x, std::as_const(y), std::as_const(z));
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      try {
        for (size_t k = t; k < parts.size(); k += 3) {
          auto [first, end, to, a, b] = parts[k];
          for (size_t i = first; i < end; ++i) to[i] += a[i] + b[i];
        }
      } catch (const ramspan::OutOfMemory&) {
        ++refused;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 0);
  for (size_t i = 0; i < n; i += 1001) ASSERT_EQ(x[i], 6.0) << i;
}

// Its checksum would keep it from being written, if it counted as changed.
TEST(Lockstep, WhatIsOnlyReadIsNotTakenForChanged) {
  managedVector<double> x(4 * kN, 1.0);
  const auto taken_for_changed = [] { return nlohmann::json::parse(ramspan::StatsJson())["unchanged_writes"].get<uint64_t>(); };
  const uint64_t before = taken_for_changed();
  double sum = 0;
  for (int pass = 0; pass < 3; ++pass) {
    for (auto [first, end, a] : lockstep({0, 4 * kN, 1}, std::as_const(x))) {
      for (size_t i = first; i < end; ++i) sum += a[i];
    }
  }
  EXPECT_EQ(sum, 12.0 * kN);
  EXPECT_EQ(taken_for_changed() - before, 0u);
}

template <typename Call>
std::string ErrorOf(const Call& call) {
  try {
    call();
    return "none";
  } catch (const ramspan::Error& error) {
    return error.what();
  }
}

TEST(Lockstep, SaysWhatVectorsCannotBeUsedTogether) {
  managedVector<double> x(1000), y(999);
  EXPECT_NE(ErrorOf([&] { static_cast<void>(lockstep({0, 1000}, x, y)); }).find("over [0, 1000) is to use vector 2 of those it is given, which has 999 elements"), std::string::npos);
  EXPECT_EQ(ErrorOf([&] { static_cast<void>(lockstep({0, 999, 3}, x, std::as_const(y))); }), "none");
  EXPECT_EQ(ErrorOf([&] { static_cast<void>(lockstep({5, 5}, x, y)); }), "none");
  managedArray<double> odd(1000, 0.0, {.value = 800});
  EXPECT_NE(ErrorOf([&] { static_cast<void>(lockstep({0, 1000}, x, odd)); }).find("blocks of 100 and of 8192 elements"), std::string::npos);
  EXPECT_EQ(ErrorOf([&] { static_cast<void>(lockstep({0, 1000}, odd, std::as_const(odd))); }), "none");
  EXPECT_NE(ErrorOf([&] { static_cast<void>(lockstep({0, 1000, 1}, x, std::as_const(x))); }).find("take a view"), std::string::npos);
}

// A stencil that slides reads the first neighbour before its inner loop; parts without an element had null pointers.
TEST(Lockstep, NoPartIsEmpty) {
  managedVector<double> x(kN, 0.0);
  const managedVector<double> y(kN, 3.0);
  const size_t block = x.block_elements();
  for (const size_t reach : {size_t{1}, size_t{7}, block / 2 - 1, block / 2, block}) {
    for (const size_t begin : {size_t{0}, reach, reach + 1, block - 1, block}) {
      for (const size_t end : {begin + 1, block + 1, kN - reach, kN}) {
        size_t next = begin;
        for (auto [first, last, to, from] : lockstep({begin, end, reach}, x, y)) {
          ASSERT_EQ(first, next);
          ASSERT_LT(first, last);
          ASSERT_EQ(from[first], 3.0);
          next = last;
        }
        ASSERT_EQ(next, std::max(begin, end)) << reach << ' ' << begin << ' ' << end;
      }
    }
  }
}

TEST(Lockstep, AReachNeedsAConstVector) {
  managedVector<double> x(1000), y(1000);
  EXPECT_NE(ErrorOf([&] { static_cast<void>(lockstep({1, 999, 1}, x, y)); }).find("std::as_const(v)"), std::string::npos);
}

TEST(Lockstep, EmptyLoopsPinNothing) {
  managedVector<double> x;
  EXPECT_EQ(lockstep({0, 0}, x).size(), 0u);
  managedVector<double> y(10, 1.0);
  EXPECT_EQ(lockstep({7, 3}, y).size(), 0u);
}

}  // namespace
