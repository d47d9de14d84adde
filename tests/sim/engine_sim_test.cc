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

class SimulatedProgram {
 public:
  SimulatedProgram(uint64_t seed, const FakeTierOptions& tier, const std::string& policy)
      : random_(seed), tier_(tier), engine_(EngineOptions(), &tier_, &pins_, PolicyNamed(policy)) {}
  ~SimulatedProgram() {
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

uint64_t ScheduleSeeds() {
  const char* text = std::getenv("RAMSPAN_TEST_SEEDS");
#if defined(__SANITIZE_THREAD__)
  return text ? std::strtoull(text, nullptr, 10) : 15;  // there is one thread
#elif defined(__SANITIZE_ADDRESS__)
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
    for (uint64_t seed = 1; seed <= ScheduleSeeds() && !HasFailure(); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      FakeTierOptions options;
      options.seed = seed;
      options.synchronous = synchronous;
      options.checksums = synchronous && seed % 2 == 0;
      options.capacity_bytes = capacity;
      options.empty_poll_rate = 0.1;
      options.reserve_waits_rate = 0.2;
      options.rates = rates;
      SimulatedProgram world(seed, options, GetParam());
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

}  // namespace
}  // namespace ramspan
