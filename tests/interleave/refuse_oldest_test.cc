// Engine::RefuseOldest: who waits for memory is told that there is none, where that is true when it is told.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <span>
#include <thread>
#include <vector>

#include "client/engine/engine.h"
#include "tests/support/fake_tier.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

struct Pins final : PinScanner {
  std::atomic<bool> all_pinned{false};
  std::atomic<Chunk*> waiting{nullptr};
  std::atomic<Verdict> verdict{Verdict::kSomebodyMayUnpin};
  void Barrier() override {}
  void FindPinned(std::span<Chunk* const>, std::span<bool> pinned) override {
    for (bool& one : pinned) one = one || all_pinned;
  }
  void SetWaiting(Chunk* chunk) override { waiting = chunk; }
  Verdict JudgeWaiters() override { return verdict; }
};

// All of memory is pinned, in chunks of so many bytes.
std::vector<Chunk*> FillAndPin(Engine& engine, Pins& pins, size_t bytes) {
  std::vector<Chunk*> chunks;
  engine.SetWaitForPins(false);
  pins.all_pinned = true;
  for (;;) {
    chunks.push_back(engine.Create(bytes).value());
    if (!engine.Acquire(chunks.back(), true).ok()) break;
  }
  engine.SetWaitForPins(true);
  return chunks;
}

// It was marked when nobody could go on. Until it had looked another thread had pinned, which would release.
TEST(RefuseOldest, NobodyIsRefusedWhileSomebodyMayUnpin) {
  Pins pins;
  FakeTier tier({.seed = 1, .synchronous = true});
  Engine engine({.budget = 4 * kMiB}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks = FillAndPin(engine, pins, 64 << 10);
  Status status;
  std::atomic<bool> done{false};
  std::thread waiter([&] {
    status = engine.Acquire(chunks.back(), true);
    done = true;
  });
  while (pins.waiting == nullptr) std::this_thread::yield();
  engine.RefuseOldest();
  for (int i = 0; i < 300 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(done) << status.message();
  pins.all_pinned = false;
  waiter.join();
  EXPECT_TRUE(status.ok()) << status.message();
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

TEST(RefuseOldest, WhoCannotGoOnIsRefused) {
  Pins pins;
  FakeTier tier({.seed = 1, .synchronous = true});
  Engine engine({.budget = 4 * kMiB}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks = FillAndPin(engine, pins, 64 << 10);
  Status status;
  std::thread waiter([&] { status = engine.Acquire(chunks.back(), true); });
  while (pins.waiting == nullptr) std::this_thread::yield();
  pins.verdict = PinScanner::Verdict::kUnlikely;
  const auto begin = std::chrono::steady_clock::now();
  engine.RefuseOldest();
  waiter.join();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(500)) << "by its own patience, not because it was refused";
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// Where the only thread pins all of memory, nobody can release anything: it need not wait to see whether somebody does.
TEST(RefuseOldest, TheOnlyThreadIsRefusedWithoutAWait) {
  Pins pins;
  FakeTier tier({.seed = 1, .synchronous = true});
  Engine engine({.budget = 4 * kMiB, .deadlock_settle = std::chrono::hours(1)}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks = FillAndPin(engine, pins, 64 << 10);
  pins.verdict = PinScanner::Verdict::kNobodyElse;
  EXPECT_EQ(engine.Acquire(chunks.back(), true).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine.counters().pin_waits, 0u);
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// What is needed takes hundreds of looks to leave, of which each brings a little. Nobody takes it.
TEST(RefuseOldest, WhatComesSlowlyIsNotTakenByOthers) {
  Pins pins;
  FakeTier tier({.seed = 1, .synchronous = true});
  Engine engine({.budget = 32 * kMiB}, &tier, &pins, DefaultPolicy());
  Chunk* const large = engine.Create(20 * kMiB).value();
  std::vector<Chunk*> chunks = FillAndPin(engine, pins, 4 << 10);
  Status status;
  std::thread waiter([&] { status = engine.Acquire(large, true); });
  while (pins.waiting == nullptr) std::this_thread::yield();
  pins.verdict = PinScanner::Verdict::kUnlikely;
  pins.all_pinned = false;
  engine.RefuseOldest();
  waiter.join();
  EXPECT_TRUE(status.ok()) << status.message();
  engine.Drain();
  engine.Free(large);
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

}  // namespace
}  // namespace ramspan
