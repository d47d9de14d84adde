// What was pulled for writing and is as it was is not written to swap again; what is not as it was, or has no such bytes in its slot, is.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "client/engine/engine.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

class Unchanged : public testing::TestWithParam<bool> {
 protected:
  static constexpr uint64_t kBytes = 64 << 10;
  static constexpr int kChunks = 100;

  Unchanged() {
    for (int i = 0; i < kChunks; ++i) chunks_.push_back(engine_.Create(kBytes).value());
    Sweep([](unsigned char* bytes, int i) { std::memset(bytes, i, kBytes); });
  }
  ~Unchanged() override {
    engine_.Drain();
    for (Chunk* chunk : chunks_) engine_.Free(chunk);
  }

  // Pulls each for writing.
  template <typename F>
  void Sweep(const F& use) {
    for (int i = 0; i < kChunks; ++i) {
      Chunk* const chunk = chunks_[static_cast<size_t>(i)];
      ASSERT_TRUE(engine_.Acquire(chunk, true).ok());
      use(static_cast<unsigned char*>(static_cast<void*>(chunk->frame)), i);
      engine_.MoverStep();
    }
  }
  void Read() {
    Sweep([](const unsigned char* bytes, int i) {
      EXPECT_EQ(bytes[0], i);
      EXPECT_EQ(bytes[kBytes - 1], i);
    });
  }
  uint64_t written() const { return tier_.stats().bytes_written; }

  FakeTier tier_{{.seed = 7, .synchronous = true, .checksums = GetParam()}};
  NoPins pins_;
  Engine engine_{{.budget = 2 * kMiB}, &tier_, &pins_, DefaultPolicy()};
  std::vector<Chunk*> chunks_;
};

TEST_P(Unchanged, IsNotWrittenAgain) {
  for (int sweep = 0; sweep < 2; ++sweep) Read();  // each has left once, and a tier that takes checksums itself has been seen to write what was there
  const uint64_t before = written(), skipped = engine_.counters().unchanged_skipped;
  for (int sweep = 0; sweep < 4; ++sweep) Read();
  EXPECT_LE(written() - before, 2 * kMiB) << "only what had never left, because it stayed in memory all the time";
  EXPECT_GT(engine_.counters().unchanged_skipped, skipped + kChunks);
  EXPECT_EQ(engine_.counters().losses, 0u);
}

TEST_P(Unchanged, OneByteIsAChange) {
  for (int sweep = 0; sweep < 4; ++sweep) Read();  // what leaves is looked at from now on
  for (unsigned char value = 1; value < 6; ++value) {
    const uint64_t before = written();
    Sweep([&](unsigned char* bytes, int) { bytes[kBytes / 2] = value; });
    Sweep([&](const unsigned char* bytes, int i) {
      EXPECT_EQ(bytes[kBytes / 2], value);
      EXPECT_EQ(bytes[0], i);
    });
    EXPECT_GE(written(), before + (kChunks - 2 * kMiB / kBytes) * kBytes);
  }
}

// Its bytes are as they were when it had another slot, and the one that it has holds nothing.
TEST_P(Unchanged, IsWrittenToASlotThatHoldsSomethingElse) {
  for (int round = 0; round < 6; ++round) {
    for (int sweep = 0; sweep < 3; ++sweep) Read();
    engine_.FreeResidentSlots(UINT64_MAX);
  }
  Read();
  EXPECT_EQ(engine_.counters().losses, 0u);
  EXPECT_EQ(engine_.counters().rereads, 0u);
}

// Which of them the tier has failed to write is not in its slot.
TEST_P(Unchanged, IsWrittenAfterAWriteThatHasFailed) {
  for (int sweep = 0; sweep < 4; ++sweep) Read();
  for (int round = 0; round < 20; ++round) {
    tier_.faults().NextWrites(Fault::kFails, 3);
    Sweep([&](unsigned char* bytes, int) { bytes[1] = static_cast<unsigned char>(round); });
    Sweep([&](const unsigned char* bytes, int i) {
      EXPECT_EQ(bytes[1], round);
      EXPECT_EQ(bytes[0], i);
    });
  }
  EXPECT_GT(engine_.counters().write_failures, 0u);
}

// A server that dies, or a swap that is given up, just when it holds what need not be written there.
struct LosesMeanwhile final : ForwardingTier {
  using ForwardingTier::ForwardingTier;
  bool armed = false;
  mutable std::set<uint64_t> asked;
  bool IsLost(SlotRef slot, size_t bytes) const noexcept override { return (armed && !asked.insert(slot.bits).second) || ForwardingTier::IsLost(slot, bytes); }
};

TEST(UnchangedAndLost, StaysInMemoryWhereItsSlotIsGoneMeanwhile) {
  constexpr uint64_t kBytes = 64 << 10;
  FakeTier real({.seed = 9, .synchronous = true});
  LosesMeanwhile tier(&real);
  NoPins pins;
  Engine engine({.budget = 2 * kMiB}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 100; ++i) chunks.push_back(engine.Create(kBytes).value());
  const auto sweep = [&](bool fill) {
    for (size_t i = 0; i < chunks.size(); ++i) {
      ASSERT_TRUE(engine.Acquire(chunks[i], true).ok());
      auto* const bytes = static_cast<unsigned char*>(static_cast<void*>(chunks[i]->frame));
      if (fill) std::memset(bytes, static_cast<int>(i), kBytes);
      ASSERT_EQ(bytes[0], i);
    }
  };
  for (int i = 0; i < 4; ++i) sweep(i == 0);
  const uint64_t skipped = engine.counters().unchanged_skipped, failed = engine.counters().write_failures;
  EXPECT_GT(skipped, 0u);
  tier.armed = true;
  sweep(false);
  tier.armed = false;
  EXPECT_GT(engine.counters().write_failures, failed) << "each that would have been skipped";
  EXPECT_EQ(engine.counters().unchanged_skipped, skipped);
  for (int i = 0; i < 2; ++i) sweep(false);
  EXPECT_EQ(engine.counters().losses, 0u);
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

INSTANTIATE_TEST_SUITE_P(Tier, Unchanged, testing::Bool(), [](const auto& one) { return std::string(one.param ? "TakesChecksums" : "TakesNone"); });

}  // namespace
}  // namespace ramspan
