// The miss path allocates nothing once it is warm: it may be entered where the heap may not be used (a fault handler), and
// evicting must not need memory that could itself need an eviction (I5). Over real servers: tests/ofi/miss_path_test.cc,
// tests/mpi/remote_contract_test.cc.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "client/engine/engine.h"
#include "client/swap/file_swap.h"
#include "client/swap/remote_swap.h"
#include "client/swap/retirable_tier.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/heap_watch.h"
#include "tests/support/local_transport.h"
#include "tests/support/miss_path.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"
#include "tests/support/unwatched_transport.h"

namespace ramspan {
namespace {

// A tier and what it stands on.
class UncountedFake final : public ForwardingTier {
 public:
  explicit UncountedFake(uint64_t capacity_bytes = 64 * kMiB) : ForwardingTier(&watched_), real_({.seed = 31, .capacity_bytes = capacity_bytes}) {}

 private:
  FakeTier real_;
  Uncounted watched_{&real_, true};
};

class OverServers final : public ForwardingTier {
 public:
  explicit OverServers(const LocalServersOptions& options, const RemoteSwapOptions& swap = {})
      : ForwardingTier(&watched_), servers_(options), transport_(servers_.Connect(0)), real_(transport_, swap) {}

 private:
  LocalServers servers_;
  UnwatchedTransport transport_;
  RemoteSwap real_;
  Uncounted watched_{&real_, false};
};

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

// Nobody had counted there: the port of the transports promises it, and so do the tiers.
TEST(MissPath, AllocatesNothingOnceWarmOverServers) {
  EXPECT_EQ(AllocationsOnceWarm(std::make_unique<OverServers>(LocalServersOptions{.near = 1})), 0) << "near";
  EXPECT_EQ(AllocationsOnceWarm(std::make_unique<OverServers>(LocalServersOptions{.seed = 2, .servers = 2, .delay_max = 3})), 0) << "far";
}

// With each slot that the upper tier refused a message was made, which nobody read, under the engine's mutex.
TEST(MissPath, AllocatesNothingWhereTheUpperTierIsFull) {
  const auto with_files_below = [](std::unique_ptr<SwapTier> upper) {
    std::vector<std::unique_ptr<SwapTier>> tiers;
    tiers.push_back(std::make_unique<RetirableTier>(std::move(upper)));
    tiers.push_back(std::make_unique<UncountedFake>());
    uint64_t used = 0;
    const int count = AllocationsOnceWarm(std::move(tiers), &used, "cyclic");
    EXPECT_GT(used, kMiB / 2);
    return count;
  };
  EXPECT_EQ(with_files_below(std::make_unique<UncountedFake>(kMiB)), 0);
  EXPECT_EQ(with_files_below(std::make_unique<OverServers>(LocalServersOptions{.pool_bytes = kMiB, .near = 1})), 0) << "near";
  EXPECT_EQ(with_files_below(std::make_unique<OverServers>(LocalServersOptions{.pool_bytes = kMiB})), 0) << "far";
}

// Descriptors of transfers beyond the first 128 were of nobody's budget, and their list grew when they came back.
TEST(MissPath, MoreTransfersAtOnceThanEverAreChargedAndStay) {
  constexpr size_t kMany = 700;
  UncountedFake swap;
  NoPins pins;
  Engine engine({.budget = 16 * kMiB, .preemptive = false}, &swap, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  const auto push_out = [&] {  // all but a few, which take what metadata leaves
    Chunk* large = engine.Create(engine.budget()->frames_limit() - 128 * 1024).value();
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
  {
    const CountedHeap counted;
    read_all_at_once();
  }
  EXPECT_EQ(CountedHeap::count(), 0);
  EXPECT_EQ(engine.counters().metadata_bytes - before, charged);
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// A fault makes the chunk of a page that is touched first, in whatever has been interrupted, malloc among it: descriptors, and what the policy keeps for each chunk, came from the heap.
TEST(MissPath, NeedsNoHeapWhereItMakesChunks) {
  UncountedFake tier;
  NoPins pins;
  Engine engine({.budget = 64 * kMiB}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks(10'000);
  int count = 0;
  {
    const CountedHeap counted;
    for (Chunk*& chunk : chunks) {
      Result<Chunk*> made = engine.Create(64);
      ASSERT_TRUE(made.ok());
      chunk = made.value();
    }
    count = CountedHeap::count();
  }
  EXPECT_EQ(count, 0);
  for (Chunk* const chunk : chunks) engine.Free(chunk);
}

}  // namespace
}  // namespace ramspan
