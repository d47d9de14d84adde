// The test tiers themselves: faults happen as planned, and misuse is noticed.
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/fake_tier.h"
#include "tests/support/fault_tier.h"

namespace ramspan {
namespace {

constexpr size_t kBytes = 10'000;

// Either of the two tiers, with its plan.
struct Faulty {
  std::unique_ptr<SwapTier> tier;
  FaultPlan* plan;
};

Faulty MakeFakeTier() {
  auto tier = std::make_unique<FakeTier>();
  FaultPlan* const plan = &tier->faults();
  return {std::move(tier), plan};
}
Faulty MakeFaultTier() {
  auto tier = std::make_unique<FaultTier>(std::make_unique<FakeTier>());
  FaultPlan* const plan = &tier->faults();
  return {std::move(tier), plan};
}

class Faults : public testing::TestWithParam<std::function<Faulty()>> {
 protected:
  void SetUp() override {
    faulty_ = GetParam()();
    request_.slot = faulty_.tier->Reserve(kBytes).value();
    request_.buffer = buffer_ = static_cast<char*>(std::aligned_alloc(kSwapGranule, RoundUpToGranule(kBytes)));
    request_.bytes = kBytes;
    std::memset(buffer_, 'x', kBytes);
  }
  void TearDown() override { std::free(buffer_); }

  StatusCode Transfer(bool is_write) {
    std::array<IoRequest*, 1> one{&request_};
    is_write ? faulty_.tier->SubmitWrite(one) : faulty_.tier->SubmitRead(one);
    std::array<IoRequest*, 1> done{};
    EXPECT_EQ(faulty_.tier->Poll(done, std::chrono::seconds(1)), 1u);
    EXPECT_EQ(done[0], &request_);
    return request_.result;
  }
  size_t WrongBytes() const {
    size_t wrong = 0;
    for (size_t i = 0; i < kBytes; ++i) wrong += buffer_[i] != 'x' ? 1 : 0;
    return wrong;
  }

  Faulty faulty_;
  IoRequest request_;
  char* buffer_ = nullptr;
};

TEST_P(Faults, AFailedRequestSaysWhetherToRetry) {
  faulty_.plan->NextWrites(Fault::kFails);
  EXPECT_EQ(Transfer(true), StatusCode::kUnavailable);
  faulty_.plan->NextWrites(Fault::kFull);
  EXPECT_EQ(Transfer(true), StatusCode::kResourceExhausted);
  EXPECT_EQ(Transfer(true), StatusCode::kOk);
  faulty_.plan->NextReads(Fault::kFails, 2);
  EXPECT_EQ(Transfer(false), StatusCode::kUnavailable);
  EXPECT_EQ(Transfer(false), StatusCode::kUnavailable);
  EXPECT_EQ(Transfer(false), StatusCode::kOk);
  EXPECT_EQ(WrongBytes(), 0u);
  EXPECT_EQ(faulty_.tier->stats().errors, 4u);
}

TEST_P(Faults, AShortTransferShowsOnlyInItsLength) {
  faulty_.plan->NextWrites(Fault::kShort);
  EXPECT_EQ(Transfer(true), StatusCode::kOk);
  EXPECT_EQ(request_.bytes_done, kBytes / 2);
  ASSERT_EQ(Transfer(true), StatusCode::kOk);
  faulty_.plan->NextReads(Fault::kShort);
  EXPECT_EQ(Transfer(false), StatusCode::kOk);
  EXPECT_EQ(request_.bytes_done, kBytes / 2);
  EXPECT_EQ(WrongBytes(), kBytes - kBytes / 2);
}

TEST_P(Faults, AFlippedByteShowsOnlyInTheBytes) {
  faulty_.plan->NextWrites(Fault::kFlippedByte);
  EXPECT_EQ(Transfer(true), StatusCode::kOk);
  EXPECT_EQ(request_.bytes_done, kBytes);
  EXPECT_EQ(WrongBytes(), 0u) << "a buffer being written out is constant";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Transfer(false), StatusCode::kOk);
    EXPECT_EQ(WrongBytes(), 1u) << "wrong in the slot";
  }
  std::memset(buffer_, 'x', kBytes);
  ASSERT_EQ(Transfer(true), StatusCode::kOk);
  faulty_.plan->NextReads(Fault::kFlippedByte);
  EXPECT_EQ(Transfer(false), StatusCode::kOk);
  EXPECT_EQ(WrongBytes(), 1u);
  EXPECT_EQ(Transfer(false), StatusCode::kOk);
  EXPECT_EQ(WrongBytes(), 0u) << "wrong on the way only";
}

TEST_P(Faults, AFullReserveHappensAsOftenAsPlanned) {
  faulty_.plan->NextReservesAreFull(2);
  EXPECT_EQ(faulty_.tier->Reserve(1).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(faulty_.tier->Reserve(1).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(faulty_.tier->Reserve(1).ok());
}

INSTANTIATE_TEST_SUITE_P(Tiers, Faults, testing::Values(MakeFakeTier, MakeFaultTier),
                         [](const auto& info) { return info.index == 0 ? "FakeTier" : "FaultTier"; });

// The order in which 20 requests come back.
std::vector<size_t> OrderOfSeed(uint64_t seed) {
  FakeTier tier({.seed = seed});
  void* const buffer = std::aligned_alloc(kSwapGranule, kSwapGranule);
  std::memset(buffer, 1, kSwapGranule);
  std::vector<IoRequest> requests(20);
  for (IoRequest& request : requests) {
    request.slot = tier.Reserve(1).value();
    request.buffer = buffer;
    request.bytes = 1;
    std::array<IoRequest*, 1> one{&request};
    tier.SubmitWrite(one);
  }
  std::vector<size_t> order;
  std::array<IoRequest*, 3> done{};
  while (order.size() < requests.size()) {
    const size_t count = tier.Poll(done, std::chrono::microseconds(0));
    for (size_t i = 0; i < count; ++i) order.push_back(static_cast<size_t>(done[i] - requests.data()));
  }
  std::free(buffer);
  return order;
}

TEST(FakeTier, ASeedReplaysItsOrderAndAnotherGivesAnother) {
  EXPECT_EQ(OrderOfSeed(1), OrderOfSeed(1));
  EXPECT_NE(OrderOfSeed(1), OrderOfSeed(2));
}

TEST(FakeTierDeathTest, MisuseIsNoticed) {
  FakeTier tier;
  char* const buffer = static_cast<char*>(std::aligned_alloc(kSwapGranule, kSwapGranule));
  std::memset(buffer, 1, kSwapGranule);
  IoRequest request;
  request.slot = tier.Reserve(100).value();
  request.buffer = buffer;
  request.bytes = 100;
  std::array<IoRequest*, 1> one{&request};
  std::array<IoRequest*, 1> done{};
  EXPECT_DEATH(tier.SubmitRead(one), "before it was written");
  EXPECT_DEATH(tier.Free(request.slot, 99), "freed as 99");
  tier.SubmitWrite(one);
  EXPECT_DEATH(tier.Free(request.slot, 100), "I4");
  EXPECT_DEATH(tier.SubmitWrite(one), "I/O in flight");
  EXPECT_DEATH(
      {
        buffer[3] = 2;
        tier.Poll(done, std::chrono::seconds(1));
      },
      "I3");
  ASSERT_EQ(tier.Poll(done, std::chrono::seconds(1)), 1u);
  tier.Free(request.slot, 100);
  EXPECT_DEATH(tier.SubmitRead(one), "not reserved");
  std::free(buffer);
}

}  // namespace
}  // namespace ramspan
