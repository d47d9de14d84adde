// The contract of every SwapTier, for RemoteSwap: near servers by load/store, far ones by RMA (see CMakeLists.txt). One
// client, because a test of a full tier needs the servers for itself.
#include "client/swap/remote_swap.h"
#include "client/transport/mpi_entry.h"
#include "tests/contract/swap_tier_contract.h"
#include "tests/support/miss_path.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

std::unique_ptr<SwapTier> MakeRemote(const RemoteSwapOptions& options) {
  return std::make_unique<RemoteSwap>(*JobTransport().value(), options);
}

INSTANTIATE_TEST_SUITE_P(
    Remote, SwapTierContract,
    testing::Values(TierUnderTest{"growing_leases", [] { return MakeRemote({}); }, 30 * kMiB, 8 * kMiB},
                    TierUnderTest{"small_leases",
                                  [] { return MakeRemote({.first_lease_bytes = kMiB, .lease_bytes_max = kMiB}); },
                                  30 * kMiB, kMiB}),
    TierName);

// The port of the transports promises it, and nobody had counted over the real ones.
TEST(MissPath, AllocatesNothingOnceWarmOverMpi) {
  std::unique_ptr<SwapTier> remote = MakeRemote({});
  EXPECT_EQ(AllocationsOnceWarm(std::make_unique<Uncounted>(remote.get(), false)), 0);
}

}  // namespace
}  // namespace ramspan
