// The libfabric transport keeps the contract of all transports, and the remote tier over it that of all tiers: over the network (tcp
// loopback), with and without buffers that have to be registered, and to servers of this host.
#include "client/swap/remote_swap.h"
#include "client/transport/ofi_transport.h"
#include "tests/contract/swap_tier_contract.h"
#include "tests/contract/transport_contract.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/ofi_servers.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

struct Shape {
  OfiServers::Options servers;
  bool near = false;
  bool register_local = false;
};

class OfiBed final : public TransportBed {
 public:
  explicit OfiBed(const Shape& shape) : servers_(shape.servers) {
    auto opened = OfiTransport::Open({.servers = servers_.names(), .fabric = {.provider = "", .register_local = shape.register_local}, .near = shape.near}, TestSecret());
    RS_CHECK(opened.ok(), "%s", opened.status().message().c_str());
    transport_ = std::move(opened).value();
  }
  OfiTransport& transport() override { return *transport_; }
  bool Kill(uint32_t server) override {
    servers_.Kill(server);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (transport_->state(server) != ServerTransport::ServerState::kDead && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return true;
  }
  bool Freeze(uint32_t server, bool frozen) override { return servers_.Freeze(server, frozen), true; }

 private:
  OfiServers servers_;
  std::unique_ptr<OfiTransport> transport_;
};

TransportUnderTest Under(const char* name, const Shape& shape) {
  return {name, [shape] { return std::make_unique<OfiBed>(shape); }};
}

const Shape kFar{.servers = {.servers = 2}};
const Shape kFarRegistered{.servers = {.servers = 2}, .register_local = true};
const Shape kNear{.servers = {.servers = 2}, .near = true};

INSTANTIATE_TEST_SUITE_P(Ofi, TransportContract, testing::Values(Under("Tcp", kFar), Under("TcpRegistered", kFarRegistered), Under("SameHost", kNear)),
                         TransportName);

class TierOverOfi final : public ForwardingTier {
 public:
  TierOverOfi(const Shape& shape, const RemoteSwapOptions& options) : ForwardingTier(&tier_), bed_(shape), tier_(bed_.transport(), options) {}

 private:
  OfiBed bed_;
  RemoteSwap tier_;
};

TierUnderTest Tier(const char* name, const Shape& shape, const RemoteSwapOptions& options, uint64_t region) {
  return {name, [=] { return std::make_unique<TierOverOfi>(shape, options); }, 30 * kMiB, region};
}

const Shape kOneFar{.servers = {.servers = 1}};
const Shape kTwoFarRegistered{.servers = {.servers = 2, .pool_bytes = 16 * kMiB}, .register_local = true};
const Shape kOneNear{.servers = {.servers = 1}, .near = true};

INSTANTIATE_TEST_SUITE_P(Ofi, SwapTierContract,
                         testing::Values(Tier("Tcp", kOneFar, {}, 8 * kMiB),
                                         Tier("TcpRegisteredSmallLeases", kTwoFarRegistered, {.first_lease_bytes = kMiB, .lease_bytes_max = kMiB}, kMiB),
                                         Tier("SameHost", kOneNear, {}, 8 * kMiB)),
                         TierName);

}  // namespace
}  // namespace ramspan
