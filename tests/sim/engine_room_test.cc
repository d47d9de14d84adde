// Memory and swap are both full, in many ways: sizes, tiers, descriptors, limits, pins and objects that go, by seed. What is
// there is read and written all the same, and what comes too much is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/engine/engine.h"
#include "client/swap/tiered_swap.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr unsigned kSeeds = 12;  // there is one thread
#elif defined(__SANITIZE_ADDRESS__)
constexpr unsigned kSeeds = 40;  // ten times as slow, and no other bugs to find in one thread than those of memory
#else
constexpr unsigned kSeeds = 200;
#endif

unsigned Seeds() {
  const char* text = std::getenv("RAMSPAN_TEST_SEEDS");
  // Each takes 10 to 30 ms, much longer than those of the other simulations.
  return text != nullptr ? std::max(kSeeds, static_cast<unsigned>(std::strtoul(text, nullptr, 10)) / 20) : kSeeds;
}

class World {
 public:
  // The tiers of a seed: one to three, of some MiB together, or as many as are asked for.
  explicit World(unsigned seed, size_t tier_count = 0) : random_(seed) {
    std::vector<std::unique_ptr<SwapTier>> tiers;
    tier_count_ = tier_count > 0 ? tier_count : 1 + (seed % 3 == 0 ? Random(3) : 0);
    // Where several are in use, only the last one may say that it has to be asked: the engine would not come to the next one.
    full_asks_ = seed % 2 == 1 && (tier_count_ == 1 || tier_count > 0);
    for (size_t i = 0; i < tier_count_; ++i) {
      const uint64_t capacity = (100 + Random(3000)) << 10;
      tiers.push_back(std::make_unique<FakeTier>(FakeTierOptions{.seed = seed * 8 + i, .capacity_bytes = capacity, .delay_steps_max = 2,
                                                                 .reserve_waits_rate = seed % 5 == 0 ? 0.2 : 0,
                                                                 .full_asks = full_asks_,
                                                                 .synchronous = seed % 6 != 1}));
    }
    swap_ = std::make_unique<TieredSwap>(std::move(tiers));
    budget_ = kMiB + (Random(3 * 1024) << 10);
    engine_ = std::make_unique<Engine>(Engine::Options{.budget = budget_, .preemptive = seed % 4 == 0}, swap_.get(), &pins_,
                                       DefaultPolicy());
    const uint64_t most = seed % 7 == 0 ? 600 << 10 : seed % 7 < 3 ? 64 << 10 : 200 << 10;
    for (int i = seed % 4 == 1 ? 1 : 6; i > 0; --i) sizes_.push_back(1 + Random(i == 1 ? most : most / 4));
  }
  ~World() {
    for (const Object& object : objects_) engine_->Free(object.chunk);
    for (Chunk* chunk : empty_) engine_->Free(chunk);
    engine_->Drain();
  }

  uint32_t Random(uint64_t below) { return static_cast<uint32_t>(random_() % below); }
  Engine& engine() { return *engine_; }
  size_t objects() const { return objects_.size(); }

  // Refused when all is full.
  bool Add() {
    Result<Chunk*> chunk = engine_->Create(sizes_[Random(sizes_.size())]);
    if (!chunk.ok()) return false;
    if (const Status refused = engine_->AcquireCounted(chunk.value(), true); !refused.ok()) {
      EXPECT_EQ(refused.message().find("may have room"), std::string::npos) << refused.message();
      engine_->Free(chunk.value());
      return false;
    }
    objects_.push_back({chunk.value(), static_cast<unsigned char>(1 + Random(200))});
    Fill(objects_.back());
    Unpin(objects_.size() - 1);
    return true;
  }
  bool AddEmpty() {
    Result<Chunk*> chunk = engine_->Create(sizes_[Random(sizes_.size())]);
    if (chunk.ok()) empty_.push_back(chunk.value());
    return chunk.ok();
  }
  void FreeEmpty() {
    for (Chunk* chunk : empty_) engine_->Free(chunk);
    empty_.clear();
  }
  void Remove(size_t i) {
    engine_->Free(objects_[i].chunk);
    objects_[i] = objects_.back();
    objects_.pop_back();
  }
  // Leaves it pinned when it succeeds.
  Status Pin(size_t i, bool write) {
    Object& object = objects_[i];
    Status status = engine_->AcquireCounted(object.chunk, write);
    if (!status.ok()) return status;
    const auto* bytes = static_cast<const unsigned char*>(object.chunk->frame);
    EXPECT_TRUE(bytes[0] == object.letter && bytes[object.chunk->bytes - 1] == object.letter);
    if (write) {
      ++object.letter;
      Fill(object);
    }
    return status;
  }
  void Unpin(size_t i) { objects_[i].chunk->state.fetch_sub(kOneCountedPin); }
  Status Use(size_t i, bool write) {
    Status status = Pin(i, write);
    if (status.ok()) Unpin(i);
    return status;
  }
  void UseAll() {
    for (const bool write : {false, true}) {
      for (size_t i = 0; i < objects(); ++i) {
        const Status status = Use(i, write);
        ASSERT_TRUE(status.ok()) << i << " of " << objects() << ": " << status.ToString();
      }
    }
  }
  // One while another one is pinned. Two that fill memory may not fit beside what cannot leave.
  void UseSecond(size_t first, size_t second) {
    ASSERT_TRUE(Pin(first, false).ok());
    const Status status = Use(second, true);
    ASSERT_TRUE(status.ok() || AreLarge(first, second)) << status.ToString();
    Unpin(first);
  }
  bool AreLarge(size_t i, size_t k) const {
    return objects_[i].chunk->bytes + objects_[k].chunk->bytes > engine_->budget()->frames_limit() / 2;
  }
  // Several at once, up to a quarter of memory. False: one was refused.
  bool PinSeveral() {
    std::vector<size_t> pinned;
    uint64_t bytes = 0;
    bool refused = false;
    for (int i = 0; i < 8 && !refused; ++i) {
      const size_t at = Random(objects());
      bytes += RoundUpToGranule(objects_[at].chunk->bytes);
      if (bytes > engine_->budget()->frames_limit() / 4) break;
      refused = !Pin(at, i % 2 == 0).ok();
      if (!refused) pinned.push_back(at);
    }
    for (const size_t at : pinned) Unpin(at);
    return !refused;
  }
  // Whether half of memory has room for the largest object and one more for each swap: what is kept free is not more than half.
  bool KeepsEnough() const {
    const uint64_t largest = RoundUpToGranule(*std::max_element(sizes_.begin(), sizes_.end()));
    return tier_count_ > 1 && largest * (1 + tier_count_) <= engine_->budget()->frames_limit() / 2;
  }
  // Other threads may unpin something by now.
  void SeveralThreads() {
    pins_.judge = [] { return PinScanner::Verdict::kSomebodyMayUnpin; };
  }
  // As UseSwap does: new slots come from one of the tiers, or from all in any order.
  void UseOtherSwap() {
    std::vector<size_t> order(tier_count_);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    if (full_asks_ || Random(3) > 0) order.resize(1);
    swap_->SetOrder(order);
  }
  // As RemoveSwap does, which says whether all of it came home; the tier is there and empty, or as full as before.
  Status BringHome() {
    const size_t leaving = Random(tier_count_);
    std::vector<size_t> order = swap_->order();
    std::erase(order, leaving);
    if (order.empty()) order.push_back((leaving + 1) % tier_count_);
    swap_->SetOrder(order);
    return engine_->Vacate([&](SlotRef slot, size_t) { return swap_->TierIndexOf(slot) == leaving; });
  }
  // Not below the largest object and what metadata needs to grow: no room is kept for that one there (docs/life_of_a_chunk.md).
  void SetLimit() {
    const uint64_t limit = budget_ * (60 + Random(60)) / 100, largest = *std::max_element(sizes_.begin(), sizes_.end());
    const Budget& budget = *engine_->budget();
    if (limit < RoundUpToGranule(largest) + budget.metadata() + 3 * budget.step()) return;
    static_cast<void>(engine_->SetBudget(limit));
  }

 private:
  struct Object {
    Chunk* chunk;
    unsigned char letter;
  };
  static void Fill(const Object& object) { std::memset(object.chunk->frame, object.letter, object.chunk->bytes); }

  std::mt19937 random_;
  NoPins pins_;
  std::unique_ptr<TieredSwap> swap_;
  std::unique_ptr<Engine> engine_;
  size_t tier_count_;
  bool full_asks_;
  uint64_t budget_;
  std::vector<uint64_t> sizes_;
  std::vector<Object> objects_;
  std::vector<Chunk*> empty_;
};

// Everything is filled, again and again, and after each fill all that is there is read and written.
TEST(Room, WhatIsThereStaysUsableHoweverFullItIs) {
  const unsigned seeds = Seeds() / 4;  // each is as long as four of the next test
  for (unsigned seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World run(seed);
    for (int round = 0; round < 3 && !testing::Test::HasFailure(); ++round) {
      for (int refused = 0; refused < 5;) refused += !run.Add();
      run.UseAll();
      for (int i = 0; i < 2000 && run.AddEmpty(); ++i) continue;
      run.UseAll();
      for (int i = 0; i < 3; ++i) run.SetLimit();
      run.UseAll();
      run.FreeEmpty();
      for (size_t i = run.objects() / 3; i > 0; --i) run.Remove(run.Random(run.objects()));
    }
    EXPECT_TRUE(run.engine().IsValid());
  }
}

// Several swaps, of which one at a time takes what leaves: the others are full, or hold room that nobody may take. It was given
// to swap by chunks in memory whose slots others should have got, and those chunks could never leave again.
TEST(Room, WhatIsThereStaysUsableWithSeveralSwaps) {
  const unsigned seeds = Seeds() / 2;
  for (unsigned seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World run(seed, 2 + seed % 3);
    for (int round = 0; round < 6 && !testing::Test::HasFailure(); ++round) {
      run.UseOtherSwap();
      for (int refused = 0; refused < 2;) refused += !run.Add();
      run.UseAll();
      if (round % 3 == 2) {
        static_cast<void>(run.BringHome());
        run.UseAll();
        for (size_t i = run.objects() / 4; i > 0; --i) run.Remove(run.Random(run.objects()));
      }
      run.engine().MoverStep();
    }
    EXPECT_TRUE(run.engine().IsValid());
  }
}

// Memory was full of chunks without slots, and those that were pinned had theirs in several places (near and far servers, files): in each
// of them too few together to make way for one of the others, or too large. That is no promise (docs/life_of_a_chunk.md): 28 were
// refused here, none is now, and one in four times as many rounds.
TEST(Room, SeveralObjectsArePinnedAtOnceWithSlotsInSeveralPlaces) {
  int refused = 0;
  for (unsigned seed = 3; seed <= kSeeds * 3 && !testing::Test::HasFailure(); seed += 3) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World run(seed);
    if (!run.KeepsEnough()) continue;
    for (int round = 0; round < 2; ++round) {
      for (int full = 0; full < 5;) full += !run.Add();
      for (int i = 0; i < 40; ++i) refused += !run.PinSeveral();
      for (size_t i = run.objects() / 4; i > 0; --i) run.Remove(run.Random(run.objects()));
    }
    EXPECT_TRUE(run.engine().IsValid());
  }
  EXPECT_LE(refused, 5);
}

// In any order, with a second object read while one is pinned.
TEST(Room, WhatIsThereStaysUsableWhileObjectsComeAndGo) {
  const unsigned seeds = Seeds();
  for (unsigned seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World run(seed);
    for (int i = 0; i < 500; ++i) {
      const uint32_t what = run.Random(100), at = run.objects() > 0 ? run.Random(run.objects()) : 0;
      if (what < 45 || run.objects() < 2) {
        run.Add();
      } else if (what < 80) {
        ASSERT_TRUE(run.Use(at, what < 60).ok()) << "in step " << i;
      } else if (what < 88) {
        const uint32_t other = (at + 1 + run.Random(run.objects() - 1)) % static_cast<uint32_t>(run.objects());
        SCOPED_TRACE("step " + std::to_string(i));
        ASSERT_NO_FATAL_FAILURE(run.UseSecond(at, other));
      } else if (what < 93) {
        run.Remove(at);
      } else if (what < 96) {
        run.AddEmpty();
      } else if (what == 96) {
        run.SetLimit();
      } else {
        run.engine().MoverStep();
      }
    }
    run.UseAll();
    EXPECT_TRUE(run.engine().IsValid());
  }
}

// Objects of one size: who comes in while another one is pinned gives that one's slot to a third, whatever is left of memory beside whole objects.
// The slack for tables that grow was asked for once more, and between one object and a 64th of memory more the pull was refused.
TEST(Room, TwoOfOneSizeArePinnedAtOnceWhateverIsLeftOfMemory) {
  constexpr size_t kObject = 599091;
  for (uint64_t budget = 5 * kObject; budget < 6 * kObject; budget += 8 << 10) {
    SCOPED_TRACE("limit " + std::to_string(budget));
    FakeTier tier({.capacity_bytes = 2 * RoundUpToGranule(kObject), .synchronous = true});
    NoPins pins;
    Engine engine({.budget = budget, .preemptive = false}, &tier, &pins, DefaultPolicy());
    std::vector<Chunk*> chunks;
    for (Status status; status.ok();) {
      chunks.push_back(engine.Create(kObject).value());
      status = engine.Acquire(chunks.back(), true);
    }
    engine.Free(chunks.back());
    chunks.pop_back();
    ASSERT_GE(chunks.size(), 5u);
    for (Chunk* first : chunks) {
      ASSERT_TRUE(engine.AcquireCounted(first, false).ok());
      for (Chunk* second : chunks) {
        const Status status = engine.Acquire(second, false);
        EXPECT_TRUE(status.ok()) << status.ToString();
      }
      first->state.fetch_sub(kOneCountedPin);
    }
    for (Chunk* chunk : chunks) engine.Free(chunk);
  }
}

// Says that it is full, and has room by the time that it is asked for it.
class LateRoom final : public ForwardingTier {
 public:
  using ForwardingTier::ForwardingTier;
  Result<SlotRef> TryReserve(size_t bytes) override {
    if (refuses) return Status(StatusCode::kResourceExhausted, StaticText("full"));
    return ForwardingTier::TryReserve(bytes);
  }
  Status MakeRoom(size_t bytes, Patience patience) override {
    asked += std::exchange(refuses, false);
    return ForwardingTier::MakeRoom(bytes, patience);
  }
  bool refuses = false;
  int asked = 0;
};

// It was asked for words only, and who had asked was refused with "no object in memory can make way".
TEST(Room, RoomThatIsThereWhenSwapIsAskedForWordsIsTaken) {
  FakeTier fake;
  LateRoom tier(&fake);
  NoPins pins;
  Engine engine({.budget = kMiB, .preemptive = false}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  const auto come = [&] {
    chunks.push_back(engine.Create(64 << 10).value());
    return engine.Acquire(chunks.back(), true);
  };
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(come().ok());
  // With it a slot goes, and room for a chunk without one is no more than before.
  const auto with_slot = std::find_if(chunks.begin(), chunks.end(), [](const Chunk* c) { return PhaseOf(c) == Phase::kResident && c->slot; });
  ASSERT_NE(with_slot, chunks.end());
  engine.Free(*with_slot);
  chunks.erase(with_slot);
  tier.refuses = true;
  Status status = come();
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(tier.asked, 1) << "then this test shows nothing";
  tier.refuses = true;
  status = engine.ChargeMetadata(128 << 10);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(tier.asked, 2) << "then this test shows nothing";
  tier.refuses = false;
  for (Chunk* chunk : chunks) engine.Free(chunk);
}

// Each thread has one pin at a time: they wait for one another's instead of being refused.
TEST(Room, ThreadsWithAPinEachWaitForEachOther) {
  for (unsigned seed = 2; seed <= 2 + Seeds() / 10 && !testing::Test::HasFailure(); seed += 2) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World run(seed);
    run.SeveralThreads();
    for (int refused = 0; refused < 5;) refused += !run.Add();
    std::atomic<int> refused{0};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int round = 0; round < 2; ++round) {
          for (size_t i = t; i < run.objects(); i += 4) refused += !run.Use(i, round == 1).ok();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(refused, 0);
    EXPECT_TRUE(run.engine().IsValid());
  }
}

}  // namespace
}  // namespace ramspan
