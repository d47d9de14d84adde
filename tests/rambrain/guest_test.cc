// As tests/guest, through the interface of include/rambrain.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "rambrain/cyclicManagedMemory.h"
#include "rambrain/managedDummySwap.h"
#include "rambrain/managedFileSwap.h"
#include "rambrain/managedPtr.h"
#include "rambrain/rambrainconfig.h"
#include "rambrain/timer.h"
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
    check("size64", [&] { sum += 0 * static_cast<double>(one->size64()); });
    check("getLocPtr", [&] { sum += 0 * one->getLocPtr()[0]; });
    check("a copy", [&] { managedPtr<double>(*one).prepareUse(); });
    check("idOf", [&] { EXPECT_EQ(managedMemory::idOf(*one), managedMemory::invalid) << "nobody tracks"; });
  }
  check("LISTOFINGREDIENTS", [&] {
    LISTOFINGREDIENTS
    managedPtr<double>& first = *data[0];
    ADHERETOLOCCONST(double, first, values)
    sum += 0 * values[0];
  });
  check("rambrainGlobalCriticalSectionControl", [] {
    rambrainGlobalCriticalSectionControl section(true);
    section.start();
    section.stop();
  });
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

template <class Check>
void CallsThatPrint(Check&& check, cyclicManagedMemory& manager) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  check("printSwapstats", [&] { manager.printSwapstats(); });
  check("printCycle", [&] { manager.printCycle(); });
  check("printMemUsage", [&] { manager.printMemUsage(); });
  check("printTree", [&] { manager.printTree(); });
  check("versionInfo", [] { managedMemory::versionInfo(); });
  check("sigswapstats", [] { managedMemory::sigswapstats(); });
  check("sigStat", [] { managedMemory::sigStat(); });
  check("logSwapstats", [] { managedMemory::logSwapstats("/dev/null", 100'000); });
  check("logSwapstats", [] { managedMemory::logSwapstats(nullptr, 0); });
  const std::string said = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
  EXPECT_NE(said, "");
  if (testing::Test::HasFailure()) puts(said.c_str());  // what failed says it there
}

template <class Check>
void CallsOnASwap(Check&& check, managedSwap& swap) {
  uint64_t sum = 0;
  check("getSwapSize", [&] { sum += swap.getSwapSize(); });
  check("getUsedSwap", [&] { sum += swap.getUsedSwap(); });
  check("getFreeSwap", [&] { sum += swap.getFreeSwap(); });
  check("setSwapPolicy", [&] { swap.setSwapPolicy(swapPolicy::autoextendable); });
  check("extendSwap", [&] { swap.extendSwap(mib); });
  check("extendSwapByPolicy", [&] { swap.extendSwapByPolicy(mib); });
  check("getSwapPolicy", [&] { EXPECT_EQ(swap.getSwapPolicy(), swapPolicy::autoextendable); });
  check("waitForCleanExit", [&] { swap.waitForCleanExit(); });
  check("checkForAIO", [&] { sum += swap.checkForAIO(); });
  check("cleanupCachedElements", [&] { sum += swap.cleanupCachedElements(); });
  check("getMemoryAlignment", [&] { sum += swap.getMemoryAlignment(); });
  EXPECT_GT(sum, 64 * mib);
}

template <class Check>
void CallsOnTheConfiguration(Check&& check) {
  using rambrainglobals::config;
  check("getConfig", [] { EXPECT_GT(config.getConfig().memory.value, 0u); });
  check("resizeMemory", [] { config.resizeMemory(config.getConfig().memory.value); });
  check("resizeSwap", [] { config.resizeSwap(64 * mib); });
  check("reinit", [] { config.reinit(false); });
  check("setCustomConfigPath", [] { config.setCustomConfigPath(""); });
  configReader reader;
  check("readConfig", [&] { reader.readConfig(); });
  check("readSuccessfully", [&] { EXPECT_TRUE(reader.readSuccessfully()); });
  check("setReread", [&] { reader.setReread(); });
  check("startTimer", [] { Timer::startTimer(1000, 0); });
  check("isRunning", [] { EXPECT_TRUE(Timer::isRunning()); });
  check("stopTimer", [] { Timer::stopTimer(); });
  check("destroyForgotten", [] { managedMemory::destroyForgotten(managedMemory::destroyForgotten(true)); });
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
    CallsThatPrint(watch, *manager);
    CallsOnASwap(watch, *swap);
    watch("closeSwap", [&] { manager->closeSwap(); });
    watch("~cyclicManagedMemory", [&] { manager.reset(); });
    watch("close", [&] { swap->close(); });
    watch("~managedSwap", [&] { swap.reset(); });
  }
  watch("setDMA", [] { managedFileSwap(mib, "/tmp/rambrain-guest-%d-%d").setDMA(true); });
  CallsOnTheConfiguration(watch);
}

}  // namespace
