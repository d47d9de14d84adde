// Objects smaller than a page: many to a bundle, swapped together, and otherwise as all others.
#include <gtest/gtest.h>
#include <ramspan/adhere_all.h>
#include <ramspan/managed_ptr.h>
#include <ramspan/runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

using ramspan::adhereAll;
using ramspan::adhereTo;
using ramspan::GetStatistics;
using ramspan::managedPtr;

namespace {

TEST(SmallObjects, OfAllSizesKeepTheirBytesOverSwap) {
  std::mt19937_64 random(11);
  std::vector<managedPtr<unsigned char>> objects;
  uint64_t bytes = 0;
  for (; bytes < (48 << 20); bytes += objects.back().size()) {
    objects.emplace_back(1 + random() % (random() % 4 == 0 ? 5000 : 300));
    adhereTo<unsigned char> glue(objects.back());
    unsigned char* const p = glue;
    std::memset(p, static_cast<int>(objects.size() % 251), objects.back().size());
  }
  for (int round = 0; round < 2; ++round) {
    size_t wrong = 0;
    for (size_t k = 0; k < objects.size(); ++k) {
      const size_t i = round == 0 ? k : objects.size() - 1 - k;
      const adhereTo<unsigned char> glue(objects[i]);
      const unsigned char* const p = glue;
      wrong += !std::all_of(p, p + objects[i].size(), [&](unsigned char c) { return c == (i + 1) % 251; });
    }
    EXPECT_EQ(wrong, 0u);
  }
  EXPECT_GT(GetStatistics().bytes_in, uint64_t{48} << 20);
}

TEST(SmallObjects, AMillionTravelInFewTransfers) {
  constexpr size_t kCount = 600'000;  // of 16 bytes: 4.6 MiB of tables, 9.2 MiB of data in the 16 MiB limit, and ballast
  std::vector<managedPtr<uint64_t>> objects;
  objects.reserve(kCount);
  for (size_t i = 0; i < kCount; ++i) objects.emplace_back(2, i);
  managedPtr<uint64_t> ballast((8 << 20) / sizeof(uint64_t), uint64_t{1});
  const ramspan::Statistics before = GetStatistics();
  {
    const adhereTo<uint64_t> held(ballast);
    static_cast<void>(static_cast<const uint64_t*>(held));
    size_t wrong = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const adhereTo<uint64_t> glue(objects[i]);
      const uint64_t* const p = glue;
      wrong += p[0] != i || p[1] != i;
    }
    EXPECT_EQ(wrong, 0u);
  }
  const ramspan::Statistics after = GetStatistics();
  EXPECT_GT(after.bytes_in - before.bytes_in, uint64_t{4} << 20);
  EXPECT_LT(after.reads - before.reads, 1000u);
  EXPECT_GE(after.small_objects, kCount);
}

struct alignas(64) Wide {
  double lanes[24];
};
struct alignas(2048) Page {
  char bytes[2048];
};

TEST(SmallObjects, AreAlignedAsTheirTypeAsks) {
  std::vector<managedPtr<Wide>> wide;
  std::vector<managedPtr<Page>> pages;
  std::vector<managedPtr<char>> odd;
  for (int i = 0; i < 300; ++i) {
    odd.emplace_back(1 + i);
    wide.emplace_back(1 + i % 5);
    pages.emplace_back(1);
    adhereTo<Wide> wide_glue(wide.back());
    adhereTo<Page> page_glue(pages.back());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(static_cast<Wide*>(wide_glue)) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(static_cast<Page*>(page_glue)) % 2048, 0u);
  }
}

TEST(SmallObjects, CopiesShareAndTheLastGivesThePlaceBack) {
  const uint64_t before = GetStatistics().small_objects;
  {
    managedPtr<int> a(3, 7);
    const managedPtr<int> b = a;
    EXPECT_TRUE(a == b);
    EXPECT_EQ(b.size(), 3u);
    a = managedPtr<int>(4, 8);
    EXPECT_FALSE(a == b);
    const adhereTo<int> glue(b);
    EXPECT_EQ(static_cast<const int*>(glue)[2], 7);
    EXPECT_EQ(GetStatistics().small_objects, before + 2);
  }
  EXPECT_EQ(GetStatistics().small_objects, before);
}

TEST(SmallObjects, TwoOfABundleArePinnedTogether) {
  managedPtr<int> a(2, 1), b(2, 2);
  auto [x, y] = adhereAll(a, b);
  int *px = x, *py = y;
  px[1] = py[1] + 1;
  adhereTo<int> copy(y);
  y = adhereTo<int>(a);
  EXPECT_EQ(static_cast<int*>(y)[1], 3);
  EXPECT_EQ(static_cast<int*>(copy), py);
}

struct Node;

}  // namespace
template <>
struct ramspan::is_relocatable<Node> : std::true_type {};
namespace {

// Lists of small nodes, each holding the next: destroying the first destroys all, from within the same bundle.
struct Node {
  explicit Node(int v) : value(v) { ++live; }
  ~Node() { --live; }
  static inline int live = 0;
  int value;
  managedPtr<Node> next{0, 0};
};

TEST(SmallObjects, NodesThatHoldEachOtherAreDestroyedInTheirBundle) {
  const uint64_t before = GetStatistics().small_objects;
  {
    managedPtr<Node> list(0, 0);
    for (int i = 0; i < 200; ++i) {
      managedPtr<Node> node(1, i);
      adhereTo<Node> glue(node);
      static_cast<Node*>(glue)->next = std::move(list);
      list = std::move(node);
    }
    EXPECT_EQ(Node::live, 200);
  }
  EXPECT_EQ(Node::live, 0);
  EXPECT_EQ(GetStatistics().small_objects, before);
}

TEST(SmallObjects, ThreadsMakeAndDestroyEachOthers) {
  const uint64_t before = GetStatistics().small_objects;
  std::mutex mutex;
  std::vector<managedPtr<uint64_t>> exchange;
  std::atomic<uint64_t> wrong{0};
  const auto body = [&](unsigned seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < 20'000; ++i) {
      const uint64_t n = 1 + random() % 40;
      managedPtr<uint64_t> mine(n, n);
      std::lock_guard lock(mutex);
      if (exchange.size() < 2000) {
        exchange.push_back(mine);
      } else {
        managedPtr<uint64_t>& other = exchange[random() % exchange.size()];
        const adhereTo<uint64_t> glue(other);
        wrong += static_cast<const uint64_t*>(glue)[other.size() - 1] != other.size();
        std::swap(other, mine);
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 6; ++t) threads.emplace_back(body, t);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(GetStatistics().small_objects, before + exchange.size());
  exchange.clear();
  EXPECT_EQ(GetStatistics().small_objects, before);
}

}  // namespace
