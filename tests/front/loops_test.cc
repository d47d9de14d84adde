// Loops over blocks, in OpenMP's threads.
#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "ramspan/loops.h"
#include "ramspan/managed_vector.h"

namespace {

using namespace ramspan::literals;
using ramspan::forEachWindow;
using ramspan::managedArray;
using ramspan::managedVector;
using ramspan::parallelFor;

constexpr size_t kLimit = 16_MiB, kN = 5'000'001;  // 40 MB of doubles

template <typename X>
double SumOf(const X& x) {
  std::atomic<double> sum{0};
  parallelFor(x.blocks(), [&](const auto& block) { sum += std::accumulate(block.begin(), block.end(), 0.0); });
  return sum;
}

// Each call had a copy of it: nothing was counted, and a lock in it excluded nobody.
TEST(Loops, FunctionsWithMutableMembersAreCalledThemselves) {
  struct Counts {
    mutable int blocks = 0;
    void operator()(const ramspan::pinnedBlock<double>&) const {
#pragma omp atomic
      ++blocks;
    }
  };
  static_assert(std::is_trivially_copyable_v<Counts>);
  ramspan::managedVector<double> x(100'000, 1.0);
  const Counts counts;
  parallelFor(x.blocks(), counts);
  EXPECT_EQ(counts.blocks, static_cast<int>(x.block_count()));
}

TEST(Loops, EachBlockOnceInManyThreads) {
  managedVector<double> x(kN, 0.0);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  omp_set_num_threads(4);
  for (int round = 0; round < 3; ++round) {
    parallelFor(x.blocks(), [&](auto& block) {
      for (double& e : block) e += 1;
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
  }
  EXPECT_EQ(SumOf(x), 3.0 * kN);
  EXPECT_EQ(threads.size(), 4u);
}

// The caller's part fails where its own pin leaves no room; it waited at the loop's end for others, which waited for that pin.
TEST(Loops, AFailureEndsTheWaitsOfTheOtherThreads) {
  managedVector<double> x(kN, 1.0);
  // As large as can be pinned.
  for (size_t bytes = kLimit - 128_KiB; bytes > kLimit / 2; bytes -= 64_KiB) {
    try {
      const managedVector<double> hot(bytes / sizeof(double), 1.0, ramspan::VectorOptions{SIZE_MAX});
      const auto table = hot.span(0, hot.size());
      for (const int threads : {1, 2, 4}) {
        omp_set_num_threads(threads);
        EXPECT_THROW(parallelFor(x.blocks(), [&](auto& block) {
          for (double& e : block) e *= table[0];
        }), ramspan::OutOfMemory) << threads;
      }
      omp_set_num_threads(4);
      return;
    } catch (const ramspan::Error&) {  // too large
    }
  }
  FAIL() << "nothing large can be pinned";
}

// The inner loop's own flag hid that the outer one had failed: for ever.
TEST(Loops, AFailureEndsTheWaitsInALoopWithinACall) {
  omp_set_num_threads(2);
  managedVector<double> hot(kLimit * 5 / 8 / sizeof(double), 2.0, ramspan::VectorOptions{SIZE_MAX}), big(hot.size(), 3.0, ramspan::VectorOptions{SIZE_MAX});
  const auto held = std::as_const(hot).span(0, hot.size());
  std::atomic<bool> waits{false};
  EXPECT_THROW(parallelFor(2, [&](size_t i) {
    if (i == 0) {
      while (!waits) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      throw std::runtime_error("words");
    }
    waits = true;
    parallelFor(1, [&](size_t) { static_cast<void>(std::as_const(big).block(0)); });
  }), std::runtime_error);
}

// The caller had done its part and kept what the other thread needed: for ever.
TEST(Loops, WhoWaitsAtTheEndUnpinsNothing) {
  omp_set_num_threads(2);
  managedVector<double> hot(kLimit * 5 / 8 / sizeof(double), 2.0, ramspan::VectorOptions{SIZE_MAX}), big(hot.size(), 3.0, ramspan::VectorOptions{SIZE_MAX});
  const auto held = std::as_const(hot).span(0, hot.size());
  EXPECT_THROW(parallelFor(2, [&](size_t i) {
    if (i == 1) static_cast<void>(std::as_const(big).block(0));
  }), ramspan::OutOfMemory);
}

// For a thread outside of it the caller at the loop's end is at work: what it has pinned ends when the loop does.
TEST(Loops, WhoIsNoPartOfALoopWaitsForItsEnd) {
  omp_set_num_threads(2);
  managedVector<double> hot(kLimit * 5 / 8 / sizeof(double), 2.0, ramspan::VectorOptions{SIZE_MAX}), big(hot.size(), 3.0, ramspan::VectorOptions{SIZE_MAX});
  std::atomic<bool> begun{false};
  std::thread other([&] {
    while (!begun) std::this_thread::yield();
    EXPECT_NO_THROW(static_cast<void>(std::as_const(big).block(0)));
  });
  {
    const auto held = std::as_const(hot).span(0, hot.size());
    begun = true;
    parallelFor(2, [](size_t i) {
      if (i == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    });
  }
  other.join();
}

TEST(Loops, ByIndexOverSeveralArrays) {
  managedVector<double> x(kN, 2.0);
  managedArray<double> y(kN, 1.0, {.value = 64_KiB});
  ASSERT_EQ(x.block_count(), y.block_count());
  parallelFor(x.block_count(), [&](size_t b) {
    const auto from = std::as_const(x).block(b);
    auto to = y.block(b);
    for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  });
  EXPECT_EQ(SumOf(y), 3.0 * kN);
}

// It ended the process.
TEST(Loops, TheFirstExceptionComesToTheCaller) {
  managedVector<double> x(kN, 0.0);
  std::atomic<int> begun{0};
  try {
    parallelFor(x.blocks(), [&](auto& block) {
      ++begun;
      if (block.first_index() == 0) throw std::runtime_error("words");
    });
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "words");
  }
  EXPECT_LT(begun, static_cast<int>(x.block_count()));
  EXPECT_EQ(SumOf(x), 0);
}

TEST(Loops, PinsThatDoNotFitAreAnExceptionOfTheCaller) {
  managedVector<double> x(kN, 1.0);
  omp_set_num_threads(4);
  const auto pin_all = [&](size_t) {
    std::vector<ramspan::pinnedBlock<double>> held;
    for (size_t b = 0; b < x.block_count(); ++b) held.push_back(x.block(b));
  };
  EXPECT_THROW(parallelFor(16, pin_all), ramspan::OutOfMemory);
  EXPECT_EQ(SumOf(x), 1.0 * kN);
}

template <typename X>
class Windows : public testing::Test {};
using Containers = testing::Types<managedVector<double>, managedArray<double>>;
TYPED_TEST_SUITE(Windows, Containers);

TYPED_TEST(Windows, EachBlockOnceInOrderAndAsManyAsFit) {
  TypeParam x(kN, 0.0);
  size_t next = 0, most = 0, windows = 0;
  forEachWindow(x.blocks(), [&](auto& window) {
    ++windows;
    size_t elements = 0;
    for (auto& block : window) {
      EXPECT_EQ(block.first_index(), next);
      next += block.size();
      elements += block.size();
      for (double& e : block) e += 1;
    }
    most = std::max(most, elements);
  });
  EXPECT_EQ(next, kN);
  EXPECT_LE(most * sizeof(double), kLimit / 2);
  EXPECT_GE(most * sizeof(double), kLimit / 8);
  EXPECT_LT(windows, x.block_count());
  forEachWindow(std::as_const(x).blocks(), [&](const auto& window) {
    static_assert(std::is_same_v<decltype(window[0][0]), const double&>);
    parallelFor(window, [](const auto& block) {
      for (const double e : block) ASSERT_EQ(e, 1);
    });
  });
}

// Others' pins leave room for less than a window.
TEST(Loops, WindowsAreSmallerBesideOthersPins) {
  managedVector<double> x(kN, 1.0), other(kN, 1.0);
  std::vector<ramspan::pinnedBlock<double>> held;
  while (held.size() * 64_KiB < kLimit / 8 * 7) held.push_back(other.block(held.size()));
  size_t seen = 0;
  forEachWindow(x.blocks(), [&](auto& window) {
    for (auto& block : window) seen += block.size();
  });
  EXPECT_EQ(seen, kN);
}

TEST(Loops, NothingToDo) {
  managedVector<double> x;
  parallelFor(x.blocks(), [](auto&) { FAIL(); });
  forEachWindow(x.blocks(), [](auto&) { FAIL(); });
  parallelFor(0, [](size_t) { FAIL(); });
}

TEST(Loops, WindowsInEachThreadOfARegion) {
  managedVector<double> x(kN, 1.0), y(kN, 2.0), z(kN, 3.0), w(kN, 4.0);
  managedVector<double>* all[] = {&x, &y, &z, &w};
  double sums[4] = {};
#pragma omp parallel for num_threads(4) schedule(static, 1)
  for (int i = 0; i < 4; ++i) {
    forEachWindow(std::as_const(*all[i]).blocks(), [&](const auto& window) {
      for (const auto& block : window) sums[i] += std::accumulate(block.begin(), block.end(), 0.0);
    });
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(sums[i], (i + 1.0) * kN);
}

}  // namespace
