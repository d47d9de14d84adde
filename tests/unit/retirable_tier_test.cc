#include "client/swap/retirable_tier.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/support/fake_tier.h"

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

// A thread that still ran at the program's end had its request left in the tier, which then aborted.
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
  EXPECT_EQ(write.result, StatusCode::kOk);
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

}  // namespace
}  // namespace ramspan
