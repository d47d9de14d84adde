// A search for victims among chunks of which many are pinned, while others are used.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/engine/engine.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// Another thread uses `hot` chunks, one each time that a search lets the mutex go.
struct PinsAndUses final : PinScanner {
  Engine* engine = nullptr;
  std::vector<Chunk*> pinned, hot;
  std::vector<Touch> touches;
  size_t next = 0;
  int barriers = 0;
  void Barrier() override {
    ++barriers;
    if (hot.empty()) return;
    touches.push_back({.chunk = hot[next++ % hot.size()]->id, .thread = 1, .epoch = 1, .write = false});
    engine->TellTouches();
  }
  void FindPinned(std::span<Chunk* const> chunks, std::span<bool> out) override {
    for (size_t i = 0; i < chunks.size(); ++i) out[i] = out[i] || std::find(pinned.begin(), pinned.end(), chunks[i]) != pinned.end();
  }
  void SetWaiting(Chunk*) override {}
  Verdict JudgeWaiters() override { return Verdict::kDeadlock; }
  uint32_t ThisThread() const override { return 0; }
  void TakeTouches(const Hear& hear) override { hear(std::exchange(touches, {})); }
};

// What is named is pinned, until `most` have been: then `all_named`, once, and what is named afterwards is not.
struct NamedArePinned final : PinScanner {
  std::vector<Chunk*> named;
  size_t most = 0;
  std::function<void()> all_named;
  void Barrier() override {}
  void FindPinned(std::span<Chunk* const> chunks, std::span<bool> out) override {
    if (named.size() < most) named.insert(named.end(), chunks.begin(), chunks.end());
    for (size_t i = 0; i < chunks.size(); ++i) out[i] = out[i] || std::find(named.begin(), named.end(), chunks[i]) != named.end();
    if (most > 0 && named.size() >= most && all_named) std::exchange(all_named, nullptr)();
  }
  void SetWaiting(Chunk*) override {}
  Verdict JudgeWaiters() override { return Verdict::kDeadlock; }
};

// Each use sent the search back to its beginning, where the pinned ones are (who is pinned for long is expected last): they were named again and again
// until as many had been named as there are, and the program was told that nothing can leave.
TEST(PolicySearch, FindsWhoMayLeaveBehindManyThatArePinnedThoughOthersAreUsed) {
  constexpr uint64_t kBytes = 64 << 10;
  constexpr size_t kPinned = 90;
  for (const char* policy : PolicyNames()) {
    SCOPED_TRACE(policy);
    FakeTier tier({.seed = 11, .synchronous = true});
    PinsAndUses pins;
    Engine engine({.budget = 8 * kMiB}, &tier, &pins, PolicyNamed(policy));
    pins.engine = &engine;
    std::vector<Chunk*> chunks;
    const auto use = [&](Chunk* chunk, bool write) {
      pins.pinned.push_back(chunk);
      const Status status = engine.Acquire(chunk, write);
      std::erase(pins.pinned, chunk);
      return status;
    };
    for (int i = 0; i < 400; ++i) chunks.push_back(engine.Create(kBytes).value());
    for (int sweep = 0; sweep < 4; ++sweep) {
      for (Chunk* chunk : chunks) {
        ASSERT_TRUE(use(chunk, sweep == 0).ok());
        engine.MoverStep();
      }
    }
    engine.Drain();
    std::vector<Chunk*> resident;
    std::copy_if(chunks.begin(), chunks.end(), std::back_inserter(resident), [](const Chunk* c) { return PhaseOf(c) == Phase::kResident; });
    ASSERT_GT(resident.size(), kPinned + 16);
    pins.hot.assign(resident.begin(), resident.begin() + 8);
    // Those that the policy would name first.
    const std::string order = engine.DescribePolicy();
    for (size_t line = 0; line < order.size() && pins.pinned.size() < kPinned; line = order.find('\n', line) + 1) {
      const auto id = static_cast<uint32_t>(std::stoul(order.substr(line)));
      const auto is = [&](const Chunk* c) { return c->id == id; };
      const auto named = std::find_if(resident.begin() + 8, resident.end(), is);
      if (named != resident.end()) pins.pinned.push_back(*named);
    }
    ASSERT_EQ(pins.pinned.size(), kPinned);
    const int barriers = pins.barriers;
    for (int round = 0; round < 150; ++round) {
      const auto out = std::find_if(chunks.begin() + round, chunks.end(), [](const Chunk* c) { return PhaseOf(c) == Phase::kSwapped; });
      ASSERT_NE(out, chunks.end());
      const Status status = use(*out, false);
      ASSERT_TRUE(status.ok()) << round << ": " << status.ToString();
      engine.Drain();
    }
    // 43 where those that are pinned stay in front. Those of the other policies are the hand's way round.
    if (std::string(policy) == "replay") {
      EXPECT_LE(pins.barriers - barriers, 36);
    }
    pins.hot.clear();
    for (Chunk* chunk : chunks) engine.Free(chunk);
  }
}

// What was being read for a hint when a policy took over was in none of its lists, and never left again.
TEST(PolicySearch, APolicyThatTakesOverWhileReadsAreUnderWayFindsWhatHasCome) {
  for (const char* policy : PolicyNames()) {
    SCOPED_TRACE(policy);
    FakeTier tier({.seed = 11, .delay_steps_max = 64});
    PinsAndUses pins;
    Engine engine({.budget = 2 * kMiB, .preemptive = false}, &tier, &pins, PolicyNamed("cyclic"));
    std::vector<Chunk*> chunks;
    for (int i = 0; i < 100; ++i) {
      chunks.push_back(engine.Create(64 << 10).value());
      ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
    }
    engine.Drain();
    const auto is = [](Phase phase) { return [phase](const Chunk* c) { return PhaseOf(c) == phase; }; };
    for (auto chunk = chunks.begin(); (chunk = std::find_if(chunks.begin(), chunks.end(), is(Phase::kResident))) != chunks.end();) {
      engine.Free(*chunk);
      chunks.erase(chunk);
    }
    for (Chunk* chunk : chunks) engine.Prefetch(chunk);
    ASSERT_GT(std::count_if(chunks.begin(), chunks.end(), is(Phase::kLoading)), 8);
    engine.ReplacePolicy(PolicyNamed(policy));
    engine.Drain();
    EXPECT_TRUE(engine.CheckPolicy());
    for (Chunk* chunk : chunks) {
      const Status status = engine.Acquire(chunk, false);
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
    for (Chunk* chunk : chunks) engine.Free(chunk);
  }
}

// All are pinned. `looked`: what happens while a search has let the mutex go.
struct AllPinned final : PinScanner {
  std::function<void(std::span<Chunk* const>)> looked;
  void Barrier() override {}
  void FindPinned(std::span<Chunk* const> chunks, std::span<bool> out) override {
    if (looked) looked(chunks);
    std::fill(out.begin(), out.end(), looked != nullptr);
  }
  void SetWaiting(Chunk*) override {}
  Verdict JudgeWaiters() override { return Verdict::kDeadlock; }
};

// Has to be asked for room, once, while `when` says so; `asked` happens without the engine's mutex.
struct AskedOnce final : ForwardingTier {
  using ForwardingTier::ForwardingTier;
  std::function<bool()> when;
  std::function<void()> asked;
  Result<SlotRef> TryReserve(size_t bytes) override { return asked && when() ? Status(StatusCode::kMustAsk, StaticText("ask")) : ForwardingTier::TryReserve(bytes); }
  Status MakeRoom(size_t bytes, Patience patience) override {
    if (asked) std::exchange(asked, nullptr)();
    return ForwardingTier::MakeRoom(bytes, patience);
  }
};

// What was being brought home, was named by a search and was freed while that looked for pins was put back into the policy's order. The next
// object with its id broke the links there, and the next search went round for ever.
TEST(PolicySearch, WhatIsFreedWhileItIsNamedAndComesHomeIsNotSetAside) {
  for (const char* policy : PolicyNames()) {
    SCOPED_TRACE(policy);
    FakeTier memory({.seed = 5, .synchronous = true});
    AskedOnce tier(&memory);
    AllPinned pins;
    Engine engine({.budget = 2 * kMiB, .preemptive = false}, &tier, &pins, PolicyNamed(policy));
    std::vector<Chunk*> chunks;
    for (int i = 0; i < 100; ++i) {
      chunks.push_back(engine.Create(64 << 10).value());
      ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
    }
    const auto out = [&] { return std::find_if(chunks.begin(), chunks.end(), [](const Chunk* c) { return PhaseOf(c) == Phase::kSwapped; }); };
    Chunk* const home = *out();
    chunks.erase(out());
    const SlotRef slot = home->slot;
    bool freed = false;
    tier.when = [&] { return PhaseOf(home) == Phase::kResident; };
    tier.asked = [&] {
      for (int i = 0; i < 50; ++i) ASSERT_TRUE(engine.Acquire(*out(), false).ok());  // so that it is not the last that came
      pins.looked = [&](std::span<Chunk* const> victims) {
        if (freed || std::find(victims.begin(), victims.end(), home) == victims.end()) return;
        freed = true;
        engine.Free(home);
      };
      while (engine.Acquire(*out(), false, Engine::WhenPinned::kReturn).ok()) {  // until free frames are used up
      }
      pins.looked = nullptr;
    };
    EXPECT_TRUE(engine.Vacate([&](SlotRef one, uint64_t) { return one == slot; }, {.only_elsewhere = true}).ok());
    ASSERT_TRUE(freed);
    ASSERT_EQ(engine.DescribePolicy().find(" freed "), std::string::npos);
    chunks.push_back(engine.Create(64 << 10).value());
    for (Chunk* chunk : chunks) EXPECT_TRUE(engine.Acquire(chunk, true).ok());
    for (Chunk* chunk : chunks) engine.Free(chunk);
  }
}

// The search ended when as many had been named as there were left: what it had named first was pinned and then freed, which was not enough for a large
// object, and what it had not named was not looked at. Who does not wait for pins was told that all is pinned.
TEST(PolicySearch, GoesOnBehindPinnedOnesThatAreFreedMeanwhile) {
  constexpr uint64_t kBytes = 16 << 10;
  for (const char* policy : PolicyNames()) {
    SCOPED_TRACE(policy);
    FakeTier tier({.seed = 11, .synchronous = true});
    NamedArePinned pins;
    Engine engine({.budget = 4 * kMiB, .preemptive = false}, &tier, &pins, PolicyNamed(policy));
    engine.SetWaitForPins(false);
    Chunk* const large = engine.Create(5 * kMiB / 2).value();
    std::vector<Chunk*> chunks;
    for (int i = 0; i < 300; ++i) {
      chunks.push_back(engine.Create(kBytes).value());
      ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
    }
    engine.Drain();
    // Only what is in memory, so that what is named is nearly all that there is.
    std::erase_if(chunks, [&](Chunk* chunk) { return PhaseOf(chunk) == Phase::kSwapped && (engine.Free(chunk), true); });
    pins.most = chunks.size() * 6 / 10;
    pins.all_named = [&] {
      for (Chunk* chunk : std::span(pins.named).first(pins.named.size() - 20)) {
        engine.Free(chunk);
        std::erase(chunks, chunk);
      }
    };
    const Status status = engine.Acquire(large, false);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(pins.all_named, nullptr) << "it has happened";
    for (Chunk* chunk : chunks) engine.Free(chunk);
    engine.Free(large);
  }
}

// Whatever the one before has left in the chunks' links.
TEST(PolicySearch, EachPolicyTakesOverFromEachOther) {
  for (const char* from : PolicyNames()) {
    for (const char* to : PolicyNames()) {
      SCOPED_TRACE(std::string(from) + ", " + to);
      FakeTier tier({.seed = 5, .synchronous = true});
      PinsAndUses pins;
      Engine engine({.budget = 2 * kMiB}, &tier, &pins, PolicyNamed(from));
      std::vector<Chunk*> chunks;
      for (int i = 0; i < 100; ++i) chunks.push_back(engine.Create(64 << 10).value());
      const auto sweep = [&] {
        for (Chunk* chunk : chunks) {
          ASSERT_TRUE(engine.Acquire(chunk, true).ok());
          engine.MoverStep();
        }
      };
      sweep();
      engine.ReplacePolicy(PolicyNamed(to));
      sweep();
      sweep();
      EXPECT_TRUE(engine.CheckPolicy());
      for (Chunk* chunk : chunks) engine.Free(chunk);
    }
  }
}

}  // namespace
}  // namespace ramspan
