#include "client/front/pin_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

namespace ramspan {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kBytes = 4 << 20;
constexpr auto kLong = 2 * PinGate::kPatience;

bool ComesTo(bool shut, PinGate* gate, const void* who) {
  const auto end = Clock::now() + std::chrono::seconds(10);
  while (gate->IsShut() != shut && Clock::now() < end) gate->Look(who, kLong, kBytes);
  return gate->IsShut() == shut;
}

TEST(PinGate, IsShutForOneThatHasWaitedAndOpenWhenItsWaitEnds) {
  PinGate gate;
  const int me = 0;
  gate.Look(&me, PinGate::kPatience / 2, kBytes);
  EXPECT_FALSE(gate.IsShut());
  gate.Look(&me, kLong, kBytes);
  EXPECT_TRUE(gate.IsShut());
  gate.End(&me);
  EXPECT_FALSE(gate.IsShut());
}

TEST(PinGate, ServesOneWaitAtATime) {
  PinGate gate;
  const int me = 0, other = 0;
  gate.Look(&me, kLong, kBytes);
  gate.End(&other);
  EXPECT_TRUE(gate.IsShut());
  EXPECT_TRUE(ComesTo(false, &gate, &me));
  for (int i = 0; i < 100; ++i) gate.Look(&other, kLong, kBytes);
  EXPECT_FALSE(gate.IsShut()) << "the rest of those that were held up is over too soon";
  gate.End(&me);
  gate.Look(&other, kLong, kBytes);
  EXPECT_TRUE(gate.IsShut());
}

// It may not be shut for more than a fifth of any time, and for longer the longer it was in vain.
TEST(PinGate, IsOpenForFourTimesAsLongAsItWasShut) {
  PinGate gate;
  const int me = 0;
  // Each from the last look at which it had not begun: a look that came late, on a busy machine, would make it shorter than it was.
  auto begun = Clock::now();
  const auto lasted = [&](bool shut) {
    const auto from = begun;
    for (const auto end = Clock::now() + std::chrono::seconds(20); gate.IsShut() == shut && Clock::now() < end;) {
      begun = Clock::now();
      gate.Look(&me, kLong, kBytes);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    EXPECT_NE(gate.IsShut(), shut);
    return Clock::now() - from;
  };
  ASSERT_TRUE(ComesTo(true, &gate, &me));
  begun = Clock::now() - milliseconds(1);  // it has just been shut
  for (int round = 0; round < 3; ++round) {
    EXPECT_GE(lasted(true), PinGate::kFirst * (1 << round));
    EXPECT_GE(lasted(false), PinGate::kRest * PinGate::kFirst * (2 << round));
  }
}

TEST(PinGate, IsOpenForWhatIsTooSmallToMatter) {
  PinGate gate;
  const int me = 0;
  gate.Look(&me, kLong, kBytes);
  EXPECT_TRUE(gate.IsShutFor(kBytes / PinGate::kMatters));
  EXPECT_FALSE(gate.IsShutFor(kBytes / PinGate::kMatters - 1));
}

TEST(PinGate, HoldsUpUntilItIsOpened) {
  PinGate gate;
  const int me = 0;
  gate.Pass();  // open
  // Before it is shut: where making the thread takes long, the gate opens by itself as soon as the thread gets there.
  const auto begin = Clock::now();
  gate.Look(&me, kLong, kBytes);
  std::atomic<bool> passed{false};
  std::thread thread([&] {
    gate.Pass();
    passed = true;
  });
  while (!passed && Clock::now() - begin < PinGate::kFirst / 2) std::this_thread::yield();
  const bool too_soon = passed && Clock::now() - begin < PinGate::kFirst / 2;
  gate.End(&me);
  thread.join();
  EXPECT_FALSE(too_soon);
}

// The one that has shut it may have no core, or may have died in the middle.
TEST(PinGate, HoldsNobodyUpForLongerThanItWasToBeShut) {
  PinGate gate;
  const int me = 0;
  const auto begin = Clock::now();
  gate.Look(&me, kLong, kBytes);
  gate.Pass();
  EXPECT_TRUE(gate.IsShut());
  EXPECT_GE(Clock::now() - begin, PinGate::kFirst);
}

}  // namespace
}  // namespace ramspan
