// A memory server that stands still while a program runs: what another server or a file can serve goes on. Nobody here is saved by a deadline.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "client/engine/engine.h"
#include "client/swap/remote_swap.h"
#include "client/swap/tiered_swap.h"
#include "tests/support/ends_or_else.h"
#include "tests/support/fake_tier.h"
#include "tests/support/local_transport.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// Whether memory is full of writes before swap can know that a server stands still is a matter of time where few chunks fit.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kNoTimeForLargeChunks = true;
#else
constexpr bool kNoTimeForLargeChunks = false;
#endif

constexpr uint64_t kServerBytes = 256 * kMiB, kLeaseBytes = 8 * kMiB;

struct Case {
  const char* name;
  uint32_t servers, near;
  bool files, mover;
  uint64_t limit;
  size_t chunk;
};

// For what the test prints.
void PrintTo(const Case& one, std::ostream* to) { *to << one.name; }

class StoppedServer : public testing::TestWithParam<Case> {
 protected:
  StoppedServer() : servers_({.servers = GetParam().servers, .pool_bytes = kServerBytes, .near = GetParam().near}), transport_(servers_.Connect(0)) {
    const RemoteSwapOptions options{
        .first_lease_bytes = kLeaseBytes, .lease_bytes_max = kLeaseBytes, .answer_timeout = std::chrono::hours(1), .is_all = !GetParam().files};
    std::vector<std::unique_ptr<SwapTier>> tiers;
    tiers.push_back(std::make_unique<RemoteSwap>(*transport_, options));
    if (GetParam().files) tiers.push_back(std::make_unique<FakeTier>(FakeTierOptions{.seed = 3, .capacity_bytes = kServerBytes, .synchronous = true, .name = "file"}));
    swap_ = std::make_unique<TieredSwap>(std::move(tiers));
    engine_ = std::make_unique<Engine>(Engine::Options{.budget = GetParam().limit, .preemptive = GetParam().mover}, swap_.get(), &pins_, DefaultPolicy());
    if (GetParam().mover) {
      mover_ = std::thread([this] {
        while (!ends_) engine_->MoverStep(), std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
    }
  }
  ~StoppedServer() override {
    servers_.Freeze(0, false);
    ends_ = true;
    if (mover_.joinable()) mover_.join();
    for (Chunk* chunk : chunks_) engine_->Free(chunk);
    engine_->Drain();
  }

  // `fill`: only where nobody else makes chunks leave, because nothing is pinned here.
  void Make(size_t chunks, bool fill = true) {
    for (size_t i = 0; i < chunks; ++i) {
      const Result<Chunk*> made = engine_->Create(GetParam().chunk);
      ASSERT_TRUE(made.ok()) << made.status().message();
      chunks_.push_back(made.value());
      Write(chunks_.size() - 1, fill);
      if (HasFatalFailure()) return;
    }
  }
  void Write(size_t i, bool fill) {
    const Status status = engine_->Acquire(chunks_[i], true);
    ASSERT_TRUE(status.ok()) << "chunk " << i << ": " << status.message();
    if (fill) std::memset(chunks_[i]->frame, static_cast<int>(i % 251), GetParam().chunk);
  }
  void Check(size_t i) {
    const Status status = engine_->Acquire(chunks_[i], false);
    ASSERT_TRUE(status.ok()) << "chunk " << i << ": " << status.message();
    const auto* bytes = static_cast<const unsigned char*>(static_cast<const void*>(chunks_[i]->frame));
    ASSERT_EQ(bytes[0], i % 251);
    ASSERT_EQ(bytes[GetParam().chunk - 1], i % 251);
  }
  void EndsBySelf(const std::function<void()>& work) {
    std::atomic<bool> done{false};
    std::thread thread([&] {
      work();
      done = true;
    });
    EndsOrElse([&] { return done.load(); });
    thread.join();
  }

  LocalServers servers_;
  std::unique_ptr<ServerTransport> transport_;
  std::unique_ptr<TieredSwap> swap_;
  NoPins pins_;
  std::unique_ptr<Engine> engine_;
  std::vector<Chunk*> chunks_;
  std::atomic<bool> ends_{false};
  std::thread mover_;
};

// Each eviction was sent to the server that stood still, until memory was full of writes that waited for it; or the program was told that room
// was gone 16 times in a row.
TEST_P(StoppedServer, NewDataFindsOtherRoom) {
  if (kNoTimeForLargeChunks && GetParam().chunk == kMiB) GTEST_SKIP() << "its bound is one of time";
  const size_t in_memory = GetParam().limit / GetParam().chunk;
  const bool fill = !GetParam().mover;
  Make(3 * in_memory, fill);
  // What is in memory now has slots, and is changed.
  for (size_t i = 0; i < chunks_.size(); ++i) Write(i, fill);
  servers_.Freeze(0, true);
  EndsBySelf([&] { Make(6 * in_memory, fill); });
  servers_.Freeze(0, false);
  for (size_t i = 0; i < chunks_.size() && fill && !HasFatalFailure(); ++i) Check(i);
}

class StoppedServerAndReaders : public StoppedServer {};

// The same beside threads that want what the server has: they wait, and what they wait with is not all of memory.
TEST_P(StoppedServerAndReaders, NewDataFindsOtherRoom) {
  if (kNoTimeForLargeChunks && GetParam().chunk == kMiB) GTEST_SKIP() << "its bound is one of time";
  const size_t in_memory = GetParam().limit / GetParam().chunk;
  Make(3 * in_memory, /*fill=*/false);
  std::atomic<bool> stop{false};
  std::atomic<size_t> failed{0};
  std::vector<std::thread> readers;
  for (size_t first : {size_t{0}, in_memory}) {
    const std::vector<Chunk*> old = chunks_;
    readers.emplace_back([this, first, old, &stop, &failed] {
      for (size_t i = first; !stop; i = (i + 1) % old.size()) failed += engine_->Acquire(old[i], false).ok() ? 0 : 1;
    });
  }
  servers_.Freeze(0, true);
  EndsBySelf([&] { Make(6 * in_memory, /*fill=*/false); });
  servers_.Freeze(0, false);
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(failed, 0u);
}

constexpr Case kSmallChunks[] = {{"Near", 2, 1, false, false, 4 * kMiB, 64 * kKiB},           {"NearAndMover", 2, 1, false, true, 4 * kMiB, 64 * kKiB},
                                 {"NearAndFiles", 1, 1, true, false, 4 * kMiB, 64 * kKiB},    {"Far", 2, 0, false, false, 4 * kMiB, 64 * kKiB},
                                 {"FarAndMover", 2, 0, false, true, 4 * kMiB, 64 * kKiB},     {"FarAndFiles", 1, 0, true, false, 4 * kMiB, 64 * kKiB},
                                 {"FarAndFilesAndMover", 1, 0, true, true, 4 * kMiB, 64 * kKiB}};
// Of which few fit.
constexpr Case kLargeChunks[] = {{"LargeChunks", 2, 0, false, false, 8 * kMiB, kMiB},
                                 {"LargeChunksAndMover", 2, 0, false, true, 8 * kMiB, kMiB},
                                 {"LargeChunksAndFiles", 1, 0, true, true, 8 * kMiB, kMiB}};
constexpr Case kLargeChunksForThree[] = {{"LargeChunks", 2, 0, false, false, 16 * kMiB, kMiB},
                                         {"LargeChunksAndMover", 2, 0, false, true, 16 * kMiB, kMiB},
                                         {"LargeChunksAndFiles", 1, 0, true, true, 16 * kMiB, kMiB}};
std::string NameOf(const testing::TestParamInfo<Case>& one) { return one.param.name; }
INSTANTIATE_TEST_SUITE_P(Small, StoppedServer, testing::ValuesIn(kSmallChunks), NameOf);
INSTANTIATE_TEST_SUITE_P(Large, StoppedServer, testing::ValuesIn(kLargeChunks), NameOf);
INSTANTIATE_TEST_SUITE_P(Small, StoppedServerAndReaders, testing::ValuesIn(kSmallChunks), NameOf);
INSTANTIATE_TEST_SUITE_P(Large, StoppedServerAndReaders, testing::ValuesIn(kLargeChunksForThree), NameOf);

}  // namespace
}  // namespace ramspan
