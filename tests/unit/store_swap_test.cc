// A program's store may throw from any of its calls. Contents and order: tests/contract.
#include "client/swap/store_swap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

namespace ramspan {
namespace {

class ThrowingStore final : public SwapStore {
 public:
  bool throws = true;
  std::string Name() const override { return "brittle"; }
  uint64_t Capacity() const override { return Maybe("capacity is not known"), uint64_t{8192}; }
  bool Extend(uint64_t) override { return Maybe("the data base is read-only"), false; }
  bool Write(uint64_t, const void*, size_t) override { return Maybe("write"), true; }
  bool Read(uint64_t, void*, size_t) override { throw 7; }  // NOLINT: programs do such things
  void Erase(uint64_t, size_t) noexcept override {}

 private:
  void Maybe(const char* what) const {
    if (throws) throw std::runtime_error(what);
  }
};

StatusCode Move(StoreSwap& tier, SlotRef slot, bool is_write) {
  alignas(4096) static char page[4096];
  IoRequest request;
  request.slot = slot;
  request.buffer = page;
  request.bytes = sizeof page;
  request.is_write = is_write;
  IoRequest* batch[] = {&request};
  is_write ? tier.SubmitWrite(batch) : tier.SubmitRead(batch);
  IoRequest* done[2];
  EXPECT_EQ(tier.Poll(done, std::chrono::microseconds(0)), 1u);
  return request.result;
}

// Extend threw through the engine, between its unlock and its lock: std::terminate on the mover.
TEST(StoreSwap, WhatTheStoreThrowsStaysAtTheWall) {
  ThrowingStore store;
  StoreSwap tier(&store);
  const Result<SlotRef> none = tier.Reserve(4096);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(none.status().message(), testing::HasSubstr("the data base is read-only"));
  EXPECT_EQ(tier.TryReserve(4096).status().code(), StatusCode::kMustAsk);
  EXPECT_EQ(tier.MakeRoom(4096, SwapTier::Patience::kWait).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(tier.stats().slot_bytes_capacity, 0u);

  store.throws = false;
  const SlotRef slot = tier.Reserve(4096).value();
  EXPECT_EQ(Move(tier, slot, true), StatusCode::kOk);
  EXPECT_EQ(Move(tier, slot, false), StatusCode::kUnavailable);
  store.throws = true;
  EXPECT_EQ(Move(tier, slot, true), StatusCode::kUnavailable);
  EXPECT_EQ(tier.stats().slot_bytes_capacity, 8192u);  // as it said last
  EXPECT_TRUE(tier.TryReserve(4096).ok());
  tier.Free(slot, 4096);
}

// A line for each try: 150 000 in three seconds.
TEST(StoreSwap, OfFailuresInARowTheFirstIsTold) {
  ThrowingStore store;
  store.throws = false;
  StoreSwap tier(&store);
  const SlotRef slot = tier.Reserve(4096).value();
  testing::internal::CaptureStderr();
  for (int round = 0; round < 2; ++round) {
    store.throws = true;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Move(tier, slot, true), StatusCode::kUnavailable);
    store.throws = false;
    EXPECT_EQ(Move(tier, slot, true), StatusCode::kOk);
  }
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 2) << told;
  tier.Free(slot, 4096);
}

// Counts the calls of each kind, and remembers what is erased.
class CountingStore final : public SwapStore {
 public:
  uint64_t capacity = 16384;
  mutable int asked = 0;
  int erased = 0, erased_at_write = -1;
  uint64_t Capacity() const override { return ++asked, capacity; }
  bool Write(uint64_t, const void*, size_t) override { return erased_at_write = erased, true; }
  bool Read(uint64_t, void*, size_t) override { return true; }
  void Erase(uint64_t, size_t) noexcept override { ++erased; }
};

// The engine asks these under its mutex: Erase and Capacity ran there, and could not use anything that takes it.
TEST(StoreSwap, NoQuestionOfTheEnginesReachesTheStore) {
  CountingStore store;
  StoreSwap tier(&store);
  const int asked = store.asked;
  const SlotRef slot = tier.TryReserve(4096).value();
  EXPECT_EQ(tier.stats().slot_bytes_capacity, 16384u);
  tier.Free(slot, 4096);
  EXPECT_EQ(store.asked, asked);
  EXPECT_EQ(store.erased, 0);
  EXPECT_EQ(tier.used_bytes(), 0u);  // at once
  EXPECT_EQ(tier.stats().slot_bytes_used, 0u);
}

TEST(StoreSwap, WhatWasFreedIsErasedBeforeTheNextWriteAndInUpkeepAndAtTheEnd) {
  CountingStore store;
  {
    StoreSwap tier(&store);
    const SlotRef full = tier.TryReserve(16384).value();
    EXPECT_EQ(tier.TryReserve(4096).status().code(), StatusCode::kMustAsk);
    tier.Free(full, 16384);
    const SlotRef slot = tier.TryReserve(4096).value();
    EXPECT_EQ(Move(tier, slot, true), StatusCode::kOk);
    EXPECT_EQ(store.erased_at_write, 1);  // the store had no room for both
    tier.Free(slot, 4096);
    tier.Upkeep();
    EXPECT_EQ(store.erased, 2);
    const SlotRef other = tier.TryReserve(16384).value();
    tier.Free(other, 16384);
    EXPECT_TRUE(tier.MakeRoom(4096, SwapTier::Patience::kWait).ok());
    EXPECT_EQ(store.erased, 3);
    tier.Free(tier.TryReserve(4096).value(), 4096);
  }
  EXPECT_EQ(store.erased, 4);
}

TEST(StoreSwap, AStoreThatGrewOrShrankByItselfIsNoticed) {
  CountingStore store;
  StoreSwap tier(&store);
  const SlotRef slot = tier.TryReserve(16384).value();
  store.capacity = 32768;
  EXPECT_EQ(tier.TryReserve(16384).status().code(), StatusCode::kMustAsk);  // who then asks it
  EXPECT_TRUE(tier.MakeRoom(16384, SwapTier::Patience::kWait).ok());
  EXPECT_TRUE(tier.TryReserve(8192).ok());
  store.capacity = 0;
  EXPECT_EQ(Move(tier, slot, true), StatusCode::kOk);
  EXPECT_EQ(tier.TryReserve(4096).status().code(), StatusCode::kMustAsk);
}

// The mover had asked, and was late with what it had heard: it overwrote what the store said after it had been extended, and
// the thread that had extended it was told that swap is full.
TEST(StoreSwap, AnAnswerFromBeforeExtendIsNotTakenAfterIt) {
  struct SlowToAnswer final : SwapStore {
    uint64_t Capacity() const override {
      const uint64_t now = capacity;
      if (std::this_thread::get_id() != mover) return now;
      asked = true;
      while (!answer) std::this_thread::yield();
      return now;
    }
    bool Extend(uint64_t bytes) override { return capacity += bytes, true; }
    bool Write(uint64_t, const void*, size_t) override { return true; }
    bool Read(uint64_t, void*, size_t) override { return true; }
    void Erase(uint64_t, size_t) noexcept override {}
    std::atomic<uint64_t> capacity{4096};
    std::atomic<std::thread::id> mover{};
    mutable std::atomic<bool> asked{false};
    std::atomic<bool> answer{false};
  } store;
  StoreSwap tier(&store);
  ASSERT_TRUE(tier.TryReserve(4096).ok());
  std::thread mover([&] {
    store.mover = std::this_thread::get_id();
    tier.Upkeep();
  });
  while (!store.asked) std::this_thread::yield();
  EXPECT_TRUE(tier.MakeRoom(4096, SwapTier::Patience::kWait).ok());
  store.answer = true;
  mover.join();
  EXPECT_EQ(tier.stats().slot_bytes_capacity, 8192u);
  EXPECT_TRUE(tier.TryReserve(4096).ok());
}

}  // namespace
}  // namespace ramspan
