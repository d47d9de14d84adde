// What a policy remembers of chunks takes memory that is free, and makes way before anybody is refused for it. Once it had grown it stayed: limits in
// which programs had run had no room for their descriptors, or for the tables of their swap.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "client/engine/engine.h"
#include "tests/support/fake_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// Whose tables take memory with each slot, as those of slots in pieces do.
class TierWithTables final : public FakeTier {
 public:
  TierWithTables() : FakeTier({.capacity_bytes = uint64_t{1} << 40, .synchronous = true}) {}
  TierStats stats() const noexcept override {
    TierStats stats = FakeTier::stats();
    stats.metadata_bytes = metadata_bytes();
    return stats;
  }
  uint64_t metadata_bytes() const noexcept override { return FakeTier::stats().slot_bytes_used / (64 * kKiB) * 128; }
};

struct Bed {
  TierWithTables tier;
  NoPins pins;
  Engine engine{{.budget = 64 * kMiB}, &tier, &pins, DefaultPolicy()};
  std::vector<Chunk*> chunks;
  ~Bed() {
    for (Chunk* chunk : chunks) engine.Free(chunk);
    engine.Drain();
  }
  Status Make(uint64_t bytes) {
    Result<Chunk*> chunk = engine.Create(bytes);
    if (!chunk.ok()) return chunk.status();
    chunks.push_back(chunk.value());
    return Status();
  }
};

TEST(PolicyMakesWay, ForDescriptorsBesideALargeObject) {
  Bed bed;
  ASSERT_TRUE(bed.Make(60 * kMiB).ok());
  Status status;
  while (status.ok()) status = bed.Make(16);
  EXPECT_GT(bed.chunks.size(), 42'000u) << "28'671 where it did not; " << status.ToString();
}

// As pages come, too: they do not wait for pins in the engine.
class PolicyMakesWayFor : public testing::TestWithParam<Engine::WhenPinned> {};

TEST_P(PolicyMakesWayFor, TheTablesOfSwapBesideALargeObject) {
  for (uint64_t large = 62'592 * kKiB; large <= 63'104 * kKiB; large += 128 * kKiB) {
    SCOPED_TRACE(large);
    Bed bed;
    bed.engine.SetWaitForPins(false);
    ASSERT_TRUE(bed.Make(large).ok());
    for (int i = 0; i < 6000; ++i) ASSERT_TRUE(bed.Make(64 * kKiB).ok()) << i;
    for (Chunk* chunk : bed.chunks) {
      Status status = bed.engine.Acquire(chunk, true, GetParam());
      for (int i = 0; i < 100 && status.code() == StatusCode::kAborted; ++i) status = bed.engine.Acquire(chunk, true, GetParam());
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    EXPECT_TRUE(bed.engine.Acquire(bed.chunks[0], true).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Waiting, PolicyMakesWayFor, testing::Values(Engine::WhenPinned::kWait));
INSTANTIATE_TEST_SUITE_P(Returning, PolicyMakesWayFor, testing::Values(Engine::WhenPinned::kReturn));

// A large object that comes when the policy has grown: by 1 MiB more than the usual 0.25.
TEST(PolicyMakesWay, ForAnObjectThatTakesNearlyAllOfTheLimit) {
  Bed bed;
  for (int i = 0; i < 6000; ++i) ASSERT_TRUE(bed.Make(16).ok());
  const uint64_t grown = bed.engine.counters().metadata_bytes;
  const Status status = bed.Make(64 * kMiB - grown + 256 * kKiB);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_LT(bed.engine.counters().metadata_bytes, grown);
}

}  // namespace
}  // namespace ramspan
