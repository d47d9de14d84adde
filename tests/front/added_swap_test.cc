// Swaps that the program adds: how many there may be, what is said of their room, and what of small objects that are gone does not need any.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ramspan/errors.h"
#include "ramspan/extend.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/runtime.h"
#include "tests/support/empty_bundles.h"

namespace {

using ramspan::adhereTo;
using ramspan::managedPtr;

constexpr uint64_t kGibibyte = uint64_t{1} << 30;
constexpr int kAtATime = 12;  // as <ramspan/extend.h> promises

class HeapStore final : public ramspan::SwapStore {
 public:
  uint64_t Capacity() const override { return kGibibyte; }
  bool Write(uint64_t slot, const void* data, size_t bytes) override {
    const std::lock_guard lock(mutex_);
    slots_[slot].assign(static_cast<const char*>(data), bytes);
    return true;
  }
  bool Read(uint64_t slot, void* data, size_t bytes) override {
    const std::lock_guard lock(mutex_);
    std::memcpy(data, slots_.at(slot).data(), bytes);
    return true;
  }
  void Erase(uint64_t slot, size_t) noexcept override {
    const std::lock_guard lock(mutex_);
    slots_.erase(slot);
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::string> slots_;
};

// The sum wrapped where one of its parts says that it has no limit.
TEST(AddedSwap, BesideFilesWithoutALimitHasRoomWithoutALimit) {
  const uint64_t before = ramspan::SwapLimit();
  ramspan::SetSwapLimit(std::numeric_limits<uint64_t>::max());
  const uint64_t unlimited = ramspan::SwapLimit();
  HeapStore store;
  const ramspan::SwapId id = ramspan::AddSwap(&store);
  EXPECT_GE(ramspan::GetStatistics().swap_capacity, unlimited);
  ramspan::RemoveSwap(id);
  ramspan::SetSwapLimit(before);
}

// Each that was abandoned had its place for ever.
TEST(AddedSwap, ThatWasAbandonedLeavesItsPlaceToAnother) {
  std::vector<managedPtr<int>> lost;
  // More than there is memory for, so that some are in the store alone when it goes. What is in memory stays as it is.
  for (int round = 0; round < 2 * kAtATime; ++round) {
    auto store = std::make_unique<HeapStore>();
    const ramspan::SwapId id = ramspan::AddSwap(store.get());
    ramspan::UseSwap(id);
    lost.clear();
    for (int i = 0; i < 120; ++i) {
      lost.emplace_back(size_t{1} << 16);
      ADHERETOLOC(int, lost.back(), p);
      p[0] = i;
    }
    ramspan::AbandonSwap(id);
  }
  // Other swaps have the places of those in which `lost` was: its objects are neither read from there, nor given back to them.
  std::vector<std::unique_ptr<HeapStore>> stores;
  std::vector<ramspan::SwapId> ids;
  for (int i = 0; i < kAtATime; ++i) {
    stores.push_back(std::make_unique<HeapStore>());
    ids.push_back(ramspan::AddSwap(stores.back().get()));
  }
  ramspan::UseSwap(ids.back());
  std::vector<managedPtr<int>> kept;
  for (int i = 0; i < 120; ++i) kept.emplace_back(size_t{1} << 16, i);
  int gone = 0;
  for (int i = 0; i < 120; ++i) {
    bool is_gone = false;
    try {
      const adhereTo<int> glue(lost[static_cast<size_t>(i)]);
      EXPECT_EQ(static_cast<const int*>(glue)[0], i);
    } catch (const ramspan::DataLost&) {
      is_gone = true;
    }
    gone += is_gone;
  }
  EXPECT_GT(gone, 10);
  EXPECT_LT(gone, 120);
  lost.clear();
  for (int i = 0; i < 120; ++i) {
    const adhereTo<int> glue(kept[static_cast<size_t>(i)]);
    EXPECT_EQ(static_cast<const int*>(glue)[100], i);
  }
  for (const ramspan::SwapId id : ids) ramspan::RemoveSwap(id);
}

// Those that the old limit had let be were data under the new one: a program without an object could not lower it.
TEST(AddedSwap, BundlesWithoutAnObjectAreInNobodysWayWhenALimitIsLowered) {
  const uint64_t limit = ramspan::MemoryLimit();
  ramspan::SetMemoryLimit(64 << 20);
  ramspan::CloseSwap();
  ramspan::LeaveEmptyBundles();
  EXPECT_GT(ramspan::GetStatistics().data, 1u << 20) << "then this test shows nothing";
  EXPECT_NO_THROW(ramspan::SetMemoryLimit(2 << 20));
  EXPECT_LT(ramspan::GetStatistics().data, 1u << 20);
  ramspan::UseSwap(ramspan::SwapId::kConfigured);
  ramspan::SetMemoryLimit(limit);
}

// They came home with the objects, and the log said of each that it was lost.
TEST(AddedSwap, BundlesWithoutAnObjectDoNotComeHomeAndAreNotLost) {
  HeapStore store;
  ramspan::SetPreemptive(false, false);  // nothing is read but by a pull, or because it comes home
  for (const bool abandons : {false, true}) {
    const ramspan::SwapId id = ramspan::AddSwap(&store);
    ramspan::UseSwap(id);
    ramspan::LeaveEmptyBundles();
    {
      managedPtr<char> first(ramspan::MemoryLimit() / 2 - (400 << 10), 'a'), second(ramspan::MemoryLimit() / 2 - (400 << 10), 'b');
      const adhereTo<char> one(first), other(second);  // nothing else fits beside them
    }
    EXPECT_GT(ramspan::GetStatistics().swapped, 0u) << "then this test shows nothing";
    const uint64_t misses = ramspan::GetStatistics().misses, in = ramspan::GetStatistics().bytes_in;
    testing::internal::CaptureStderr();
    abandons ? ramspan::AbandonSwap(id) : ramspan::RemoveSwap(id);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(ramspan::GetStatistics().misses, misses);
    EXPECT_EQ(ramspan::GetStatistics().bytes_in, in);
    EXPECT_EQ(ramspan::GetStatistics().data, 0u);
  }
  ramspan::SetPreemptive(true, true);
}

}  // namespace
