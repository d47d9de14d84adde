// Seeded schedules of the engine over the strict fake tier: random operations, completion orders, delays and failures.
// After each step the invariants must hold, and what is read must be what was last written (I7). One thread: a wait that
// could not make progress would hang, and the test's time limit would say so.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "client/engine/engine.h"
#include "client/swap/tiered_swap.h"
#include "tests/support/fake_tier.h"
#include "tests/support/policies.h"

namespace ramspan {
namespace {

// Pins of the simulated program: a multiset instead of thread tables.
class SimPins final : public PinScanner {
 public:
  std::multiset<const Chunk*> held;
  void Barrier() override {}
  void FindPinned(std::span<Chunk* const> chunks, std::span<bool> pinned) override {
    for (size_t i = 0; i < chunks.size(); ++i) pinned[i] = pinned[i] || held.count(chunks[i]) > 0;
  }
  void SetWaiting(Chunk*) override {}
  Verdict JudgeWaiters() override { return Verdict::kDeadlock; }  // the only thread
};

struct Object {
  Chunk* chunk;
  uint64_t version = 0;  // 0: never written
  int pins = 0;
  bool lost = false;
};

class World {
 public:
  World(uint64_t seed, const FakeTierOptions& tier, const std::string& policy)
      : random_(seed), tier_(tier), engine_(EngineOptions(), &tier_, &pins_, PolicyNamed(policy)) {}
  ~World() {
    for (auto& [id, o] : objects_) Drop(&o);
    engine_.Drain();
    EXPECT_EQ(tier_.slots(), 0u) << "slots of chunks that are freed";
    EXPECT_EQ(engine_.counters().resident_bytes, 0u);
    EXPECT_EQ(engine_.counters().chunks, 0u);
  }

  FakeTier& tier() { return tier_; }
  std::set<StatusCode> may_fail_with;  // what an access may end in besides success

  void Step() {
    switch (random_() % 12) {
      case 0: Create(); break;
      case 1: if (random_() % 3 == 0) Erase(); break;
      case 2: case 3: case 4: case 5: Touch(true); break;
      case 6: case 7: Touch(false); break;
      case 8: if (Object* o = Pick()) engine_.Prefetch(o->chunk); break;
      case 9: Unpin(); break;
      case 10: engine_.MoverStep(); break;
      case 11: if (random_() % 50 == 0) Resize(); break;
    }
    ASSERT_TRUE(engine_.IsValid());
    ASSERT_TRUE(engine_.CheckPolicy());
  }
  void CheckAll() {
    UnpinAll();
    for (auto& [id, o] : objects_) {
      Access(&o, false);
      UnpinAll();
    }
  }

 private:
  static Engine::Options EngineOptions() {
    Engine::Options options;
    options.budget = 1 << 20;
    options.deadlock_settle = std::chrono::milliseconds(0);  // no thread will unpin meanwhile
    return options;
  }
  Object* Pick() {
    if (objects_.empty()) return nullptr;
    auto it = objects_.begin();
    // Half of the accesses walk in order, so that reading ahead has something to learn.
    const size_t index = random_() % 2 ? walk_++ % objects_.size() : random_() % objects_.size();
    std::advance(it, index);
    return &it->second;
  }
  void Create() {
    if (objects_.size() >= 120) return;
    Result<Chunk*> chunk = engine_.Create(1 + random_() % 60000);
    ASSERT_TRUE(chunk.ok()) << chunk.status().ToString();
    objects_[next_++] = Object{chunk.value()};
  }
  void Drop(Object* o) {
    for (; o->pins > 0; --o->pins) pins_.held.erase(pins_.held.find(o->chunk));
    engine_.Free(o->chunk);
  }
  void Erase() {
    if (objects_.empty()) return;
    auto it = objects_.begin();
    std::advance(it, random_() % objects_.size());
    Drop(&it->second);
    objects_.erase(it);
  }
  static unsigned char Byte(const Object& o) { return static_cast<unsigned char>(o.version * 37 + o.chunk->id * 31); }
  void Touch(bool write) {
    if (Object* o = Pick()) Access(o, write);
  }
  void Access(Object* o, bool write) {
    pins_.held.insert(o->chunk);
    ++o->pins;
    const Status status = engine_.Acquire(o->chunk, write);
    if (!status.ok()) {
      pins_.held.erase(pins_.held.find(o->chunk));
      --o->pins;
      ASSERT_TRUE(may_fail_with.contains(status.code())) << status.ToString();
      if (status.code() == StatusCode::kDataLoss) o->lost = true;
      return;
    }
    ASSERT_FALSE(o->lost) << "a lost chunk came back";
    auto* bytes = static_cast<unsigned char*>(o->chunk->frame);
    const size_t n = o->chunk->bytes;
    if (o->version != 0) {  // every byte is the one last written
      ASSERT_EQ(bytes[0], Byte(*o)) << "chunk " << o->chunk->id;
      ASSERT_EQ(std::memcmp(bytes, bytes + 1, n - 1), 0) << "chunk " << o->chunk->id;
    }
    if (write) {
      ++o->version;
      std::memset(bytes, Byte(*o), n);
    }
    if (pins_.held.size() > 6) UnpinAll();
  }
  void Unpin() {
    for (auto& [id, o] : objects_) {
      if (o.pins == 0 || random_() % 2) continue;
      --o.pins;
      pins_.held.erase(pins_.held.find(o.chunk));
    }
  }
  void UnpinAll() {
    for (auto& [id, o] : objects_) o.pins = 0;
    pins_.held.clear();
  }
  void Resize() {
    UnpinAll();
    const Status status = engine_.SetBudget((1 << 20) - (random_() % 3) * (200 << 10));
    ASSERT_TRUE(status.ok() || status.code() == StatusCode::kResourceExhausted ||
                status.code() == StatusCode::kUnavailable) << status.ToString();
  }

  std::mt19937_64 random_;
  SimPins pins_;
  FakeTier tier_;
  Engine engine_;
  std::map<uint64_t, Object> objects_;
  uint64_t next_ = 0;
  uint64_t walk_ = 0;
};

uint64_t Seeds() {
  const char* text = std::getenv("RAMSPAN_TEST_SEEDS");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return text ? std::strtoull(text, nullptr, 10) : 60;
#else
  return text ? std::strtoull(text, nullptr, 10) : 1000;
#endif
}

// Every policy that the factory makes has to keep the engine's promises.
class Schedules : public testing::TestWithParam<const char*> {
 protected:
  // `may_fail_with`: what an access may end in while `rates` hold; afterwards all that is not lost is there.
  static void Run(const FaultRates& rates, bool synchronous, uint64_t capacity, const std::set<StatusCode>& may_fail_with) {
    for (uint64_t seed = 1; seed <= Seeds() && !HasFailure(); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      FakeTierOptions options;
      options.seed = seed;
      options.synchronous = synchronous;
      options.checksums = synchronous && seed % 2 == 0;
      options.capacity_bytes = capacity;
      options.empty_poll_rate = 0.1;
      options.reserve_waits_rate = 0.2;
      options.rates = rates;
      World world(seed, options, GetParam());
      world.may_fail_with = may_fail_with;
      for (int step = 0; step < 400 && !HasFailure(); ++step) world.Step();
      world.tier().faults().SetRates({});
      world.tier().SetCapacity(uint64_t{64} << 20);
      std::erase_if(world.may_fail_with, [](StatusCode code) { return code != StatusCode::kDataLoss; });
      if (!HasFailure()) world.CheckAll();
    }
  }
};

TEST_P(Schedules, BytesReadBackAreTheBytesLastWritten) { Run({}, false, 64 << 20, {}); }

TEST_P(Schedules, TheSameOverATierThatCompletesInSubmit) { Run({}, true, 64 << 20, {}); }

TEST_P(Schedules, FailedAndShortTransfersLoseNothing) {
  FaultRates rates;
  rates.write_fails = 0.1;
  rates.write_short = 0.05;
  rates.write_full = 0.05;
  rates.read_fails = 0.05;
  rates.read_short = 0.05;
  Run(rates, false, 64 << 20, {StatusCode::kUnavailable});
}

TEST_P(Schedules, AFullTierThrowsButLosesNothing) {
  Run({.reserve_full = 0.05}, false, 1 << 20, {StatusCode::kResourceExhausted});
}

TEST_P(Schedules, WrongBytesAreNeverHandedOut) {
  FaultRates rates;
  rates.write_flipped = 0.02;
  rates.read_flipped = 0.02;
  Run(rates, false, 64 << 20, {StatusCode::kDataLoss});
}

INSTANTIATE_TEST_SUITE_P(Policies, Schedules, testing::ValuesIn(PolicyNames().begin(), PolicyNames().end()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(EngineSim, AChunkFreedWhileItIsReadGoesAlsoWhenTheReadFails) {
  for (const bool fails : {false, true}) {
    FakeTier tier(FakeTierOptions{.seed = 4});
    SimPins pins;
    Engine::Options options;
    options.budget = uint64_t{1} << 20;
    Engine engine(options, &tier, &pins, DefaultPolicy());
    Chunk* chunk = engine.Create(4096).value();
    ASSERT_TRUE(engine.Acquire(chunk, true).ok());
    ASSERT_TRUE(engine.SetBudget(144 << 10).ok());  // what is left after the descriptors' reserve is less than a frame
    ASSERT_TRUE(engine.SetBudget(1 << 20).ok());
    ASSERT_EQ(PhaseOf(chunk), Phase::kSwapped);
    if (fails) tier.faults().SetRates({.read_fails = 1});
    engine.Prefetch(chunk);
    ASSERT_EQ(tier.in_flight(), 1u);
    engine.Free(chunk);
    engine.Drain();
    EXPECT_EQ(tier.slots(), 0u);
    EXPECT_EQ(engine.counters().chunks, 0u);
    EXPECT_EQ(engine.counters().resident_bytes, 0u);
  }
}

// A clean chunk whose server had died was dropped at its next eviction, although memory still held it.
TEST(EngineSim, ACleanChunkWhoseServerDiedIsWrittenElsewhere) {
  constexpr uint64_t kChunk = 64 << 10;
  std::vector<std::unique_ptr<SwapTier>> tiers;
  tiers.push_back(std::make_unique<FakeTier>(FakeTierOptions{.seed = 1}));
  tiers.push_back(std::make_unique<FakeTier>(FakeTierOptions{.seed = 2}));
  auto* upper = static_cast<FakeTier*>(tiers[0].get());
  TieredSwap swap(std::move(tiers));
  SimPins pins;
  Engine::Options options;
  options.budget = uint64_t{4} << 20;
  options.preemptive = false;
  Engine engine(options, &swap, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 16; ++i) {
    chunks.push_back(engine.Create(kChunk).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
    std::memset(chunks.back()->frame, i + 1, kChunk);
  }
  ASSERT_TRUE(engine.SetBudget(512 << 10).ok());  // most of them leave for the upper tier
  ASSERT_TRUE(engine.SetBudget(uint64_t{4} << 20).ok());
  for (Chunk* chunk : chunks) ASSERT_TRUE(engine.Acquire(chunk, false).ok());  // back, and clean
  upper->SetGone(true);
  ASSERT_TRUE(engine.SetBudget(512 << 10).ok());
  for (int i = 0; i < 16; ++i) {
    const Status status = engine.Acquire(chunks[i], false);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(static_cast<unsigned char*>(chunks[i]->frame)[kChunk / 2], i + 1);
  }
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// adhereTo's hints once went into the policy's ring of chunks that it fetched ahead, without its bound: chunks were in
// it twice and left twice. They also counted as hits of its guesses, which made random access look ordered.
TEST(EngineSim, MoreHintsThanTheReadAheadRingHoldsAreMissesAndNotGuesses) {
  constexpr uint64_t kChunk = 64 << 10;
  FakeTier tier(FakeTierOptions{.seed = 5, .synchronous = true});
  SimPins pins;
  Engine::Options options;
  options.budget = uint64_t{48} << 20;  // a tenth of it is 76 chunks
  Engine engine(options, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 600; ++i) {
    chunks.push_back(engine.Create(kChunk).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
    std::memset(chunks.back()->frame, i & 0xff, kChunk);
  }
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(engine.SetBudget(uint64_t{2} << 20).ok());
    ASSERT_TRUE(engine.SetBudget(uint64_t{48} << 20).ok());
    for (Chunk* chunk : chunks) engine.Prefetch(chunk);
    engine.Drain();
    ASSERT_TRUE(engine.IsValid());
    for (int i = 0; i < 600; ++i) {
      ASSERT_TRUE(engine.Acquire(chunks[i], false).ok());
      ASSERT_EQ(static_cast<unsigned char*>(chunks[i]->frame)[kChunk - 1], i & 0xff);
    }
  }
  EXPECT_EQ(engine.counters().prefetch_hits, 0u);
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// A disk of which every write fails made the thread that wanted memory try for ever.
TEST(EngineSim, WritesThatAlwaysFailEndInAnErrorAndLoseNothing) {
  constexpr uint64_t kChunk = 64 << 10;
  for (const bool synchronous : {false, true}) {
    FakeTier tier(FakeTierOptions{.seed = 6, .synchronous = synchronous});
    SimPins pins;
    Engine::Options options;
    options.budget = uint64_t{1} << 20;
    Engine engine(options, &tier, &pins, DefaultPolicy());
    tier.faults().SetRates({.write_fails = 1});
    std::vector<Chunk*> chunks;
    Status status;
    while (status.ok() && chunks.size() < 100) {
      chunks.push_back(engine.Create(kChunk).value());
      status = engine.Acquire(chunks.back(), true);
      if (status.ok()) std::memset(chunks.back()->frame, static_cast<int>(chunks.size()), kChunk);
    }
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
    EXPECT_EQ(engine.Acquire(chunks.back(), true).code(), StatusCode::kUnavailable);
    EXPECT_EQ(engine.SetBudget(512 << 10).code(), StatusCode::kUnavailable);
    tier.faults().SetRates({});  // somebody made room on the disk
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
    for (size_t i = 0; i + 1 < chunks.size(); ++i) {
      ASSERT_TRUE(engine.Acquire(chunks[i], false).ok());
      EXPECT_EQ(static_cast<unsigned char*>(chunks[i]->frame)[kChunk / 2], i + 1);
    }
    for (Chunk* chunk : chunks) engine.Free(chunk);
    engine.Drain();
  }
}

// 64 KiB of descriptors for every 1024 chunks were made beside frames that filled the limit already.
TEST(EngineSim, DescriptorsOfManyChunksPushFramesOut) {
  FakeTier tier(FakeTierOptions{.seed = 8, .synchronous = true});
  SimPins pins;
  Engine::Options options;
  options.budget = uint64_t{4} << 20;
  options.preemptive = false;
  Engine engine(options, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 64; ++i) {
    chunks.push_back(engine.Create(64 << 10).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
    std::memset(chunks.back()->frame, i, 64 << 10);
  }
  for (int i = 0; i < 40000; ++i) {
    chunks.push_back(engine.Create(8).value());
    if (i % 100 == 0) {
      ASSERT_TRUE(engine.IsValid()) << i;
    }
  }
  EXPECT_LE(engine.counters().peak_resident_bytes, options.budget);
  for (int i = 0; i < 64; ++i) {
    ASSERT_TRUE(engine.Acquire(chunks[static_cast<size_t>(i)], false).ok());
    EXPECT_EQ(static_cast<unsigned char*>(chunks[static_cast<size_t>(i)]->frame)[9], i);
  }
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// A tier that asks before it grows, and has room for small chunks only: the first victim's refusal was the pull's error.
TEST(EngineSim, AVictimTooLargeForSwapDoesNotHideThoseThatFit) {
  FakeTier tier(FakeTierOptions{.seed = 9, .capacity_bytes = uint64_t{100} << 16, .reserve_waits_rate = 0.7});
  SimPins pins;
  Engine::Options options;
  options.budget = uint64_t{256} << 16;
  options.preemptive = false;
  Engine engine(options, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  const auto touch = [&](uint64_t bytes) {
    chunks.push_back(engine.Create(bytes).value());
    return engine.Acquire(chunks.back(), true);
  };
  ASSERT_TRUE(touch(uint64_t{128} << 16).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(touch(1 << 16).ok());
  const Status status = touch(uint64_t{60} << 16);
  EXPECT_TRUE(status.ok()) << status.ToString();
  for (Chunk* chunk : chunks) engine.Free(chunk);
  engine.Drain();
}

// Each chunk was read, found no other place, and was pushed out again by the next one: for ever, while the server drained.
TEST(EngineSim, VacateReadsNothingForWhichThereIsNoOtherPlace) {
  FakeTier tier(FakeTierOptions{.seed = 11});
  SimPins pins;
  Engine::Options options;
  options.budget = uint64_t{512} << 10;
  options.preemptive = false;
  Engine engine(options, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 64; ++i) {
    chunks.push_back(engine.Create(64 << 10).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
    std::memset(chunks.back()->frame, i, 64 << 10);
  }
  const uint64_t before = tier.stats().reads;
  tier.faults().NextReservesAreFull(100'000);
  EXPECT_EQ(engine.Vacate([](SlotRef, size_t) { return true; }).code(), StatusCode::kResourceExhausted);
  EXPECT_LT(tier.stats().reads - before, 10u) << "a memory full of chunks, at most";
  for (size_t i = 0; i < chunks.size(); ++i) {
    ASSERT_TRUE(engine.Acquire(chunks[i], false).ok());
    EXPECT_EQ(static_cast<unsigned char*>(chunks[i]->frame)[77], i);
  }
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// At MPI_Finalize the first chunk that could not come home left all the others on the servers, where they were lost.
TEST(EngineSim, VacateBringsHomeWhatItCanWhenAChunkIsLost) {
  FakeTier tier(FakeTierOptions{.seed = 10});
  SimPins pins;
  Engine::Options options;
  options.budget = uint64_t{4} << 20;
  Engine engine(options, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 16; ++i) {
    chunks.push_back(engine.Create(64 << 10).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
    std::memset(chunks.back()->frame, i, 64 << 10);
  }
  ASSERT_TRUE(engine.SetBudget(192 << 10).ok());
  ASSERT_TRUE(engine.SetBudget(uint64_t{4} << 20).ok());
  tier.faults().NextReads(Fault::kFlippedByte, 2);  // also when it is read again
  EXPECT_EQ(engine.Vacate([](SlotRef, size_t) { return true; }).code(), StatusCode::kDataLoss);
  EXPECT_EQ(tier.slots(), 1u);  // the lost one's
  int lost = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (PhaseOf(chunks[i]) == Phase::kLost) {
      ++lost;
    } else {
      ASSERT_EQ(PhaseOf(chunks[i]), Phase::kResident);
      EXPECT_EQ(static_cast<unsigned char*>(chunks[i]->frame)[77], i);
    }
  }
  EXPECT_EQ(lost, 1);
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

}  // namespace
}  // namespace ramspan
