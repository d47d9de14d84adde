// The miss path allocates nothing once it is warm: it may be entered where the heap may not be used (a fault handler), and
// evicting must not need memory that could itself need an eviction (I5). Counts what operator new is asked for by the calling
// thread, aligned requests aside. A tier that is full and has another one below it still builds messages: not tested here.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "client/engine/engine.h"
#include "client/policy/cyclic.h"
#include "client/swap/file_swap.h"
#include "client/swap/tiered_swap.h"
#include "tests/support/fake_tier.h"
#include "tests/support/no_pins.h"

namespace {
thread_local bool t_counting = false;
std::atomic<int> allocations{0};

void* Allocate(size_t bytes) {
  if (t_counting) ++allocations;
  void* at = std::malloc(bytes > 0 ? bytes : 1);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}
}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }
void operator delete[](void* at, size_t) noexcept { std::free(at); }

namespace ramspan {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct Counted {
  Counted() { t_counting = true; }
  ~Counted() { t_counting = false; }
};

// The fake tier keeps its slots in maps: what it does itself is not counted.
class UncountedFake final : public SwapTier {
 public:
  Capabilities capabilities() const override { return real_.capabilities(); }
  Result<SlotRef> Reserve(size_t bytes) override {
    const Pause pause;
    return real_.Reserve(bytes);
  }
  void Free(SlotRef slot, size_t bytes) override {
    const Pause pause;
    real_.Free(slot, bytes);
  }
  void SubmitWrite(std::span<IoRequest* const> batch) override {
    const Pause pause;
    real_.SubmitWrite(batch);
  }
  void SubmitRead(std::span<IoRequest* const> batch) override {
    const Pause pause;
    real_.SubmitRead(batch);
  }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override {
    const Pause pause;
    return real_.Poll(done, wait);
  }
  TierStats stats() const override {
    const Pause pause;
    return real_.stats();
  }

 private:
  struct Pause {
    const bool before = std::exchange(t_counting, false);
    ~Pause() { t_counting = before; }
  };
  FakeTier real_{FakeTierOptions{.seed = 31, .capacity_bytes = 64 * kMiB}};
};

int AllocationsOnceWarm(std::unique_ptr<SwapTier> tier) {
  std::vector<std::unique_ptr<SwapTier>> tiers;
  tiers.push_back(std::move(tier));
  TieredSwap swap(std::move(tiers));
  NoPins pins;
  Engine engine({.budget = 2 * kMiB}, &swap, &pins,
                [](const ChunkTable* chunks) { return std::make_unique<CyclicPolicy>(chunks); });
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 96; ++i) chunks.push_back(engine.Create((i % 3 + 2) * 20'000).value());
  const auto sweep = [&](bool write) {
    for (Chunk* chunk : chunks) {
      ASSERT_TRUE(engine.Acquire(chunk, write).ok());
      if (write) std::memset(chunk->frame, 1, chunk->bytes);
      engine.MoverStep();
    }
  };
  const auto rounds = [&](int n) {
    for (int i = 0; i < n; ++i) {
      sweep(true);
      sweep(false);
      engine.Prefetch(chunks[0]);
    }
  };
  rounds(10);
  const auto reads = [&] { return engine.counters().misses + engine.counters().prefetch_issued; };
  const uint64_t evictions_before = engine.counters().evictions, reads_before = reads();
  allocations = 0;
  {
    const Counted counted;
    rounds(3);
  }
  EXPECT_GT(engine.counters().evictions, evictions_before + 200);
  EXPECT_GT(reads(), reads_before + 200);
  for (Chunk* chunk : chunks) engine.Free(chunk);
  engine.Drain();
  return allocations;
}

TEST(MissPath, AllocatesNothingOnceWarm) { EXPECT_EQ(AllocationsOnceWarm(std::make_unique<UncountedFake>()), 0); }

TEST(MissPath, AllocatesNothingOnceWarmOverFiles) {
  for (const bool direct : {false, true}) {
    FileSwapOptions options;
    options.mask = testing::TempDir() + "ramspan-allocation-%d-%d.swap";
    options.bytes_max = 64 * kMiB;
    options.direct = direct;
    Result<std::unique_ptr<FileSwap>> files = FileSwap::Create(options);
    ASSERT_TRUE(files.ok()) << files.status().ToString();
    EXPECT_EQ(AllocationsOnceWarm(std::move(files).value()), 0) << (direct ? "direct" : "buffered");
  }
}

// Descriptors of transfers beyond the first 128 were of nobody's budget, and their list grew when they came back.
TEST(MissPath, MoreTransfersAtOnceThanEverAreChargedAndStay) {
  constexpr size_t kMany = 700;
  UncountedFake swap;
  NoPins pins;
  Engine engine({.budget = 16 * kMiB, .preemptive = false}, &swap, &pins, [](const ChunkTable* chunks) { return std::make_unique<CyclicPolicy>(chunks); });
  std::vector<Chunk*> chunks;
  const auto push_out = [&] {
    Chunk* large = engine.Create(15 * kMiB).value();
    ASSERT_TRUE(engine.Acquire(large, true).ok());
    engine.Free(large);
  };
  for (size_t i = 0; i < kMany; ++i) {
    chunks.push_back(engine.Create(4096).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
  }
  push_out();
  const uint64_t before = engine.counters().metadata_bytes;
  const auto read_all_at_once = [&] {
    for (Chunk* chunk : chunks) engine.Prefetch(chunk);
    engine.Drain();
  };
  read_all_at_once();
  const uint64_t charged = engine.counters().metadata_bytes - before;
  EXPECT_GE(charged, 128 * 128) << "most of them were under way at once";
  EXPECT_LE(charged, kMany * 256);
  push_out();
  allocations = 0;
  {
    const Counted counted;
    read_all_at_once();
  }
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(engine.counters().metadata_bytes - before, charged);
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

}  // namespace
}  // namespace ramspan
