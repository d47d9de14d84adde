// What a limit means to a program written for Rambrain: bytes of its data, to the last one. Sizes below what Ramspan can
// work with are raised, as Rambrain raised them.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "rambrain/cyclicManagedMemory.h"
#include "rambrain/managedDummySwap.h"
#include "rambrain/managedFileSwap.h"
#include "rambrain/managedPtr.h"
#include "rambrain/rambrainconfig.h"
#include "ramspan/runtime.h"
#include "tests/rambrain/row.h"

using namespace rambrain;

namespace {

constexpr const char* kMask = "/tmp/rambrain-limits-%d-%d";

size_t Count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Limits, BelowTheLeastOneAreRaisedAndThatIsSaidOnce) {
  testing::internal::CaptureStderr();
  rambrainglobals::config.resizeMemory(20 * kib);
  EXPECT_EQ(rambrainglobals::config.getConfig().memory.value, mib);
  EXPECT_TRUE(managedMemory::defaultManager->setMemoryLimit(1));
  EXPECT_EQ(managedMemory::defaultManager->getMemoryLimit(), mib);
  {
    managedDummySwap swap(mib);
    cyclicManagedMemory manager(&swap, 800);
    EXPECT_EQ(manager.getMemoryLimit(), mib);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(Count(said, "below 1 MiB"), 1u) << said;
}

TEST(Limits, TwoBlocksOfHalfTheLimitAreUsedAtOnce) {
  managedFileSwap swap(256 * mib, kMask);
  cyclicManagedMemory manager(&swap, 64 * mib);
  managedPtr<double> a(4 * mib, 1.), b(4 * mib, 2.), c(4 * mib, 3.);
  for (int round = 0; round < 2; ++round) {
    ROW(double, a, pa);
    ROW(double, b, pb);
    pa[0] += pb[4 * mib - 1];
  }
  ROWCONST(double, c, pc);
  ROWCONST(double, a, pa);
  EXPECT_EQ(pc[0], 3.);
  EXPECT_EQ(pa[0], 5.);
}

TEST(Limits, AnObjectAsLargeAsTheLimitFits) {
  managedFileSwap swap(64 * mib, kMask);
  cyclicManagedMemory manager(&swap, 4 * mib);
  managedPtr<char> a(4 * mib, 'a'), b(4 * mib, 'b');
  ROWCONST(char, a, pa);
  EXPECT_EQ(pa[4 * mib - 1], 'a');
}

TEST(Limits, MemoryAndSwapHoldWhatTheyAreSetTo) {
  managedFileSwap swap(4 * mib, kMask);
  cyclicManagedMemory manager(&swap, 4 * mib);
  std::vector<managedPtr<char>> all;
  for (char i = 0; i < 8; ++i) all.emplace_back(mib, i);
  EXPECT_EQ(manager.getUsedMemory(), 4 * mib);
  EXPECT_EQ(manager.getSwappedMemory(), 4 * mib);
  EXPECT_THROW(managedPtr<char>(mib, 'x'), memoryException);
  all.erase(all.begin());
  for (size_t i = 0; i < all.size(); ++i) {
    ROWCONST(char, all[i], data);
    EXPECT_EQ(data[mib - 1], static_cast<char>(i + 1));
  }
}

// The matrix transposition of Rambrain's authors: its two halves are all of the limit.
TEST(Limits, AllOfTheLimitIsUsedRowByRow) {
  constexpr unsigned kRows = 1024, kColumns = 4096;  // of 32 KiB
  rambrainglobals::config.resizeMemory(kRows / 4 * kColumns * sizeof(double));
  std::vector<managedPtr<double>> rows;
  for (unsigned i = 0; i < kRows; ++i) rows.emplace_back(kColumns, i);
  for (unsigned begin = 0; begin < kRows; begin += kRows / 4) {
    std::vector<std::unique_ptr<adhereTo<double>>> held;
    for (unsigned i = begin; i < begin + kRows / 4; ++i) {
      held.push_back(std::make_unique<adhereTo<double>>(rows[i]));
      double* row = *held.back();
      ASSERT_EQ(row[kColumns - 1], i);
    }
  }
}

// Objects and tables of Ramspan's are beside the limit, and a program can see how much they are.
TEST(Limits, WhatRamspanTakesForItselfIsBesideTheLimitAndReported) {
  rambrainglobals::config.resizeMemory(4 * mib);
  std::vector<managedPtr<char>> all;
  for (int i = 0; i < 4096; ++i) all.emplace_back(4096, 'x');  // 16 MiB; descriptors of 256 KiB and more
  std::vector<std::unique_ptr<adhereTo<char>>> held;
  for (int i = 0; i < 1024; ++i) {
    held.push_back(std::make_unique<adhereTo<char>>(all[i]));
    char* data = *held.back();
    EXPECT_EQ(data[4095], 'x');
  }
  EXPECT_EQ(managedMemory::defaultManager->getUsedMemory(), 4 * mib);
  const ramspan::Statistics s = ramspan::GetStatistics();
  EXPECT_EQ(s.memory_limit, 4 * mib);
  EXPECT_GE(s.overhead, 256 * kib);
  EXPECT_LE(s.overhead, s.overhead_beside_limit);
}

TEST(Limits, ASwapHasAtLeastAMebibyte) {
  for (const global_bytesize size : {global_bytesize{0}, global_bytesize{1}, 100 * kib, mib}) {
    managedFileSwap swap(size, kMask);
    EXPECT_EQ(swap.getSwapSize(), mib) << size;
    cyclicManagedMemory manager(&swap, mib);
    EXPECT_EQ(manager.getTotalSwapMemory(), mib) << size;
    managedPtr<char> a(mib / 2, 'a'), b(mib / 2, 'b'), c(mib / 2, 'c');
    ROWCONST(char, a, pa);
    EXPECT_EQ(pa[mib / 2 - 1], 'a');
  }
}

TEST(Limits, ASwapIsAWholeNumberOfFiles) {
  EXPECT_EQ(managedFileSwap(32 * mib, kMask).getSwapSize(), 32 * mib);
  EXPECT_EQ(managedFileSwap(mib + 1, kMask).getSwapSize(), 2 * mib);
  EXPECT_EQ(managedFileSwap(10 * mib, kMask, 4 * mib).getSwapSize(), 12 * mib);
  EXPECT_EQ(managedFileSwap(8 * kib, kMask, 4 * kib).getSwapSize(), 8 * kib);
}

}  // namespace
