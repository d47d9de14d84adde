// A server that drains while there is no other place for what it holds: the program goes on, as fast as before.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "client/engine/engine.h"
#include "client/runtime/swaps.h"
#include "client/swap/remote_swap.h"
#include "client/swap/retirable_tier.h"
#include "client/swap/tiered_swap.h"
#include "tests/support/fake_tier.h"
#include "tests/support/local_transport.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"
#include "tests/support/standing_tier.h"

namespace ramspan {
namespace {

constexpr uint64_t kDrainedBytes = 64 << 10;
// A single wait for room takes so long. All that a test does takes milliseconds.
constexpr std::chrono::seconds kOneWait{5};

// A program with `swap = remote` and one server. The test does the mover's work, so all that happens is in one thread.
class Drain : public testing::TestWithParam<uint32_t> {
 protected:
  Drain() : servers_({.pool_bytes = 64 * kMiB, .near = GetParam()}), transport_(servers_.Connect(0)) {
    const RemoteSwapOptions options{.first_lease_bytes = 4 * kMiB, .lease_bytes_max = 4 * kMiB, .answer_timeout = kOneWait, .is_all = true};
    auto remote = std::make_unique<RetirableTier>(std::make_unique<RemoteSwap>(*transport_, options));
    RetirableTier* const raw = remote.get();
    std::vector<std::unique_ptr<SwapTier>> tiers;
    tiers.push_back(std::move(remote));
    swap_ = std::make_unique<TieredSwap>(std::move(tiers));
    engine_ = std::make_unique<Engine>(Engine::Options{.budget = 2 * kMiB, .preemptive = false}, swap_.get(), &pins_, DefaultPolicy());
    swaps_ = std::make_unique<Swaps>(engine_.get(), Swaps::Configured{swap_.get(), raw, nullptr});
  }
  ~Drain() override {
    for (Chunk* chunk : chunks_) engine_->Free(chunk);
    engine_->Drain();
  }

  void Fill(size_t chunks) {
    for (size_t i = 0; i < chunks && !HasFatalFailure(); ++i) {
      chunks_.push_back(engine_->Create(kDrainedBytes).value());
      values_.push_back(0);
      Write(i);
    }
  }
  void Pull(size_t i, bool write) {
    const auto begin = std::chrono::steady_clock::now();
    const Status status = engine_->Acquire(chunks_[i], write);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_LT(std::chrono::steady_clock::now() - begin, kOneWait) << "chunk " << i << " waited for room";
  }
  void Write(size_t i) {
    ASSERT_NO_FATAL_FAILURE(Pull(i, true));
    std::memset(chunks_[i]->frame, ++values_[i], kDrainedBytes);
  }
  void Read(size_t i) {
    ASSERT_NO_FATAL_FAILURE(Pull(i, false));
    const auto* bytes = static_cast<const unsigned char*>(chunks_[i]->frame);
    ASSERT_EQ(bytes[0], values_[i]) << i;
    ASSERT_EQ(bytes[kDrainedBytes - 1], values_[i]) << i;
  }
  void MoverTurn() {
    const auto begin = std::chrono::steady_clock::now();
    swap_->Upkeep();
    swaps_->LeaveDraining(stop_);
    ASSERT_LT(std::chrono::steady_clock::now() - begin, kOneWait) << "the mover waited for room";
  }
  // Random pulls of the first `of` chunks.
  void Go(size_t of, int pulls, bool write) {
    for (int n = 0; n < pulls && !HasFatalFailure(); ++n) {
      if (n % 16 == 0) MoverTurn();
      const size_t i = random_() % of;
      write ? Write(i) : Read(i);
    }
  }
  uint64_t Misses() { return engine_->counters().misses; }

  LocalServers servers_;
  std::unique_ptr<ServerTransport> transport_;
  NoPins pins_;
  std::unique_ptr<TieredSwap> swap_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Swaps> swaps_;
  std::vector<Chunk*> chunks_;
  std::vector<unsigned char> values_;
  std::mt19937 random_{1};
  const std::atomic<bool> stop_{false};
};

// Each eviction waited 5 s for room at the server that was to be left.
TEST_P(Drain, OfTheOnlyServerIsWaitedForByNoEviction) {
  Fill(160);
  Go(160, 200, true);
  servers_.Drain(0);
  Go(160, 400, true);
  ASSERT_GT(servers_.server(0).leases().leases(), 0u) << "it has no other place";
  const uint64_t writes = swap_->stats().writes;
  Go(160, 400, false);
  EXPECT_LT(swap_->stats().writes - writes, 64u) << "what is only read leaves without a write, once what was changed has gone";
  servers_.Join();
  // As the mover does, when it tries again after its pause.
  const Status left = engine_->Vacate([this](SlotRef slot, size_t bytes) { return swap_->IsLeaving(slot, bytes); });
  EXPECT_TRUE(left.ok()) << left.message();
  for (int turn = 0; turn < 100 && servers_.server(0).leases().leases() > 0; ++turn) swap_->Upkeep();
  EXPECT_EQ(servers_.server(0).leases().leases(), 0u) << "there is another place now";
  for (size_t i = 0; i < chunks_.size() && !HasFatalFailure(); ++i) Read(i);
  EXPECT_TRUE(engine_->IsValid());
}

// What came home gave its slot up, although no other place was there for it: memory was full of chunks that could not leave.
TEST_P(Drain, OfTheOnlyServerLeavesMemoryToWhatIsUsed) {
  Fill(48);  // of 64 KiB, and memory holds not quite 32
  Go(16, 400, true);
  const uint64_t before = Misses();
  Go(16, 400, true);
  const uint64_t usual = Misses() - before;
  servers_.Drain(0);
  for (int turn = 0; turn < 4; ++turn) MoverTurn();
  for (size_t i = 32; i < 48; ++i) Read(i);
  Go(16, 64, true);
  const uint64_t drained = Misses();
  Go(16, 400, true);
  EXPECT_LE(Misses() - drained, usual + 32);
  for (size_t i = 0; i < chunks_.size() && !HasFatalFailure(); ++i) Read(i);
  EXPECT_TRUE(engine_->IsValid());
}

// It has no slot, and there was none for it: what was used next had to share the frames of the few chunks that had one.
TEST_P(Drain, OfTheOnlyServerLetsChunksLeaveThatHaveNeverBeenInSwap) {
  Fill(48);
  servers_.Drain(0);
  Go(16, 400, true);  // they were the first to leave
  const uint64_t before = Misses();
  Go(16, 400, true);
  EXPECT_LE(Misses() - before, 32u);
  for (size_t i = 0; i < chunks_.size() && !HasFatalFailure(); ++i) Read(i);
  EXPECT_TRUE(engine_->IsValid());
}

// Each turn began with the first chunk, and had the engine for itself until its time was over: of millions of chunks the last never left,
// and pulls stood still meanwhile.
TEST(Vacate, GoesOnWhereItWasInterruptedAndLetsOthersGoOn) {
  constexpr size_t kMany = 20'000;
  FakeTier tier({.seed = 8, .synchronous = true});
  NoPins pins;
  Engine engine({.budget = 8 * kMiB, .checksum = false}, &tier, &pins, DefaultPolicy());
  const auto written_slot = [&] {
    alignas(4096) char data[4096] = {};
    IoRequest request{.slot = tier.Reserve(4096).value(), .buffer = data, .bytes = 4096};
    IoRequest *batch[] = {&request}, *done[1];
    tier.SubmitWrite(batch);
    EXPECT_EQ(tier.Poll(done, std::chrono::seconds(1)), 1u);
    return request.slot;
  };
  std::vector<Chunk*> chunks;
  for (size_t i = 0; i < kMany; ++i) chunks.push_back(engine.Create(4096, i == 1 || i == kMany - 1 ? written_slot() : SlotRef{}).value());
  const auto all = [](SlotRef, size_t) { return true; };
  size_t asked = 0;
  Vacating::Part part{.enough = [&] {
    EXPECT_EQ(engine.counters().chunks, kMany) << "waits for ever where Vacate holds the mutex";
    return ++asked > 0;
  }};
  ASSERT_TRUE(engine.Vacate(all, {.part = &part}).ok());
  EXPECT_GT(part.next, 1u);
  EXPECT_LT(part.next, 100u) << "after what has come home it has been asked";
  EXPECT_EQ(tier.slots(), 1u);
  int turns = 1;
  for (; part.next != 0 && turns < 100; ++turns) ASSERT_TRUE(engine.Vacate(all, {.part = &part}).ok());
  EXPECT_GT(turns, 3);
  EXPECT_LT(turns, 100);
  EXPECT_EQ(tier.slots(), 0u);
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// A server got nothing back as long as another one stood still: what lay on both was waited for.
TEST(Vacate, OfAPartComesLaterToWhatStandsStill) {
  StandingTier tier({.seed = 8, .synchronous = true});
  NoPins pins;
  Engine engine({.budget = 2 * kMiB, .preemptive = false}, &tier, &pins, PolicyNamed("cyclic"));
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 60; ++i) {
    chunks.push_back(engine.Create(kDrainedBytes).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
  }
  ASSERT_EQ(PhaseOf(chunks[1]), Phase::kSwapped);
  const SlotRef still = tier.still = chunks[1]->slot;
  std::vector<SlotRef> slots;
  for (size_t i = 0; i < 8; ++i) slots.push_back(chunks[i]->slot);
  const auto leave = [&](SlotRef slot, size_t) { return std::find(slots.begin(), slots.end(), slot) != slots.end(); };
  Vacating::Part part{.enough = [] { return false; }};
  const auto still_there = [&] { return std::count_if(chunks.begin(), chunks.begin() + 8, [&](const Chunk* c) { return c->slot && leave(c->slot, c->bytes); }); };
  for (int turn = 0; turn < 20; ++turn) ASSERT_TRUE(engine.Vacate(leave, {.part = &part}).ok());
  EXPECT_EQ(chunks[1]->slot, still);
  EXPECT_EQ(PhaseOf(chunks[1]), Phase::kSwapped);
  EXPECT_EQ(still_there(), 1);
  tier.still = SlotRef{};
  for (int turn = 0; turn < 20; ++turn) ASSERT_TRUE(engine.Vacate(leave, {.part = &part}).ok());
  EXPECT_NE(chunks[1]->slot, still);
  engine.Drain();
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

INSTANTIATE_TEST_SUITE_P(, Drain, testing::Values(0u, 1u), [](const auto& info) { return info.param == 0 ? "Far" : "Near"; });

}  // namespace
}  // namespace ramspan
