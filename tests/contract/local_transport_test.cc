// The transport within the process keeps the contract of all transports; and the remote tier, over it, that of all tiers.
#include "client/swap/remote_swap.h"
#include "tests/contract/swap_tier_contract.h"
#include "tests/contract/transport_contract.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/local_transport.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

class LocalBed final : public TransportBed {
 public:
  explicit LocalBed(const LocalServersOptions& options)
      : servers_(options), transport_(servers_.Connect(0)), looks_(options.lose_answers > 0 ? 4 * (static_cast<int>(options.delay_max) + 1) : 0) {}
  ServerTransport& transport() override { return *transport_; }
  bool Kill(uint32_t server) override { return servers_.Kill(server), true; }
  bool Freeze(uint32_t server, bool frozen) override { return servers_.Freeze(server, frozen), true; }
  int LooksForAnAnswer() const override { return looks_; }

 private:
  LocalServers servers_;
  std::unique_ptr<ServerTransport> transport_;
  const int looks_;
};

TransportUnderTest Local(const char* name, const LocalServersOptions& options) {
  return {name, [options] { return std::make_unique<LocalBed>(options); }};
}

INSTANTIATE_TEST_SUITE_P(Local, TransportContract,
                         testing::Values(Local("Far", {.pool_bytes = 8 * kMiB}), Local("Near", {.pool_bytes = 8 * kMiB, .near = 1}),
                                         Local("TwoOfEachLate", {.seed = 5, .servers = 4, .pool_bytes = 8 * kMiB, .near = 2, .delay_max = 20}),
                                         Local("FarLossy", {.seed = 11, .servers = 3, .pool_bytes = 8 * kMiB, .delay_max = 7, .lose_answers = 0.3}),
                                         Local("FarVeryLossy", {.seed = 12, .servers = 2, .pool_bytes = 8 * kMiB, .delay_max = 1, .lose_answers = 0.7}),
                                         Local("TwoOfEachLossy", {.seed = 13, .servers = 4, .pool_bytes = 8 * kMiB, .near = 2, .delay_max = 20, .lose_answers = 0.3}),
                                         GroupOf(Local("Near", {.seed = 14, .servers = 3, .pool_bytes = 8 * kMiB, .near = 2})),
                                         GroupOf(Local("LateLossy", {.seed = 15, .servers = 5, .pool_bytes = 8 * kMiB, .delay_max = 7, .lose_answers = 0.3}))),
                         TransportName);

// A tier with servers of its own.
class TierWithServers final : public ForwardingTier {
 public:
  TierWithServers(const LocalServersOptions& servers, const RemoteSwapOptions& options)
      : ForwardingTier(&tier_), servers_(servers), transport_(servers_.Connect(0)), tier_(*transport_, options) {}

 private:
  LocalServers servers_;
  std::unique_ptr<ServerTransport> transport_;
  RemoteSwap tier_;
};

TierUnderTest Remote(const char* name, const LocalServersOptions& servers, const RemoteSwapOptions& options, uint64_t region) {
  return {name, [=] { return std::make_unique<TierWithServers>(servers, options); }, 30 * kMiB, region};
}

INSTANTIATE_TEST_SUITE_P(
    RemoteLocal, SwapTierContract,
    testing::Values(Remote("Near", {.near = 1}, {}, 8 * kMiB), Remote("Far", {}, {}, 8 * kMiB),
                    Remote("FarLateSmallLeases", {.servers = 2, .pool_bytes = 16 * kMiB, .delay_max = 8},
                           {.first_lease_bytes = kMiB, .lease_bytes_max = kMiB}, kMiB),
                    Remote("NearAndFar", {.servers = 4, .pool_bytes = 8 * kMiB, .near = 2, .delay_max = 3}, {}, 8 * kMiB)),
    TierName);

}  // namespace
}  // namespace ramspan
