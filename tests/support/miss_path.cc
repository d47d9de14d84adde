#include "tests/support/miss_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "client/engine/engine.h"
#include "client/swap/tiered_swap.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {

int AllocationsOnceWarm(std::vector<std::unique_ptr<SwapTier>> tiers, uint64_t* upper_used, const char* policy) {
  TieredSwap swap(std::move(tiers));
  NoPins pins;
  Engine engine({.budget = 2 * kMiB}, &swap, &pins, PolicyNamed(policy));
  std::vector<Chunk*> chunks;
  // Where slots are looked at, all of them are as large: others scatter, and each run of free ones takes a node.
  const auto size_of = [&](int i) -> uint64_t { return upper_used != nullptr ? 60'000 : (i % 3 + 2) * 20'000; };
  for (int i = 0; i < 96; ++i) chunks.push_back(engine.Create(size_of(i)).value());
  int value = 0;  // another one each time: what has not changed is not written
  const auto sweep = [&](bool write) {
    value += write ? 1 : 0;
    for (Chunk* chunk : chunks) {
      ASSERT_TRUE(engine.Acquire(chunk, write).ok());
      if (write) std::memset(chunk->frame, value % 256, chunk->bytes);
      engine.MoverStep();
    }
  };
  const auto rounds = [&](int n) {
    for (int i = 0; i < n; ++i) {
      sweep(true);
      sweep(false);
      engine.Prefetch(chunks[0]);
      engine.Free(std::exchange(chunks[0], engine.Create(size_of(0)).value()));  // so that a new slot is asked for
    }
  };
  rounds(10);
  const auto reads = [&] { return engine.counters().misses + engine.counters().prefetch_issued; };
  const uint64_t evictions_before = engine.counters().evictions, reads_before = reads();
  // Where more is under way at once than ever before, room for that is made once; on a busy machine that may come late. What is allocated for
  // each miss, or now and then, is allocated in each of these looks.
  constexpr int kLooks = 10;
  int least = std::numeric_limits<int>::max();
  for (int look = 0; look < kLooks && least > 0; ++look) {
    {
      const CountedHeap counted;
      rounds(3);
    }
    least = std::min(least, CountedHeap::count());
  }
  EXPECT_GT(engine.counters().evictions, evictions_before + 200);
  EXPECT_GT(reads(), reads_before + 200);
  if (upper_used != nullptr) *upper_used = swap.tier(0).stats().slot_bytes_used;
  for (Chunk* chunk : chunks) engine.Free(chunk);
  engine.Drain();
  return least;
}

int AllocationsOnceWarm(std::unique_ptr<SwapTier> tier) {
  std::vector<std::unique_ptr<SwapTier>> tiers;
  tiers.push_back(std::move(tier));
  return AllocationsOnceWarm(std::move(tiers));
}

}  // namespace ramspan
