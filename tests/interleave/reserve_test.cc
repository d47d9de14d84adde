// What another thread may do while the engine has let go of its mutex: a tier is asked for room, or given a batch.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "client/engine/engine.h"
#include "tests/support/fake_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"

namespace ramspan {
namespace {

// Has room only for what was reserved by waiting.
class AskingTier final : public PlainTier {
 public:
  std::function<void()> while_asking;
  std::function<void()> after_submit = [] {}, before_poll = [] {};
  FaultPlan& faults() { return real_.faults(); }
  size_t slots() const { return real_.slots(); }
  bool refuses = false;
  int asked = 0;

  Capabilities capabilities() const noexcept override { return real_.capabilities(); }
  Result<SlotRef> Reserve(size_t bytes) override {
    ++asked;
    while_asking();
    if (refuses) return ResourceExhausted("no room");
    granted_ += RoundUpToGranule(bytes);
    return TryReserve(bytes);
  }
  Result<SlotRef> TryReserve(size_t bytes) override {
    if (granted_ < RoundUpToGranule(bytes)) return MustAsk("ask");
    granted_ -= RoundUpToGranule(bytes);
    return real_.Reserve(bytes);
  }
  void Free(SlotRef slot, size_t bytes) noexcept override {
    granted_ += RoundUpToGranule(bytes);
    real_.Free(slot, bytes);
  }
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override {
    real_.SubmitWrite(batch);
    after_submit();
  }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override { real_.SubmitRead(batch); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override {
    before_poll();
    return real_.Poll(done, wait);
  }
  TierStats stats() const noexcept override { return real_.stats(); }

 private:
  FakeTier real_{FakeTierOptions{.seed = 9}};
  uint64_t granted_ = 0;
};

class ReserveThatWaits : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 64 << 10;
  ReserveThatWaits()
      : engine_({.budget = uint64_t{1} << 20}, &tier_, &pins_,
                DefaultPolicy()) {
    // Each of these takes the engine's mutex, which is not recursive: it would never return.
    tier_.while_asking = [this, inside = false]() mutable {
      if (std::exchange(inside, true)) return;  // a descriptor may have to ask itself
      if (Result<Chunk*> chunk = engine_.Create(4096); chunk.ok()) engine_.Free(chunk.value());
      static_cast<void>(engine_.counters());
      inside = false;
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

// The last owner of pins let go and was gone when it was looked for: that look alone made a deadlock of it.
TEST_F(ReserveThatWaits, AThreadThatUnpinsAndEndsIsNoDeadlock) {
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(Touch('x').ok());
  pins_.all_pinned = true;
  int looks = 0;
  pins_.judge = [&] {
    if (++looks < 100) return PinScanner::Verdict::kUnlikely;
    pins_.all_pinned = false;
    return PinScanner::Verdict::kDeadlock;
  };
  Status status;
  for (int i = 0; i < 12 && status.ok(); ++i) status = Touch('y');
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_GE(looks, 100);
}

// Frames that cannot leave and descriptors that grow: one of the two has to be refused.
TEST_F(ReserveThatWaits, DescriptorsDoNotExceedALimitThatIsFullOfPins) {
  while (engine_.counters().resident_bytes + 2 * kBytes < engine_.budget()->frames_limit()) ASSERT_TRUE(Touch('x').ok());
  pins_.all_pinned = true;
  Status status;
  for (int i = 0; i < 20'000 && status.ok(); ++i) {
    Result<Chunk*> chunk = engine_.Create(4096);
    status = chunk.status();
    if (chunk.ok()) chunks_.push_back(chunk.value());
  }
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.message();
  pins_.all_pinned = false;
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

// The mark that a thread waits for memory stayed when the wait ended with an error of swap: others then judged deadlocks
// although this thread went on and would have unpinned.
TEST_F(ReserveThatWaits, NobodyIsLeftWaitingAfterAnError) {
  Status status;
  for (int i = 0; i < 15 && status.ok(); ++i) status = Touch('x');
  pins_.all_pinned = true;
  tier_.faults().SetRates({.write_fails = 1});
  bool waited = false;
  pins_.judge = [&] {
    waited = pins_.waiting != nullptr;
    pins_.all_pinned = false;
    return PinScanner::Verdict::kSomebodyMayUnpin;
  };
  while (status.ok()) status = Touch('y');
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  EXPECT_TRUE(waited);
  EXPECT_EQ(pins_.waiting, nullptr);
}

// A verdict of a deadlock counts when it lasts: a thread that could go on by now may not have run yet.
TEST_F(ReserveThatWaits, AVerdictThatDoesNotLastIsNoDeadlock) {
  for (int i = 0; i < 13; ++i) ASSERT_TRUE(Touch('x').ok());
  pins_.all_pinned = true;
  int judged = 0;
  pins_.judge = [&] {
    if (++judged == 3) pins_.all_pinned = false;
    return PinScanner::Verdict::kDeadlock;
  };
  Status status;
  while (judged == 0 && status.ok()) status = Touch('y');
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(judged, 3);
}

// While Vacate waits for a chunk, another thread frees it, or evicts it and takes its slot.
TEST_F(ReserveThatWaits, VacateMeetsAChunkThatIsFreedMeanwhile) {
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(Touch(static_cast<unsigned char>(i)).ok());
  engine_.Drain();
  Chunk* victim = nullptr;
  for (Chunk* chunk : chunks_) {
    if (PhaseOf(chunk) == Phase::kSwapped) victim = chunk;
  }
  ASSERT_NE(victim, nullptr);
  tier_.before_poll = [&] {
    if (victim == nullptr || PhaseOf(victim) != Phase::kLoading) return;
    std::erase(chunks_, victim);
    engine_.Free(std::exchange(victim, nullptr));
  };
  EXPECT_TRUE(engine_.Vacate([&](SlotRef slot, size_t) { return victim != nullptr && slot == victim->slot; }).ok());
  EXPECT_EQ(victim, nullptr);
  EXPECT_TRUE(engine_.IsValid());
  EXPECT_EQ(engine_.counters().chunks, chunks_.size());
}

}  // namespace
}  // namespace ramspan
