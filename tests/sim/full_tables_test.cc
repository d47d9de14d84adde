// Limits of some MiB of which the tables of swap take a large part: slots in pieces have rows, which grow while nobody asks, where swap
// is exactly full. What is there stays usable, by seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "client/engine/engine.h"
#include "client/swap/slot_space.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// Takes for its slots what swap files take, which it makes as it is asked for room.
class TierOfPieces final : public ForwardingTier {
 public:
  TierOfPieces(unsigned seed, uint64_t bytes)
      : ForwardingTier(&real_), bytes_(bytes), real_({.seed = seed, .capacity_bytes = 0, .full_asks = true, .synchronous = true}) {}
  Status MakeRoom(size_t bytes, Patience) override {
    const uint64_t more = std::min(bytes_ - made_, RoundUpToGranule(std::max<uint64_t>(bytes_ / 16, bytes)));
    if (more == 0) return ResourceExhausted("full");
    space_.AddRegion(more);
    real_.SetCapacity(made_ += more);
    return Status();
  }
  Result<SlotRef> TryReserve(size_t bytes) override {
    const Result<SlotRef> slot = ForwardingTier::TryReserve(bytes);
    if (slot.ok()) pieces_[slot.value().bits] = space_.Reserve(bytes);
    return slot;
  }
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override {
    const SlotRef slot = ForwardingTier::TryExchange(given, bytes, taken);
    if (!slot) return slot;
    for (const HeldSlot& one : given.first(*taken)) FreePieces(one.slot, one.bytes);
    pieces_[slot.bits] = space_.Reserve(bytes);
    return slot;
  }
  void Free(SlotRef slot, size_t bytes) noexcept override {
    FreePieces(slot, bytes);
    ForwardingTier::Free(slot, bytes);
  }
  uint64_t metadata_bytes() const noexcept override { return space_.metadata_bytes(); }

 private:
  void FreePieces(SlotRef slot, size_t bytes) {
    const auto found = pieces_.find(slot.bits);
    space_.Free(found->second, bytes);
    pieces_.erase(found);
  }

  const uint64_t bytes_;
  uint64_t made_ = 0;
  FakeTier real_;
  SlotSpace space_;
  std::map<uint64_t, SlotRef> pieces_;
};

class Program {
 public:
  // With swap for a few objects as large as the largest, or much more than memory.
  Program(unsigned seed, bool little_swap)
      : random_(seed),
        limit_(kMiB + Random(3 * kMiB)),
        large_(limit_ / 100 * (5 + Random(40))),
        capacity_(RoundUpToGranule(little_swap ? large_ * (1 + Random(3)) : limit_ * (8 + Random(24)))),
        tier_(seed, capacity_) {
    const uint64_t least = 2048 + Random(14 << 10), more = 4096 + Random(24 << 10);
    for (int i = 0; i < 200; ++i) sizes_.push_back(least + Random(more));
  }
  ~Program() {
    for (Chunk* chunk : chunks_) engine_.Free(chunk);
    FreeEmpty();
    engine_.Drain();
  }
  uint64_t Random(uint64_t below) { return random_() % below; }
  Status Add(uint64_t bytes) {
    Result<Chunk*> chunk = engine_.Create(bytes);
    if (!chunk.ok()) return chunk.status();
    Status status = engine_.Acquire(chunk.value(), true);
    if (!status.ok()) {
      engine_.Free(chunk.value());
      return status;
    }
    chunks_.push_back(chunk.value());
    Mark(chunk.value());
    return status;
  }
  Status AddOne() { return Add(sizes_[Random(sizes_.size())]); }
  Status AddLarge() { return Add(large_); }
  // Descriptors, until no more are given or there are many.
  void AddEmpty() {
    for (Result<Chunk*> one = engine_.Create(64); one.ok() && empty_.size() < 2000; one = engine_.Create(64)) empty_.push_back(one.value());
  }
  void FreeEmpty() {
    for (Chunk* chunk : empty_) engine_.Free(chunk);
    empty_.clear();
  }
  void RemoveOne() { Remove(Random(chunks_.size())); }
  void Remove(size_t i) {
    engine_.Free(chunks_[i]);
    chunks_[i] = chunks_.back();
    chunks_.pop_back();
  }
  void RemoveSmall() {
    size_t i = Random(chunks_.size());
    while (chunks_[i]->bytes >= large_) i = Random(chunks_.size());
    Remove(i);
  }
  void UseAll(uint64_t most = UINT64_MAX) {
    for (const bool write : {false, true}) {
      for (Chunk* chunk : chunks_) {
        if (chunk->bytes > most) continue;
        const Status status = engine_.Acquire(chunk, write);
        ASSERT_TRUE(status.ok()) << chunk->bytes << " of " << large_ << ", " << chunks_.size() << " of them: " << status.ToString();
        ASSERT_TRUE(IsMarked(chunk));
        if (write) Mark(chunk);
        ASSERT_LE(engine_.counters().resident_bytes + engine_.counters().metadata_bytes, engine_.budget()->limit());
      }
    }
    EXPECT_TRUE(engine_.IsValid());
  }
  void MoverStep() { engine_.MoverStep(); }
  bool UsesSwapUp() const { return tier_.stats().slot_bytes_used >= capacity_ / 100 * 97; }
  uint64_t large() const { return large_; }
  uint64_t limit() const { return limit_; }
  Engine& engine() { return engine_; }

 private:
  // Its first and last bytes, so that no time goes to the others.
  static void Mark(Chunk* chunk) {
    auto* bytes = static_cast<unsigned char*>(chunk->frame);
    std::memcpy(bytes, &chunk->id, sizeof chunk->id);
    bytes[chunk->bytes - 1] = static_cast<unsigned char>(chunk->id);
  }
  static bool IsMarked(const Chunk* chunk) {
    const auto* bytes = static_cast<const unsigned char*>(chunk->frame);
    return std::memcmp(bytes, &chunk->id, sizeof chunk->id) == 0 && bytes[chunk->bytes - 1] == static_cast<unsigned char>(chunk->id);
  }

  std::mt19937_64 random_;
  const uint64_t limit_, large_, capacity_;
  NoPins pins_;
  TierOfPieces tier_;
  Engine engine_{Engine::Options{.budget = limit_, .preemptive = false}, &tier_, &pins_, DefaultPolicy()};
  std::vector<uint64_t> sizes_;
  std::vector<Chunk*> chunks_, empty_;
};

#if defined(__SANITIZE_THREAD__)
constexpr unsigned kProgramsMin = 2;  // there is one thread
#elif defined(__SANITIZE_ADDRESS__)
constexpr unsigned kProgramsMin = 4;
#else
constexpr unsigned kProgramsMin = 12;
#endif

unsigned Programs() {
  const char* text = std::getenv("RAMSPAN_TEST_SEEDS");
  // Each takes 0.2 s.
  return text != nullptr ? std::max(kProgramsMin, static_cast<unsigned>(std::strtoul(text, nullptr, 10)) / 100) : kProgramsMin;
}

// The largest object could not be read any more in ten programs of 24: tables took 64 KiB from frames at once. With descriptors that came while it was in
// swap, it was read once, and never again. And who exchanges objects for others of other sizes is refused seldom.
TEST(FullTables, LeaveEveryObjectUsable) {
  unsigned refused = 0, exchanged = 0, too_early = 0;
  for (unsigned seed = 1; seed <= Programs() && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const bool large_last = seed % 2 == 0, little_swap = seed % 4 >= 2;
    Program run(seed, little_swap);
    EXPECT_TRUE(large_last || run.AddLarge().ok());
    for (int full = 0; full < 5;) {
      full += !run.AddOne().ok();
      if (run.Random(64) == 0) run.MoverStep();
    }
    too_early += !little_swap && !run.UsesSwapUp();
    if (large_last) static_cast<void>(run.AddLarge());
    run.UseAll();
    for (int i = 0; i < 1000; ++i) {
      run.RemoveOne();
      refused += !run.AddOne().ok();
      ++exchanged;
      if (run.Random(16) == 0) run.MoverStep();
    }
    run.UseAll();
    run.AddEmpty();
    run.UseAll();
    static_cast<void>(run.AddOne());
    run.UseAll();
    run.FreeEmpty();
    run.UseAll();
  }
  EXPECT_EQ(too_early, 0u);
  EXPECT_LT(refused, exchanged / 50);
}

// Nothing was kept for any object then, or all that came was refused, by how far below it the limit was; and raised again, it was gone for good.
TEST(FullTables, ALimitBelowTheLargestObjectKeepsTheOthersUsable) {
  for (unsigned seed = 1; seed <= Programs() && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Program run(seed, /*little_swap=*/false);
    const uint64_t huge = run.limit() / 100 * 70;
    ASSERT_TRUE(run.Add(huge).ok());
    ASSERT_TRUE(run.AddLarge().ok());
    for (uint64_t bytes = 0; bytes < 4 * run.limit(); bytes += 16 << 10) ASSERT_TRUE(run.AddOne().ok());
    const uint64_t low = huge + run.Random(2) * run.Random(run.limit() / 5) - run.Random(huge / 5);
    ASSERT_TRUE(run.engine().SetBudget(low).ok());
    const uint64_t fits = std::min(run.large(), run.engine().budget()->frames_beside_growth());
    int refused = 0;
    for (int i = 0; i < 300; ++i) {
      run.RemoveSmall();
      refused += !run.AddOne().ok();
    }
    EXPECT_LT(refused, 30);
    for (int full = 0; full < 5;) full += !run.AddOne().ok();
    run.UseAll(fits);
    ASSERT_TRUE(run.engine().SetBudget(2 * run.limit()).ok());
    run.UseAll();
  }
}

// Has tables as large as it is told.
class TierWithSomeTables final : public ForwardingTier {
 public:
  explicit TierWithSomeTables(uint64_t bytes = 128 * kMiB) : ForwardingTier(&real_), real_({.seed = 1, .capacity_bytes = bytes, .synchronous = true}) {}
  uint64_t tables = 0;
  int exchanges = 0;
  uint64_t metadata_bytes() const noexcept override { return tables; }
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override {
    ++exchanges;
    return ForwardingTier::TryExchange(given, bytes, taken);
  }

 private:
  FakeTier real_;
};

// What it is told is looked at each 5 ms.
void Grow(TierWithSomeTables* tier, Engine* engine, uint64_t bytes) {
  tier->tables = bytes;
  std::this_thread::sleep_for(std::chrono::milliseconds(6));
  engine->MoverStep();
}

// A slot that makes no table larger is given whatever they take.
TEST(FullTables, WhatLiesFreeInThemIsGiven) {
  TierWithSomeTables tier;
  NoPins pins;
  Engine engine({.budget = 4 * kMiB, .preemptive = false}, &tier, &pins, PolicyNamed("cyclic"));
  std::vector<Chunk*> chunks;
  const auto add = [&] {
    chunks.push_back(engine.Create(64 << 10).value());
    return engine.Acquire(chunks.back(), true);
  };
  while (chunks.size() < 200) ASSERT_TRUE(add().ok());
  Grow(&tier, &engine, 4 * kMiB - (250 << 10));
  ASSERT_FALSE(engine.budget()->TiersMayTake(0, Budget::SlotFor::kOther)) << "then this test shows nothing";
  for (int i = 0; i < 100; ++i) {
    engine.Free(chunks[static_cast<size_t>(i)]);
    const Status status = add();
    ASSERT_TRUE(status.ok()) << i << ": " << status.ToString();
  }
  for (size_t i = 100; i < chunks.size(); ++i) engine.Free(chunks[i]);
  engine.Drain();
}

// What a reader and two pins need was held, but nobody could come in the place of one that had gone.
TEST(FullTables, WhoBringsHisOwnSlotComesInAfterTheyHaveGrown) {
  TierWithSomeTables tier(2 * kMiB);
  NoPins pins;
  Engine engine({.budget = 4 * kMiB, .preemptive = false}, &tier, &pins, PolicyNamed("cyclic"));
  std::vector<Chunk*> chunks;
  const auto add = [&] {
    chunks.push_back(engine.Create(8192).value());
    return engine.Acquire(chunks.back(), true);
  };
  while (add().ok()) continue;
  Grow(&tier, &engine, 30 << 10);
  for (int i = 0; i < 10; ++i) {
    const auto gone = std::find_if(chunks.begin(), chunks.end(), [](const Chunk* c) { return c->frame == nullptr && c->slot; });
    ASSERT_NE(gone, chunks.end());
    engine.Free(*gone);
    chunks.erase(gone);
    const Status status = add();
    ASSERT_TRUE(status.ok()) << i << ": " << status.ToString();
  }
  for (Chunk* chunk : chunks) engine.Free(chunk);
  engine.Drain();
}

// An exchange may need a row, too.
TEST(FullTables, NothingIsExchangedWhereTheyMayNotGrow) {
  TierWithSomeTables tier(2 * kMiB);
  NoPins pins;
  Engine engine({.budget = 4 * kMiB, .preemptive = false}, &tier, &pins, PolicyNamed("cyclic"));
  std::vector<Chunk*> chunks;
  for (bool full = false; !full;) {
    chunks.push_back(engine.Create(60'000 + chunks.size() * 16).value());
    full = !engine.Acquire(chunks.back(), true).ok();
  }
  const auto use_all = [&] {
    for (Chunk* chunk : chunks) static_cast<void>(engine.Acquire(chunk, true));
  };
  use_all();
  EXPECT_GT(tier.exchanges, 0) << "then this test shows nothing";
  Grow(&tier, &engine, 80 << 10);  // a reader's need would still be met
  ASSERT_FALSE(engine.budget()->TiersMayTake(0, Budget::SlotFor::kExchange)) << "then this test shows nothing";
  tier.exchanges = 0;
  use_all();
  EXPECT_EQ(tier.exchanges, 0);
  for (Chunk* chunk : chunks) engine.Free(chunk);
  engine.Drain();
}

// Its size was compared before its descriptor took a slab of memory, and each pull of it was refused.
TEST(FullTables, AnObjectThatCanBeMadeCanBePulled) {
  for (const uint64_t limit : {kMiB, 2 * kMiB, 16 * kMiB, 64 * kMiB}) {
    int made = 0;
    for (uint64_t less = 128 << 10; made < 4; less += 4096) {
      TierWithSomeTables tier;
      NoPins pins;
      Engine engine({.budget = limit, .preemptive = false}, &tier, &pins, DefaultPolicy());
      Result<Chunk*> chunk = engine.Create(limit - less);
      if (!chunk.ok()) continue;
      ++made;
      EXPECT_GE(engine.budget()->frames_beside_reserve(), limit - less);
      Grow(&tier, &engine, 60 << 10);  // a first step, which no swap can do without
      const Status status = engine.Acquire(chunk.value(), true);
      EXPECT_TRUE(status.ok()) << limit << " less " << less << ": " << status.ToString();
      engine.Free(chunk.value());
    }
  }
}

// After a limit that was the same, larger, or refused it could not be read any more.
TEST(FullTables, ALimitThatIsNotLowerLosesNoObject) {
  for (const uint64_t limit : {4 * kMiB, 16 * kMiB, 64 * kMiB}) {
    for (const uint64_t wanted : {limit, limit + 8192, limit / 2}) {
      TierWithSomeTables tier;
      NoPins pins;
      Engine engine({.budget = limit, .preemptive = false, .deadlock_grace = std::chrono::milliseconds(20)}, &tier, &pins, DefaultPolicy());
      Chunk* const first = engine.Create(4096).value();
      Chunk* const largest = engine.Create(engine.budget()->frames_limit() / 4096 * 4096).value();
      Grow(&tier, &engine, std::min<uint64_t>(limit / 200, 300'000));
      EXPECT_TRUE(engine.Acquire(first, true).ok());
      EXPECT_TRUE(engine.Acquire(largest, true).ok());
      pins.all_pinned = true;
      EXPECT_EQ(engine.SetBudget(wanted).ok(), wanted >= limit);
      pins.all_pinned = false;
      EXPECT_TRUE(engine.Acquire(first, true).ok());
      const Status status = engine.Acquire(largest, true);
      EXPECT_TRUE(status.ok()) << limit << ", then " << wanted << ": " << status.ToString();
      EXPECT_TRUE(engine.IsValid());
      engine.Free(first);
      engine.Free(largest);
    }
  }
}

// Every second granule of it is taken, so that each slot is in as many pieces as it can be. Moves nothing: no frame is ever touched.
class TierInGranules final : public PlainTier {
 public:
  // One transfer ends each `polls_each` looks.
  TierInGranules(uint64_t bytes, unsigned polls_each) : polls_each_(polls_each) {
    space_.AddRegion(bytes);
    std::vector<SlotRef> granules(bytes / kSwapGranule);
    for (SlotRef& one : granules) one = space_.Reserve(kSwapGranule);
    for (size_t i = 0; i < granules.size(); i += 2) space_.Free(granules[i], kSwapGranule);
  }
  Engine* engine = nullptr;
  uint64_t most = 0;  // of frames and metadata together, whenever something is moved
  Capabilities capabilities() const noexcept override { return {.name = "granules", .checksums = true}; }
  Result<SlotRef> Reserve(size_t bytes) override {
    const SlotRef slot = space_.Reserve(bytes);
    return slot ? Result<SlotRef>(slot) : Result<SlotRef>(ResourceExhausted("full"));
  }
  void Free(SlotRef slot, size_t bytes) noexcept override { space_.Free(slot, bytes); }
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override { Complete(batch); }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override { Complete(batch); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds) override {
    if (++polls_ % polls_each_ != 0) return 0;
    const size_t n = std::min({done.size(), done_.size(), size_t{1}});
    std::copy_n(done_.begin(), n, done.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<ptrdiff_t>(n));
    return n;
  }
  TierStats stats() const noexcept override { return {.metadata_bytes = space_.metadata_bytes()}; }

 private:
  void Complete(std::span<IoRequest* const> batch) {
    for (IoRequest* one : batch) {
      one->result = StatusCode::kOk;
      one->bytes_done = one->bytes;
    }
    done_.insert(done_.end(), batch.begin(), batch.end());
    const uint64_t others = engine->budget()->metadata() - engine->budget()->tier_metadata();
    most = std::max(most, engine->counters().resident_bytes + others + space_.metadata_bytes());
  }
  const unsigned polls_each_;
  unsigned polls_ = 0;
  SlotSpace space_;
  std::vector<IoRequest*> done_;
};

// Rows of a batch of victims were made while all their frames were there, 2.3 MiB too much at 1 GiB; and with slow swap those of batch after batch.
TEST(FullTables, RowsOfWhatLeavesAreMadeOneAfterTheOtherWhereTheLimitIsNear) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a million granules and one thread: 50 s, and nothing for a sanitizer";
#endif
  for (const unsigned polls_each : {1u, 100u}) {
    constexpr uint64_t kLimit = 1024 * kMiB;
    NoPins pins;
    TierInGranules tier(4 * kLimit, polls_each);
    Engine engine({.budget = kLimit, .preemptive = false}, &tier, &pins, DefaultPolicy());
    tier.engine = &engine;
    std::vector<Chunk*> chunks;
    const auto add = [&](uint64_t bytes) {
      chunks.push_back(engine.Create(bytes).value());
      const Status status = engine.Acquire(chunks.back(), true);
      EXPECT_TRUE(status.ok()) << status.ToString();
    };
    while (engine.counters().resident_bytes + 16 * kMiB <= engine.budget()->frames_limit()) add(16 * kMiB);
    add((engine.budget()->frames_limit() - engine.counters().resident_bytes) / kSwapGranule * kSwapGranule);
    add(700 * kMiB);
    EXPECT_GT(tier.most, 700 * kMiB);
    EXPECT_LE(tier.most, kLimit) << polls_each;
    for (Chunk* chunk : chunks) engine.Free(chunk);
    engine.Drain();
  }
}

// Each slot is in granules, and rows would take all of the limit: swap is full before.
TEST(FullTables, RowsLeaveRoomForEveryObject) {
  constexpr uint64_t kLimit = kMiB;
  NoPins pins;
  TierInGranules tier(256 * kLimit, 1);
  Engine engine({.budget = kLimit, .preemptive = false}, &tier, &pins, DefaultPolicy());
  tier.engine = &engine;
  std::vector<Chunk*> chunks;
  for (int refused = 0; refused < 5;) {
    Result<Chunk*> chunk = engine.Create(chunks.empty() ? 500 << 10 : 64 << 10);
    const bool comes = chunk.ok() && engine.Acquire(chunk.value(), true).ok();
    if (comes) chunks.push_back(chunk.value());
    if (chunk.ok() && !comes) engine.Free(chunk.value());
    refused += !comes;
    ASSERT_LT(chunks.size(), 1000u);  // their rows would take half of the limit
  }
  EXPECT_GT(chunks.size(), 100u);
  for (Chunk* chunk : chunks) {
    const Status status = engine.Acquire(chunk, true);
    EXPECT_TRUE(status.ok()) << chunk->bytes << ": " << status.ToString();
  }
  EXPECT_LE(tier.most, kLimit);
  for (Chunk* chunk : chunks) engine.Free(chunk);
  engine.Drain();
}

// What descriptors had been let in for was forgotten while the lower limit was tried: the large object could not be read any more.
TEST(FullTables, ALimitThatIsRefusedForgetsNothing) {
  for (size_t spare = 0; spare <= 18; spare += 2) {
    constexpr uint64_t kLarge = 512 << 10;
    FakeTier tier({.seed = 1, .capacity_bytes = kLarge, .full_asks = true, .synchronous = true});
    NoPins pins;
    Engine engine({.budget = 2 * kMiB, .preemptive = false}, &tier, &pins, DefaultPolicy());
    const auto make = [&](uint64_t bytes, std::vector<Chunk*>* into) {
      Result<Chunk*> chunk = engine.Create(bytes);
      if (!chunk.ok()) return false;
      if (into == nullptr || !engine.Acquire(chunk.value(), true).ok()) return engine.Free(chunk.value()), false;
      into->push_back(chunk.value());
      return true;
    };
    Chunk* const large = engine.Create(kLarge).value();
    ASSERT_TRUE(engine.Acquire(large, true).ok());
    std::vector<Chunk*> small, empty, passing;
    while (make(4096, &small)) continue;
    for (size_t i = 0; i < spare; ++i) {
      engine.Free(small.back());
      small.pop_back();
    }
    const auto drive_out = [&] {
      for (int i = 0; i < 40 && large->frame != nullptr; ++i) {
        static_cast<void>(make(64 << 10, &passing));
        for (Chunk* chunk : passing) engine.Free(chunk);
        passing.clear();
      }
    };
    drive_out();
    for (Result<Chunk*> one = engine.Create(64); one.ok() && empty.size() < 1500; one = engine.Create(64)) empty.push_back(one.value());
    EXPECT_FALSE(engine.SetBudget(700'000).ok());
    for (int round = 0; round < 3; ++round) {
      const Status status = engine.Acquire(large, false);
      ASSERT_TRUE(status.ok()) << spare << ": " << status.ToString();
      drive_out();
    }
    for (Chunk* chunk : small) engine.Free(chunk);
    for (Chunk* chunk : empty) engine.Free(chunk);
    engine.Free(large);
  }
}

}  // namespace
}  // namespace ramspan
