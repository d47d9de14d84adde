// A thread that needs what the mover is just bringing does the mover's next work meanwhile.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "client/engine/engine.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// Copies, as far as the engine knows. The mover's read stands still until another thread has submitted one, too.
class StandingCopy final : public ForwardingTier {
 public:
  StandingCopy() : ForwardingTier(&inner_) {}

  void SubmitRead(std::span<IoRequest* const> batch) noexcept override {
    {
      std::unique_lock lock(mutex_);
      if (std::this_thread::get_id() == mover_) {
        stands_ = batch[0]->slot;
        changed_.notify_all();
        changed_.wait_for(lock, kLong, [this] { return helped_ > 0; });
      } else if (stands_) {
        ++helped_;
        changed_.notify_all();
      }
    }
    inner_.SubmitRead(batch);
  }
  void SetMover(std::thread::id mover) {
    std::lock_guard lock(mutex_);
    mover_ = mover;
  }
  // The slot from which the mover is reading; an empty one: it does not begin to.
  SlotRef AwaitStanding() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLong, [this] { return static_cast<bool>(stands_); });
    return stands_;
  }
  int helped() {
    std::lock_guard lock(mutex_);
    return helped_;
  }

 private:
  static constexpr std::chrono::seconds kLong{10};
  FakeTier inner_{{.seed = 5, .synchronous = true}};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread::id mover_;
  SlotRef stands_;
  int helped_ = 0;
};

TEST(HelpAhead, WhoWaitsForTheMoversReadBringsTheNextChunkMeanwhile) {
  constexpr uint64_t kBytes = 64 << 10;
  StandingCopy tier;
  NoPins pins;
  Engine engine({.budget = 4 * kMiB}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 200; ++i) chunks.push_back(engine.Create(kBytes).value());
  size_t next = 0;
  const auto use = [&] {
    const bool fill = next < chunks.size();
    return engine.Acquire(chunks[next++ % chunks.size()], fill).ok();
  };
  while (next < 5 * chunks.size()) {
    ASSERT_TRUE(use());
    engine.MoverStep();
  }
  // The mover falls behind: what it has brought is used up, and some of what comes then is waited for.
  while (PhaseOf(chunks[next % chunks.size()]) == Phase::kResident) ASSERT_TRUE(use());
  ASSERT_TRUE(use());
  std::thread mover([&] {
    tier.SetMover(std::this_thread::get_id());
    for (int i = 0; i < 10 && tier.helped() == 0; ++i) engine.MoverStep();
  });
  const SlotRef standing = tier.AwaitStanding();
  EXPECT_TRUE(standing) << "the mover had nothing to read";
  while (standing && chunks[next % chunks.size()]->slot.bits != standing.bits) ASSERT_TRUE(use());
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(use());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << "nobody helped the mover, whose copy stood still";
  EXPECT_GE(tier.helped(), 1);
  mover.join();
  engine.Drain();
  EXPECT_TRUE(engine.IsValid());
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

}  // namespace
}  // namespace ramspan
