// Data that found the faster swap full: it moves up by and by when there is room, whether it is only read since or changed.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/engine/engine.h"
#include "client/swap/tiered_swap.h"
#include "tests/support/fake_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr uint64_t kMovedChunk = 64 << 10, kMovedChunks = 64;

class MovesUp : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Sweeps, MovesUp, testing::Bool(), [](const auto& info) { return std::string(info.param ? "Change" : "OnlyRead"); });

TEST_P(MovesUp, ASweepTakesAQuarterUpAtMost) {
  const bool change = GetParam();
  std::vector<std::unique_ptr<SwapTier>> tiers;
  for (const uint64_t seed : {1, 2}) tiers.push_back(std::make_unique<FakeTier>(FakeTierOptions{.seed = seed, .capacity_bytes = 8 * kMiB, .synchronous = true}));
  auto* const upper = static_cast<FakeTier*>(tiers[0].get());
  auto* const lower = static_cast<FakeTier*>(tiers[1].get());
  TieredSwap swap(std::move(tiers), std::chrono::milliseconds(0));
  NoPins pins;
  Engine engine({.budget = 2 * kMiB, .preemptive = false}, &swap, &pins, DefaultPolicy());
  const SlotRef others = upper->Reserve(8 * kMiB).value();
  std::vector<Chunk*> chunks;
  for (uint64_t i = 0; i < kMovedChunks; ++i) {
    chunks.push_back(engine.Create(kMovedChunk).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
    std::memset(chunks.back()->frame, static_cast<int>(i), kMovedChunk);
  }
  unsigned char sweeps = kMovedChunks;  // so that no change writes what was there
  const auto sweep_all = [&] {
    for (uint64_t i = 0; i < kMovedChunks; ++i) {
      ASSERT_TRUE(engine.Acquire(chunks[i], change).ok());
      auto* const data = static_cast<unsigned char*>(chunks[i]->frame);
      ASSERT_EQ(data[kMovedChunk - 1], i);
      ASSERT_TRUE(!change || sweeps == kMovedChunks || data[0] == sweeps);
      if (change) data[0] = static_cast<unsigned char>(sweeps + 1);
      swap.Upkeep();  // as the mover does
    }
    ++sweeps;
  };
  sweep_all();
  sweep_all();
  EXPECT_EQ(upper->slots(), 1u) << "the others'";
  upper->Free(others, 8 * kMiB);
  sweep_all();
  EXPECT_GT(upper->slots(), 0u);
  EXPECT_LE(upper->slots(), kMovedChunks / 4 + 1);
  for (int sweep = 0; sweep < 40 && lower->slots() > 0; ++sweep) sweep_all();
  EXPECT_LT(lower->slots(), kMovedChunks / 2) << "what stays in memory has no need to";
  EXPECT_EQ(engine.counters().unchanged_writes, 0u) << "nobody forgot a const";
  EXPECT_TRUE(engine.IsValid());
  for (Chunk* chunk : chunks) engine.Free(chunk);
  engine.Drain();
  EXPECT_EQ(upper->slots() + lower->slots(), 0u);
}

}  // namespace
}  // namespace ramspan
