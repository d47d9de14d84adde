// Swaps that the program adds.
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

namespace {

using ramspan::adhereTo;
using ramspan::managedPtr;

constexpr uint64_t kGibibyte = uint64_t{1} << 30;

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

}  // namespace
