// Programs written for Rambrain say things that a stricter interface would not take. Compiled as C++17.
#include <gtest/gtest.h>

#include "rambrain/configreader.h"
#include "rambrain/cyclicManagedMemory.h"
#include "rambrain/managedDummySwap.h"
#include "rambrain/managedFileSwap.h"
#include "rambrain/managedPtr.h"
#include "rambrain/rambrainconfig.h"
#include "rambrain/timer.h"
#include "tests/rambrain/row.h"

using namespace rambrain;

namespace detail {  // a program's own
int Answer() { return 42; }
}  // namespace detail

namespace {

static_assert(__cplusplus == 201703L, "Rambrain's programs are older than C++20");

TEST(Compat, ANamespaceDetailOfTheProgramIsItsOwn) { EXPECT_EQ(detail::Answer(), 42); }

TEST(Compat, SizesAreUnsignedInt) {
  managedPtr<double> p(10);
  EXPECT_EQ(min(p.size(), 7u), 7u);
  managedPtr<double, 2> matrix(3, 4);
  EXPECT_EQ(max(matrix.size(), 7u), 7u);
  EXPECT_EQ(p.size64(), 10u);
}

TEST(Compat, WhatWasMovedFromIsStillThere) {
  managedPtr<double> a(10, 5.);
  managedPtr<double> b = std::move(a);
  managedPtr<double> c(1);
  c = std::move(b);
  ADHERETOLOC(double, a, pa);
  pa[3] = 6;
  ADHERETOLOCCONST(double, b, pb);
  ADHERETOLOCCONST(double, c, pc);
  EXPECT_EQ(pb[3], 6);
  EXPECT_EQ(pc[3], 6);
  managedPtr<double, 2> m(2, 10, 1.);
  managedPtr<double, 2> n = std::move(m);
  ASSERT_EQ(m.size(), 2u);
  const managedPtr<double>& second = m[1];
  ADHERETOLOCCONST(double, second, row);
  EXPECT_EQ(row[9], 1.);
}

class MyManager : public cyclicManagedMemory {
 public:
  MyManager(managedSwap* swap, global_bytesize size) : cyclicManagedMemory(swap, size) {}
};
class MySwap : public managedDummySwap {
 public:
  using managedDummySwap::managedDummySwap;
  int outs = 0;

 protected:
  global_bytesize swapOut(managedMemoryChunk* chunk) override {
    ++outs;
    return managedDummySwap::swapOut(chunk);
  }
};

TEST(Compat, ManagersAndSwapsCanBeDerivedFrom) {
  MySwap swap(16 * mib);
  MyManager manager(&swap, mib);
  EXPECT_EQ(managedMemory::defaultManager, &manager);
  vector<managedPtr<char>> all;
  for (char i = 0; i < 8; ++i) all.emplace_back(mib / 2, i);
  for (char i = 0; i < 8; ++i) {
    ROWCONST(char, all[static_cast<size_t>(i)], data);
    EXPECT_EQ(data[9], i);
  }
  EXPECT_GT(swap.outs, 0);
}

TEST(Compat, MacrosAndNames) {
  vector<int> numbers{1, 2, 3};
  int sum = 0;
  VECTOR_FOREACH(numbers, i) sum += numbers[static_cast<size_t>(i)];
  EXPECT_EQ(sum, 6);
  testing::internal::CaptureStderr();
  double x = 0;
  NANCHECK(x);
  x /= x;
  NANCHECK(x);
  EXPECT_TRUE(NANBOOL(x));
  const string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("NaN"), string::npos);
  EXPECT_EQ(said.find("NaN"), said.rfind("NaN"));
  list<int> a{1};
  set<int> b{2};
  const auto now = chrono::steady_clock::now();
  stringstream text;
  text << fixed << setprecision(1) << 1.25 << static_cast<double>(a.front() + *b.begin());
  EXPECT_EQ(text.str(), "1.23.0");
  EXPECT_LE(now, chrono::steady_clock::now());
}

[[maybe_unused]] DEPRECATED int Old() { return 0; }

TEST(Compat, PagesAndAlignment) {
  managedFileSwap swap(mib, "/tmp/rambrain-compat-%d-%d");
  EXPECT_EQ(swap.pageSize, static_cast<unsigned>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(swap.getMemoryAlignment(), 1u);
  swap.setDMA(true);
  EXPECT_GE(swap.getMemoryAlignment(), 512u);
}

TEST(Compat, ASwapIsWaitedForAndItsCleanCopiesAreGivenUp) {
  managedFileSwap swap(16 * mib, "/tmp/rambrain-compat-%d-%d");
  cyclicManagedMemory manager(&swap, 2 * mib);
  manager.setPreemptiveLoading(false);  // so that nothing happens by itself
  manager.setPreemptiveUnloading(false);
  vector<managedPtr<char>> all;
  for (char i = 0; i < 16; ++i) all.emplace_back(mib / 4, i);  // 4 MiB
  for (const managedPtr<char>& one : all) {  // to be read, so that both places hold what is in memory
    ROWCONST(char, one, data);
    EXPECT_EQ(data[0], &one - all.data());
  }
  swap.waitForCleanExit();
  EXPECT_FALSE(swap.checkForAIO());
  const global_bytesize before = swap.getUsedSwap();
  EXPECT_GT(before, 2 * mib);  // more than what is not in memory
  EXPECT_TRUE(swap.cleanupCachedElements());
  EXPECT_LT(swap.getUsedSwap(), before);
  EXPECT_FALSE(swap.cleanupCachedElements());  // there are none any more
  for (const managedPtr<char>& one : all) {
    ROWCONST(char, one, data);
    EXPECT_EQ(data[0], &one - all.data());
  }
}

volatile sig_atomic_t signals = 0;

TEST(Compat, TheTimerSendsSignals) {
  signal(SIGUSR1, [](int) { signals = signals + 1; });
  EXPECT_FALSE(Timer::isRunning());
  Timer::startTimer(0, 1'000'000);
  EXPECT_TRUE(Timer::isRunning());
  while (signals < 3) pause();
  Timer::stopTimer();
  EXPECT_FALSE(Timer::isRunning());
}

TEST(Compat, TheConfigurationCanBeReadWithoutPuttingItIntoForce) {
  const string path = "/tmp/rambrain-compat-" + to_string(getpid()) + ".conf";
  ofstream(path) << "[default]\nswapMemory = 3 MiB\npolicy = fixed\n";
  configReader reader;
  reader.setCustomConfigPath(path);
  EXPECT_FALSE(reader.readSuccessfully());
  EXPECT_EQ(reader.getConfig().swapMemory.value, 3 * mib);
  EXPECT_EQ(reader.getConfig().policy.value, swapPolicy::fixed);
  EXPECT_TRUE(reader.readSuccessfully());
  EXPECT_NE(rambrainglobals::config.getConfig().swapMemory.value, 3 * mib);
  std::remove(path.c_str());
}

// What Rambrain's test of a deletion in use leaves behind.
TEST(Compat, AManagerWhoseSwapIsGoneDoesNotDisturbTheNextOne) {
  managedMemory* const configured = managedMemory::defaultManager;
  cyclicManagedMemory* orphan;
  {
    managedDummySwap swap(16 * mib);
    orphan = new cyclicManagedMemory(&swap, 4 * mib);
  }
  EXPECT_GT(orphan->getTotalSwapMemory(), 0u);
  {
    managedDummySwap swap(16 * mib);
    cyclicManagedMemory manager(&swap, 2 * mib);
    managedPtr<char> p(mib, 'x');
    ADHERETOLOCCONST(char, p, data);
    EXPECT_EQ(data[5], 'x');
  }
  EXPECT_EQ(managedMemory::defaultManager, orphan);
  managedMemory::defaultManager = configured;  // as that test does, instead of a destruction
  managedPtr<char> p(mib, 'y');
  delete orphan;
  ADHERETOLOCCONST(char, p, data);
  EXPECT_EQ(data[5], 'y');
  EXPECT_EQ(managedMemory::defaultManager, configured);
}

}  // namespace
