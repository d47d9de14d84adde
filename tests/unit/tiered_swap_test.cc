// Several tiers as one: order, routing, errors, fairness.
#include "client/swap/tiered_swap.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/fake_tier.h"

namespace ramspan {
namespace {

using std::chrono::microseconds;
constexpr uint64_t kOne = kSwapGranule;

// A tier on which requests never complete by themselves and each Poll waits its whole time.
class StuckTier final : public PlainTier {
 public:
  Capabilities capabilities() const noexcept override { return {.name = "stuck"}; }
  Result<SlotRef> Reserve(size_t) override { return SlotRef{1}; }
  void Free(SlotRef, size_t) noexcept override {}
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override {
    held_.insert(held_.end(), batch.begin(), batch.end());
  }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override { SubmitWrite(batch); }
  size_t Poll(std::span<IoRequest*> done, microseconds wait) override {
    waited_ += wait;
    if (!released_ || held_.empty()) return 0;
    done[0] = held_.back();
    held_.pop_back();
    return 1;
  }
  TierStats stats() const noexcept override { return {}; }

  void Release() { released_ = true; }
  microseconds waited() const { return waited_; }

 private:
  std::vector<IoRequest*> held_;
  bool released_ = false;
  microseconds waited_{0};
};

struct AlignedFree {
  void operator()(void* p) const { std::free(p); }
};
using TierBuffer = std::unique_ptr<void, AlignedFree>;

TierBuffer MakeBuffer(size_t bytes, int pattern) {
  TierBuffer buffer(std::aligned_alloc(kOne, RoundUpToGranule(bytes)));
  std::memset(buffer.get(), pattern, RoundUpToGranule(bytes));
  return buffer;
}

class TieredSwapTest : public testing::Test {
 protected:
  TieredSwapTest() {
    auto upper = std::make_unique<FakeTier>(FakeTierOptions{
        .seed = 1, .capacity_bytes = 4 * kOne, .synchronous = true, .checksums = true, .name = "upper"});
    auto lower = std::make_unique<FakeTier>(FakeTierOptions{.seed = 2, .capacity_bytes = 8 * kOne, .name = "lower"});
    upper_ = upper.get();
    lower_ = lower.get();
    std::vector<std::unique_ptr<SwapTier>> tiers;
    tiers.push_back(std::move(upper));
    tiers.push_back(std::move(lower));
    tiered_ = std::make_unique<TieredSwap>(std::move(tiers), std::chrono::milliseconds(0));
  }

  // Whether one of the next four says so: one in four of what leaves moves up.
  bool ShouldMoveInTime(SlotRef slot, size_t bytes) const {
    bool moves = false;
    for (int i = 0; i < 4; ++i) moves = tiered_->ShouldMove(slot, bytes) || moves;
    return moves;
  }
  SlotRef MustReserve(size_t bytes) {
    const Result<SlotRef> slot = tiered_->Reserve(bytes);
    EXPECT_TRUE(slot.ok()) << slot.status().message();
    return slot.ok() ? slot.value() : SlotRef{};
  }

  std::unique_ptr<TieredSwap> tiered_;
  FakeTier* upper_ = nullptr;
  FakeTier* lower_ = nullptr;
};

TEST_F(TieredSwapTest, TheFirstTierIsFilledFirst) {
  for (int i = 0; i < 4; ++i) EXPECT_STREQ(tiered_->CapabilitiesOf(MustReserve(kOne)).name, "upper");
  for (int i = 0; i < 8; ++i) EXPECT_STREQ(tiered_->CapabilitiesOf(MustReserve(kOne)).name, "lower");
  EXPECT_EQ(upper_->slots(), 4u);
  EXPECT_EQ(lower_->slots(), 8u);
}

TEST_F(TieredSwapTest, AChunkTooLargeForTheFirstTierGoesToTheNext) {
  EXPECT_STREQ(tiered_->CapabilitiesOf(MustReserve(5 * kOne)).name, "lower");
  EXPECT_STREQ(tiered_->CapabilitiesOf(MustReserve(4 * kOne)).name, "upper");
}

TEST_F(TieredSwapTest, WhenAllAreFullTheMessageNamesEachTier) {
  MustReserve(4 * kOne);
  MustReserve(8 * kOne);
  const Result<SlotRef> slot = tiered_->Reserve(1);
  ASSERT_FALSE(slot.ok());
  EXPECT_EQ(slot.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(slot.status().message().find("upper: "), std::string::npos) << slot.status().message();
  EXPECT_NE(slot.status().message().find("lower: "), std::string::npos) << slot.status().message();
}

TEST_F(TieredSwapTest, ATierThatIsGoneIsPassedOver) {
  upper_->SetGone(true);
  EXPECT_STREQ(tiered_->CapabilitiesOf(MustReserve(kOne)).name, "lower");
  lower_->SetGone(true);
  EXPECT_EQ(tiered_->Reserve(kOne).status().code(), StatusCode::kUnavailable);
}

TEST_F(TieredSwapTest, CapabilitiesAreThoseOfTheSlotAndOnlyTheCommonOnesOfTheWhole) {
  const SlotRef upper = MustReserve(4 * kOne);
  const SlotRef lower = MustReserve(kOne);
  EXPECT_TRUE(tiered_->CapabilitiesOf(upper).synchronous);
  EXPECT_TRUE(tiered_->CapabilitiesOf(upper).checksums);
  EXPECT_FALSE(tiered_->CapabilitiesOf(lower).synchronous);
  EXPECT_FALSE(tiered_->capabilities().synchronous);
  EXPECT_FALSE(tiered_->capabilities().checksums);
}

TEST_F(TieredSwapTest, RoomAboveIsSeenOnlyFromBelow) {
  const SlotRef first = MustReserve(3 * kOne);
  const SlotRef second = MustReserve(2 * kOne);  // on the lower tier
  tiered_->Upkeep();
  EXPECT_FALSE(ShouldMoveInTime(first, kOne)) << "nothing is above the first tier";
  EXPECT_FALSE(ShouldMoveInTime(second, 2 * kOne));
  EXPECT_TRUE(ShouldMoveInTime(second, kOne));
  tiered_->Free(first, 3 * kOne);
  EXPECT_TRUE(ShouldMoveInTime(second, 2 * kOne));
}

// Two tiers, of which the first is full and the second has one slot. Room counts when it has been there for `room_lasts`.
struct FullAbove {
  explicit FullAbove(std::chrono::milliseconds room_lasts) : tiered(Tiers(), room_lasts) {
    above = tiered.Reserve(8 * kOne).value();
    below = tiered.Reserve(kOne).value();
    tiered.Upkeep();
  }
  static std::vector<std::unique_ptr<SwapTier>> Tiers() {
    std::vector<std::unique_ptr<SwapTier>> tiers;
    for (const uint64_t seed : {1, 2}) tiers.push_back(std::make_unique<FakeTier>(FakeTierOptions{.seed = seed, .capacity_bytes = 8 * kOne}));
    return tiers;
  }
  TieredSwap tiered;
  SlotRef above, below;
};

// What had left a server that wanted its memory back went up again at its next write. By bytes, one in four of what leaves goes up, changed or
// not, and what was not used of that while there was no room is not made up for.
TEST(TieredSwap, OneInFourOfWhatLeavesChangedMovesUpWhereThereIsRoomForAWhile) {
  for (const bool lasts : {true, false}) {
    FullAbove full(lasts ? std::chrono::milliseconds(0) : std::chrono::hours(1));
    TieredSwap& tiered = full.tiered;
    const SlotRef above = full.above, below = full.below;
    for (int i = 0; i < 9; ++i) EXPECT_FALSE(tiered.ShouldMove(below, kOne)) << "full";
    tiered.Free(above, 8 * kOne);
    EXPECT_FALSE(tiered.ShouldMove(below, kOne)) << "for how long is not known";
    tiered.Upkeep();
    int moved = 0;
    for (int i = 0; i < 9; ++i) moved += tiered.ShouldMove(below, kOne) ? 1 : 0;
    EXPECT_EQ(moved, lasts ? 3 : 0) << "the first one at once, then after four each";
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(tiered.TryMoveUp(below, kOne)) << "one account for both";
    if (const SlotRef slot = tiered.TryMoveUp(below, kOne)) tiered.Free(slot, kOne);
    tiered.Free(below, kOne);
  }
}

// A store may say UINT64_MAX. It was taken for full by who counts with a sign, and the sum of all was what the others have, less one byte.
TEST_F(TieredSwapTest, ATierWithoutLimitHasRoom) {
  static_cast<void>(MustReserve(4 * kOne));
  const SlotRef below = MustReserve(kOne);
  ASSERT_FALSE(ShouldMoveInTime(below, kOne));
  upper_->SetCapacity(UINT64_MAX);
  tiered_->Upkeep();
  EXPECT_TRUE(ShouldMoveInTime(below, kOne));
  EXPECT_EQ(tiered_->stats().slot_bytes_capacity, UINT64_MAX);
}

// The engine asks for each dirty chunk that leaves, with its mutex held; statistics need the tiers' own locks.
TEST(TieredSwap, WhetherThereIsRoomAboveIsAskedOfNoTier) {
  struct Asked final : FakeTier {
    explicit Asked(std::atomic<int>* calls) : FakeTier({.seed = 1, .capacity_bytes = 4 * kOne}), calls_(calls) {}
    TierStats stats() const noexcept override { return ++*calls_, FakeTier::stats(); }
    std::atomic<int>* const calls_;
  };
  std::atomic<int> calls{0};
  std::vector<std::unique_ptr<SwapTier>> tiers;
  auto upper = std::make_unique<Asked>(&calls);
  FakeTier* const faster = upper.get();
  tiers.push_back(std::move(upper));
  tiers.push_back(std::make_unique<FakeTier>(FakeTierOptions{.seed = 2, .capacity_bytes = 4 * kOne}));
  TieredSwap tiered(std::move(tiers), std::chrono::milliseconds(0));
  const auto in_time = [&](SlotRef slot) {
    bool moves = false;
    for (int i = 0; i < 4; ++i) moves = tiered.ShouldMove(slot, kOne) || moves;
    return moves;
  };
  const SlotRef above = tiered.Reserve(3 * kOne).value(), below = tiered.Reserve(2 * kOne).value();
  tiered.Upkeep();
  calls = 0;
  EXPECT_TRUE(in_time(below));
  EXPECT_EQ(calls, 0);
  // Room that comes or goes without a slot of ours is seen by the next upkeep.
  const SlotRef taken = faster->Reserve(kOne).value();
  EXPECT_TRUE(in_time(below));
  tiered.Upkeep();
  EXPECT_FALSE(in_time(below));
  faster->Free(taken, kOne);
  tiered.Free(above, 3 * kOne);
  tiered.Free(below, 2 * kOne);
}

// By bytes, one in four of what leaves unchanged, and what was not used of that while there was no room is not made up for.
TEST(TieredSwap, OneInFourOfWhatLeavesUnchangedMovesUpWhereThereIsRoomForAWhile) {
  for (const bool lasts : {true, false}) {
    FullAbove full(lasts ? std::chrono::milliseconds(0) : std::chrono::hours(1));
    TieredSwap& tiered = full.tiered;
    const SlotRef above = full.above, below = full.below;
    for (int i = 0; i < 9; ++i) EXPECT_FALSE(tiered.TryMoveUp(below, kOne)) << "full";
    EXPECT_FALSE(tiered.TryMoveUp(above, 8 * kOne)) << "nothing is above it";
    tiered.Free(above, 8 * kOne);
    EXPECT_FALSE(tiered.TryMoveUp(below, kOne)) << "for how long is not known";
    tiered.Upkeep();
    std::vector<SlotRef> moved;
    for (int i = 0; i < 9; ++i) {
      if (const SlotRef slot = tiered.TryMoveUp(below, kOne)) moved.push_back(slot);
    }
    EXPECT_EQ(moved.size(), lasts ? 3u : 0u) << "the first one at once, then after four each";
    for (const SlotRef slot : moved) {
      EXPECT_EQ(tiered.TierIndexOf(slot), 0u);
      tiered.Free(slot, kOne);
    }
    tiered.Free(below, kOne);
  }
}

TEST_F(TieredSwapTest, OnlyTiersInTheOrderGetNewSlotsAndOthersKeepWhatTheyHave) {
  const SlotRef old = MustReserve(kOne);
  const size_t added = tiered_->Add(
      std::make_unique<FakeTier>(FakeTierOptions{.seed = 3, .capacity_bytes = 2 * kOne, .name = "added"}));
  EXPECT_EQ(added, 2u);
  EXPECT_EQ(tiered_->order(), (std::vector<size_t>{0, 1}));
  tiered_->SetOrder(std::vector<size_t>{2, 1});
  EXPECT_STREQ(tiered_->CapabilitiesOf(MustReserve(kOne)).name, "added");
  EXPECT_STREQ(tiered_->CapabilitiesOf(MustReserve(2 * kOne)).name, "lower");
  EXPECT_STREQ(tiered_->CapabilitiesOf(old).name, "upper");
  EXPECT_FALSE(tiered_->ShouldMove(old, kOne)) << "what is out of the order stays where it is";
  tiered_->SetOrder({});
  const Result<SlotRef> none = tiered_->Reserve(kOne);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("swap is closed"), std::string::npos);
  EXPECT_EQ(upper_->slots(), 1u);
}

TEST_F(TieredSwapTest, OnlyTiersInTheOrderCutASlotFromThePlacesOfOthers) {
  HeldSlot given[4];
  for (HeldSlot& one : given) one = {MustReserve(kOne), kOne};  // the upper tier is full
  const HeldSlot below{MustReserve(kOne), kOne};
  size_t taken = 0;
  const SlotRef slot = tiered_->TryExchange(std::span(given).first(2), 2 * kOne, &taken);
  ASSERT_TRUE(slot);
  EXPECT_EQ(taken, 2u);
  EXPECT_STREQ(tiered_->CapabilitiesOf(slot).name, "upper");
  EXPECT_FALSE(tiered_->ShouldMove(below.slot, kOne)) << "the upper tier is as full as before";
  tiered_->SetOrder(std::vector<size_t>{1});
  EXPECT_FALSE(tiered_->TryExchange(std::span(given).last(2), 2 * kOne, &taken)) << "it takes nothing new now";
  EXPECT_EQ(upper_->slots(), 3u) << "and what it has stays";
  EXPECT_FALSE(tiered_->TryExchange({}, kOne, &taken));
}

TEST_F(TieredSwapTest, APlaceIsUsedAgainAndThereAreFifteen) {
  const auto fake = [] { return std::make_unique<FakeTier>(FakeTierOptions{.seed = 3, .capacity_bytes = 2 * kOne}); };
  const size_t first = tiered_->Add(fake());
  EXPECT_EQ(tiered_->Add(fake(), first), first);
  for (size_t i = first + 1; i < TieredSwap::kTiersMax; ++i) EXPECT_EQ(tiered_->Add(fake()), i);
  EXPECT_EQ(tiered_->Add(fake()), TieredSwap::kTiersMax);
}

TEST_F(TieredSwapTest, AMixedBatchIsSplitAndSlotsComeBackAsTheyWere) {
  std::vector<IoRequest> requests(12);
  std::vector<TierBuffer> buffers;
  std::vector<SlotRef> slots;
  for (int i = 0; i < 12; ++i) slots.push_back(MustReserve(kOne));
  std::rotate(slots.begin(), slots.begin() + 2, slots.end());  // upper, upper, lower x 8, upper, upper
  std::vector<IoRequest*> batch;
  for (size_t i = 0; i < requests.size(); ++i) {
    buffers.push_back(MakeBuffer(kOne, static_cast<int>(i)));
    requests[i].slot = slots[i];
    requests[i].buffer = buffers[i].get();
    requests[i].bytes = kOne;
    batch.push_back(&requests[i]);
  }
  for (bool is_write : {true, false}) {
    is_write ? tiered_->SubmitWrite(batch) : tiered_->SubmitRead(batch);
    size_t returned = 0;
    std::array<IoRequest*, 3> done;
    while (returned < batch.size()) returned += tiered_->Poll(done, microseconds(1000));
    EXPECT_EQ(returned, batch.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(requests[i].slot, slots[i]);
      EXPECT_EQ(requests[i].result, StatusCode::kOk);
      EXPECT_EQ(static_cast<char*>(requests[i].buffer)[17], static_cast<char>(i));
    }
  }
  EXPECT_EQ(tiered_->tier(0).stats().writes, 4u);
  EXPECT_EQ(tiered_->tier(1).stats().writes, 8u);
  EXPECT_EQ(tiered_->stats().writes, 12u);
  EXPECT_EQ(tiered_->stats().bytes_read, 12 * kOne);
}

TEST(TieredSwap, ASlowTierDoesNotHoldUpTheCompletionsOfAnother) {
  auto stuck = std::make_unique<StuckTier>();
  StuckTier* const slow = stuck.get();
  std::vector<std::unique_ptr<SwapTier>> tiers;
  tiers.push_back(std::make_unique<FakeTier>(FakeTierOptions{.capacity_bytes = kOne}));
  tiers.push_back(std::move(stuck));
  TieredSwap tiered(std::move(tiers));
  const TierBuffer buffer = MakeBuffer(kOne, 1);
  std::array<IoRequest, 2> requests;
  for (IoRequest& request : requests) {
    request.slot = tiered.Reserve(kOne).value();
    request.buffer = buffer.get();
    request.bytes = kOne;
    std::array<IoRequest*, 1> one{&request};
    tiered.SubmitWrite(one);
  }
  std::array<IoRequest*, 4> done;
  ASSERT_EQ(tiered.Poll(done, std::chrono::seconds(10)), 1u);
  EXPECT_EQ(done[0], &requests[0]);
  EXPECT_LE(slow->waited(), microseconds(1000)) << "of the 10 s it may wait";
  slow->Release();
  ASSERT_EQ(tiered.Poll(done, std::chrono::seconds(10)), 1u);
  EXPECT_EQ(done[0], &requests[1]);
}

TEST(TieredSwap, AnIdleTierIsNotPolled) {
  auto stuck = std::make_unique<StuckTier>();
  StuckTier* const idle = stuck.get();
  std::vector<std::unique_ptr<SwapTier>> tiers;
  tiers.push_back(std::make_unique<FakeTier>(FakeTierOptions{}));
  tiers.push_back(std::move(stuck));
  TieredSwap tiered(std::move(tiers));
  const TierBuffer buffer = MakeBuffer(kOne, 1);
  IoRequest request;
  request.slot = tiered.Reserve(kOne).value();
  request.buffer = buffer.get();
  request.bytes = kOne;
  std::array<IoRequest*, 1> one{&request};
  tiered.SubmitWrite(one);
  std::array<IoRequest*, 4> done;
  EXPECT_EQ(tiered.Poll(done, std::chrono::seconds(1)), 1u);
  EXPECT_EQ(idle->waited(), microseconds(0));
}

using TieredSwapDeathTest = testing::Test;

// A tier may find no heap in Poll. What another one had just handed over was lost with that: its chunk was in flight for ever.
TEST(TieredSwap, ATierWithoutHeapLosesNoCompletionOfAnother) {
  struct Heapless final : FakeTier {
    explicit Heapless(bool is_heapless) : FakeTier({.seed = 1, .capacity_bytes = 4 * kOne}), none(is_heapless) {}
    size_t Poll(std::span<IoRequest*> done, microseconds wait) override {
      if (none) throw std::bad_alloc();
      return FakeTier::Poll(done, wait);
    }
    bool none;
  };
  for (const bool first : {true, false}) {
    std::vector<std::unique_ptr<SwapTier>> tiers;
    Heapless* both[2] = {};
    for (const size_t i : {size_t{0}, size_t{1}}) {
      auto one = std::make_unique<Heapless>(first == (i == 0));
      both[i] = one.get();
      tiers.push_back(std::move(one));
    }
    TieredSwap tiered(std::move(tiers));
    const TierBuffer buffer = MakeBuffer(2 * kOne, 7);
    std::array<IoRequest, 2> requests;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const size_t order[] = {i};
      tiered.SetOrder(order);
      requests[i] = {.slot = tiered.Reserve(kOne).value(), .buffer = static_cast<std::byte*>(buffer.get()) + i * kOne, .bytes = kOne};
      IoRequest* batch[] = {&requests[i]};
      tiered.SubmitWrite(batch);
    }
    IoRequest* done[4];
    size_t ended = 0;
    for (int i = 0; i < 100; ++i) ended += WithinHeap([&] { return tiered.Poll(done, microseconds(i % 2)); }, size_t{0});
    EXPECT_EQ(ended, 1u);
    both[0]->none = both[1]->none = false;
    for (int i = 0; i < 100 && ended < 2; ++i) ended += tiered.Poll(done, microseconds(100));
    EXPECT_EQ(ended, 2u);
  }
}

TEST(TieredSwapDeathTest, ASlotWithoutATierIsABug) {
  std::vector<std::unique_ptr<SwapTier>> tiers;
  tiers.push_back(std::make_unique<FakeTier>());
  TieredSwap tiered(std::move(tiers));
  EXPECT_DEATH(tiered.Free(SlotRef{5}, kOne), "names no tier");
  EXPECT_DEATH(tiered.Free(slot_bits::WithTier(SlotRef{5}, 1), kOne), "names no tier");
}

}  // namespace
}  // namespace ramspan
