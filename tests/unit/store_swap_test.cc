// A program's store may throw from any of its calls. Contents and order: tests/contract.
#include "client/swap/store_swap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

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
  EXPECT_EQ(tier.TryReserve(4096).status().code(), StatusCode::kAborted);
  EXPECT_EQ(tier.MakeRoom(4096).code(), StatusCode::kResourceExhausted);
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

}  // namespace
}  // namespace ramspan
