// Who sleeps in the engine is woken by whom it concerns. Nobody sleeps for as long as these engines allow: a wake-up that is
// missing is a hang.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "client/engine/engine.h"
#include "client/engine/memory_queue.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// When the only one that is awake has left, the others would sleep on with nobody who looks for memory.
TEST(Sleepers, TheOldestIsWokenWhenNobodyElseIsAwake) {
  Mutex mutex(LockRank::kEngine);
  MemoryQueue queue;
  Chunk chunks[2] = {};
  MemoryQueue::Waiter watcher(&chunks[0], 1), sleeper(&chunks[1], 1);
  {
    MutexLock lock(mutex);
    queue.Join(&watcher);
    queue.Join(&sleeper);
    queue.BeginWatch(&watcher);
  }
  std::thread thread([&] {
    MutexLock lock(mutex);
    queue.Sleep(&sleeper, mutex, std::chrono::hours(1));
  });
  for (bool asleep = false; !asleep; std::this_thread::yield()) {
    MutexLock lock(mutex);
    asleep = MemoryQueue::IsAsleep(&sleeper);
  }
  {
    MutexLock lock(mutex);
    queue.Leave(&watcher);
    queue.KeepOneAwake();
    EXPECT_FALSE(MemoryQueue::IsAsleep(&sleeper));
  }
  thread.join();
  queue.Leave(&sleeper);
}

// Returns only the reads into `let_go`, and knows when only one thread polls any more.
class HeldReads final : public ForwardingTier {
 public:
  HeldReads() : ForwardingTier(&inner_) {}
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override {
    inner_.SubmitRead(batch);
    reads_ += batch.size();
  }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override {
    std::lock_guard lock(mutex_);
    alone_ = std::exchange(last_, std::this_thread::get_id()) == std::this_thread::get_id() ? alone_ + 1 : 0;
    IoRequest* found[8];
    const size_t n = inner_.Poll(found, wait);
    done_.insert(done_.end(), found, found + n);
    size_t count = 0;
    std::erase_if(done_, [&](IoRequest* one) {
      if (count == done.size() || (one->is_write ? false : slot_bits_ != 0 && one->slot.bits != slot_bits_)) return false;
      done[count++] = one;
      return true;
    });
    return count;
  }

  void Hold() { LetGo(SlotRef{~uint64_t{0}}); }
  void LetGo(SlotRef slot) {  // an empty one: all
    std::lock_guard lock(mutex_);
    slot_bits_ = slot.bits;
    reads_ = slot.bits == ~uint64_t{0} ? 0 : reads_.load();
  }
  bool OnlyOnePolls() {
    std::lock_guard lock(mutex_);
    return reads_ == 2 && alone_ > 50;
  }

 private:
  FakeTier inner_{FakeTierOptions{.seed = 16}};
  std::mutex mutex_;
  std::vector<IoRequest*> done_;
  std::atomic<uint64_t> slot_bits_{0}, reads_{0};
  std::thread::id last_;
  uint64_t alone_ = 0;
};

// Two threads wait for reads, one polls for both. Its own read ends first, or the other's: each time both go on.
TEST(Sleepers, OneThreadPollsAndEachTransferWakesItsOwnWaiters) {
  HeldReads tier;
  NoPins pins;
  Engine engine({.budget = kMiB, .preemptive = false, .sleep_max = std::chrono::hours(1)}, &tier, &pins,
                DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 8; ++i) chunks.push_back(engine.Create(256 << 10).value());
  for (int round = 0; round < 12; ++round) {
    for (Chunk* chunk : chunks) ASSERT_TRUE(engine.Acquire(chunk, true).ok());
    engine.Drain();
    std::vector<Chunk*> away;
    for (Chunk* chunk : chunks) {
      if (PhaseOf(chunk) == Phase::kSwapped && away.size() < 2) away.push_back(chunk);
    }
    ASSERT_EQ(away.size(), 2u);
    tier.Hold();
    std::thread a([&] { EXPECT_TRUE(engine.Acquire(away[0], false).ok()); });
    std::thread b([&] { EXPECT_TRUE(engine.Acquire(away[1], false).ok()); });
    while (!tier.OnlyOnePolls()) std::this_thread::yield();
    tier.LetGo(away[round % 2]->slot);
    (round % 2 == 0 ? a : b).join();
    tier.LetGo(SlotRef{});
    (round % 2 == 0 ? b : a).join();
  }
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

}  // namespace
}  // namespace ramspan
