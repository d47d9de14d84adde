// The cyclic policy's read-ahead, in a real engine whose mover runs after each access: no clock, no second thread.
#include <gtest/gtest.h>

#include <cerrno>
#include <cfenv>
#include <memory>
#include <random>
#include <vector>

#include "client/engine/engine.h"
#include "tests/support/fake_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"

namespace ramspan {
namespace {

class ReadAhead : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 16 << 10;
  static constexpr size_t kChunks = 600;  // 9.4 MiB in a limit of 3 MiB

  ReadAhead()
      : engine_({.budget = uint64_t{3} << 20}, &tier_, &pins_,
                PolicyNamed("cyclic")) {
    for (size_t i = 0; i < kChunks; ++i) {
      chunks_.push_back(engine_.Create(kBytes).value());
      Access(i, true);
    }
  }
  ~ReadAhead() override {
    for (Chunk* chunk : chunks_) engine_.Free(chunk);
    EXPECT_TRUE(engine_.IsValid());
    EXPECT_TRUE(engine_.CheckPolicy());
  }

  void Access(size_t i, bool write = false) {
    ASSERT_TRUE(engine_.Acquire(chunks_[i], write).ok());
    for (int step = 0; step < 4; ++step) engine_.MoverStep();
  }
  void Sweep() {
    for (size_t i = 0; i < kChunks; ++i) Access(i);
  }
  void Random(size_t accesses) {
    for (size_t k = 0; k < accesses; ++k) Access(random_() % kChunks);
  }
  struct Counts {
    double misses, issued, hits, wasted;
  };
  // Of what `work` does.
  template <typename Work>
  Counts Count(Work&& work) {
    const EngineCounters a = engine_.counters();
    work();
    const EngineCounters b = engine_.counters();
    const auto d = [](uint64_t x, uint64_t y) { return static_cast<double>(y - x); };
    return {d(a.misses, b.misses), d(a.prefetch_issued, b.prefetch_issued), d(a.prefetch_hits, b.prefetch_hits),
            d(a.prefetch_wasted, b.prefetch_wasted)};
  }

  FakeTier tier_{FakeTierOptions{.seed = 3}};
  NoPins pins_;
  Engine engine_;
  std::vector<Chunk*> chunks_;
  std::mt19937_64 random_{5};
};

TEST_F(ReadAhead, HitsNearlyAlwaysInASweep) {
  Sweep();
  const Counts sweep = Count([&] { Sweep(); });
  EXPECT_GT(sweep.hits, 9 * sweep.misses);
  EXPECT_LT(sweep.wasted, 0.02 * kChunks);
}

// The probability of so many hits by chance was calculated by std::pow, which underflowed: a flag and an errno that the
// program's thread found after a pull.
TEST_F(ReadAhead, CalculatesWithoutUnderflowHoweverLongAnOrderHolds) {
  Sweep();
  std::feclearexcept(FE_ALL_EXCEPT);
  errno = 0;
  const Counts sweeps = Count([&] {
    for (int i = 0; i < 3; ++i) Sweep();
  });
  EXPECT_EQ(errno, 0);
  EXPECT_EQ(std::fetestexcept(FE_UNDERFLOW | FE_OVERFLOW | FE_DIVBYZERO | FE_INVALID), 0);
  EXPECT_GT(sweeps.hits, 1000);
}

TEST_F(ReadAhead, CostsRandomAccessNextToNothing) {
  Random(1000);
  const Counts random = Count([&] { Random(6000); });
  EXPECT_LT(random.issued, 0.05 * 6000);
  EXPECT_GT(random.issued, 60);  // it goes on to look for an order
  EXPECT_LE(engine_.counters().preemptive_bytes, 3 * kBytes);  // the memory is for what is used
}

TEST_F(ReadAhead, FindsTheOrderAgainWithinASweepAfterRandomAccess) {
  for (int round = 0; round < 3; ++round) {
    Random(3000);
    Sweep();
    for (size_t i = 0; i < kChunks / 3; ++i) Access(i);  // some probes go by
    const Counts rest = Count([&] {
      for (size_t i = kChunks / 3; i < kChunks; ++i) Access(i);
    });
    EXPECT_GT(rest.hits, 9 * rest.misses) << "round " << round;
    EXPECT_GE(engine_.counters().preemptive_bytes, 8 * kBytes);
    const Counts next = Count([&] { Sweep(); });
    EXPECT_GT(next.hits, 9 * next.misses) << "round " << round;
  }
}

TEST_F(ReadAhead, ComesBackWhenItIsSwitchedOnAgain) {
  engine_.SetPreemptive(false, false);
  const Counts off = Count([&] { Sweep(); });
  EXPECT_EQ(off.issued, 0);
  engine_.SetPreemptive(true, true);
  Sweep();
  const Counts on = Count([&] { Sweep(); });
  EXPECT_GT(on.hits, 9 * on.misses);
}

}  // namespace
}  // namespace ramspan
