// Beds for the contracts of transports and of tiers: the libfabric transport, and the remote tier over it, with servers of this process.
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "client/swap/remote_swap.h"
#include "client/transport/ofi_transport.h"
#include "tests/contract/swap_tier_contract.h"
#include "tests/contract/transport_contract.h"
#include "tests/support/forwarding_tier.h"
#include "tests/support/ofi_servers.h"
#include "tests/support/sizes.h"

namespace ramspan {

struct OfiShape {
  OfiServers::Options servers;
  bool near = false;
  bool register_local = false;
};

class OfiBed final : public TransportBed {
 public:
  explicit OfiBed(const OfiShape& shape) : servers_(shape.servers) {
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

class TierOverOfi final : public ForwardingTier {
 public:
  TierOverOfi(const OfiShape& shape, const RemoteSwapOptions& options) : ForwardingTier(&tier_), bed_(shape), tier_(bed_.transport(), options) {}

 private:
  OfiBed bed_;
  RemoteSwap tier_;
};

inline TierUnderTest TierOverOfiUnderTest(const char* name, const OfiShape& shape, const RemoteSwapOptions& options, uint64_t region) {
  return {name, [=] { return std::make_unique<TierOverOfi>(shape, options); }, 30 * kMiB, region};
}

inline TransportUnderTest OfiUnderTest(const char* name, const OfiShape& shape) {
  return {name, [shape] { return std::make_unique<OfiBed>(shape); }};
}

}  // namespace ramspan
