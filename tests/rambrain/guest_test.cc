// As tests/guest, through the interface of include/rambrain.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "rambrain/cyclicManagedMemory.h"
#include "rambrain/managedDummySwap.h"
#include "rambrain/managedFileSwap.h"
#include "rambrain/managedPtr.h"
#include "tests/guest/thread_watch.h"

using namespace rambrain;

namespace {

constexpr unsigned int kDoubles = 1 << 13;  // of an object: 64 KiB
constexpr int kObjects = 400;               // 25 MiB, in 4 MiB of memory

template <class Check>
void CallsOnObjects(Check&& check) {
  std::vector<std::unique_ptr<managedPtr<double>>> data(kObjects);
  for (auto& one : data) check("managedPtr", [&] { one = std::make_unique<managedPtr<double>>(kDoubles, 1.0); });
  double sum = 0;
  for (auto& one : data) {
    std::unique_ptr<adhereTo<double>> glue;
    check("adhereTo", [&] { glue = std::make_unique<adhereTo<double>>(*one); });
    check("pull", [&] { sum += static_cast<double*>(*glue)[5]; });
    check("~adhereTo", [&] { glue.reset(); });
    check("a const pull", [&] {
      const adhereTo<double> reads(*one);
      const double* p = reads;
      sum += p[7];
    });
    check("an element", [&] { sum += (*one)[11]; });
    check("prepareUse", [&] { one->prepareUse(); });
    check("setUse", [&] { one->setUse(); });
    check("unsetUse", [&] { one->unsetUse(); });
  }
  check("managedPtr<T, 2>", [&] {
    managedPtr<double, 2> matrix(64, 64);
    adhereTo<double> glue(matrix[3]);
    double* row = glue;
    row[2] = 1;
    sum += row[2];
  });
  for (auto& one : data) check("~managedPtr", [&] { one.reset(); });
  EXPECT_EQ(sum, 3.0 * kObjects + 1);
}

template <class Check>
void CallsOnTheManager(Check&& check, cyclicManagedMemory& manager) {
  double sum = 0;
  check("setMemoryLimit", [&] { manager.setMemoryLimit(8 * mib); });
  check("setMemoryLimit", [&] { manager.setMemoryLimit(4 * mib); });
  check("getMemoryLimit", [&] { sum += static_cast<double>(manager.getMemoryLimit()); });
  check("getUsedMemory", [&] { sum += static_cast<double>(manager.getUsedMemory()); });
  check("getSwappedMemory", [&] { sum += static_cast<double>(manager.getSwappedMemory()); });
  check("getTotalSwapMemory", [&] { sum += static_cast<double>(manager.getTotalSwapMemory()); });
  check("getFreeSwapMemory", [&] { sum += static_cast<double>(manager.getFreeSwapMemory()); });
  check("getHitsOverMisses", [&] { sum += manager.getHitsOverMisses(); });
  check("getTotalSwappedInBytes", [&] { sum += manager.getTotalSwappedInBytes(); });
  check("getTotalSwappedOutBytes", [&] { sum += manager.getTotalSwappedOutBytes(); });
  check("resetSwapstats", [&] { manager.resetSwapstats(); });
  check("setOutOfSwapIsFatal", [&] { manager.setOutOfSwapIsFatal(false); });
  check("setPreemptiveLoading", [&] { manager.setPreemptiveLoading(true); });
  check("setPreemptiveUnloading", [&] { manager.setPreemptiveUnloading(true); });
  check("checkCycle", [&] { sum += manager.checkCycle(); });
  check("trackHierarchy", [] { managedMemory::trackHierarchy(managedMemory::trackHierarchy(true)); });
  check("getNumberOfChildren", [&] { sum += manager.getNumberOfChildren(managedMemory::root); });
  EXPECT_GT(sum, 0);
}

TEST(Guest, NoCallOfRambrainsChangesTheThreadAroundIt) {
  guest::ThreadWatch watch;
  for (const bool file : {false, true}) {
    std::unique_ptr<managedSwap> swap;
    std::unique_ptr<cyclicManagedMemory> manager;
    watch(file ? "managedFileSwap" : "managedDummySwap", [&] {
      if (file) swap = std::make_unique<managedFileSwap>(64 * mib, "/tmp/rambrain-guest-%d-%d");
      if (!file) swap = std::make_unique<managedDummySwap>(64 * mib);
    });
    watch("cyclicManagedMemory", [&] { manager = std::make_unique<cyclicManagedMemory>(swap.get(), 4 * mib); });
    CallsOnObjects(watch);
    CallsOnTheManager(watch, *manager);
    watch("getUsedSwap", [&] { EXPECT_LE(swap->getUsedSwap(), 64 * mib); });
    watch("closeSwap", [&] { manager->closeSwap(); });
    watch("~cyclicManagedMemory", [&] { manager.reset(); });
    watch("~managedSwap", [&] { swap.reset(); });
  }
}

}  // namespace
