// A thread that watches for all that wait for memory may be held up outside of Ramspan's hands: in a message to a terminal that
// is stopped, in a tier. The others go on without it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
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

using std::chrono::milliseconds;
// Only what is broken takes so long.
constexpr auto kNever = std::chrono::seconds(20);

template <typename F>
bool Becomes(const F& condition) {
  const auto end = std::chrono::steady_clock::now() + kNever;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// stderr is a pipe that is full, and that nobody reads until Read or the end.
class FullStderr {
 public:
  FullStderr() : saved_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
    const std::vector<char> page(4096);
    fcntl(ends_[1], F_SETFL, O_NONBLOCK);
    while (write(ends_[1], page.data(), page.size()) > 0) {
    }
    fcntl(ends_[1], F_SETFL, 0);
    dup2(ends_[1], STDERR_FILENO);
    close(ends_[1]);
  }
  ~FullStderr() {
    if (!reader_.joinable()) Read();
    dup2(saved_, STDERR_FILENO);  // the last descriptor of the pipe's other end: its reader comes to the end
    close(saved_);
    reader_.join();
    close(ends_[0]);
  }
  FullStderr(const FullStderr&) = delete;
  FullStderr& operator=(const FullStderr&) = delete;
  void Read() {
    reader_ = std::thread([this] {
      char buffer[4096];
      while (read(ends_[0], buffer, sizeof buffer) > 0) {
      }
    });
  }

 private:
  const int saved_;
  int ends_[2];
  std::thread reader_;
};

// The watcher's mark stood while it wrote that it had waited for long. Nobody else looked: with all pins gone, no thread got memory
// for as long as stderr was not read.
TEST(HeldUp, AWatcherThatCannotWriteItsMessageHoldsUpNobodyElse) {
  constexpr size_t kThreads = 5;
  FakeTier tier(FakeTierOptions{.seed = 17});
  NoPins pins;
  // Told so late that the others sleep by then: who is awake looks without being woken.
  Engine engine({.budget = 4 * kMiB, .preemptive = false, .pin_wait_told = milliseconds(50), .sleep_max = std::chrono::hours(1)}, &tier,
                &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 24; ++i) chunks.push_back(engine.Create(256 << 10).value());
  pins.all_pinned = true;
  size_t held = 0;
  while (engine.Acquire(chunks[held], true, Engine::WhenPinned::kReturn).ok()) ++held;
  ASSERT_LE(held + kThreads, chunks.size());
  std::set<std::thread::id> lookers;  // as `pins`, guarded by the engine's mutex
  std::atomic<size_t> looked{0}, done{0};
  std::atomic<bool> unpin{false};
  pins.judge = [&] {
    lookers.insert(std::this_thread::get_id());
    looked = lookers.size();
    pins.all_pinned = !unpin;
    return PinScanner::Verdict::kSomebodyMayUnpin;
  };
  FullStderr full;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      EXPECT_TRUE(engine.Acquire(chunks[held + t], true).ok());
      ++done;
    });
  }
  EXPECT_TRUE(Becomes([&] { return looked >= 2; })) << "nobody looks for the one that writes";
  unpin = true;
  EXPECT_TRUE(Becomes([&] { return done >= kThreads - 1; })) << done << " threads have memory";
  full.Read();
  for (std::thread& thread : threads) thread.join();
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// The first thread that waits inside is held there.
class HoldsAPoll final : public ForwardingTier {
 public:
  HoldsAPoll() : ForwardingTier(&inner_) {}
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override {
    if (!inside && wait.count() == 0) return 0;  // so that it waits
    if (!inside.exchange(true)) {
      while (!let_go) std::this_thread::yield();
    }
    return inner_.Poll(done, wait);
  }
  std::atomic<bool> inside{false}, let_go{false};

 private:
  FakeTier inner_{FakeTierOptions{.seed = 18}};
};

// Who woke up after sleep_max saw that somebody watches, and went to sleep again.
TEST(HeldUp, WhoSleepsWhileTheWatcherIsHeldInATierLooksHimself) {
  HoldsAPoll tier;
  NoPins pins;
  Engine engine({.budget = kMiB, .preemptive = false, .sleep_max = milliseconds(2)}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 6; ++i) chunks.push_back(engine.Create(256 << 10).value());
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(engine.Acquire(chunks[i], true).ok());
  std::thread watcher([&] { EXPECT_TRUE(engine.Acquire(chunks[3], true).ok()); });
  EXPECT_TRUE(Becomes([&] { return tier.inside.load(); }));
  std::atomic<int> done{0};
  std::vector<std::thread> others;
  for (size_t t = 0; t < 2; ++t) {
    others.emplace_back([&, t] {
      EXPECT_TRUE(engine.Acquire(chunks[4 + t], true).ok());
      ++done;
    });
  }
  EXPECT_TRUE(Becomes([&] { return done == 2; })) << done << " threads have memory";
  tier.let_go = true;
  watcher.join();
  for (std::thread& thread : others) thread.join();
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// One that looks now and then keeps the mark, however long others sleep: else hundreds would look by themselves.
TEST(HeldUp, AWatcherThatLooksRemainsOne) {
  Mutex mutex(LockRank::kEngine);
  MemoryQueue queue;
  Chunk chunks[2] = {};
  MemoryQueue::Waiter watcher(&chunks[0], 1), sleeper(&chunks[1], 1);
  MutexLock lock(mutex);
  queue.Join(&watcher);
  queue.Join(&sleeper);
  queue.BeginWatch(&watcher);
  bool looked = false, end = false;
  std::thread thread([&] {
    for (bool ends = false; !ends; std::this_thread::yield()) {
      MutexLock its(mutex);
      ends = end;
      if (!MemoryQueue::IsAsleep(&sleeper)) continue;
      queue.EndWatch(&watcher);
      queue.BeginWatch(&watcher);
      looked = true;
    }
  });
  while (!looked) {  // in one of the sleeps
    queue.BeginWatch(&watcher);
    queue.Sleep(&sleeper, mutex, milliseconds(5));
  }
  EXPECT_EQ(queue.watcher(), &watcher);
  end = true;
  {
    MutexUnlock unlocked(mutex);
    thread.join();
  }
  queue.Sleep(&sleeper, mutex, milliseconds(1));
  EXPECT_EQ(queue.watcher(), nullptr);
  queue.Leave(&sleeper);
  queue.Leave(&watcher);
}

}  // namespace
}  // namespace ramspan
