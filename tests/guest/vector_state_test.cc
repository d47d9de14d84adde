// No call leaves the upper halves of vector registers in use (common/vector_state.h says what that costs a program).
// With servers: bed_program.cc.
#include "tests/support/vector_registers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/guest/extension_calls.h"
#include "tests/guest/guest.h"

namespace ramspan {
namespace {

const auto kCheck = [](const char* name, auto&& call) { ExpectUpperHalvesClearAfter(name, call); };

TEST(VectorState, NoCallLeavesUpperHalvesInUse) {
  RAMSPAN_NEEDS_TO_SEE_UPPER_HALVES();
  guest::EveryCall(kCheck);
  EXPECT_GT(GetStatistics().misses, 100u);
}

TEST(VectorState, NoTierLeavesUpperHalvesInUse) {
  RAMSPAN_NEEDS_TO_SEE_UPPER_HALVES();
  guest::CallsOnOtherSwaps(kCheck);
}

TEST(VectorState, NoCallOfASecondThreadLeavesUpperHalvesInUse) {
  RAMSPAN_NEEDS_TO_SEE_UPPER_HALVES();
  std::thread([] { guest::CallsOnObjects(kCheck, 20000); }).join();
}

// Between the checksum and the store the library runs on, and a store is the program's code: on the program's threads and
// on the mover.
class WatchingStore : public MapStore {
 public:
  WatchingStore() : MapStore(256 << 20), program_(std::this_thread::get_id()) {}

  bool Write(uint64_t slot, const void* data, size_t bytes) override {
    Look();
    return MapStore::Write(slot, data, bytes);
  }
  bool Read(uint64_t slot, void* data, size_t bytes) override {
    Look();
    return MapStore::Read(slot, data, bytes);
  }

  std::atomic<uint64_t> by_program{0}, by_mover{0}, in_use{0};  // counts; read by a thread that polls for them

 private:
  void Look() {
    if (UpperHalvesInUse()) ++in_use;
    ++(std::this_thread::get_id() == program_ ? by_program : by_mover);
  }
  const std::thread::id program_;
};

TEST(VectorState, TheMoverAndMissesEnterAStoreWithUpperHalvesClear) {
  RAMSPAN_NEEDS_TO_SEE_UPPER_HALVES();
  WatchingStore store;
  const SwapId id = AddSwap(&store);
  UseSwap(id);
  {
    std::vector<managedPtr<double>> data;
    for (int i = 0; i < 200; ++i) data.emplace_back(size_t{8192});
    // Sweeps until the mover has written back and read ahead often; it does, for a sweep is what it is for.
    for (int sweep = 0; sweep < 1000 && (store.by_mover < 100 || store.by_program < 100); ++sweep) {
      for (auto& one : data) {
        ClearUpperHalves();
        adhereTo<double> glue(one);
        double* p = glue;
        p[0] = sweep;
      }
    }
  }
  RemoveSwap(id);
  EXPECT_GE(store.by_mover, 100u);
  EXPECT_GE(store.by_program, 100u);
  EXPECT_EQ(store.in_use, 0u);
}

}  // namespace
}  // namespace ramspan
