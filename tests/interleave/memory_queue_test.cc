// More threads than frames: who waits for memory gets it, in turn, and nobody is told that there is none while another
// thread goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client/engine/engine.h"
#include "client/front/pin_registry.h"
#include "tests/support/fake_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;
using Verdict = PinScanner::Verdict;

// A pin in the thread's own table, as an adhereTo stores it.
class StoredPin {
 public:
  StoredPin(Engine* engine, Chunk* chunk) {
    detail::PinTable* table = detail::t_pins != nullptr ? detail::t_pins : PinRegistry::Get().Adopt();
    unsigned i = 0;
    while (table->slots[i].load() != nullptr) ++i;
    slot_ = &table->slots[i];
    slot_->store(chunk);
    status_ = engine->Acquire(chunk, true);
  }
  ~StoredPin() { slot_->store(nullptr); }
  StoredPin(const StoredPin&) = delete;
  StoredPin& operator=(const StoredPin&) = delete;
  const Status& status() const { return status_; }

 private:
  std::atomic<detail::ChunkHead*>* slot_;
  Status status_;
};

struct Crowd {
  const char* name;
  uint64_t limit;
  int threads;
  int rounds;
};

class MoreThreadsThanFrames : public testing::TestWithParam<Crowd> {};

// Each thread holds one chunk at a time and never waits while it holds one. The waiting threads' own stored pins kept
// chunks in memory that other threads had brought, and they waited on for frames of their own: a deadlock, by all verdicts.
TEST_P(MoreThreadsThanFrames, AllOfThemGoOn) {
  const Crowd& crowd = GetParam();
  FakeTier tier(FakeTierOptions{.seed = 11, .capacity_bytes = 256 * kMiB});
  // Nobody sleeps for so long: a wake-up that is missing is a hang.
  Engine engine({.budget = crowd.limit, .sleep_max = std::chrono::hours(1)}, &tier, &PinRegistry::Get(), DefaultPolicy());
  std::vector<Chunk*> chunks;
  std::vector<std::atomic<uint64_t>> written(2 * crowd.limit / kMiB);
  for (size_t i = 0; i < written.size(); ++i) {
    chunks.push_back(engine.Create(kMiB).value());
    StoredPin pin(&engine, chunks.back());
    ASSERT_TRUE(pin.status().ok());
    std::memset(chunks.back()->frame, 0, 64);
  }
  std::atomic<int> errors{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < crowd.threads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int round = 0; round < crowd.rounds; ++round) {
        const size_t i = random() % chunks.size();
        StoredPin pin(&engine, chunks[i]);
        if (!pin.status().ok()) {
          ++errors;
          continue;
        }
        reinterpret_cast<std::atomic<uint64_t>*>(chunks[i]->frame)->fetch_add(1);
        ++written[i];
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors, 0);
  for (size_t i = 0; i < chunks.size(); ++i) {
    StoredPin pin(&engine, chunks[i]);
    ASSERT_TRUE(pin.status().ok());
    EXPECT_EQ(*static_cast<uint64_t*>(chunks[i]->frame), written[i]);
  }
  engine.Drain();
  EXPECT_TRUE(engine.IsValid());
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

INSTANTIATE_TEST_SUITE_P(Crowds, MoreThreadsThanFrames,
                         testing::Values(Crowd{"Sixteen", 8 * kMiB, 16, 60}, Crowd{"Four", 4 * kMiB, 4, 200},
                                         Crowd{"SixtyFour", 32 * kMiB, 64, 20}, Crowd{"TwoHundred", 32 * kMiB, 200, 8}),
                         [](const auto& info) { return std::string(info.param.name); });

// Threads that take small frames consumed what a thread had freed for a large one, and each eviction set its clock back.
TEST(MemoryQueue, ALargeChunkGetsItsTurnBesideSmallOnes) {
  FakeTier tier(FakeTierOptions{.seed = 12, .capacity_bytes = 256 * kMiB});
  Engine engine({.budget = 8 * kMiB, .preemptive = false}, &tier, &PinRegistry::Get(), DefaultPolicy());
  std::vector<Chunk*> small, large;
  for (int i = 0; i < 48; ++i) small.push_back(engine.Create(kMiB / 2).value());
  for (int i = 0; i < 2; ++i) large.push_back(engine.Create(5 * kMiB).value());
  std::atomic<bool> stop{false};
  std::atomic<int> errors{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {  // takes the next before it lets go of the last: its pins never end
      auto last = std::make_unique<StoredPin>(&engine, small[12 * t]);
      for (size_t i = 1; !stop; ++i) {
        auto next = std::make_unique<StoredPin>(&engine, small[12 * t + i % 12]);
        errors += !next->status().ok();
        last = std::move(next);
      }
    });
  }
  for (size_t i = 0; i < 12; ++i) {
    StoredPin pin(&engine, large[i % 2]);
    EXPECT_TRUE(pin.status().ok()) << pin.status().ToString();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors, 0);
  // 64 may pass while it waits for pins; some more were before it in the queue, or passed because else nobody could go on.
  EXPECT_LE(engine.counters().takes_past_a_waiter_max, 100u);
  engine.Drain();
  for (Chunk* chunk : small) engine.Free(chunk);
  for (Chunk* chunk : large) engine.Free(chunk);
}

class WaitForPins : public testing::Test {
 protected:
  void Start(const Engine::Options& options) {
    engine_ = std::make_unique<Engine>(options, &tier_, &pins_, DefaultPolicy());
    for (int i = 0; i < 4; ++i) chunks_.push_back(engine_->Create(256 << 10).value());
  }
  ~WaitForPins() override {
    engine_->Drain();
    for (Chunk* chunk : chunks_) engine_->Free(chunk);
  }
  FakeTier tier_{FakeTierOptions{.seed = 13}};
  NoPins pins_;
  std::unique_ptr<Engine> engine_;
  std::vector<Chunk*> chunks_;
};

// setUse pins are in no table. The judge saw none, and after the grace of an unlikely release the wait was an error
// although the thread that had set them went on.
TEST(CountedPins, AreWaitedForWhileTheirHolderGoesOn) {
  struct Looks final : PinScanner {
    PinRegistry& real = PinRegistry::Get();
    std::atomic<int> looks{0};
    void Barrier() override { real.Barrier(); }
    void FindPinned(std::span<Chunk* const> chunks, std::span<bool> pinned) override { real.FindPinned(chunks, pinned); }
    void SetWaiting(Chunk* chunk) override { real.SetWaiting(chunk); }
    Verdict JudgeWaiters() override {
      ++looks;
      return real.JudgeWaiters();
    }
  } pins;
  FakeTier tier(FakeTierOptions{.seed = 13});
  Engine engine({.budget = kMiB, .preemptive = false, .deadlock_grace = milliseconds(5)}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 4; ++i) chunks.push_back(engine.Create(256 << 10).value());
  std::atomic<bool> holds{false};
  std::thread holder([&] {
    PinRegistry::Get().Adopt();
    for (size_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(engine.AcquireCounted(chunks[i], true).ok());
      PinRegistry::NoteCounted(1);
    }
    holds = true;
    while (pins.looks < 300) std::this_thread::yield();  // computes
    for (size_t i = 0; i < 3; ++i) detail::UnpinCounted(chunks[i]);
    while (pins.looks < 1'000'000) std::this_thread::yield();  // lives on
  });
  while (!holds) std::this_thread::yield();
  {
    StoredPin pin(&engine, chunks[3]);
    EXPECT_TRUE(pin.status().ok()) << pin.status().ToString();
    EXPECT_GE(pins.looks, 300);
  }
  pins.looks = 1'000'000;
  holder.join();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// While a large chunk waits for pins, the memory that lies free meanwhile serves small ones, but only so many of them: all in
// one thread's turns, so that no luck of scheduling makes the large one's turn come.
TEST_F(WaitForPins, SmallChunksPassALargeOneButNotForEver) {
  constexpr uint32_t kSmall = 1000, kPassesMax = 64;  // as in client/engine/memory.cc
  Start({.budget = kMiB, .preemptive = false, .deadlock_grace = std::chrono::hours(1), .pin_wait_told = std::chrono::hours(1)});
  for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(engine_->Acquire(chunks_[i], true).ok());
  chunks_.push_back(engine_->Create(512 << 10).value());
  std::atomic<bool> waits{false}, unpin{false};
  pins_.all_pinned = true;
  pins_.judge = [&] {
    waits = true;
    pins_.all_pinned = !unpin;
    return Verdict::kSomebodyMayUnpin;
  };
  std::thread thread([&] { EXPECT_TRUE(engine_->Acquire(chunks_[4], true).ok()); });
  while (!waits) std::this_thread::yield();
  uint32_t passed = 0;
  for (uint32_t i = 0; i < kSmall; ++i) {
    Chunk* small = engine_->Create(16 << 10).value();
    passed += engine_->Acquire(small, true, Engine::WhenPinned::kReturn).ok();
    engine_->Free(small);
  }
  unpin = true;
  thread.join();
  EXPECT_EQ(passed, kPassesMax);
  EXPECT_EQ(engine_->counters().takes_past_a_waiter_max, kPassesMax);
}

// Each of 50 threads on 16 frames looked at all pins every 200 us, woke all others when one was served, and none got on.
TEST_F(WaitForPins, OneThreadLooksForAllThatWait) {
  constexpr int kThreads = 20, kLooks = 200;
  Start({.budget = kMiB, .preemptive = false, .sleep_max = std::chrono::hours(1)});
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(engine_->Acquire(chunks_[i], true).ok());
  for (int i = 0; i < kThreads; ++i) chunks_.push_back(engine_->Create(256 << 10).value());
  pins_.all_pinned = true;
  std::atomic<int> entered{0}, looks{0};
  std::set<std::thread::id> lookers;  // as `pins_`, guarded by the engine's mutex
  pins_.judge = [&] {
    if (looks < kLooks) lookers.insert(std::this_thread::get_id());
    // All threads have begun, and most of them have waited for a while.
    if (entered == kThreads && ++looks == kLooks) pins_.all_pinned = false;
    return Verdict::kSomebodyMayUnpin;
  };
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ++entered;
      EXPECT_TRUE(engine_->Acquire(chunks_[4 + t], true).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lookers.size(), 1u);
}

// With a full swap, what has a slot there may wait for it to come back. What has none cannot go anywhere, and its thread is told
// at once, also while another one looks for both.
TEST(MemoryQueue, WhoHasNoSlotInAFullSwapIsToldWhileAnotherThreadWatches) {
  NoPins pins;
  FakeTier tier(FakeTierOptions{.seed = 15, .capacity_bytes = kMiB / 2});
  Engine engine({.budget = kMiB, .preemptive = false, .keep_room = false, .sleep_max = std::chrono::hours(1)}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 6; ++i) chunks.push_back(engine.Create(256 << 10).value());
  for (size_t i = 0; i < 5; ++i) ASSERT_TRUE(engine.Acquire(chunks[i], true).ok());
  const auto in_phase = [&](Phase phase) {
    return *std::find_if(chunks.begin(), chunks.end(), [&](Chunk* chunk) { return PhaseOf(chunk) == phase; });
  };
  std::atomic<bool> watches{false};
  pins.judge = [&] {
    watches = true;
    return Verdict::kSomebodyMayUnpin;
  };
  std::thread watcher([&] { EXPECT_TRUE(engine.Acquire(in_phase(Phase::kSwapped), true).ok()); });
  while (!watches) std::this_thread::yield();
  EXPECT_EQ(engine.Acquire(chunks[5], true).code(), StatusCode::kResourceExhausted);
  Chunk* const gone = in_phase(Phase::kResident);
  engine.Free(gone);
  watcher.join();
  engine.Drain();
  std::erase(chunks, gone);
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// The oldest in the queue looks for all, and it is the one that is told when there is no way out. Here that one holds nothing,
// so others have to be told as well.
TEST(MemoryQueue, ADeadlockAmongYoungerWaitersIsToldToThem) {
  FakeTier tier(FakeTierOptions{.seed = 14});
  Engine engine({.budget = kMiB, .preemptive = false, .deadlock_grace = milliseconds(50), .sleep_max = std::chrono::hours(1)}, &tier,
                &PinRegistry::Get(), DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 6; ++i) chunks.push_back(engine.Create(256 << 10).value());
  std::atomic<int> holders{0}, refused{0};
  std::atomic<detail::PinTable*> oldest{nullptr};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {  // these two hold all frames, and each wants one more
      StoredPin held(&engine, chunks[t]);
      std::unique_ptr<StoredPin> second;
      if (t == 0) second = std::make_unique<StoredPin>(&engine, chunks[2]);
      ++holders;
      while (oldest == nullptr || oldest.load()->waiting_for == nullptr) std::this_thread::yield();
      StoredPin more(&engine, chunks[3 + t]);
      refused += !more.status().ok();
    });
  }
  threads.emplace_back([&] {  // the oldest; it tries again whatever it is told
    while (holders < 2) std::this_thread::yield();
    oldest = PinRegistry::Get().Adopt();
    while (!engine.Acquire(chunks[5], true).ok()) {
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(refused, 1);
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// After 60 s the wait ended with "no thread can go on", although the holder lived and had only much to compute.
TEST_F(WaitForPins, ThatSomebodyMayEndHasNoDeadlineAndIsMentionedOnce) {
  Start({.budget = kMiB, .preemptive = false, .pin_wait_told = milliseconds(5)});
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(engine_->Acquire(chunks_[i], true).ok());
  pins_.all_pinned = true;
  int looks = 0;
  pins_.judge = [&] {
    pins_.all_pinned = ++looks < 300;
    return Verdict::kSomebodyMayUnpin;
  };
  testing::internal::CaptureStderr();
  const Status status = engine_->Acquire(chunks_[3], true);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(looks, 300);
  const size_t first = log.find("waited");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("waited", first + 1), std::string::npos) << log;
  EXPECT_NE(log.find("at a barrier, in a join or for a lock"), std::string::npos) << log;  // what Ramspan cannot know
}

// A limit that was lowered below an object blamed the program's adhereTos.
TEST_F(WaitForPins, AnObjectLargerThanALoweredLimitIsToldSo) {
  Start({.budget = kMiB, .preemptive = false});
  ASSERT_TRUE(engine_->SetBudget(300 << 10).ok());
  const Status status = engine_->Acquire(chunks_[0], true);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("does not fit the memory limit of 300 KiB"), std::string::npos) << status.message();
  ASSERT_TRUE(engine_->SetBudget(kMiB).ok());
}

}  // namespace
}  // namespace ramspan
