// managedVector beside std::vector, under the 16 MiB limit of front_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <iterator>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <ranges>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "ramspan/managed_vector.h"
#include "ramspan/runtime.h"

namespace {

using namespace ramspan::literals;
using ramspan::access;
using ramspan::managedVector;
using ramspan::uninitialized;
using ramspan::VectorOptions;

static_assert(std::random_access_iterator<managedVector<int>::iterator>);
static_assert(std::random_access_iterator<managedVector<int>::const_iterator>);
static_assert(std::sortable<managedVector<int>::iterator>);
static_assert(std::is_convertible_v<managedVector<int>::iterator, managedVector<int>::const_iterator>);
static_assert(std::ranges::random_access_range<decltype(std::declval<managedVector<int>&>().view())>);
static_assert(std::ranges::input_range<decltype(std::declval<managedVector<int>&>().blocks())>);
static_assert(std::is_same_v<decltype(std::declval<managedVector<int>&>().view()[0]), int&>);
static_assert(std::is_same_v<decltype(std::declval<const managedVector<int>&>().view()[0]), int>);

nlohmann::json Files() { return nlohmann::json::parse(ramspan::StatsJson())["tiers"]["file"]; }

template <typename T>
std::vector<T> Plain(const managedVector<T>& x) {
  return {x.begin(), x.end()};
}

// Whatever is done to one is done to a std::vector. Blocks of 64 elements, so that each step may meet a border.
TEST(ManagedVector, DoesWhatAStdVectorDoes) {
  std::mt19937 random(4711);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  managedVector<uint32_t> x(VectorOptions{512});
  std::vector<uint32_t> y;
  ASSERT_EQ(x.block_elements(), 128u);
  for (int step = 0; step < 4000; ++step) {
    const auto value = static_cast<uint32_t>(random());
    switch (below(10)) {
      case 0: {
        const size_t n = below(2000);
        x.resize(n, value);
        y.resize(n, value);
        break;
      }
      case 1:
        x.reserve(below(3000));
        break;
      case 2:
        x = managedVector<uint32_t>(x);
        break;
      case 3: {
        managedVector<uint32_t> other(VectorOptions{4096});
        other.swap(x);
        x = std::move(other);
        break;
      }
      case 4:
        if (!y.empty()) {
          x.pop_back();
          y.pop_back();
        }
        break;
      case 5:
        if (below(20) == 0) {
          x.clear();
          y.clear();
        }
        break;
      default:
        x.push_back(value);
        y.push_back(value);
    }
    ASSERT_EQ(x.size(), y.size());
    ASSERT_GE(x.capacity(), x.size());
    if (y.empty()) continue;
    const size_t i = below(y.size()), j = below(y.size());
    x[i] = x[j];
    y[i] = y[j];
    x[i] += x[j];
    y[i] += y[j];
    ++x[j];
    ++y[j];
    const size_t count = below(y.size() - i) + 1;
    {
      auto part = x.span(i, count);
      for (size_t k = 0; k < count; ++k) part[k] ^= value;
    }
    for (size_t k = 0; k < count; ++k) y[i + k] ^= value;
    if (step % 16 == 0) {
      ASSERT_EQ(Plain(x), y) << step;
    }
  }
  EXPECT_EQ(Plain(x), y);
}

TEST(ManagedVector, IsAsLongAsMemoryIsNot) {
  constexpr size_t kElements = 64_MiB / sizeof(uint64_t) + 77;  // four times the limit
  managedVector<uint64_t> x(kElements, uninitialized);
  {
    auto v = x.view();
    for (size_t i = 0; i < kElements; ++i) v[i] = 3 * i;
  }
  uint64_t wrong = 0, i = 0;
  for (const uint64_t e : std::as_const(x).view()) wrong += e != 3 * i++;
  EXPECT_EQ(i, kElements);
  for (auto block : x.blocks()) {
    for (uint64_t& e : block) ++e;
  }
  for (i = 0; i < kElements; i += 1009) wrong += x[i] != 3 * i + 1;
  EXPECT_EQ(wrong, 0u);
}

TEST(ManagedVector, ReadingChangesNothing) {
  managedVector<uint64_t> x(64_MiB / sizeof(uint64_t), 7);  // not const
  const auto sum = [&] {
    uint64_t s = 0;
    for (size_t i = 0; i < x.size(); i += 512) s += x[i];
    for (const uint64_t e : x.cview()) s += e;
    const managedVector<uint64_t>& read = x;
    for (size_t i = 0; i < x.size(); i += 512) s += read[i] + read.at(i);
    for (const auto& block : read.blocks()) s += block[0];
    s += read.span(8000, 500)[499];
    return s;
  };
  sum();
  const uint64_t before = Files()["bytes_out"];
  EXPECT_EQ(sum(), 7 * (x.size() + 3 * (x.size() / 512) + x.block_count() + 1));
  for (int sweep = 0; sweep < 3; ++sweep) sum();
  EXPECT_LE(Files()["bytes_out"].get<uint64_t>() - before, 16_MiB) << "what was in memory, changed when it was made, may leave once";
}

TEST(ManagedVector, TakesAlgorithms) {
  managedVector<int> x(20000);
  std::iota(x.begin(), x.end(), 0);
  std::mt19937 random(1);
  std::shuffle(x.begin(), x.end(), random);
  EXPECT_FALSE(std::is_sorted(x.begin(), x.end()));
  std::sort(x.begin(), x.end());
  EXPECT_TRUE(std::ranges::is_sorted(std::as_const(x)));
  EXPECT_EQ(*std::lower_bound(x.begin(), x.end(), 17345), 17345);
  std::reverse(x.begin(), x.end());
  {
    auto v = x.view();
    std::ranges::sort(v);
    std::swap(v[3], v[19999]);
  }
  EXPECT_EQ(x[3], 19999);
  swap(x[3], x[19999]);
  EXPECT_EQ(x.back(), 19999);
  EXPECT_EQ(std::accumulate(x.begin(), x.end(), 0LL), 19999LL * 10000);
}

// Proxies: what of std::vector's reference they do.
TEST(ManagedVector, ElementsAreReadAndWritten) {
  managedVector<double> x(10, 2.0);
  x[1] = 3;
  x[2] += x[1];
  x[3] = x[4] = 9;
  EXPECT_EQ(x[2] * x[3], 45);
  EXPECT_EQ(x[5]++, 2);
  EXPECT_EQ(x[5], 3);
  EXPECT_DOUBLE_EQ(std::sqrt(x[4]), 3);
  EXPECT_EQ(std::max<double>(x[3], x[0]), 9);
  struct Point {
    double at[3];
    int id;
  };
  managedVector<Point> points(1000);
  points[7]->id = 3;
  points[7]->at[1] = 1.5;
  EXPECT_EQ(std::as_const(points)[7].id, 3);
  points[8] = points[7];
  EXPECT_EQ(points[8].value().at[1], 1.5);
  EXPECT_EQ(points.emplace_back(Point{{}, 5})->id, 5);
}

TEST(ManagedVector, OutsideThereIsNothing) {
  managedVector<int> x(5);
  EXPECT_THROW(x.at(5), std::out_of_range);
  EXPECT_THROW(std::as_const(x).at(static_cast<size_t>(-1)), std::out_of_range);
  EXPECT_THROW(x.block(1), ramspan::Error);
  EXPECT_THROW(x.reserve(static_cast<size_t>(-1)), ramspan::Error);
  EXPECT_TRUE(x.span(5, 0).empty());
  EXPECT_EQ(x.size(), 5u);
  const managedVector<int> none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.begin(), none.end());
  for (int e : none.view()) ADD_FAILURE() << e;
}

TEST(ManagedVector, BlocksAreAsLargeAsAsked) {
  EXPECT_EQ(managedVector<double>(1).block_elements(), 64_KiB / 8);
  EXPECT_EQ(managedVector<double>(1, VectorOptions{.access = access::random}).block_elements(), 1024u);
  EXPECT_EQ((managedVector<double>(1, 0.0, {.chunk = 100000}).block_elements()), 8192u) << "a power of two";
  struct Large {
    char bytes[5000];
  };
  EXPECT_EQ((managedVector<Large>(3, {.chunk = 4096}).block_count()), 3u) << "at least an element";
  const managedVector<double> like(managedVector<double>(5, 1.5, {.chunk = 4_KiB}));
  EXPECT_EQ(like.block_elements(), 512u);
}

// A block is fetched and let go while its neighbour is in use, in all threads.
TEST(ManagedVector, ThreadsWriteDistinctElementsOfOneBlock) {
  constexpr size_t kThreads = 4;
  managedVector<uint64_t> x(32_MiB / sizeof(uint64_t), 0);
  std::vector<std::thread> team;
  for (size_t t = 0; t < kThreads; ++t) {
    team.emplace_back([&, t] {
      std::minstd_rand random(static_cast<unsigned>(t + 1));
      for (int k = 0; k < 20000; ++k) {
        const size_t i = random() % (x.size() / kThreads) * kThreads + t;
        x[i] += 1;
      }
      auto v = x.view();
      for (size_t i = t; i < x.size(); i += 64 * kThreads) ++v[i];
    });
  }
  for (std::thread& one : team) one.join();
  uint64_t sum = 0;
  for (const uint64_t e : x.cview()) sum += e;
  EXPECT_EQ(sum, kThreads * (20000 + x.size() / (64 * kThreads)));
}

// A swap of named elements swapped what the names meant: one value was lost.
TEST(ManagedVector, NamedElementsSwapTheirValues) {
  managedVector<int> x(2);
  x[0] = 1;
  x[1] = 2;
  auto a = x[0];
  auto b = x[1];
  using std::swap;
  swap(a, b);
  EXPECT_EQ(x[0], 2);
  EXPECT_EQ(x[1], 1);
}

// Retried after OutOfMemory it had elements that nobody had pushed.
TEST(ManagedVector, HasNoElementOfACallThatThrows) {
  constexpr size_t kBlock = 64_KiB / sizeof(uint64_t);
  managedVector<uint64_t> x(kBlock, 7), big(32_MiB / sizeof(uint64_t), 0);
  std::list<ramspan::pinnedBlock<uint64_t>> pins;
  try {
    for (size_t b = 0;; ++b) pins.push_back(big.block(b));
  } catch (const ramspan::OutOfMemory&) {
  }
  EXPECT_THROW(x.push_back(1), ramspan::OutOfMemory);
  EXPECT_EQ(x.size(), kBlock);
  EXPECT_THROW(x.resize(2 * kBlock), ramspan::OutOfMemory);
  EXPECT_EQ(x.size(), kBlock);
}

// Each new block moved the handles of all others: 80 000 blocks took 7 s, and eight times the blocks 57 times as long.
TEST(ManagedVector, GrowsInLinearTime) {
  const auto own_seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const auto seconds = [&](size_t blocks) {
    const double begin = own_seconds();
    managedVector<char> x(VectorOptions{4096});
    for (size_t n = 0; n < blocks; ++n) x.reserve((n + 1) * 4096);
    return own_seconds() - begin;
  };
  seconds(1000);
  double ratio = 100;
  for (int i = 0; i < 5 && ratio > 24; ++i) ratio = std::min(ratio, seconds(16000) / seconds(2000));
  EXPECT_LT(ratio, 24) << "8 times the blocks";
}

// Also where the blocks' length is no power of two.
TEST(ManagedArray, IsIndexedAsAVector) {
  struct Triple {
    float x[3];
    bool operator==(const Triple&) const = default;
  };
  constexpr size_t kN = 3'000'000;  // 36 MB
  const auto value = [](size_t i) { return Triple{{static_cast<float>(i), 1, 2}}; };
  ramspan::managedArray<Triple> a(kN, {.value = 100'000});
  ASSERT_EQ(a.block_elements(), 8333u);
  {
    auto v = a.view();
    for (size_t i = 0; i < kN; ++i) v[i] = value(i);
  }
  const ramspan::managedArray<Triple>& c = a;
  std::mt19937_64 random(5);
  const auto view = c.view();
  for (int k = 0; k < 20000; ++k) {
    const size_t i = random() % kN;
    ASSERT_EQ(view[i], value(i));
    ASSERT_EQ(c[i], value(i));
    ASSERT_EQ(c.at(i), value(i));
  }
  EXPECT_EQ(c[kN - 1], value(kN - 1));
  const auto span = c.span(8000, 20000);
  for (size_t i = 0; i < span.size(); ++i) ASSERT_EQ(span[i], value(8000 + i));
  a[4711] = value(1);
  EXPECT_EQ(view[4711], value(1));
  EXPECT_THROW(static_cast<void>(a.at(kN)), std::out_of_range);
}

// It kept what it had got, and a program that was content with less had no memory.
TEST(ManagedVector, WhatIsReservedInVainIsGivenBack) {
  const auto descriptors = [] { return ramspan::GetStatistics().overhead; };
  const uint64_t before = descriptors();
  managedVector<double> x(10, 1.0);
  EXPECT_THROW(x.reserve(size_t{1} << 38), ramspan::OutOfMemory);
  EXPECT_LT(x.capacity(), 100'000u);
  EXPECT_LT(descriptors(), before + 1_MiB);
  EXPECT_THROW(x.reserve(size_t{1} << 50), ramspan::OutOfMemory) << "std::bad_alloc";
  managedVector<double> y(20'000, 2.0);
  EXPECT_EQ(y[19'999] + x[9], 3);
}

// Some hundred lines of errors.
TEST(ManagedVector, ElementsThatCompareThemselvesAreSorted) {
  struct Key {
    int key, other;
    bool operator<(const Key& b) const { return key < b.key; }
    bool operator==(const Key& b) const { return key == b.key; }
  };
  managedVector<Key> x;
  for (int i = 0; i < 50'000; ++i) x.push_back({(i * 7919) % 50'000, i});
  std::sort(x.begin(), x.end());
  EXPECT_TRUE(std::is_sorted(x.begin(), x.end()));
  EXPECT_EQ(x.begin()->key + std::as_const(x).begin()->key + x.view().begin()->key + x.cview().begin()->key, 0);
  EXPECT_TRUE(x[3] == x[3] && x[3] < x[4] && x[3] == Key({3, 0}));
  EXPECT_EQ(std::find(x.begin(), x.end(), Key{17, 0}) - x.begin(), 17);
  managedVector<double> y(2, 1.0);
  EXPECT_TRUE(y[0] == y[1] && y[0] < 2 && 1 <= y[1] && y[0] != 3.0f);
}

// The first value of each was on the stack.
TEST(ManagedVector, ElementsMayBeLargerThanTheStack) {
  struct Large {
    char bytes[9_MiB];
  };
  managedVector<Large> x(1);
  EXPECT_EQ(x.block(0)[0].bytes[1], 0);
  x.resize(2);
  EXPECT_EQ(x.block(1)[0].bytes[9_MiB - 1], 0);
}

TEST(ManagedVector, WhatIsMovedFromIsEmptyAndOfTheSameKind) {
  managedVector<double> x(1000, 1.0, {.chunk = 4_KiB});
  managedVector<double> y(std::move(x));
  EXPECT_TRUE(x.empty());
  EXPECT_EQ(x.block_elements(), 512u);
  managedVector<double> z(5000, 2.0);
  z = std::move(y);
  EXPECT_EQ(z.size(), 1000u);
  EXPECT_TRUE(y.empty());
  EXPECT_EQ((managedVector<double>(3, 1.0, {.chunk = SIZE_MAX}).block_count()), 1u);
}

// It took the blocks of the other one: after `p = z` a hot table was no array any more, and each span of it a copy.
TEST(ManagedVector, AnAssignmentKeepsTheBlocksOfWhatIsAssignedTo) {
  managedVector<int> many(100'000, 0), one(VectorOptions{SIZE_MAX}), small(VectorOptions{4096});
  std::iota(many.begin(), many.end(), 7);
  one = many;
  EXPECT_EQ(one.block_count(), 1u);
  small = one;
  EXPECT_EQ(small.block_elements(), 1024u);
  const auto is_right = [](const managedVector<int>& v) {
    if (v.size() != 100'000) return false;
    for (size_t i = 0; i < v.size(); ++i) {
      if (v[i] != static_cast<int>(i) + 7) return false;
    }
    return true;
  };
  EXPECT_TRUE(is_right(many) && is_right(one) && is_right(small));
  one = managedVector<int>(VectorOptions{4096});  // a move takes them
  EXPECT_EQ(one.block_elements(), 1024u);
}

TEST(ManagedVector, WhatGrowsBeyondMemorySaysWhatWouldHelp) {
  managedVector<double> one(VectorOptions{SIZE_MAX});
  try {
    for (int i = 0; i < 4'000'000; ++i) one.push_back(i);
    FAIL() << "it has grown beyond the limit";
  } catch (const ramspan::OutOfMemory& e) {
    EXPECT_NE(std::string(e.what()).find("reserve(n) before its first element"), std::string::npos) << e.what();
  }
}

// Each was a copy of its own: x[n-1] was 2 here, and n in an array; and one of two spans' changes were lost, without a word (a newcomer).
TEST(ManagedVector, SpansThatLieInEachOtherAreAsInAnArray) {
  constexpr size_t n = 100'000;
  managedVector<double> x(n, 1.0);
  {
    const auto from = std::as_const(x).span(0, n);
    const auto to = x.span(0, n);
    for (size_t i = 1; i < n; ++i) to[i] = from[i - 1] + 1;
    const auto part = x.span(n - 5, 5);  // in one block
    EXPECT_EQ(part[4], static_cast<double>(n));
    part[0] = -1;
    EXPECT_EQ(from[n - 5], -1);
  }
  EXPECT_EQ(x[n - 1], static_cast<double>(n));
  EXPECT_EQ(x[n - 5], -1);
  {
    const auto a = x.span(0, n), b = x.span(0, n);
    a[5] = -5;
    b[6] = -6;
  }
  EXPECT_EQ(x[5], -5);
  EXPECT_EQ(x[6], -6);
  // The first one ends before the second.
  std::unique_ptr<ramspan::vectorSpan<double>> first(new ramspan::vectorSpan<double>(x.span(0, n)));
  const auto second = x.span(10, n - 10);
  (*first)[9] = 9;
  second[0] = 10;
  first.reset();
  second[1] = 11;
  EXPECT_EQ(x[9], 9);
  EXPECT_EQ(x[10], 10);
}

TEST(ManagedVector, ASpanForReadingSeesWhatBlocksHaveMeanwhile) {
  constexpr size_t n = 100'000;
  managedVector<double> x(n, 1.0), other(n, 7.0);
  const auto before = std::as_const(x).span(0, n);
  x[50'000] = 2;
  const auto after = std::as_const(x).span(20'000, 60'000), elsewhere = std::as_const(other).span(20'000, 60'000);
  EXPECT_EQ(after[30'000], 2);
  EXPECT_EQ(elsewhere[30'000], 7);
}

// What a span for writing holds is newer than the blocks; what beside it lies in the same copy is not.
TEST(ManagedVector, ASpanForWritingMakesOnlyItsOwnElementsNewer) {
  constexpr size_t n = 100'000;
  managedVector<double> x(n, 1.0);
  {
    const auto all = std::as_const(x).span(0, n);
    const auto first = x.span(0, 10);
    first[9] = -9;
    x[50] = 7;
    const auto later = x.span(5, 100);
    EXPECT_EQ(later[4], -9);
    EXPECT_EQ(later[45], 7);
    later[0] = 3;
    EXPECT_EQ(all[5], 3);
  }
  EXPECT_EQ(x[5], 3);
  EXPECT_EQ(x[50], 7);
  std::unique_ptr<ramspan::vectorSpan<double>> whole(new ramspan::vectorSpan<double>(x.span(0, n)));
  const auto rest = x.span(10, n - 10);
  whole.reset();
  x[3] = 9;
  EXPECT_EQ(std::as_const(x).span(0, 5)[3], 9);
  x.span(0, 5)[0] = 4;
  EXPECT_EQ(x[3], 9);
  // For reading, partly in one for writing: as it was when it was made.
  rest[0] = 10;
  const auto around = std::as_const(x).span(0, 60'000);
  EXPECT_EQ(around[3], 9);
  EXPECT_EQ(around[10], 10);
  const auto in_one_block = std::as_const(x).span(0, 20);
  EXPECT_EQ(in_one_block[3], 9);
  EXPECT_EQ(in_one_block[10], 10);
}

// The copy of a span that had ended was taken, which another one kept.
TEST(ManagedVector, ASpanSharesWithOneThatIsThere) {
  managedVector<long> x(6000, 0L, ramspan::VectorOptions{4096});
  const auto around = std::as_const(x).span(308, 1023);
  std::unique_ptr<ramspan::vectorSpan<const long>> ended(new ramspan::vectorSpan<const long>(std::as_const(x).span(670, 886)));
  const auto beside = x.span(1400, 100);
  ended.reset();
  const auto within = x.span(1098, 2);
  within[0] = 42;
  EXPECT_EQ(around[1098 - 308], 42);
}

// Arrays may be made of blocks that others have, too.
TEST(ManagedVector, SpansOfArraysWithTheSameFirstBlockAreTheirOwn) {
  constexpr size_t n = 8192;
  std::vector<ramspan::managedPtr<double>> blocks;
  for (double value : {0.0, 1.0, 2.0}) blocks.emplace_back(n, value);
  ramspan::managedArray<double> a({blocks[0], blocks[1]}, 2 * n, n), b({blocks[0], blocks[2]}, 2 * n, n);
  {
    const auto of_a = a.span(0, 2 * n), of_b = b.span(0, 2 * n);
    EXPECT_EQ(of_a[n], 1);
    EXPECT_EQ(of_b[n], 2);
  }
  EXPECT_EQ(b[n], 2);
}

// Its record was left in its thread's list: a crash.
TEST(ManagedVector, ASpanMayEndOnAnotherThread) {
  constexpr size_t n = 100'000;
  managedVector<double> x(n, 1.0);
  std::unique_ptr<ramspan::vectorSpan<double>> span;
  std::thread([&] { span.reset(new ramspan::vectorSpan<double>(x.span(0, n))); }).join();
  (*span)[7] = 7;
  span.reset();
  std::thread([&] { EXPECT_EQ(x.span(0, n)[7], 7); }).join();
}

TEST(ManagedVector, SpansThatCouldNotSeeEachOthersChangesAreRefused) {
  constexpr size_t n = 100'000;
  managedVector<double> x(n, 1.0);
  const auto refused = [&](const auto& span) {
    try {
      span();
      ADD_FAILURE();
    } catch (const ramspan::Error& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("take the larger one first"));
    }
  };
  const auto left = x.span(0, 60'000);
  refused([&] { x.span(50'000, 50'000); });
  refused([&] { x.span(0, n); });
  refused([&] { x.span(59'990, 20); });  // in one block
  x.span(60'000, 40'000);
  std::thread([&] { x.span(50'000, 50'000); }).join();  // as in an array: what they write at one time is theirs to keep apart
}

}  // namespace
