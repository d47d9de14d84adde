// Ways out that the engine did not take: a tier that dies below dirty chunks, victims behind many pinned ones, addresses
// that cached frames hold, a program's store that throws.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "client/engine/engine.h"
#include "client/swap/store_swap.h"
#include "client/swap/tiered_swap.h"
#include "tests/support/fake_tier.h"
#include "tests/support/fault_tier.h"
#include "tests/support/map_store.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

unsigned char LetterOf(size_t i) { return static_cast<unsigned char>(i * 7 + 1); }

// Objects of one size, filled with a letter each.
class Objects {
 public:
  Objects(Engine* engine, uint64_t bytes) : engine_(engine), bytes_(bytes) {}
  ~Objects() {
    for (Chunk* chunk : chunks_) engine_->Free(chunk);
  }
  Status Add() {
    chunks_.push_back(engine_->Create(bytes_).value());
    return Write(chunks_.size() - 1);
  }
  Status Write(size_t i) {
    Status status = engine_->Acquire(chunks_[i], true);
    if (status.ok()) std::memset(chunks_[i]->frame, LetterOf(i), bytes_);
    return status;
  }
  // Reads it and compares its last byte.
  Status Read(size_t i) {
    Status status = engine_->Acquire(chunks_[i], false);
    if (status.ok()) {
      EXPECT_EQ(static_cast<unsigned char*>(chunks_[i]->frame)[bytes_ - 1], LetterOf(i));
    }
    return status;
  }
  void RemoveLast() {
    engine_->Free(chunks_.back());
    chunks_.pop_back();
  }
  Chunk* operator[](size_t i) const { return chunks_[i]; }
  size_t size() const { return chunks_.size(); }

 private:
  Engine* const engine_;
  const uint64_t bytes_;
  std::vector<Chunk*> chunks_;
};

// Two tiers; the upper one can be made to die in several ways.
class DyingTier : public testing::Test {
 protected:
  static constexpr uint64_t kChunk = 16 << 10;
  DyingTier() {
    auto upper = std::make_unique<FakeTier>(FakeTierOptions{.seed = 1, .name = "upper"});
    upper_ = upper.get();
    auto faulty = std::make_unique<FaultTier>(std::move(upper));
    faulty_ = faulty.get();
    std::vector<std::unique_ptr<SwapTier>> tiers;
    tiers.push_back(std::move(faulty));
    tiers.push_back(std::make_unique<FakeTier>(FakeTierOptions{.seed = 2, .name = "lower"}));
    swap_ = std::make_unique<TieredSwap>(std::move(tiers));
    engine_ = std::make_unique<Engine>(Engine::Options{.budget = 4 * kMiB, .preemptive = false}, swap_.get(), &pins_, DefaultPolicy());
    objects_ = std::make_unique<Objects>(engine_.get(), kChunk);
    for (int i = 0; i < 200; ++i) EXPECT_TRUE(objects_->Add().ok());
    // Out to the upper tier, home again, and changed: 200 dirty chunks with slots there.
    EXPECT_TRUE(engine_->SetBudget(kMiB).ok());
    EXPECT_TRUE(engine_->SetBudget(4 * kMiB).ok());
    for (size_t i = 0; i < 200; ++i) EXPECT_TRUE(objects_->Write(i).ok());
  }

  FakeTier* upper_;
  FaultTier* faulty_;
  std::unique_ptr<TieredSwap> swap_;
  NoPins pins_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Objects> objects_;
};

// Only clean chunks were asked whether their slot is lost. Dirty ones were written over the dead slot, and 64 of those in a
// row were reported as the end of swap although the lower tier had room.
TEST_F(DyingTier, DirtyChunksWithSlotsThereMoveToTheNextTier) {
  upper_->SetGone(true);
  const Status status = engine_->SetBudget(kMiB);
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (size_t i = 0; i < 200; ++i) ASSERT_TRUE(objects_->Read(i).ok()) << i;
  EXPECT_EQ(engine_->counters().write_failures, 0u);
}

// The tier still gives slots, but every write to it fails: each failed write chose the same tier again.
TEST_F(DyingTier, WritesThatFailGoToTheNextTier) {
  faulty_->faults().SetRates({.write_fails = 1});
  const Status status = engine_->SetBudget(kMiB);
  ASSERT_TRUE(status.ok()) << status.ToString();
  faulty_->faults().SetRates({});
  for (size_t i = 0; i < 200; ++i) ASSERT_TRUE(objects_->Read(i).ok()) << i;
  EXPECT_LT(engine_->counters().write_failures, 100u);
}

// A tier that failed once is not given up: it gets slots again after a while.
TEST_F(DyingTier, ATierThatFailedIsTriedAgainLater) {
  faulty_->faults().NextWrites(Fault::kFails, 4);
  ASSERT_TRUE(engine_->SetBudget(kMiB).ok());
  const uint64_t before = faulty_->stats().writes;
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(objects_->Add().ok());  // those that have slots elsewhere stay there for a while
  EXPECT_GT(faulty_->stats().writes, before);
}

// The bytes that were asked for doubled with each round until they were 0: some 1400 chunks were looked at.
class VictimSearch : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Policies, VictimSearch, testing::Values("replay", "cyclic", "second-chance"));
TEST_P(VictimSearch, FindsTheUnpinnedBehindThreeThousandPinned) {
  struct SomePinned final : PinScanner {
    std::set<const Chunk*> held;
    void Barrier() override {}
    void FindPinned(std::span<Chunk* const> chunks, std::span<bool> pinned) override {
      for (size_t i = 0; i < chunks.size(); ++i) pinned[i] = pinned[i] || held.count(chunks[i]) > 0;
    }
    void SetWaiting(Chunk*) override {}
    Verdict JudgeWaiters() override {
      ADD_FAILURE() << "a wait for pins, with unpinned chunks in memory";
      return Verdict::kDeadlock;
    }
  } pins;
  FakeTier tier(FakeTierOptions{.seed = 3, .synchronous = true});
  Engine engine({.budget = 14 * kMiB, .preemptive = false}, &tier, &pins, PolicyNamed(GetParam()));
  Objects objects(&engine, 4096);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE(objects.Add().ok());
    pins.held.insert(objects[objects.size() - 1]);
  }
  for (int i = 0; i < 600; ++i) ASSERT_TRUE(objects.Add().ok()) << i;  // more than the rest of the limit
}

// Cached frames of other sizes held all addresses: nothing was resident and nothing fitted.
TEST(FewAddresses, CachedFramesOfOtherSizesGiveTheirAddressesBack) {
  Budget budget(8 * kMiB);
  Arena arena(&budget, {.addresses = 8 * kMiB});
  std::vector<Frame> frames;
  while (Frame frame = arena.TryTake(4096)) frames.push_back(std::move(frame));
  ASSERT_GT(frames.size(), 1000u);
  frames.clear();  // all in the cache
  for (uint64_t bytes : {uint64_t{64} << 10, uint64_t{1} << 20, 3 * kMiB, uint64_t{20} << 10}) {
    EXPECT_TRUE(arena.TryTake(bytes)) << bytes;
  }
}

TEST(FewAddresses, MixedSizesComeAndGo) {
  FakeTier tier(FakeTierOptions{.seed = 4, .synchronous = true});
  NoPins pins;
  Engine engine({.budget = 4 * kMiB, .preemptive = false, .addresses = 4 * kMiB}, &tier, &pins, DefaultPolicy());
  Objects small(&engine, 4096), middle(&engine, 60000), large(&engine, kMiB);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 600; ++i) ASSERT_TRUE(small.Add().ok());
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(middle.Add().ok());
    for (int i = 0; i < 4; ++i) {
      const Status status = large.Add();
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  }
  for (size_t i = 0; i < small.size(); ++i) ASSERT_TRUE(small.Read(i).ok());
  for (size_t i = 0; i < large.size(); ++i) ASSERT_TRUE(large.Read(i).ok());
}

TEST(FewAddresses, ALimitAboveThemIsRefusedAndSaysWhy) {
  FakeTier tier(FakeTierOptions{.seed = 4, .synchronous = true});
  NoPins pins;
  Engine engine({.budget = 4 * kMiB, .addresses = 8 * kMiB}, &tier, &pins, DefaultPolicy());
  const Status status = engine.SetBudget(64 * kMiB);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("addresses"), std::string::npos) << status.message();
  EXPECT_EQ(engine.budget()->limit(), 4 * kMiB);
  EXPECT_TRUE(engine.SetBudget(8 * kMiB).ok());
}

// A store whose callbacks throw, in the middle of evictions.
class ThrowingStore final : public MapStore {
 public:
  ThrowingStore() : MapStore(256 << 10) {}
  bool Extend(uint64_t) override { throw std::runtime_error("nobody answers"); }
};

// Extend's exception passed through the engine between its mutex' unlock and lock; the next user of the mutex hung, or
// unlocked what he did not hold.
TEST(StoreThatThrows, LeavesTheEngineWhole) {
  ThrowingStore store;
  StoreSwap tier(&store);
  NoPins pins;
  Engine engine({.budget = kMiB, .preemptive = false}, &tier, &pins, DefaultPolicy());
  Objects objects(&engine, 64 << 10);
  Status status;
  while (status.ok() && objects.size() < 100) ASSERT_NO_THROW(status = objects.Add());
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_TRUE(engine.IsValid());
  ASSERT_NO_THROW(engine.MoverStep());
  objects.RemoveLast();
  ASSERT_TRUE(objects.Read(objects.size() - 1).ok());
}

// Erase and Capacity ran under the engine's mutex: what they asked of Ramspan then stood still for ever.
TEST(StoreThatAsksBack, FindsNoMutexHeld) {
  struct AskingStore final : MapStore {
    AskingStore() : MapStore(8 * kMiB) {}
    Engine* engine = nullptr;
    std::atomic<uint64_t> erased{0};
    void Ask() const {
      if (engine != nullptr) static_cast<void>(engine->counters());
    }
    uint64_t Capacity() const override { return Ask(), MapStore::Capacity(); }
    bool Extend(uint64_t) override { return Ask(), false; }
    bool Write(uint64_t slot, const void* data, size_t bytes) override { return Ask(), MapStore::Write(slot, data, bytes); }
    bool Read(uint64_t slot, void* data, size_t bytes) override { return Ask(), MapStore::Read(slot, data, bytes); }
    void Erase(uint64_t slot, size_t bytes) noexcept override {
      Ask();
      ++erased;
      MapStore::Erase(slot, bytes);
    }
  } store;
  StoreSwap tier(&store);
  NoPins pins;
  {
    Engine engine({.budget = kMiB, .preemptive = false}, &tier, &pins, DefaultPolicy());
    store.engine = &engine;
    {
      Objects objects(&engine, 64 << 10);
      for (int i = 0; i < 64; ++i) ASSERT_TRUE(objects.Add().ok());
      for (size_t i = 0; i < objects.size(); ++i) ASSERT_TRUE(objects.Read(i).ok());
      engine.FreeResidentSlots(kMiB);
    }
    EXPECT_EQ(tier.used_bytes(), 0u);
    tier.Upkeep();
    EXPECT_GE(store.erased, 48u);
    EXPECT_EQ(store.slots(), 0u);
    store.engine = nullptr;
  }
}

// The exception went through the engine without its mutex, whose guard then released what another thread held.
TEST(StoreThatThrows, AnExceptionWaitsForTheMutexThatItsGuardReleases) {
  struct ThrowingTier final : PlainTier {
    FakeTier real{FakeTierOptions{.seed = 7, .synchronous = true}};
    std::function<void()> before_throwing = [] {};
    Capabilities capabilities() const noexcept override { return real.capabilities(); }
    Result<SlotRef> Reserve(size_t) override {
      before_throwing();
      throw std::runtime_error("what no tier may throw");
    }
    Result<SlotRef> TryReserve(size_t) override { return MustAsk("ask"); }
    void Free(SlotRef slot, size_t bytes) noexcept override { real.Free(slot, bytes); }
    void SubmitWrite(std::span<IoRequest* const> batch) noexcept override { real.SubmitWrite(batch); }
    void SubmitRead(std::span<IoRequest* const> batch) noexcept override { real.SubmitRead(batch); }
    size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override { return real.Poll(done, wait); }
    TierStats stats() const noexcept override { return real.stats(); }
  } tier;
  NoPins pins;
  Engine engine({.budget = kMiB, .preemptive = false}, &tier, &pins, DefaultPolicy());
  Objects objects(&engine, 64 << 10);
  std::atomic<bool> holds{false}, caught{false}, caught_while_held{false};
  std::thread holder;
  // Another thread holds the mutex while the tier throws, for long enough that the thread which catches would be seen.
  tier.before_throwing = [&] {
    holder = std::thread([&] {
      static_cast<void>(engine.ReplacePolicy([&](const ChunkTable* chunks) {
        holds = true;
        for (int i = 0; i < 50 && !caught; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        caught_while_held = caught.load();
        return DefaultPolicy()(chunks);
      }));
    });
    while (!holds) std::this_thread::yield();
  };
  try {
    for (int i = 0; i < 20; ++i) static_cast<void>(objects.Add());
  } catch (const std::runtime_error&) {
    caught = true;
  }
  EXPECT_TRUE(caught);
  holder.join();
  EXPECT_FALSE(caught_while_held);
  EXPECT_TRUE(engine.IsValid());
}

}  // namespace
}  // namespace ramspan
