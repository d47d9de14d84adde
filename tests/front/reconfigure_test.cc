// Reconfigure beside the setters of single limits, and beside other threads' Reconfigure.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "ramspan/errors.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/runtime.h"

namespace {

using ramspan::adhereTo;
using ramspan::managedPtr;
using ramspan::Options;

constexpr uint64_t kMebibyte = uint64_t{1} << 20;

class Reconfiguring : public testing::Test {
 protected:
  void SetUp() override {
    const Options now = ramspan::EffectiveOptions();
    before_ = {.memory = now.memory, .swapMemory = now.swapMemory, .policy = now.policy, .preemptive = now.preemptive};
  }
  void TearDown() override { ramspan::Reconfigure(before_); }
  Options before_;
};

// The files' limit was set to the configured one again: an error where they hold more than that by now, else their growth was taken back.
TEST_F(Reconfiguring, LeavesFilesThatHaveGrownAlone) {
  constexpr int kObjects = 64;
  const uint64_t little = ramspan::GetStatistics().swap_used + 8 * kMebibyte;
  ramspan::Reconfigure({.swapMemory = little, .policy = ramspan::SwapPolicy::kAutoextendable});
  std::vector<managedPtr<char>> data;
  for (int i = 0; i < kObjects; ++i) {
    data.emplace_back(size_t{kMebibyte});
    ADHERETOLOC(char, data.back(), p);
    p[0] = 1;
  }
  const uint64_t grown = ramspan::SwapLimit();
  ASSERT_GT(ramspan::GetStatistics().swap_used, little) << "then this test shows nothing";
  EXPECT_NO_THROW(ramspan::Reconfigure({.preemptive = !*before_.preemptive}));
  EXPECT_EQ(ramspan::EffectiveOptions().preemptive, !*before_.preemptive);
  EXPECT_EQ(ramspan::SwapLimit(), grown);
  EXPECT_THROW(ramspan::Reconfigure({.swapMemory = little}), ramspan::Error) << "it asks for what cannot be";
  data.clear();
  ramspan::Reconfigure({.memory = *before_.memory - kMebibyte});
  EXPECT_EQ(ramspan::SwapLimit(), grown) << "with room for the configured limit";
  ramspan::Reconfigure({.swapMemory = little});
  EXPECT_LT(ramspan::SwapLimit(), grown) << "it is asked for again, so it is set again";
}

// A Reconfigure of one key put back what setters had set of the others.
TEST_F(Reconfiguring, KeepsWhatSettersHaveSet) {
  const auto other_policy = *before_.policy == ramspan::SwapPolicy::kFail ? ramspan::SwapPolicy::kAutoextendable : ramspan::SwapPolicy::kFail;
  const uint64_t memory = *before_.memory - 2 * kMebibyte, swap = *before_.swapMemory / 2;
  ramspan::Reconfigure(before_);
  ramspan::SetMemoryLimit(memory);
  ramspan::SetSwapLimit(swap);
  const uint64_t swap_as_set = ramspan::SwapLimit();
  ramspan::SetSwapPolicy(other_policy);
  ramspan::SetPreemptive(!*before_.preemptive, !*before_.preemptive);
  ramspan::Reconfigure({});
  Options now = ramspan::EffectiveOptions();
  EXPECT_EQ(now.memory, memory);
  EXPECT_EQ(now.swapMemory, swap_as_set);
  EXPECT_EQ(now.policy, other_policy);
  EXPECT_EQ(now.preemptive, !*before_.preemptive);
  ramspan::Reconfigure(before_);  // names what was named before: that is asked for now
  now = ramspan::EffectiveOptions();
  EXPECT_EQ(now.memory, before_.memory);
  EXPECT_EQ(now.swapMemory, before_.swapMemory);
  EXPECT_EQ(now.policy, before_.policy);
  EXPECT_EQ(now.preemptive, before_.preemptive);
}

// The one that waited put back all that another one had changed meanwhile.
TEST_F(Reconfiguring, OfTwoThreadsIsDoneOneAfterTheOther) {
  const uint64_t lower = 2 * kMebibyte;
  std::vector<managedPtr<char>> all;
  for (int i = 0; i < 4; ++i) all.emplace_back(size_t{kMebibyte});
  std::vector<adhereTo<char>> pins(all.begin(), all.end());
  for (adhereTo<char>& pin : pins) static_cast<char*>(pin)[0] = 1;
  std::atomic<bool> refused{false};
  std::thread lowers([&] {
    try {
      ramspan::Reconfigure({.memory = lower});
    } catch (const ramspan::Error&) {
      refused = true;
    }
  });
  while (ramspan::MemoryLimit() != lower && !refused) std::this_thread::yield();
  auto second = std::async(std::launch::async, [&] { ramspan::Reconfigure({.preemptive = !*before_.preemptive}); });
  static_cast<void>(second.wait_for(std::chrono::milliseconds(200)));  // long enough for one that waits for nobody
  pins.clear();
  lowers.join();
  second.get();
  const Options now = ramspan::EffectiveOptions();
  EXPECT_EQ(now.preemptive, !*before_.preemptive);
  EXPECT_EQ(now.memory == lower, !refused);
}

}  // namespace
