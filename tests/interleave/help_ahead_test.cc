// A thread that needs what the mover is just bringing does the mover's next work meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
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

// Copies, as far as the engine knows. The mover's read stands still until another thread has submitted one, too, or it is let go.
class StandingCopy final : public ForwardingTier {
 public:
  StandingCopy() : ForwardingTier(&inner_) {}

  Result<SlotRef> TryReserve(size_t bytes) override {
    if (must_ask) return Status(StatusCode::kMustAsk, StaticText("ask"));
    return ForwardingTier::TryReserve(bytes);
  }
  Status MakeRoom(size_t bytes, Patience patience) override {
    if (must_ask) {
      asked = true;
      LetGo();
    }
    return ForwardingTier::MakeRoom(bytes, patience);
  }
  std::atomic<bool> must_ask{false}, asked{false};

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
  void LetGo() {
    std::lock_guard lock(mutex_);
    helped_ = 1;
    changed_.notify_all();
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

// Chunks of which a third is in memory, filled and read in turn until the policy knows the order. The next one to be used is chunks[next].
struct Bed {
  StandingCopy tier;
  Engine engine;
  std::vector<Chunk*> chunks;
  size_t next = 0;

  explicit Bed(PinScanner* pins) : engine({.budget = 4 * kMiB}, &tier, pins, DefaultPolicy()) {
    for (int i = 0; i < 200; ++i) chunks.push_back(engine.Create(64 << 10).value());
    for (; next < 5 * chunks.size(); ++next) {
      EXPECT_TRUE(engine.Acquire(chunks[next % chunks.size()], next < chunks.size()).ok());
      engine.MoverStep();
    }
  }
  // By a thread that is the mover.
  void MoveUntilHelped() {
    tier.SetMover(std::this_thread::get_id());
    for (int i = 0; i < 10 && tier.helped() == 0; ++i) engine.MoverStep();
  }
};

TEST(HelpAhead, WhoWaitsForTheMoversReadBringsTheNextChunkMeanwhile) {
  NoPins pins;
  Bed bed(&pins);
  StandingCopy& tier = bed.tier;
  Engine& engine = bed.engine;
  std::vector<Chunk*>& chunks = bed.chunks;
  size_t& next = bed.next;
  const auto use = [&] { return engine.Acquire(chunks[next++ % chunks.size()], false).ok(); };
  // The mover falls behind: what it has brought is used up, and some of what comes then is waited for.
  while (PhaseOf(chunks[next % chunks.size()]) == Phase::kResident) ASSERT_TRUE(use());
  ASSERT_TRUE(use());
  std::thread mover([&] { bed.MoveUntilHelped(); });
  const SlotRef standing = tier.AwaitStanding();
  EXPECT_TRUE(standing) << "the mover had nothing to read";
  while (standing && chunks[next % chunks.size()]->slot.bits != standing.bits) ASSERT_TRUE(use());
  const uint64_t waits = engine.counters().waits;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(use());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << "nobody helped the mover, whose copy stood still";
  EXPECT_GE(tier.helped(), 1);
  EXPECT_EQ(engine.counters().waits, waits + 1) << "what is waited for counts as that also while this thread helps";
  mover.join();
  engine.Drain();
  EXPECT_TRUE(engine.IsValid());
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// Everything is pinned, and in the middle of a search the mover's read ends.
struct AllPinned final : PinScanner {
  bool all_pinned = false;
  std::function<void()> at_barrier;
  void Barrier() override {
    if (at_barrier) at_barrier();
  }
  void FindPinned(std::span<Chunk* const>, std::span<bool> pinned) override {
    for (bool& one : pinned) one = one || all_pinned;
  }
  void SetWaiting(Chunk*) override {}
  Verdict JudgeWaiters() override { return Verdict::kDeadlock; }
};

// Memory is full of what is pinned, but for one frame, into which the mover is about to read the chunk that is returned.
Chunk* PinAllButOne(Bed* bed, AllPinned* pins) {
  std::vector<Chunk*>& chunks = bed->chunks;
  size_t& next = bed->next;
  bed->engine.SetWaitForPins(false);
  pins->all_pinned = true;
  while (bed->engine.Acquire(chunks[next % chunks.size()], false).ok()) ++next;
  Chunk* const wanted = chunks[next % chunks.size()];
  size_t other = next + 1;
  while (PhaseOf(chunks[other % chunks.size()]) != Phase::kResident) ++other;
  bed->engine.Free(chunks[other % chunks.size()]);
  chunks.erase(chunks.begin() + static_cast<ptrdiff_t>(other % chunks.size()));
  return wanted;
}

// The search lets go of the mutex though it finds nobody, and the transfer that was waited for was not there any more.
TEST(HelpAhead, WhatIsWaitedForMayComeWhileNobodyIsFoundWhoCouldLeave) {
  AllPinned pins;
  Bed bed(&pins);
  StandingCopy& tier = bed.tier;
  Engine& engine = bed.engine;
  std::vector<Chunk*>& chunks = bed.chunks;
  Chunk* const wanted = PinAllButOne(&bed, &pins);
  std::thread mover([&] { bed.MoveUntilHelped(); });
  EXPECT_TRUE(tier.AwaitStanding()) << "the mover had nothing to read";
  ASSERT_EQ(PhaseOf(wanted), Phase::kLoading);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the mover's search in vain is not made again for a while
  bool came = false;
  pins.at_barrier = [&] {
    tier.LetGo();
    for (int i = 0; i < 10'000 && PhaseOf(wanted) == Phase::kLoading; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    came = PhaseOf(wanted) == Phase::kResident;
  };
  EXPECT_TRUE(engine.Acquire(wanted, false).ok());
  EXPECT_TRUE(came) << "nobody looked for somebody who could leave";
  mover.join();
  pins.at_barrier = {};
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// A server's or a file system's answer may take seconds, when the chunk that is waited for has come long ago.
TEST(HelpAhead, WhoHelpsAsksNobodyForRoom) {
  AllPinned pins;
  Bed bed(&pins);
  StandingCopy& tier = bed.tier;
  Engine& engine = bed.engine;
  std::vector<Chunk*>& chunks = bed.chunks;
  Chunk* const wanted = PinAllButOne(&bed, &pins);
  std::thread mover([&] { bed.MoveUntilHelped(); });
  EXPECT_TRUE(tier.AwaitStanding()) << "the mover had nothing to read";
  ASSERT_EQ(PhaseOf(wanted), Phase::kLoading);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // as above
  engine.FreeResidentSlots(UINT64_MAX);  // now whatever leaves needs room in swap
  pins.all_pinned = false;
  tier.must_ask = true;
  std::atomic<bool> looked{false};
  pins.at_barrier = [&] {
    if (!looked.exchange(true)) return;
    tier.LetGo();
  };
  std::thread in_the_end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    tier.LetGo();
  });
  EXPECT_TRUE(engine.Acquire(wanted, false).ok());
  EXPECT_FALSE(tier.asked) << "by the thread that helps";
  EXPECT_TRUE(looked) << "it did not help";
  in_the_end.join();
  mover.join();
  tier.must_ask = false;
  pins.at_barrier = {};
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

}  // namespace
}  // namespace ramspan
