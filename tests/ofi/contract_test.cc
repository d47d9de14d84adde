// The libfabric transport keeps the contract of all transports, and the remote tier over it that of all tiers: over the network (tcp
// loopback), with and without buffers that have to be registered, and to servers of this host.
#include "tests/support/ofi_bed.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

const OfiShape kFar{.servers = {.servers = 2}};
const OfiShape kFourFar{.servers = {.servers = 4}};
const OfiShape kFarRegistered{.servers = {.servers = 2}, .register_local = true};
const OfiShape kNear{.servers = {.servers = 2}, .near = true};

INSTANTIATE_TEST_SUITE_P(Ofi, TransportContract, testing::Values(OfiUnderTest("Tcp", kFar), OfiUnderTest("TcpRegistered", kFarRegistered), OfiUnderTest("SameHost", kNear),
                                                               GroupOf(OfiUnderTest("Tcp", kFourFar)), GroupOf(OfiUnderTest("SameHost", kNear))),
                         TransportName);

const OfiShape kOneFar{.servers = {.servers = 1}};
const OfiShape kTwoFarRegistered{.servers = {.servers = 2, .pool_bytes = 16 * kMiB}, .register_local = true};
const OfiShape kOneNear{.servers = {.servers = 1}, .near = true};

INSTANTIATE_TEST_SUITE_P(Ofi, SwapTierContract,
                         testing::Values(TierOverOfiUnderTest("Tcp", kOneFar, {}, 8 * kMiB),
                                         TierOverOfiUnderTest("TcpRegisteredSmallLeases", kTwoFarRegistered, {.first_lease_bytes = kMiB, .lease_bytes_max = kMiB}, kMiB),
                                         TierOverOfiUnderTest("SameHost", kOneNear, {}, 8 * kMiB)),
                         TierName);

}  // namespace
}  // namespace ramspan
