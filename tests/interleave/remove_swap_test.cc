// Swaps that come and go while other threads use others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "client/engine/engine.h"
#include "client/runtime/swaps.h"
#include "client/swap/file_swap.h"
#include "client/swap/retirable_tier.h"
#include "ramspan/errors.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/map_store.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr uint64_t kGatedBytes = 64 << 10;
// How long who can do without waits for pins, and how often he looks at them, at most.
constexpr std::chrono::milliseconds kGrace{100};
constexpr std::chrono::microseconds kLook{200};

// A tier of which nothing comes back while it is shut.
class GatedTier final : public ForwardingTier {
 public:
  GatedTier() : ForwardingTier(&real_) {}
  std::atomic<bool> shut{false};
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override {
    if (!shut) return real_.Poll(done, wait);
    std::this_thread::yield();
    return 0;
  }

 private:
  FakeTier real_{FakeTierOptions{.seed = 3}};
};

// An engine over one configured tier, and the swaps that a program adds. `between` runs after the engine has asked for
// room and before it goes on.
class PausedSwap final : public ForwardingTier {
 public:
  explicit PausedSwap(TieredSwap* real) : ForwardingTier(real), real_(*real) {}
  std::function<void()> between;
  Result<SlotRef> Reserve(size_t bytes) override {
    Result<SlotRef> slot = real_.Reserve(bytes);
    GoBetween();
    return slot;
  }
  Status MakeRoom(size_t bytes, Patience patience) override {
    const Status status = real_.MakeRoom(bytes, patience);
    GoBetween();
    return status;
  }

 private:
  void GoBetween() {
    std::function<void()> once;
    {
      const std::lock_guard lock(mutex_);
      once = std::exchange(between, nullptr);
    }
    if (once) once();
  }

  TieredSwap& real_;
  std::mutex mutex_;
};

// Grants one object's room a time, and counts what it is told to erase.
class SmallStore final : public SwapStore {
 public:
  std::atomic<uint64_t> capacity{0};
  std::atomic<int> erased{0};
  std::atomic<bool> extends{true};
  uint64_t Capacity() const override { return capacity; }
  bool Extend(uint64_t bytes) override {
    if (extends) capacity += bytes;
    return extends;
  }
  bool Write(uint64_t slot, const void* data, size_t bytes) override { return store_.Write(slot, data, bytes); }
  bool Read(uint64_t slot, void* data, size_t bytes) override { return store_.Read(slot, data, bytes); }
  void Erase(uint64_t slot, size_t bytes) noexcept override {
    ++erased;
    store_.Erase(slot, bytes);
  }

 private:
  MapStore store_{64 * kMiB};
};

class SwapsThatGo : public testing::Test {
 protected:
  SwapsThatGo() {
    auto configured = std::make_unique<GatedTier>();
    configured_ = configured.get();
    auto remote = std::make_unique<RetirableTier>(std::make_unique<FakeTier>(FakeTierOptions{.seed = 5, .name = "remote"}));
    remote_ = remote.get();
    std::vector<std::unique_ptr<SwapTier>> tiers;
    tiers.push_back(std::move(remote));
    tiers.push_back(std::move(configured));
    swap_ = std::make_unique<TieredSwap>(std::move(tiers));
    paused_ = std::make_unique<PausedSwap>(swap_.get());
    engine_ = std::make_unique<Engine>(Engine::Options{.budget = kMiB, .preemptive = false, .deadlock_grace = kGrace}, paused_.get(), &pins_,
                                       PolicyNamed("cyclic"));
    swaps_ = std::make_unique<Swaps>(engine_.get(), Swaps::Configured{swap_.get(), remote_, nullptr});
  }
  ~SwapsThatGo() override {
    configured_->shut = false;
    for (Chunk* chunk : chunks_) engine_->Free(chunk);
    for (Chunk* chunk : empty_) engine_->Free(chunk);
  }

  void Fill(int n) {
    for (int i = 0; i < n; ++i) {
      chunks_.push_back(engine_->Create(kGatedBytes).value());
      ASSERT_TRUE(engine_->Acquire(chunks_.back(), true).ok());
    }
  }
  // Starts to read a chunk from the configured tier, which is shut: it is in flight until the gate opens.
  void StartReadThatDoesNotEnd() {
    engine_->Drain();
    ASSERT_TRUE(engine_->SetBudget(2 * kMiB).ok());  // frames without an eviction
    configured_->shut = true;
    for (Chunk* chunk : chunks_) {
      if (PhaseOf(chunk) != Phase::kSwapped || swap_->TierIndexOf(chunk->slot) != 1) continue;
      engine_->Prefetch(chunk);
      ASSERT_EQ(PhaseOf(chunk), Phase::kLoading);
      return;
    }
    FAIL() << "no chunk is in the configured tier";
  }
  // Whether `call` returns while the configured tier is shut. A call that does not is let through after a while.
  bool ReturnsMeanwhile(const std::function<void()>& call) {
    auto done = std::async(std::launch::async, call);
    const bool in_time = done.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    configured_->shut = false;
    done.get();
    return in_time;
  }

  MapStore store_{64 * kMiB};
  SmallStore first_, second_;
  GatedTier* configured_;
  RetirableTier* remote_;
  NoPins pins_;
  std::unique_ptr<TieredSwap> swap_;
  std::unique_ptr<PausedSwap> paused_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Swaps> swaps_;
  std::vector<Chunk*> chunks_, empty_;
};

// It waited until nothing at all was in flight, which other threads may put off for ever.
TEST_F(SwapsThatGo, RemovalWaitsForNoOtherSwap) {
  swaps_->LeaveRemote(true);
  Fill(30);
  const SwapId id = swaps_->Add(&store_);
  StartReadThatDoesNotEnd();
  EXPECT_TRUE(ReturnsMeanwhile([&] { swaps_->Remove(id, Swaps::Removal::kBringHome); }));
}

TEST_F(SwapsThatGo, AbandoningWaitsForNoOtherSwap) {
  swaps_->LeaveRemote(true);
  Fill(30);
  const SwapId id = swaps_->Add(&store_);
  StartReadThatDoesNotEnd();
  EXPECT_TRUE(ReturnsMeanwhile([&] { swaps_->Remove(id, Swaps::Removal::kAbandon); }));
}

TEST_F(SwapsThatGo, LeavingRemoteMemoryWaitsForNoFiles) {
  swap_->SetOrder(std::vector<size_t>{1});
  Fill(30);
  StartReadThatDoesNotEnd();
  EXPECT_TRUE(ReturnsMeanwhile([&] { swaps_->LeaveRemote(true); }));
}

// What comes home from remote memory pushes other objects out, which must not go back there.
TEST_F(SwapsThatGo, LeavingRemoteMemoryBringsAllHomeAndPutsNothingBack) {
  Fill(30);
  ASSERT_GT(remote_->stats().slot_bytes_used, 0u);
  swaps_->LeaveRemote(true);
  for (Chunk* chunk : chunks_) EXPECT_TRUE(engine_->Acquire(chunk, false).ok());
  EXPECT_TRUE(engine_->IsValid());
}

// The engine gave the room back that it had asked for, to whatever tier had that number by then.
TEST_F(SwapsThatGo, RoomAskedForInOneSwapIsNotGivenBackToTheNext) {
  const SwapId id = swaps_->Add(&first_);
  swaps_->Use(id);
  SwapId next{};
  bool exchanged = false;
  paused_->between = [&] {
    swaps_->Remove(id, Swaps::Removal::kBringHome);
    next = swaps_->Add(&second_);
    swaps_->Use(next);
    exchanged = true;
  };
  Fill(15);
  ASSERT_TRUE(exchanged);
  EXPECT_EQ(second_.erased, 0);
  EXPECT_LE(swaps_->UseOf(next).used, second_.capacity);
  Fill(15);
  EXPECT_TRUE(engine_->IsValid());
}

// The slot that is kept free for when everything is full was taken without the engine's mutex. Its swap could go meanwhile,
// and giving it back then erased an object in the swap that had that number next.
TEST_F(SwapsThatGo, TheSlotThatIsKeptFreeIsNotOneOfASwapThatIsGone) {
  first_.capacity = 4 * kGatedBytes;
  second_.capacity = 64 * kMiB;
  const SwapId id = swaps_->Add(&first_);
  swaps_->Use(id);
  Fill(15);
  bool exchanged = false;
  paused_->between = [&] {
    swaps_->Remove(id, Swaps::Removal::kBringHome);
    swaps_->Use(swaps_->Add(&second_));
    exchanged = true;
  };
  chunks_.push_back(engine_->Create(2 * kGatedBytes).value());
  ASSERT_TRUE(engine_->Acquire(chunks_.back(), true).ok());
  ASSERT_TRUE(exchanged);
  Fill(30);
  ASSERT_TRUE(engine_->Vacate([](SlotRef, size_t) { return false; }).ok());  // gives that slot back
  for (Chunk* chunk : chunks_) EXPECT_TRUE(engine_->Acquire(chunk, false).ok());
  EXPECT_TRUE(engine_->IsValid());
}

// The swap was gone when who had looked for its pins gave back the slot of an object that was freed meanwhile: in the swap that had that number next.
TEST_F(SwapsThatGo, RemovalWaitsForWhoLooksForPinsOfAFreedObject) {
  const SwapId id = swaps_->Add(&store_);
  swaps_->Use(id);
  Fill(24);
  for (int round = 0; round < 2; ++round) {
    for (Chunk* chunk : chunks_) ASSERT_TRUE(engine_->Acquire(chunk, false).ok());
  }
  engine_->Drain();
  Chunk* const stays = *std::find_if(chunks_.begin(), chunks_.end(), [](Chunk* chunk) { return PhaseOf(chunk) == Phase::kSwapped; });
  std::promise<Chunk*> victim;
  std::promise<void> go_on;
  pins_.looks = [&, once = true](std::span<Chunk* const> chunks) mutable {
    if (!std::exchange(once, false)) return;
    victim.set_value(chunks[0]);
    go_on.get_future().wait();
  };
  auto evicts = std::async(std::launch::async, [&] { return engine_->Acquire(stays, false).ok(); });
  ASSERT_TRUE(victim.get_future().get()->slot);
  for (Chunk* chunk : chunks_) {
    if (chunk != stays) engine_->Free(chunk);
  }
  chunks_ = {stays};
  auto removed = std::async(std::launch::async, [&] { swaps_->Remove(id, Swaps::Removal::kBringHome); });
  EXPECT_EQ(removed.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout) << "somebody has a slot in it";
  go_on.set_value();
  removed.get();
  second_.capacity = 64 * kMiB;
  swaps_->Use(swaps_->Add(&second_));
  EXPECT_TRUE(evicts.get());
  EXPECT_EQ(second_.erased, 0);
  EXPECT_TRUE(engine_->IsValid());
}

// A transfer whose tier had gone never ended: nobody asked that tier any more.
TEST_F(SwapsThatGo, VacatingWaitsForTheReadOfAFreedObject) {
  swap_->SetOrder(std::vector<size_t>{1});
  Fill(14);
  for (Chunk* chunk : chunks_) ASSERT_TRUE(engine_->Acquire(chunk, true).ok());
  engine_->Drain();
  Chunk* const leaves = *std::find_if(chunks_.begin(), chunks_.end(), [](Chunk* chunk) { return PhaseOf(chunk) == Phase::kSwapped; });
  const SlotRef slot = leaves->slot;
  std::vector<Chunk*> resident;
  for (Chunk* chunk : chunks_) {
    if (PhaseOf(chunk) == Phase::kResident) resident.push_back(chunk);
  }
  pins_.all_pinned = true;  // so it waits for memory, until some is freed, and by then a hint has begun to read
  pins_.judge = [] { return PinScanner::Verdict::kSomebodyMayUnpin; };
  auto vacated = std::async(std::launch::async, [&] { return engine_->Vacate([&](SlotRef one, size_t) { return one == slot; }, {.patiently = true}).ok(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  configured_->shut = true;
  for (int i = 0; i < 3; ++i) engine_->Free(resident[i]);
  engine_->Prefetch(leaves);
  engine_->Free(leaves);
  const bool waits = vacated.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout;
  EXPECT_TRUE(waits || !engine_->HasTransfers());
  configured_->shut = false;
  EXPECT_TRUE(vacated.get());
  pins_.all_pinned = false;
  std::erase_if(chunks_, [&](Chunk* chunk) { return chunk == leaves || std::find(resident.begin(), resident.begin() + 3, chunk) != resident.begin() + 3; });
  EXPECT_TRUE(engine_->IsValid());
}

// Each object that did not fit waited a second, three times over, for pins that nobody held: with a few hundred objects minutes, in which
// all who were about to change the swaps stood still.
TEST_F(SwapsThatGo, ClosingWhatDoesNotFitWaitsForNobody) {
  Fill(30);  // 1.9 MiB in 1 MiB
  std::atomic<int> looks{0};
  pins_.judge = [&] { return ++looks, PinScanner::Verdict::kUnlikely; };
  try {
    swaps_->Close();
    FAIL() << "30 objects of 64 KiB fit 1 MiB";
  } catch (const OutOfMemory& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("1.88 MiB"));
    EXPECT_THAT(e.what(), testing::HasSubstr("raise the limit"));
  }
  EXPECT_EQ(looks, 0) << "at pins";
  for (Chunk* chunk : chunks_) EXPECT_TRUE(engine_->Acquire(chunk, false).ok());
  EXPECT_TRUE(engine_->IsValid());
}

TEST_F(SwapsThatGo, RemovalIntoSwapThatIsClosedWaitsForNobodyWhereAllDoesNotFit) {
  const SwapId id = swaps_->Add(&store_);
  swaps_->Use(id);
  Fill(30);
  swap_->SetOrder(std::vector<size_t>{});
  std::atomic<int> looks{0};
  pins_.judge = [&] { return ++looks, PinScanner::Verdict::kUnlikely; };
  EXPECT_THROW(swaps_->Remove(id, Swaps::Removal::kBringHome), OutOfMemory);
  EXPECT_EQ(looks, 0) << "at pins";
  swaps_->Use(id);
  for (Chunk* chunk : chunks_) EXPECT_TRUE(engine_->Acquire(chunk, false).ok());
  EXPECT_TRUE(engine_->IsValid());
}

// What comes home waits for pins of other threads as long as they may go, but not for ever as a pull does: who closes swap can do without.
TEST_F(SwapsThatGo, ClosingWaitsForPinsAndGivesUpOnceForAllObjects) {
  Fill(10);
  const size_t data = chunks_.size();
  for (int i = 0; i < 14; ++i) {  // read and never written: they leave without a slot, and push the others out
    chunks_.push_back(engine_->Create(kGatedBytes).value());
    ASSERT_TRUE(engine_->Acquire(chunks_.back(), false).ok());
  }
  pins_.all_pinned = true;
  int looks = 0, most = 100'000;
  pins_.judge = [&] {
    if (++looks == most) pins_.all_pinned = false;
    return looks < 100'000 ? PinScanner::Verdict::kSomebodyMayUnpin : PinScanner::Verdict::kDeadlock;
  };
  EXPECT_THROW(swaps_->Close(), OutOfMemory);
  EXPECT_LT(looks, 2 * kGrace / kLook) << "each object has waited";
  looks = 0;
  most = 10;  // then they are gone
  swaps_->Close();
  EXPECT_GE(looks, most);
  for (size_t i = 0; i < data; ++i) EXPECT_EQ(PhaseOf(chunks_[i]), Phase::kResident);
  EXPECT_TRUE(engine_->IsValid());
}

// Where other threads make so much meanwhile that not all fits any more, swap is opened again. A thread that had need of it was told
// that swap is closed, a moment before.
TEST_F(SwapsThatGo, ClosingThatFailsIsNoErrorOfOtherThreads) {
  struct TellingStore final : SwapStore {
    MapStore store{64 * kMiB};
    std::function<void()> on_read;
    std::atomic<bool> armed{false};
    uint64_t Capacity() const override { return store.Capacity(); }
    bool Write(uint64_t slot, const void* data, size_t bytes) override { return store.Write(slot, data, bytes); }
    bool Read(uint64_t slot, void* data, size_t bytes) override {
      if (armed.exchange(false)) on_read();
      return store.Read(slot, data, bytes);
    }
    void Erase(uint64_t slot, size_t bytes) noexcept override { store.Erase(slot, bytes); }
  } store;
  const SwapId id = swaps_->Add(&store);
  swaps_->Use(id);
  Fill(11);
  for (int i = 0; i < 11; ++i) {  // pushes some out
    Chunk* other = engine_->Create(kGatedBytes).value();
    ASSERT_TRUE(engine_->Acquire(other, false).ok());
    empty_.push_back(other);
  }
  std::vector<Chunk*> more;
  std::atomic<bool> ended{false}, closed{false};
  std::atomic<int> made{0};
  Status status, makes;
  std::thread worker, maker;
  store.on_read = [&] {  // of the first that comes home: the worker's objects need more than what is left
    worker = std::thread([&] {
      for (int i = 0; i < 11 && status.ok(); ++i) {
        more.push_back(engine_->Create(kGatedBytes).value());
        status = engine_->Acquire(more.back(), true);
        ++made;
      }
      ended = true;
    });
    maker = std::thread([&] {  // each round needs room for descriptors
      while (!closed && makes.ok()) {
        std::vector<Chunk*> round;
        for (int i = 0; i < 2000 && makes.ok(); ++i) {
          Result<Chunk*> one = engine_->Create(kGatedBytes);
          makes = one.status();
          if (one.ok()) round.push_back(one.value());
        }
        for (Chunk* chunk : round) engine_->Free(chunk);
      }
    });
    // Three are more than what fits beside the others, and push out what was only read. The next ones wait for memory, or are refused.
    while (made < 3 && !ended) std::this_thread::yield();
    for (int i = 0; i < 200 && !ended; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  store.armed = true;
  EXPECT_THROW(swaps_->Close(), Error);
  closed = true;
  ASSERT_TRUE(worker.joinable()) << "nothing came home";
  worker.join();
  maker.join();
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(makes.ok()) << makes.ToString();
  chunks_.insert(chunks_.end(), more.begin(), more.end());
  for (Chunk* chunk : chunks_) EXPECT_TRUE(engine_->Acquire(chunk, false).ok());
  EXPECT_TRUE(engine_->IsValid());
  for (Chunk* chunk : std::exchange(chunks_, {})) engine_->Free(chunk);
  swaps_->Use(SwapId::kConfigured);
  swaps_->Remove(id, Swaps::Removal::kBringHome);
}

// Swap that is closed stays so until UseSwap: the removal of the one in use opened the configured one.
TEST_F(SwapsThatGo, RemovalOfTheSwapInUseOpensNoneThatIsClosed) {
  const SwapId id = swaps_->Add(&store_);
  swaps_->Use(id);
  Fill(10);
  swaps_->Close();
  swaps_->Remove(id, Swaps::Removal::kBringHome);
  EXPECT_EQ(swaps_->in_use(), SwapId::kConfigured);
  EXPECT_TRUE(swap_->order().empty());
  swaps_->Use(SwapId::kConfigured);
  EXPECT_FALSE(swap_->order().empty());
}

// The files that it was given were destroyed while they were counted.
TEST_F(SwapsThatGo, FilesStayThereForThoseWhoLookAtThem) {
  const SwapFiles files{.mask = testing::TempDir() + "ramspan-look-%d-%d", .bytes = 4 * kMiB};
  const SwapId id = swaps_->Add(files);
  std::future<void> removal;
  swaps_->WithFiles(id, [&](FileSwap& there) {
    removal = std::async(std::launch::async, [&] { swaps_->Remove(id, Swaps::Removal::kBringHome); });
    // It has not ended before this returns. Where it would, it mostly has by then.
    EXPECT_EQ(removal.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
    EXPECT_EQ(there.limit(), 4 * kMiB);
  });
  removal.get();
  EXPECT_THROW(swaps_->WithFiles(id, [](FileSwap&) { ADD_FAILURE() << "it is gone"; }), ConfigError);
}

}  // namespace
}  // namespace ramspan
