// The mover beside a program that only computes: there is nothing for it to do, and it must not look for something all the time.
#include "client/runtime/mover.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "client/engine/engine.h"
#include "tests/support/deaf_policy.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"
#include "tests/support/standing_tier.h"

namespace ramspan {
namespace {

std::set<pid_t> Threads() {
  std::set<pid_t> threads;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* task = readdir(tasks)) {
    if (const int id = std::atoi(task->d_name); id > 0) threads.insert(id);
  }
  closedir(tasks);
  return threads;
}

// Nanoseconds that the thread has run so far: what others run meanwhile does not count.
int64_t CpuNs(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/schedstat");
  int64_t ns = -1;
  file >> ns;
  return ns;
}

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(Mover, RunsHardlyAtAllBesideAProgramThatOnlyComputes) {
  FakeTier tier;
  NoPins pins;
  Engine engine({.budget = 2 * kMiB}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  // More than fits, swept so that there is an order to read ahead in: the mover has had work.
  for (int i = 0; i < 100; ++i) chunks.push_back(engine.Create(64 << 10).value());
  const std::set<pid_t> before = Threads();
  Mover mover;
  ASSERT_TRUE(mover.Start(&engine, [](const std::atomic<bool>&) {}).ok());
  pid_t thread = 0;
  for (const pid_t one : Threads()) thread = before.contains(one) ? thread : one;
  ASSERT_NE(thread, 0);
  if (CpuNs(thread) < 0) GTEST_SKIP() << "this kernel does not count the time of threads (schedstat)";
  for (int sweep = 0; sweep < 5; ++sweep) {
    for (Chunk* chunk : chunks) ASSERT_TRUE(engine.Acquire(chunk, true).ok());
  }
  // What it still does belongs to the sweeps: until it has rested for a while.
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t last = -1; std::chrono::steady_clock::now() - begin < std::chrono::seconds(20);) {
    const int64_t now = CpuNs(thread);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (last >= 0 && now - last < 2'000'000) break;
    last = now;
  }
  // It looks 50 times a second, for about 20 us each: a thousandth, and ten times that under a sanitizer. A mover that spins takes all
  // of a core, always. On a machine where others keep it from running the while above ends before it rests: it is given more tries.
  double wall = 0, cpu = 1;
  for (int tries = 0; tries < 5 && cpu >= 0.1 * wall; ++tries) {
    const int64_t cpu_before = CpuNs(thread);
    const auto wall_before = std::chrono::steady_clock::now();
    volatile double sum = 0;
    for (const double end = ThreadSeconds() + 0.3; ThreadSeconds() < end;) {
      for (int i = 0; i < 10'000; ++i) sum = sum + 1.0 / (i + 1);
    }
    wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_before).count();
    cpu = 1e-9 * static_cast<double>(CpuNs(thread) - cpu_before);
  }
  EXPECT_LT(cpu, 0.1 * wall) << cpu << " s of CPU time in " << wall << " s";
  mover.Stop();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// Resident bytes of the mappings that hold the engine's frames, however much of them is used.
uint64_t ResidentFrames(const Engine& engine) {
  const std::span<std::byte> range = engine.frame_addresses();
  const auto begin = reinterpret_cast<uintptr_t>(range.data());
  std::ifstream maps("/proc/self/smaps");
  uint64_t resident = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long from, to, kib;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2) inside = from >= begin && to <= begin + range.size();
    if (inside && std::sscanf(line.c_str(), "Rss: %lu kB", &kib) == 1) resident += uint64_t{kib} << 10;
  }
  return resident;
}

// What a program had freed stayed with it for ever, up to the limit: it took more memory than without Ramspan.
TEST(Mover, WhatHasNotBeenNeededForAWhileGoesBackToTheSystem) {
  constexpr size_t kChunk = 3 * kMiB;
  FakeTier tier;
  NoPins pins;
  Engine engine({.budget = 256 * kMiB, .idle_for = std::chrono::milliseconds(20)}, &tier, &pins, DefaultPolicy());
  Mover mover;
  ASSERT_TRUE(mover.Start(&engine, [&](const std::atomic<bool>& stop) { engine.GiveBackIdle(stop); }, {.upkeep_every = std::chrono::milliseconds(10)}).ok());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 64; ++i) {
    chunks.push_back(engine.Create(kChunk).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
    std::memset(chunks.back()->frame, 1, kChunk);
  }
  EXPECT_GE(ResidentFrames(engine), 64 * kChunk);
  for (size_t i = 8; i < chunks.size(); ++i) engine.Free(chunks[i]);
  chunks.resize(8);
  const uint64_t kept = 8 * kChunk + 256 * kMiB / 16 + 2 * kChunk;  // half of less than two chunks is none
  EXPECT_TRUE(Eventually([&] { return ResidentFrames(engine) <= kept; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_GE(ResidentFrames(engine), 8 * kChunk + 256 * kMiB / 16 - kChunk) << "what is there stays, and some for what comes next";
  mover.Stop();
  for (Chunk* chunk : chunks) {
    EXPECT_EQ(static_cast<const unsigned char*>(chunk->frame)[kChunk - 1], 1);
    engine.Free(chunk);
  }
  EXPECT_TRUE(engine.IsValid());
}

// Half of what is idle went at a time, and never a frame that is larger than that.
TEST(Mover, ALargeFrameThatHasNotBeenNeededForAWhileGoesBackToTheSystem) {
  constexpr size_t kChunk = 48 * kMiB;
  FakeTier tier;
  NoPins pins;
  Engine engine({.budget = 256 * kMiB, .idle_for = std::chrono::milliseconds(20)}, &tier, &pins, DefaultPolicy());
  Mover mover;
  ASSERT_TRUE(mover.Start(&engine, [&](const std::atomic<bool>& stop) { engine.GiveBackIdle(stop); }, {.upkeep_every = std::chrono::milliseconds(10)}).ok());
  Chunk* const chunk = engine.Create(kChunk).value();
  ASSERT_TRUE(engine.Acquire(chunk, true).ok());
  std::memset(chunk->frame, 1, kChunk);
  EXPECT_GE(ResidentFrames(engine), kChunk);
  engine.Free(chunk);
  EXPECT_TRUE(Eventually([&] { return ResidentFrames(engine) <= kMiB; }));
  mover.Stop();
}

// A frame as large as that went each time, though it was in use a moment ago, and what was idle stayed for its sake.
TEST(Mover, ALargeFrameThatIsUsedAgainAndAgainStaysAndTheSmallIdleOnesGo) {
  FakeTier tier;
  NoPins pins;
  Engine engine({.budget = 256 * kMiB, .idle_for = std::chrono::milliseconds(1)}, &tier, &pins, DefaultPolicy());
  const auto make = [&](size_t bytes) {
    Chunk* const chunk = engine.Create(bytes).value();
    EXPECT_TRUE(engine.Acquire(chunk, true).ok());
    std::memset(chunk->frame, 1, bytes);
    return chunk;
  };
  std::vector<Chunk*> small;
  for (int i = 0; i < 10; ++i) small.push_back(make(3 * kMiB));
  for (Chunk* chunk : small) engine.Free(chunk);
  const std::atomic<bool> stop = false;
  for (int round = 0; round < 8; ++round) {
    engine.Free(make(96 * kMiB));
    engine.GiveBackIdle(stop);
    EXPECT_GE(ResidentFrames(engine), 96 * kMiB) << "round " << round;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_LE(ResidentFrames(engine), (96 + 24) * kMiB) << "the small ones";
}

// All of it went in one turn of the mover's, a millisecond for each four MiB: whoever ended the process waited for that.
TEST(Mover, WhatIsIdleGoesBackInTurnsAndNotWhenItEnds) {
  constexpr size_t kChunk = 3 * kMiB;
  FakeTier tier;
  NoPins pins;
  Engine engine({.budget = 1024 * kMiB, .idle_for = std::chrono::milliseconds(1)}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 256; ++i) {
    chunks.push_back(engine.Create(kChunk).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
    std::memset(chunks.back()->frame, 1, kChunk);
  }
  for (Chunk* chunk : chunks) engine.Free(chunk);
  std::atomic<bool> stop = false;
  engine.GiveBackIdle(stop);  // from now on they are idle
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto given = [&](bool stopped) {
    stop = stopped;
    const uint64_t before = ResidentFrames(engine);
    engine.GiveBackIdle(stop);
    return before - ResidentFrames(engine);
  };
  for (int turn = 0; turn < 3; ++turn) {
    const uint64_t bytes = given(false);
    EXPECT_GE(bytes, 32 * kMiB) << turn;
    EXPECT_LE(bytes, 72 * kMiB) << turn;
  }
  EXPECT_EQ(given(true), 0u) << "the process ends";
}

// It took the same chunks again at once, for ever: a core's worth of writes, and of a program's own swap a line in the log for each.
TEST(Mover, RestsWhereWritesFail) {
  FakeTier tier({.seed = 3, .synchronous = true});
  NoPins pins;
  Engine engine({.budget = 2 * kMiB}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 200; ++i) {
    chunks.push_back(engine.Create(64 << 10).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
  }
  engine.Drain();
  tier.faults().SetRates({.write_fails = 1});
  const uint64_t before = engine.counters().write_failures;
  const auto begin = std::chrono::steady_clock::now();
  int steps = 0;
  for (; std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(200); ++steps) engine.MoverStep();
  const uint64_t failures = engine.counters().write_failures - before;
  EXPECT_GE(failures, 1u) << "it has to try";
  EXPECT_LE(failures, 32u * 21) << steps << " steps in 200 ms; 32 at a time, each 10 ms";
  tier.faults().SetRates({});
  std::this_thread::sleep_for(std::chrono::milliseconds(11));
  const uint64_t out = tier.stats().bytes_written;
  engine.MoverStep();
  EXPECT_GT(tier.stats().bytes_written, out) << "it goes on when they do not fail any more";
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// Each refill was followed by a rest until the next good write: which a program that only reads does not make.
TEST(Mover, OneFailedWriteDoesNotSlowItDownForGood) {
  FakeTier tier({.seed = 5, .synchronous = true});
  NoPins pins;
  Engine engine({.budget = 4 * kMiB}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 2000; ++i) chunks.push_back(engine.Create(4 << 10).value());
  uint64_t by_mover = 0, by_pulls = 0;
  const auto sweep = [&](size_t written) {
    for (size_t i = 0; i < chunks.size(); ++i) {
      const uint64_t before = engine.counters().evictions;
      ASSERT_TRUE(engine.Acquire(chunks[i], i < written).ok());
      if (i < written) ++static_cast<char*>(chunks[i]->frame)[0];
      const uint64_t pulled = engine.counters().evictions;
      engine.MoverStep();
      by_pulls += pulled - before;
      by_mover += engine.counters().evictions - pulled;
    }
  };
  sweep(chunks.size());
  for (int i = 0; i < 30; ++i) sweep(0);
  by_mover = by_pulls = 0;
  for (int i = 0; i < 20; ++i) sweep(0);
  const uint64_t before = by_pulls;
  tier.faults().NextWrites(Fault::kFails, 1);
  for (int i = 0; i < 10 && engine.counters().write_failures == 0; ++i) sweep(1);
  ASSERT_EQ(engine.counters().write_failures, 1u);
  sweep(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(15));  // the rest that it deserves
  by_mover = by_pulls = 0;
  for (int i = 0; i < 20; ++i) sweep(0);
  EXPECT_LT(by_pulls, before + by_mover / 10) << before << " of those before";
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// Answers late that it is full.
struct AnswersLate final : ForwardingTier {
  AnswersLate() : ForwardingTier(&inner) {}
  Result<SlotRef> TryReserve(size_t bytes) override {
    if (full) return Status(StatusCode::kMustAsk, StaticText("ask"));
    return ForwardingTier::TryReserve(bytes);
  }
  Status MakeRoom(size_t bytes, Patience patience) override {
    if (!full) return ForwardingTier::MakeRoom(bytes, patience);
    ++asked;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return Status(StatusCode::kResourceExhausted, StaticText("full"));
  }
  FakeTier inner{{.seed = 5, .synchronous = true}};
  bool full = false;
  int asked = 0;
};

// A search in vain is not repeated for twenty times as long as it took: but that is of searching, not of waiting for an answer.
TEST(Mover, RestsNoLongerBecauseAServerAnswersLate) {
  AnswersLate tier;
  NoPins pins;
  Engine engine({.budget = 4 * kMiB, .keep_room = false}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 200; ++i) chunks.push_back(engine.Create(32 << 10).value());
  for (char sweep = 0; sweep < 3; ++sweep) {
    for (Chunk* chunk : chunks) {
      ASSERT_TRUE(engine.Acquire(chunk, true).ok());
      std::memset(chunk->frame, sweep, 32 << 10);
    }
  }
  engine.Drain();
  engine.FreeResidentSlots(UINT64_MAX);  // whatever leaves needs room
  tier.full = true;
  for (int i = 0; i < 100 && tier.asked == 0; ++i) engine.MoverStep();
  ASSERT_GT(tier.asked, 0) << "then this test shows nothing";
  tier.full = false;
  const uint64_t evictions = engine.counters().evictions;
  const auto begin = std::chrono::steady_clock::now();
  const auto waited = [&] { return std::chrono::steady_clock::now() - begin; };
  while (engine.counters().evictions == evictions && waited() < std::chrono::seconds(20)) {
    engine.MoverStep();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LT(waited(), std::chrono::milliseconds(2000));
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// Names all that is swapped out to be read ahead, in the order of making, and all that is in memory to leave.
class NamesAll final : public DeafPolicy {
 public:
  using DeafPolicy::DeafPolicy;
  size_t PickVictims(uint64_t, std::span<Chunk*> out) override { return Name(out, [](const Chunk* c) { return PhaseOf(c) == Phase::kResident && !Has(c, kPrefetched); }); }
  bool WantsReadAhead() const override { return true; }
  size_t PickReadAhead(std::span<Chunk*> out) override { return Name(out, MayReadAhead); }

 private:
  template <typename Which>
  size_t Name(std::span<Chunk*> out, Which which) const {
    size_t n = 0;
    for (uint32_t id = 0; id < chunks_->ids() && n < out.size(); ++id) {
      if (which(chunks_->At(id))) out[n++] = chunks_->At(id);
    }
    return n;
  }
};

// It was named first each time, and nothing behind it was read ahead.
TEST(Mover, ReadsAheadBehindAChunkThatWouldNotCome) {
  StandingTier tier;
  NoPins pins;
  Engine engine({.budget = 2 * kMiB, .preemptive = false}, &tier, &pins, [](const ChunkTable* chunks) { return std::make_unique<NamesAll>(chunks); });
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 60; ++i) {
    chunks.push_back(engine.Create(64 << 10).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
  }
  engine.Drain();  // writes that are under way
  ASSERT_EQ(PhaseOf(chunks[0]), Phase::kSwapped);
  ASSERT_EQ(PhaseOf(chunks[1]), Phase::kSwapped);
  tier.still = chunks[0]->slot;
  for (size_t i = chunks.size() - 8; i < chunks.size(); ++i) engine.Free(chunks[i]);  // room
  chunks.resize(chunks.size() - 8);
  engine.SetPreemptive(/*loading=*/true, /*unloading=*/false);
  for (int i = 0; i < 100; ++i) engine.MoverStep();
  EXPECT_EQ(PhaseOf(chunks[0]), Phase::kSwapped);
  EXPECT_TRUE(Has(chunks[1], kPrefetched));
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

}  // namespace
}  // namespace ramspan
