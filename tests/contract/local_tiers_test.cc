// The SwapTier contract for the tiers that need no server.
#include <memory>
#include <utility>
#include <vector>

#include "client/swap/file_swap.h"
#include "client/swap/store_swap.h"
#include "client/swap/tiered_swap.h"
#include "tests/contract/swap_tier_contract.h"
#include "tests/support/fake_tier.h"
#include "tests/support/fault_tier.h"
#include "tests/support/map_store.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

std::unique_ptr<SwapTier> MakeFile(bool direct, uint64_t bytes_max) {
  FileSwapOptions options;
  options.mask = testing::TempDir() + "ramspan-contract-%d-%d.swap";
  options.bytes_max = bytes_max;
  options.direct = direct;
  options.file_bytes = 2 * kMiB;
  Result<std::unique_ptr<FileSwap>> swap = FileSwap::Create(options);
  if (!swap.ok()) ADD_FAILURE() << swap.status().message();
  return swap.ok() ? std::move(swap).value() : nullptr;
}

std::unique_ptr<SwapTier> MakeTiered() {
  std::vector<std::unique_ptr<SwapTier>> tiers;
  tiers.push_back(MakeFile(false, 7 * kMiB));
  tiers.push_back(MakeFile(true, 17 * kMiB));
  return std::make_unique<TieredSwap>(std::move(tiers));
}

std::unique_ptr<SwapTier> MakeStore() {
  static MapStore store(24 * kMiB);
  return std::make_unique<StoreSwap>(&store);
}

std::unique_ptr<SwapTier> MakeFake(bool synchronous) {
  return std::make_unique<FakeTier>(FakeTierOptions{
      .seed = 3, .capacity_bytes = 24 * kMiB, .empty_poll_rate = 0.1, .synchronous = synchronous, .checksums = true});
}

INSTANTIATE_TEST_SUITE_P(
    Local, SwapTierContract,
    testing::Values(TierUnderTest{"FileBuffered", [] { return MakeFile(false, 24 * kMiB); }, 24 * kMiB, 2 * kMiB},
                    TierUnderTest{"FileDirect", [] { return MakeFile(true, 24 * kMiB); }, 24 * kMiB, 2 * kMiB},
                    TierUnderTest{"TieredFiles", MakeTiered, 24 * kMiB, 2 * kMiB},
                    TierUnderTest{"Store", MakeStore, 24 * kMiB, 0},
                    TierUnderTest{"Fake", [] { return MakeFake(false); }, 24 * kMiB, 0},
                    TierUnderTest{"FakeSynchronous", [] { return MakeFake(true); }, 24 * kMiB, 0},
                    TierUnderTest{"FaultTierWithoutFaults",
                                  [] { return std::make_unique<FaultTier>(MakeFile(true, 24 * kMiB)); }, 24 * kMiB,
                                  2 * kMiB}),
    TierName);

}  // namespace
}  // namespace ramspan
