// What another thread may do while the engine has let go of its mutex: a tier is asked for room, or given a batch.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "client/engine/engine.h"
#include "client/policy/cyclic.h"
#include "tests/support/fake_tier.h"

namespace ramspan {
namespace {

class NoPins final : public PinScanner {
 public:
  void Barrier() override {}
  void FindPinned(std::span<Chunk* const>, std::span<bool>) override {}
  void SetWaiting(Chunk*) override {}
  Verdict JudgeWaiters() override { return Verdict::kDeadlock; }
};

// Has room only for what was reserved by waiting.
class AskingTier final : public SwapTier {
 public:
  std::function<void()> while_asking;
  std::function<void()> after_submit = [] {};
  bool refuses = false;
  int asked = 0;

  Capabilities capabilities() const override { return real_.capabilities(); }
  Result<SlotRef> Reserve(size_t bytes) override {
    ++asked;
    while_asking();
    if (refuses) return ResourceExhausted("no room");
    granted_ += RoundUpToGranule(bytes);
    return TryReserve(bytes);
  }
  Result<SlotRef> TryReserve(size_t bytes) override {
    if (granted_ < RoundUpToGranule(bytes)) return Aborted("ask");
    granted_ -= RoundUpToGranule(bytes);
    return real_.Reserve(bytes);
  }
  void Free(SlotRef slot, size_t bytes) override {
    granted_ += RoundUpToGranule(bytes);
    real_.Free(slot, bytes);
  }
  void SubmitWrite(std::span<IoRequest* const> batch) override {
    real_.SubmitWrite(batch);
    after_submit();
  }
  void SubmitRead(std::span<IoRequest* const> batch) override { real_.SubmitRead(batch); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override { return real_.Poll(done, wait); }
  TierStats stats() const override { return real_.stats(); }

 private:
  FakeTier real_{FakeTierOptions{.seed = 9}};
  uint64_t granted_ = 0;
};

class ReserveThatWaits : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 64 << 10;
  ReserveThatWaits()
      : engine_({.budget = uint64_t{1} << 20}, &tier_, &pins_,
                [](const ChunkTable* chunks) { return std::make_unique<CyclicPolicy>(chunks); }) {
    // Each of these takes the engine's mutex, which is not recursive: it would never return.
    tier_.while_asking = [this] {
      Chunk* chunk = engine_.Create(4096).value();
      engine_.Free(chunk);
      static_cast<void>(engine_.counters());
    };
  }
  ~ReserveThatWaits() override {
    for (Chunk* chunk : chunks_) engine_.Free(chunk);
  }
  Status Touch(unsigned char letter) {
    chunks_.push_back(engine_.Create(kBytes).value());
    Status status = engine_.Acquire(chunks_.back(), true);
    if (status.ok()) std::memset(chunks_.back()->frame, letter, kBytes);
    return status;
  }

  AskingTier tier_;
  NoPins pins_;
  Engine engine_;
  std::vector<Chunk*> chunks_;
};

TEST_F(ReserveThatWaits, LeavesTheMutexToOthersAndLosesNothing) {
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(Touch(static_cast<unsigned char>(i)).ok());
  EXPECT_GT(tier_.asked, 10);
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(engine_.Acquire(chunks_[i], false).ok());
    EXPECT_EQ(static_cast<unsigned char*>(chunks_[i]->frame)[kBytes - 1], i);
  }
  EXPECT_TRUE(engine_.IsValid());
}

TEST_F(ReserveThatWaits, SaysWhyThereIsNoRoom) {
  tier_.refuses = true;
  Status status;
  for (int i = 0; i < 40 && status.ok(); ++i) status = Touch('x');
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "no room");
  EXPECT_TRUE(engine_.IsValid());
}

// The mover took the completions of the batch that SetBudget submitted: nothing was freed at once and nothing is in
// flight any more, which was taken for a limit full of pins.
TEST_F(ReserveThatWaits, ALowerLimitHoldsAlsoWhenAnotherThreadFinishesTheWrites) {
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(Touch(static_cast<unsigned char>(i)).ok());
  int batches = 0;
  tier_.after_submit = [&] {
    ++batches;
    engine_.Drain();
  };
  const Status status = engine_.SetBudget(uint64_t{512} << 10);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_GT(batches, 0);
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(engine_.Acquire(chunks_[i], false).ok());
    EXPECT_EQ(static_cast<unsigned char*>(chunks_[i]->frame)[kBytes - 1], i);
  }
  EXPECT_TRUE(engine_.IsValid());
}

}  // namespace
}  // namespace ramspan
