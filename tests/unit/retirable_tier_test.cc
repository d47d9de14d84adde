#include "client/swap/retirable_tier.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "client/swap/tiered_swap.h"
#include "tests/support/fake_tier.h"
#include "tests/support/fault_tier.h"
#include "tests/support/forwarding_tier.h"

namespace ramspan {
namespace {

struct alignas(4096) Page {
  char bytes[4096] = {'x'};
};

IoRequest Request(SlotRef slot, Page* page, bool is_write) {
  IoRequest request;
  request.slot = slot;
  request.buffer = page;
  request.bytes = sizeof *page;
  request.is_write = is_write;
  return request;
}

// A thread that still ran at the program's end had its request left in the tier, which then aborted. A write that ended
// with the tier has failed: nobody can read it any more, and the bytes are still in memory.
TEST(RetirableTier, RequestsInFlightAtTheEndComeBack) {
  RetirableTier tier(std::make_unique<FakeTier>(FakeTierOptions{.seed = 1, .delay_steps_max = 8}));
  const SlotRef slot = tier.Reserve(4096).value();
  Page page;
  IoRequest write = Request(slot, &page, true);
  IoRequest* batch[] = {&write};
  tier.SubmitWrite(batch);
  tier.Retire();
  IoRequest* done[4];
  ASSERT_EQ(tier.Poll(done, std::chrono::microseconds(0)), 1u);
  EXPECT_EQ(done[0], &write);
  EXPECT_EQ(write.result, StatusCode::kUnavailable);
  EXPECT_EQ(tier.Poll(done, std::chrono::microseconds(0)), 0u);
}

TEST(RetirableTier, AfterTheEndEverythingIsRefused) {
  RetirableTier tier(std::make_unique<FakeTier>(FakeTierOptions{.seed = 2}));
  const SlotRef slot = tier.Reserve(4096).value();
  tier.Retire();
  EXPECT_EQ(tier.Reserve(4096).status().code(), StatusCode::kUnavailable);
  Page page;
  IoRequest read = Request(slot, &page, false);
  IoRequest* batch[] = {&read};
  tier.SubmitRead(batch);
  IoRequest* done[4];
  ASSERT_EQ(tier.Poll(done, std::chrono::microseconds(0)), 1u);
  EXPECT_EQ(read.result, StatusCode::kDataLoss);
}

// The engine dropped clean frames because their slots seemed to hold the same bytes; reads then said kDataLoss.
TEST(RetirableTier, WhatARetiredTierHeldIsLost) {
  RetirableTier tier(std::make_unique<FakeTier>(FakeTierOptions{.seed = 3}));
  const SlotRef slot = tier.Reserve(4096).value();
  EXPECT_FALSE(tier.IsLost(slot, 4096));
  tier.Retire();
  EXPECT_TRUE(tier.IsLost(slot, 4096));
}

// Else chunks below it are moved at each write, in the hope for room above that is refused.
TEST(RetirableTier, AClosedTierHasNoRoom) {
  RetirableTier tier(std::make_unique<FakeTier>(FakeTierOptions{.seed = 4}));
  const SlotRef slot = tier.Reserve(4096).value();
  EXPECT_GT(tier.stats().slot_bytes_capacity, 4096u);
  tier.Close();
  EXPECT_EQ(tier.stats().slot_bytes_capacity, 4096u);
  EXPECT_EQ(tier.MakeRoom(4096, SwapTier::Patience::kWait).code(), StatusCode::kUnavailable);
  tier.Reopen();
  EXPECT_GT(tier.stats().slot_bytes_capacity, 4096u);
  tier.Free(slot, 4096);
}

// Transfers that ended while the tier was retired were not counted.
TEST(RetirableTier, CountsWhatEndsWithIt) {
  RetirableTier tier(std::make_unique<FakeTier>(FakeTierOptions{.seed = 5, .delay_steps_max = 8}));
  const SlotRef slot = tier.Reserve(4096).value();
  Page page;
  IoRequest write = Request(slot, &page, true);
  IoRequest* batch[] = {&write};
  tier.SubmitWrite(batch);
  tier.Retire();
  EXPECT_EQ(tier.stats().bytes_written, 4096u);
  IoRequest* done[4];
  EXPECT_EQ(tier.Poll(done, std::chrono::microseconds(0)), 1u);
}

// The one list of the port's calls: each call of a tier has a name here, and what is to come through a wrapper. SwapTier is pure, so
// a call that is added to the port and not here does not compile.
class NotingTier final : public SwapTier {
 public:
  static constexpr size_t kCalls = 22;  // of the port, but for capabilities(), which wrappers may ask once for all
  explicit NotingTier(std::set<std::string>* calls) : calls_(*calls) {}
  Capabilities capabilities() const noexcept override { return {.name = "noting", .max_in_flight = 7}; }
  Capabilities CapabilitiesOf(SlotRef) const noexcept override { return Note("CapabilitiesOf"), Capabilities{.checksums = true}; }
  Result<SlotRef> Reserve(size_t) override { return Note("Reserve"), SlotRef{1}; }
  Result<SlotRef> TryReserve(size_t) override { return Note("TryReserve"), SlotRef{1}; }
  Status MakeRoom(size_t, Patience) override { return Note("MakeRoom"), Status(); }
  bool ShouldMove(SlotRef, size_t) const noexcept override { return Note("ShouldMove"), true; }
  SlotRef TryMoveUp(SlotRef, size_t) override { return Note("TryMoveUp"), SlotRef{3}; }
  bool IsLost(SlotRef, size_t) const noexcept override { return Note("IsLost"), true; }
  uint32_t LostWith(SlotRef, size_t) const override { return Note("LostWith"), 2u; }
  bool StandsStill(SlotRef, size_t) noexcept override { return Note("StandsStill"), true; }
  bool HasLeaving() const noexcept override { return Note("HasLeaving"), true; }
  bool IsLeaving(SlotRef, size_t) const noexcept override { return Note("IsLeaving"), true; }
  bool MayCut(SlotRef, size_t) const noexcept override { return Note("MayCut"), true; }
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t, size_t* taken) override {
    Note("TryExchange");
    *taken = given.size();
    return SlotRef{2};
  }
  void Free(SlotRef, size_t) noexcept override { Note("Free"); }
  void SubmitWrite(std::span<IoRequest* const>) noexcept override { Note("SubmitWrite"); }
  void SubmitRead(std::span<IoRequest* const>) noexcept override { Note("SubmitRead"); }
  size_t Poll(std::span<IoRequest*>, std::chrono::microseconds) override { return Note("Poll"), size_t{0}; }
  void ForgetMemory(std::span<std::byte> memory) noexcept override { Note(memory.size() == 8 ? "ForgetMemory" : "wrong memory"); }
  void Upkeep() override { Note("Upkeep"); }
  TierStats stats() const noexcept override { return Note("stats"), TierStats{.bytes_written = 5}; }
  uint64_t metadata_bytes() const noexcept override { return Note("metadata_bytes"), uint64_t{7}; }
  std::vector<ServerStats> servers() const override { return Note("servers"), std::vector<ServerStats>(3); }

 private:
  void Note(const char* call) const noexcept { calls_.insert(call); }
  std::set<std::string>& calls_;
};

// Makes each call once, and sees that it came through with what it says. `slot` is one of the wrapper's.
void ExpectPassesAllOn(SwapTier& tier, const std::set<std::string>& calls, SlotRef slot = SlotRef{1}) {
  EXPECT_TRUE(tier.CapabilitiesOf(slot).checksums);
  EXPECT_TRUE(tier.Reserve(1).ok());
  EXPECT_TRUE(tier.TryReserve(1).ok());
  EXPECT_TRUE(tier.MakeRoom(1, SwapTier::Patience::kWait).ok());
  EXPECT_TRUE(tier.IsLost(slot, 1));
  EXPECT_EQ(tier.LostWith(slot, 1), 2u);
  EXPECT_TRUE(tier.StandsStill(slot, 1));
  EXPECT_TRUE(tier.HasLeaving());
  EXPECT_TRUE(tier.IsLeaving(slot, 1));
  EXPECT_TRUE(tier.MayCut(slot, 1));
  const HeldSlot given[] = {{slot, 1}};
  size_t taken = 0;
  EXPECT_TRUE(tier.TryExchange(given, 1, &taken));
  EXPECT_EQ(taken, 1u);
  tier.Free(slot, 1);
  alignas(4096) static char page[4096];
  IoRequest one;
  one.slot = slot;
  one.buffer = page;
  one.bytes = sizeof page;
  IoRequest* const batch[] = {&one};
  tier.SubmitWrite(batch);
  one.slot = slot;
  tier.SubmitRead(batch);
  IoRequest* done[1];
  EXPECT_EQ(tier.Poll(done, std::chrono::microseconds(0)), 0u);
  std::byte memory[8];
  tier.ForgetMemory(memory);
  tier.Upkeep();
  EXPECT_EQ(tier.stats().bytes_written, 5u);
  EXPECT_GE(tier.metadata_bytes(), 7u);
  EXPECT_EQ(tier.servers().size(), 3u);
  static_cast<void>(tier.ShouldMove(slot, 1));
  static_cast<void>(tier.TryMoveUp(slot, 1));
  std::set<std::string> answered_itself;
  if (dynamic_cast<TieredSwap*>(&tier) != nullptr) answered_itself = {"ShouldMove", "TryMoveUp"};  // those are about its tiers
  std::set<std::string> all = calls;
  all.insert(answered_itself.begin(), answered_itself.end());
  EXPECT_EQ(all.size(), NotingTier::kCalls) << testing::PrintToString(all);
  EXPECT_FALSE(all.contains("wrong memory"));
}

// The statistics at the end of a program come after MPI_Finalize.
TEST(RetirableTier, WhatServersHaveMovedIsKnownWhenTheyAreGone) {
  std::set<std::string> calls;
  RetirableTier tier(std::make_unique<NotingTier>(&calls));
  tier.Retire();
  EXPECT_EQ(tier.servers().size(), 3u);
}

TEST(TierWrappers, ARetirableTierPassesAllOn) {
  std::set<std::string> calls;
  RetirableTier tier(std::make_unique<NotingTier>(&calls));
  EXPECT_STREQ(tier.capabilities().name, "noting");
  EXPECT_EQ(tier.capabilities().max_in_flight, 7u);
  calls.clear();
  ExpectPassesAllOn(tier, calls);
  EXPECT_TRUE(tier.ShouldMove(SlotRef{1}, 1));
  EXPECT_EQ(tier.TryMoveUp(SlotRef{1}, 1), SlotRef{3});
  IoRequest* done[1];
  calls.clear();  // what it has begun is never done here
  static_cast<void>(tier.Poll(done, std::chrono::microseconds(0)));
}

TEST(TierWrappers, AFaultTierPassesAllOn) {
  std::set<std::string> calls;
  FaultTier tier(std::make_unique<NotingTier>(&calls));
  EXPECT_STREQ(tier.capabilities().name, "noting");
  calls.clear();
  ExpectPassesAllOn(tier, calls);
  EXPECT_TRUE(tier.ShouldMove(SlotRef{1}, 1));
  EXPECT_EQ(tier.TryMoveUp(SlotRef{1}, 1), SlotRef{3});
}

TEST(TierWrappers, ATieredSwapPassesAllOn) {
  static std::set<std::string> calls;  // it ends with the requests that never come back: nothing here is destroyed
  std::vector<std::unique_ptr<SwapTier>> tiers;
  tiers.push_back(std::make_unique<NotingTier>(&calls));
  static auto* tier = new TieredSwap(std::move(tiers));
  calls.clear();
  ExpectPassesAllOn(*tier, calls, TieredSwap::SlotIn(0, SlotRef{1}));
}

TEST(TierWrappers, AForwardingTierPassesAllOn) {
  std::set<std::string> calls;
  NotingTier to(&calls);
  ForwardingTier tier(&to);
  ExpectPassesAllOn(tier, calls);
}

TEST(RetirableTier, AClosedTierCutsNoSlotFromOthers) {
  std::set<std::string> calls;
  RetirableTier tier(std::make_unique<NotingTier>(&calls));
  tier.Close();
  const HeldSlot given[] = {{SlotRef{1}, 1}};
  size_t taken = 0;
  EXPECT_FALSE(tier.TryExchange(given, 1, &taken));
  EXPECT_FALSE(calls.contains("TryExchange"));
}

// While what it holds is brought home, its servers are still looked after.
TEST(RetirableTier, AClosedTierIsStillKeptUp) {
  std::set<std::string> calls;
  RetirableTier tier(std::make_unique<NotingTier>(&calls));
  tier.Close();
  tier.Upkeep();
  EXPECT_TRUE(calls.contains("Upkeep"));
}

}  // namespace
}  // namespace ramspan
