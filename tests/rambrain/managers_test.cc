// Managers and swaps on the program's stack, limits, statistics, swap policies.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "rambrain/cyclicManagedMemory.h"
#include "rambrain/dummyManagedMemory.h"
#include "rambrain/managedDummySwap.h"
#include "rambrain/managedFileSwap.h"
#include "rambrain/managedPtr.h"
#include "rambrain/rambrainconfig.h"
#include "tests/rambrain/field.h"

using namespace rambrain;

namespace {

constexpr global_bytesize kChunk = kDoubles * sizeof(double);

// With memory and swap full to the brim, nothing can change places: somebody must go, or swap must grow.
void MakeRoom(std::vector<managedPtr<double>>* field) { field->resize(field->size() - 4, managedPtr<double>(0)); }

cyclicManagedMemory* Default() { return static_cast<cyclicManagedMemory*>(managedMemory::defaultManager); }

TEST(Managers, TheConfiguredOneIsThereFromTheStart) {
  ASSERT_NE(managedMemory::defaultManager, nullptr);
  EXPECT_EQ(managedMemory::defaultManager->getMemoryLimit(), 16 * mib);
  EXPECT_NE(dynamic_cast<cyclicManagedMemory*>(managedMemory::defaultManager), nullptr);
}

TEST(Managers, OnTheStackLastInFirstOut) {
  managedMemory* const configured = managedMemory::defaultManager;
  auto before = Field(8);
  {
    managedDummySwap swap(64 * mib);
    cyclicManagedMemory manager(&swap, 4 * mib);
    EXPECT_EQ(managedMemory::defaultManager, &manager);
    EXPECT_EQ(manager.getMemoryLimit(), 4 * mib);
    EXPECT_EQ(manager.getTotalSwapMemory(), 64 * mib);
    auto field = Field(40);  // 10 MiB
    EXPECT_GE(manager.getSwappedMemory(), 5 * mib);
    EXPECT_GE(swap.getUsedSwap(), 5 * mib);
    EXPECT_LE(manager.getUsedMemory(), 4 * mib);
    EXPECT_EQ(manager.getFreeSwapMemory() + swap.getUsedSwap(), 64 * mib);
    {
      managedFileSwap inner_swap(32 * mib, "/tmp/rambrain-inner-%d-%d");
      cyclicManagedMemory inner(&inner_swap, 8 * mib);
      EXPECT_EQ(managedMemory::defaultManager, &inner);
      EXPECT_EQ(configured->getMemoryLimit(), 16 * mib);
      auto more = Field(60);
      EXPECT_GT(inner_swap.getUsedSwap(), 0u);
      Expect(more);
      Expect(field);
    }
    EXPECT_EQ(managedMemory::defaultManager, &manager);
    EXPECT_EQ(manager.getMemoryLimit(), 4 * mib);
    Expect(field);
    Expect(before);
  }
  EXPECT_EQ(managedMemory::defaultManager, configured);
  EXPECT_EQ(configured->getMemoryLimit(), 16 * mib);
  Expect(before);
}

TEST(Managers, ObjectsOutliveTheirManagerAndItsSwap) {
  std::vector<managedPtr<double>> field;
  {
    managedDummySwap swap(64 * mib);
    cyclicManagedMemory manager(&swap, 4 * mib);
    field = Field(100);  // 25 MiB: also more than the manager before may hold in memory
  }
  Expect(field);
}

TEST(Managers, ManyInARow) {
  auto field = Field(20);
  for (int i = 0; i < 40; ++i) {
    managedDummySwap swap(64 * mib);
    cyclicManagedMemory manager(&swap, 2 * mib);
    Expect(field);
  }
  Expect(field);
}

TEST(Managers, ANullSwapIsRefused) {
  EXPECT_THROW(cyclicManagedMemory manager(nullptr, 4 * mib), incompleteSetupException);
  EXPECT_THROW(managedFileSwap swap(mib, ""), incompleteSetupException);
  managedFileSwap nowhere(8 * mib, "/nonexistent/folder/x-%d-%d");
  managedMemory* const before = managedMemory::defaultManager;
  EXPECT_THROW(cyclicManagedMemory manager(&nowhere, 4 * mib), incompleteSetupException);
  EXPECT_EQ(managedMemory::defaultManager, before);
  EXPECT_EQ(before->getMemoryLimit(), 16 * mib);
}

// Rambrain's tests use limits of a few hundred bytes.
TEST(Managers, ATinyLimitMeansTheLeastOne) {
  managedDummySwap swap(64 * mib);
  cyclicManagedMemory manager(&swap, 800);
  EXPECT_EQ(manager.getMemoryLimit(), mib);
  auto field = Field(10);
  Expect(field);
}

TEST(Managers, ADummyRefusesNewObjectsAndLeavesTheOldOnes) {
  auto field = Field(4);
  {
    dummyManagedMemory dummy;
    EXPECT_EQ(managedMemory::defaultManager, &dummy);
    EXPECT_THROW(managedPtr<double>(1), memoryException);
    Expect(field);
    {
      managedDummySwap swap(64 * mib);
      cyclicManagedMemory manager(&swap, 4 * mib);
      auto more = Field(2);
    }
    EXPECT_THROW(managedPtr<double>(1), memoryException);
  }
  managedPtr<double> again(1);
}

TEST(Limits, MoveUpAndDownAtRunTimeAndKeepAllObjects) {
  auto field = Field(56);  // 14 MiB
  managedMemory& m = *managedMemory::defaultManager;
  EXPECT_TRUE(m.setMemoryLimit(4 * mib));
  EXPECT_EQ(m.getMemoryLimit(), 4 * mib);
  EXPECT_LE(m.getUsedMemory(), 4 * mib);
  Expect(field);
  EXPECT_TRUE(m.setMemoryLimit(32 * mib));
  Expect(field);
  m.resetSwapstats();
  Expect(field);
  EXPECT_EQ(m.getTotalSwappedInBytes(), 0.0);
  {
    std::vector<adhereTo<double>> glues(field.begin(), field.begin() + 20);
    for (auto& glue : glues) static_cast<void>(static_cast<double*>(glue));
    EXPECT_FALSE(m.setMemoryLimit(2 * mib));
    EXPECT_EQ(m.getMemoryLimit(), 32 * mib);
  }
  rambrainglobals::config.resizeMemory(16 * mib);
  EXPECT_EQ(m.getMemoryLimit(), 16 * mib);
  Expect(field);
}

// Rambrain's resizeSwap dropped all objects.
TEST(Limits, ResizeSwapKeepsAllObjects) {
  auto field = Field(100);
  Expect(field);
  const global_bytesize old = managedMemory::defaultManager->getTotalSwapMemory();
  rambrainglobals::config.resizeSwap(64 * mib);
  EXPECT_EQ(managedMemory::defaultManager->getTotalSwapMemory(), 64 * mib);
  Expect(field);
  EXPECT_THROW(rambrainglobals::config.resizeSwap(mib), memoryException);
  Expect(field);
  rambrainglobals::config.resizeSwap(old);
  EXPECT_EQ(managedMemory::defaultManager->getTotalSwapMemory(), old);
}

TEST(Statistics, CountHitsMissesAndBytes) {
  managedDummySwap swap(64 * mib);
  cyclicManagedMemory manager(&swap, 4 * mib);
  manager.setPreemptiveLoading(false);
  manager.setPreemptiveUnloading(false);
  auto field = Field(40);
  manager.resetSwapstats();
  EXPECT_EQ(manager.getTotalSwappedInBytes(), 0.0);
  Expect(field);
  const double in = manager.getTotalSwappedInBytes();
  EXPECT_GE(in, 20.0 * kChunk);
  EXPECT_LE(in, 40.0 * kChunk);
  EXPECT_LE(manager.getHitsOverMisses(), 1.0);
  for (int i = 0; i < 1000; ++i) {
    ROWCONST(double, field[39], data);
    ASSERT_EQ(data[0], 39);
  }
  EXPECT_GE(manager.getHitsOverMisses(), 20.0);
  testing::internal::CaptureStderr();
  manager.printSwapstats();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("hits over misses"), std::string::npos) << text;
}

// Counts of swaps that are gone stay in the sums.
TEST(Statistics, NeverFallWhenSwapsComeAndGo) {
  ramspan::Statistics before = ramspan::GetStatistics();
  for (int i = 0; i < 20; ++i) {
    managedDummySwap swap(64 * mib);
    cyclicManagedMemory manager(&swap, 2 * mib);
    auto field = Field(20);
    Expect(field);
    const ramspan::Statistics now = ramspan::GetStatistics();
    EXPECT_GT(now.bytes_out, before.bytes_out);
    EXPECT_GT(now.bytes_in, before.bytes_in);
    EXPECT_LT(manager.getTotalSwappedOutBytes(), 64.0 * mib);
    before = now;
  }
}

TEST(Cyclic, PreemptiveSwitchesReturnWhatWas) {
  cyclicManagedMemory* m = Default();
  EXPECT_TRUE(m->setPreemptiveLoading(false));
  EXPECT_FALSE(m->setPreemptiveLoading(true));
  EXPECT_TRUE(m->setPreemptiveUnloading(false));
  EXPECT_FALSE(m->setPreemptiveUnloading(true));
}

TEST(Cyclic, NoReadAheadWhenItIsOff) {
  auto field = Field(100);
  cyclicManagedMemory* m = Default();
  m->setPreemptiveLoading(false);
  Expect(field);
  const auto before = ramspan::GetStatistics();
  Expect(field);
  const auto after = ramspan::GetStatistics();
  EXPECT_EQ(after.reads - before.reads, after.misses - before.misses);
  m->setPreemptiveLoading(true);
}

TEST(Cyclic, PrintsAndChecksItsCycle) {
  const auto print = [] {
    testing::internal::CaptureStdout();
    Default()->printCycle();
    return testing::internal::GetCapturedStdout();
  };
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  const auto one = Field(1);              // an empty cycle is a line, too
  const auto of_others = lines(print());  // also bundles that the tests before have left
  auto field = Field(100);
  Expect(field);
  EXPECT_TRUE(Default()->checkCycle());
  const std::string cycle = print();
  EXPECT_EQ(lines(cycle) - of_others, 100);
  EXPECT_NE(cycle.find("<- active"), std::string::npos);
  EXPECT_NE(cycle.find("swapped"), std::string::npos);
  testing::internal::CaptureStderr();
  Default()->printMemUsage();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("="), std::string::npos);
}

TEST(Policies, FixedFailsClearlyAndLosesNothing) {
  managedDummySwap swap(4 * mib);
  cyclicManagedMemory manager(&swap, 4 * mib);
  EXPECT_EQ(swap.getSwapPolicy(), swapPolicy::fixed);
  std::vector<managedPtr<double>> field;
  std::string message;
  try {
    for (int i = 0; i < 100; ++i) field.emplace_back(kDoubles, i);
  } catch (const memoryException& e) {
    message = e.what();
  }
  EXPECT_NE(message.find("full"), std::string::npos) << message;
  EXPECT_GE(field.size(), 20u);
  EXPECT_LT(field.size(), 40u);
  EXPECT_TRUE(swap.extendSwap(64 * mib));  // during the run
  EXPECT_EQ(swap.getSwapSize(), 68 * mib);
  for (int i = static_cast<int>(field.size()); i < 100; ++i) field.emplace_back(kDoubles, i);
  Expect(field);
}

TEST(Policies, FixedFilesFailToo) {
  managedFileSwap swap(4 * mib, "/tmp/rambrain-fixed-%d-%d");
  cyclicManagedMemory manager(&swap, 4 * mib);
  std::vector<managedPtr<double>> field;
  EXPECT_THROW(for (int i = 0; i < 100; ++i) field.emplace_back(kDoubles, i), memoryException);
  EXPECT_TRUE(swap.extendSwap(64 * mib));
  for (int i = static_cast<int>(field.size()); i < 100; ++i) field.emplace_back(kDoubles, i);
  Expect(field);
}

// The sum wrapped: the swap became smaller, and true was returned.
TEST(Policies, AnExtensionBeyondAllNumbersIsRefused) {
  managedFileSwap swap(64 * mib, "/tmp/rambrain-wraps-%d-%d");
  cyclicManagedMemory manager(&swap, 4 * mib);
  EXPECT_FALSE(swap.extendSwap(~global_bytesize{0} - 16 * mib + 1));
  EXPECT_EQ(swap.getSwapSize(), 64 * mib);
}

TEST(Policies, AutoextendableExtendsFilesAndOthersDuringTheRun) {
  {
    managedFileSwap swap(4 * mib, "/tmp/rambrain-auto-%d-%d");
    cyclicManagedMemory manager(&swap, 4 * mib);
    EXPECT_EQ(swap.setSwapPolicy(swapPolicy::autoextendable), swapPolicy::fixed);
    auto field = Field(100);
    Expect(field);
    EXPECT_GT(swap.getSwapSize(), 16 * mib);
  }
  managedDummySwap swap(4 * mib);
  cyclicManagedMemory manager(&swap, 4 * mib);
  swap.setSwapPolicy(swapPolicy::autoextendable);
  auto field = Field(100);
  Expect(field);
  EXPECT_GT(swap.getSwapSize(), 16 * mib);
}

TEST(Policies, InteractiveWithoutATerminalFailsClearly) {
  std::FILE* null = std::freopen("/dev/null", "r", stdin);
  ASSERT_NE(null, nullptr);
  {
    managedFileSwap swap(4 * mib, "/tmp/rambrain-ask-%d-%d");
    swap.setSwapPolicy(swapPolicy::interactive);
    cyclicManagedMemory manager(&swap, 4 * mib);
    std::vector<managedPtr<double>> field;
    EXPECT_THROW(for (int i = 0; i < 100; ++i) field.emplace_back(kDoubles, i), memoryException);
    MakeRoom(&field);
    Expect(field);
  }
  managedDummySwap swap(4 * mib);
  swap.setSwapPolicy(swapPolicy::interactive);
  cyclicManagedMemory manager(&swap, 4 * mib);
  std::vector<managedPtr<double>> field;
  EXPECT_THROW(for (int i = 0; i < 100; ++i) field.emplace_back(kDoubles, i), memoryException);
  MakeRoom(&field);
  Expect(field);
}

TEST(CloseSwap, BringsAllHomeOrChangesNothing) {
  managedDummySwap swap(64 * mib);
  cyclicManagedMemory manager(&swap, 4 * mib);
  auto field = Field(40);
  EXPECT_THROW(manager.closeSwap(), memoryException);
  Expect(field);
  ASSERT_TRUE(manager.setMemoryLimit(16 * mib));
  manager.closeSwap();
  EXPECT_EQ(swap.getUsedSwap(), 0u);
  EXPECT_EQ(manager.getSwappedMemory(), 0u);
  Expect(field);
  std::vector<managedPtr<double>> more;
  EXPECT_THROW(for (int i = 0; i < 100; ++i) more.emplace_back(kDoubles, i), memoryException);
  Expect(field);
  Expect(more);
}

TEST(CloseSwap, AClosedSwapTakesNoMore) {
  for (bool files : {false, true}) {
    managedDummySwap dummy(64 * mib);
    managedFileSwap file(64 * mib, "/tmp/rambrain-close-%d-%d");
    managedSwap& swap = files ? static_cast<managedSwap&>(file) : dummy;
    cyclicManagedMemory manager(&swap, 4 * mib);
    auto field = Field(40);
    swap.close();
    std::vector<managedPtr<double>> more;
    EXPECT_THROW(for (int i = 0; i < 100; ++i) more.emplace_back(kDoubles, i), memoryException);
    EXPECT_LE(more.size(), 16u);
    EXPECT_TRUE(manager.setMemoryLimit(32 * mib));  // with memory and swap full, nothing could change places
    Expect(field);
    Expect(more);
  }
}

TEST(Files, DmaWorksAndIsSetBeforeTheManager) {
  managedFileSwap swap(64 * mib, "/tmp/rambrain-dma-%d-%d", 0, true);
  swap.setDMA(true);
  cyclicManagedMemory manager(&swap, 4 * mib);
  EXPECT_THROW(swap.setDMA(false), incompleteSetupException);
  auto field = Field(60);
  Expect(field);
}

}  // namespace
