// Swap that is full, and may have room in seconds: who waits for it, and how often.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "client/engine/engine.h"
#include "tests/support/fake_tier.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr uint64_t kFullBytes = 64 << 10;

// Full when it is told to be; notes how patiently it is asked for room.
class FullWhenTold final : public ForwardingTier {
 public:
  FullWhenTold() : ForwardingTier(&real_) {}
  bool full = false;
  bool may_have_soon = false;  // while it is full
  std::vector<Patience> asked;
  std::function<void()> while_waited_for = [] {};
  Result<SlotRef> TryReserve(size_t bytes) override {
    if (full) return Status(may_have_soon ? StatusCode::kMustAsk : StatusCode::kResourceExhausted, StaticText("full"));
    return ForwardingTier::TryReserve(bytes);
  }
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override {
    return full ? SlotRef{} : ForwardingTier::TryExchange(given, bytes, taken);
  }
  Status MakeRoom(size_t bytes, Patience patience) override {
    asked.push_back(patience);
    if (full && patience == Patience::kWait) while_waited_for();
    return full ? ResourceExhausted("full") : ForwardingTier::MakeRoom(bytes, patience);
  }

 private:
  FakeTier real_{FakeTierOptions{.seed = 7, .synchronous = true}};
};

// A program whose data is twice as much as its memory when swap gets full.
template <typename Pins>
class FullProgram {
 public:
  explicit FullProgram(Engine::Options options = {}, uint64_t less_each = 0) : engine(WithBudget(options), &tier, &pins, DefaultPolicy()) {
    while (chunks.size() < 64) EXPECT_TRUE(Add(kFullBytes - chunks.size() * less_each).ok());
    tier.full = true;
  }
  ~FullProgram() {
    tier.full = false;
    for (Chunk* chunk : chunks) engine.Free(chunk);
    engine.Drain();
  }
  Status Add(uint64_t bytes = kFullBytes) {
    chunks.push_back(engine.Create(bytes).value());
    return engine.Acquire(chunks.back(), true);
  }
  auto Waits() const { return std::count(tier.asked.begin(), tier.asked.end(), SwapTier::Patience::kWait); }

  FullWhenTold tier;
  Pins pins;
  Engine engine;
  std::vector<Chunk*> chunks;

 private:
  static Engine::Options WithBudget(Engine::Options options) {
    options.budget = 2 * kMiB;
    return options;
  }
};

// What comes back from swap can wait for pins instead; the mover can come again.
TEST(FullSwap, IsWaitedForByNobodyButWhoFailsOtherwise) {
  FullProgram<NoPins> p({.keep_room = false});
  p.engine.FreeResidentSlots(UINT64_MAX);  // now nothing can leave
  for (Chunk* chunk : p.chunks) static_cast<void>(p.engine.Acquire(chunk, true, Engine::WhenPinned::kReturn));
  for (int turn = 0; turn < 10; ++turn) p.engine.MoverStep();
  ASSERT_FALSE(p.tier.asked.empty()) << "nobody was short of room";
  EXPECT_THAT(p.tier.asked, testing::Each(SwapTier::Patience::kAsk));
  p.tier.asked.clear();
  EXPECT_EQ(p.Add().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(p.Waits(), 1);
}

// A new object's frame waited 5 s for what should make way, and then 5 s for its own slot, each time that all victims had been looked at.
TEST(FullSwap, IsWaitedForOnceByWhoMakesSomething) {
  for (const bool may_have_soon : {false, true}) {
    FullProgram<NoPins> p;
    p.tier.may_have_soon = may_have_soon;
    p.tier.while_waited_for = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };  // it is not taken at its word for so long
    Status status;
    for (int refused = 0; refused < 4 && !HasFatalFailure();) {
      p.tier.asked.clear();
      status = p.Add();
      ASSERT_LT(p.chunks.size(), 1000u);
      if (status.ok()) continue;
      ++refused;
      EXPECT_EQ(p.Waits(), 1) << status.message();
    }
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  }
}

// Who waited for room was the first in the queue for memory: the one frame that is kept for readers was his for as long.
TEST(FullSwap, IsWaitedForByMakersWhileReadersGoOn) {
  // All chunks are pinned but one.
  struct OthersArePinned final : PinScanner {
    Chunk* unpinned = nullptr;
    void Barrier() override {}
    void FindPinned(std::span<Chunk* const> chunks, std::span<bool> pinned) override {
      for (size_t i = 0; i < chunks.size(); ++i) pinned[i] = pinned[i] || (unpinned != nullptr && chunks[i] != unpinned);
    }
    void SetWaiting(Chunk*) override {}
    Verdict JudgeWaiters() override { return Verdict::kDeadlock; }
  };
  FullProgram<OthersArePinned> p;
  p.tier.may_have_soon = true;
  const std::vector<Chunk*> old = p.chunks;
  int waits = 0;
  p.tier.while_waited_for = [&] {
    ++waits;
    const auto leaves = std::find_if(old.begin(), old.end(), [](const Chunk* c) { return c->frame != nullptr && c->slot; });
    const auto comes = std::find_if(old.begin(), old.end(), [](const Chunk* c) { return c->frame == nullptr; });
    ASSERT_NE(comes, old.end());
    if (leaves != old.end()) p.pins.unpinned = *leaves;
    const Status read = p.engine.Acquire(*comes, false, Engine::WhenPinned::kReturn);
    EXPECT_TRUE(read.ok()) << read.message();
    p.pins.unpinned = nullptr;
  };
  for (int n = 0; n < 64 && waits < 8; ++n) static_cast<void>(p.Add());
  EXPECT_GE(waits, 8) << "nobody was short of room";
}

// Who removes a swap waited 5 s for each size of what was there.
TEST(FullSwap, IsWaitedForOnceByWhoGivesUpASwap) {
  FullProgram<NoPins> p({}, /*less_each=*/512);
  EXPECT_EQ(p.engine.Vacate([](SlotRef, size_t) { return true; }).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(p.Waits(), 1);
  EXPECT_GT(p.tier.asked.size(), 1u) << "each has found the same";
  // The mover waited 5 s in each of its turns, and a RemoveSwap behind it for as long.
  p.tier.asked.clear();
  for (Vacating::Part part{.enough = [] { return true; }}; p.tier.asked.size() < 8;) {
    static_cast<void>(p.engine.Vacate([](SlotRef, size_t) { return true; }, {.part = &part}));
    ASSERT_NE(part.next, 0u) << "nobody was short of room";
  }
  EXPECT_THAT(p.tier.asked, testing::Each(SwapTier::Patience::kAsk));
}

// Who waited for memory when the limit went below his object waited on, for as long as others might unpin something, and was told of pins then.
TEST(FullSwap, WhoWaitsForMoreThanALowerLimitIsTold) {
  // All is pinned for those who wait, nothing for who sets the limit.
  struct PinnedForOthers final : PinScanner {
    const std::thread::id setter = std::this_thread::get_id();
    std::atomic<bool> asked{false};
    void Barrier() override {}
    void FindPinned(std::span<Chunk* const>, std::span<bool> pinned) override {
      if (std::this_thread::get_id() == setter) return;
      for (bool& one : pinned) one = true;
      asked = true;
    }
    void SetWaiting(Chunk*) override {}
    Verdict JudgeWaiters() override { return Verdict::kSomebodyMayUnpin; }
  } pins;
  FakeTier tier({.seed = 7, .synchronous = true});
  Engine engine({.budget = 4 * kMiB, .preemptive = false}, &tier, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  for (int i = 0; i < 50; ++i) {
    chunks.push_back(engine.Create(64 << 10).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
  }
  Chunk* const large = engine.Create(2 * kMiB).value();
  auto pull = std::async(std::launch::async, [&] { return engine.Acquire(large, true); });
  while (!pins.asked) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(engine.SetBudget(kMiB).ok());
  const bool ended = pull.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  EXPECT_TRUE(ended);
  if (!ended) static_cast<void>(engine.SetBudget(4 * kMiB));
  const Status status = pull.get();
  EXPECT_NE(status.message().find("does not fit"), std::string::npos) << status.ToString();
  for (Chunk* chunk : chunks) engine.Free(chunk);
  engine.Free(large);
  engine.Drain();
}

}  // namespace
}  // namespace ramspan
