// Pins that go while the engine thinks about them. A pin goes by a plain store of its thread, at any moment.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "client/engine/engine.h"
#include "tests/support/fake_tier.h"
#include "tests/support/policies.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;
using Verdict = PinScanner::Verdict;

// Everything is pinned until the engine has asked for so many verdicts.
class PassingPins final : public PinScanner {
 public:
  int until_judged = 0, judged = 0;
  Verdict verdict = Verdict::kDeadlock;
  void Barrier() override {}
  void FindPinned(std::span<Chunk* const>, std::span<bool> pinned) override {
    if (judged < until_judged) std::fill(pinned.begin(), pinned.end(), true);
  }
  void SetWaiting(Chunk*) override {}
  Verdict JudgeWaiters() override {
    ++judged;
    return verdict;
  }
};

// Asks as a server does, for longer than the engine waits for pins.
class SlowTier final : public PlainTier {
 public:
  std::function<void()> after_asking = [] {};
  milliseconds answer_takes{0};
  Capabilities capabilities() const noexcept override { return real_.capabilities(); }
  Result<SlotRef> Reserve(size_t bytes) override {
    std::this_thread::sleep_for(answer_takes);
    after_asking();
    may_take_ = true;
    return real_.Reserve(bytes);
  }
  Result<SlotRef> TryReserve(size_t bytes) override {
    if (!may_take_) return MustAsk("ask");
    return real_.Reserve(bytes);
  }
  void Free(SlotRef slot, size_t bytes) noexcept override { real_.Free(slot, bytes); }
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override { real_.SubmitWrite(batch); }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override { real_.SubmitRead(batch); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override { return real_.Poll(done, wait); }
  TierStats stats() const noexcept override { return real_.stats(); }

 private:
  FakeTier real_{FakeTierOptions{.seed = 5}};
  bool may_take_ = false;
};

class PinsGone : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 256 << 10;
  PinsGone()
      : engine_({.budget = uint64_t{1} << 20, .preemptive = false, .deadlock_grace = milliseconds(20)}, &tier_, &pins_,
                DefaultPolicy()) {
    for (int i = 0; i < 4; ++i) chunks_.push_back(engine_.Create(kBytes).value());
  }
  ~PinsGone() override {
    engine_.Drain();
    for (Chunk* chunk : chunks_) engine_.Free(chunk);
  }
  void FillUp() {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(engine_.Acquire(chunks_[static_cast<size_t>(i)], true).ok());
  }

  SlowTier tier_;
  PassingPins pins_;
  Engine engine_;
  std::vector<Chunk*> chunks_;
};

// A thread unpinned and ended between the scan and the verdict: all that is left wait, and nothing is pinned.
TEST_F(PinsGone, BetweenTheScanAndTheVerdictAreNoDeadlock) {
  FillUp();
  pins_.until_judged = 1;
  const Status status = engine_.Acquire(chunks_[3], true);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(pins_.judged, 1);
}

TEST_F(PinsGone, ADeadlockIsStillFoundAtOnce) {
  FillUp();
  pins_.until_judged = 1000;
  EXPECT_EQ(engine_.Acquire(chunks_[3], true).code(), StatusCode::kFailedPrecondition);
  EXPECT_GE(pins_.judged, 2);
  pins_.until_judged = 0;
}

// A slow server or disk had used up the time that is for pins; the next pin in the way, however short, was an error.
TEST_F(PinsGone, AfterASlowAnswerAreNotWaitedForSinceBeforeIt) {
  FillUp();
  pins_.verdict = Verdict::kUnlikely;
  tier_.answer_takes = milliseconds(50);
  tier_.after_asking = [this] { pins_.until_judged = 1; };
  const Status status = engine_.Acquire(chunks_[3], true);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(pins_.judged, 1);
}

TEST_F(PinsGone, AfterASlowAnswerDoNotStopALowerLimit) {
  FillUp();
  pins_.verdict = Verdict::kUnlikely;
  tier_.answer_takes = milliseconds(50);
  tier_.after_asking = [this] { pins_.until_judged = 1; };
  const Status status = engine_.SetBudget(uint64_t{600} << 10);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(pins_.judged, 1);
}

}  // namespace
}  // namespace ramspan
