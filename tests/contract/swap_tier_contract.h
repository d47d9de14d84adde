// What every SwapTier must do, as one value-parameterised suite. Link swap_tier_contract.cc into the test executable
// (as a source or object, not from an archive) and instantiate the suite with the tiers to try:
//
//   INSTANTIATE_TEST_SUITE_P(Remote, SwapTierContract, testing::Values(TierUnderTest{"near", MakeRemote, 16 << 20}),
//                            TierName);
//
// Each test makes its own tier, gives back all that it took, and assumes neither an empty nor a fresh one: a factory
// may return a wrapper around a shared tier.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "client/swap/swap_tier.h"

namespace ramspan {

struct TierUnderTest {
  std::string name;                                 // letters, digits and _
  std::function<std::unique_ptr<SwapTier>()> make;  // null pointer: not here, the test is skipped
  // The tier takes at least this much, and is full before it has taken four times as much. At least 16 MiB.
  uint64_t capacity_bytes = 0;
  // Slots are cut from regions of at most this size (leases, files): larger chunks need several extents. 0: no regions.
  uint64_t region_bytes = 0;
};

inline void PrintTo(const TierUnderTest& tier, std::ostream* out) { *out << tier.name; }
inline std::string TierName(const testing::TestParamInfo<TierUnderTest>& info) { return info.param.name; }

class SwapTierContract : public testing::TestWithParam<TierUnderTest> {
 protected:
  void SetUp() override {
    tier_ = GetParam().make();
    if (tier_ == nullptr) GTEST_SKIP() << GetParam().name << " cannot be had here";
  }

  std::unique_ptr<SwapTier> tier_;
};

}  // namespace ramspan
