// Swap that takes long to write: chunks leave because frames are needed, not because a thread has looked once more.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "client/engine/engine.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr size_t kChunk = 64 << 10, kChunks = 400;
constexpr uint64_t kBudget = 16 * kMiB, kTogether = 16;

// Most looks find that nothing has ended yet, as over a wire.
class SlowTier final : public ForwardingTier {
 public:
  SlowTier() : ForwardingTier(&fake_) {}
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override {
    writing_ += batch.size();
    most_writing_ = std::max(most_writing_, writing_);
    ForwardingTier::SubmitWrite(batch);
  }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override {
    const size_t n = ForwardingTier::Poll(done, wait);
    for (const IoRequest* io : done.first(n)) writing_ -= io->is_write ? 1 : 0;
    return n;
  }
  size_t most_writing() const { return most_writing_; }

 private:
  FakeTier fake_{{.seed = 5, .delay_steps_max = 64, .empty_poll_rate = 0.95}};
  size_t writing_ = 0, most_writing_ = 0;
};

std::vector<Chunk*> Fill(Engine* engine) {
  std::vector<Chunk*> chunks;
  for (size_t i = 0; i < kChunks; ++i) {
    chunks.push_back(engine->Create(kChunk).value());
    EXPECT_TRUE(engine->Acquire(chunks.back(), true).ok());
  }
  return chunks;
}

void Sweep(Engine* engine, const std::vector<Chunk*>& chunks, int mover_steps) {
  for (Chunk* chunk : chunks) {
    for (int step = 0; step < mover_steps; ++step) engine->MoverStep();
    ASSERT_TRUE(engine->Acquire(chunk, true).ok());
  }
}

// A thread that waited for a frame made another batch leave with each look: half of the memory was on its way, and what was to be read came after it.
TEST(SlowWrites, AThreadThatWaitsMakesNoMoreLeaveThanItNeeds) {
  SlowTier tier;
  NoPins pins;
  Engine engine({.budget = kBudget, .preemptive = false}, &tier, &pins, DefaultPolicy());
  const std::vector<Chunk*> chunks = Fill(&engine);
  for (int sweep = 0; sweep < 2; ++sweep) Sweep(&engine, chunks, 0);
  EXPECT_GE(tier.most_writing(), kTogether / 2);
  EXPECT_LE(tier.most_writing(), kTogether + 1);
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// What is being written counts as there already.
TEST(SlowWrites, TheMoverHasNoMoreOnItsWayThanItsReserve) {
  SlowTier tier;
  NoPins pins;
  Engine engine({.budget = kBudget}, &tier, &pins, DefaultPolicy());
  const std::vector<Chunk*> chunks = Fill(&engine);
  for (int sweep = 0; sweep < 2; ++sweep) Sweep(&engine, chunks, 8);
  EXPECT_LE(tier.most_writing(), kTogether + kTogether / 2);
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

}  // namespace
}  // namespace ramspan
