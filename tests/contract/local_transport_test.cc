// The transport within the process keeps the contract of all transports; and the remote tier, over it, that of all tiers.
#include "client/swap/remote_swap.h"
#include "tests/contract/swap_tier_contract.h"
#include "tests/contract/transport_contract.h"
#include "tests/support/local_transport.h"

namespace ramspan {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

class LocalBed final : public TransportBed {
 public:
  explicit LocalBed(const LocalServersOptions& options) : servers_(options), transport_(servers_.Connect(0)) {}
  ServerTransport& transport() override { return *transport_; }
  bool Kill(uint32_t server) override { return servers_.Kill(server), true; }
  bool Freeze(uint32_t server, bool frozen) override { return servers_.Freeze(server, frozen), true; }

 private:
  LocalServers servers_;
  std::unique_ptr<ServerTransport> transport_;
};

TransportUnderTest Local(const char* name, const LocalServersOptions& options) {
  return {name, [options] { return std::make_unique<LocalBed>(options); }};
}

INSTANTIATE_TEST_SUITE_P(Local, TransportContract,
                         testing::Values(Local("Far", {.pool_bytes = 8 * kMiB}), Local("Near", {.pool_bytes = 8 * kMiB, .near = 1}),
                                         Local("TwoOfEachLate", {.seed = 5, .servers = 4, .pool_bytes = 8 * kMiB, .near = 2, .delay_max = 20})),
                         TransportName);

// A tier with servers of its own.
class TierWithServers final : public SwapTier {
 public:
  TierWithServers(const LocalServersOptions& servers, const RemoteSwapOptions& options)
      : servers_(servers), transport_(servers_.Connect(0)), tier_(*transport_, options) {}
  Capabilities capabilities() const override { return tier_.capabilities(); }
  Capabilities CapabilitiesOf(SlotRef slot) const override { return tier_.CapabilitiesOf(slot); }
  bool IsLost(SlotRef slot, size_t bytes) const override { return tier_.IsLost(slot, bytes); }
  Result<SlotRef> Reserve(size_t bytes) override { return tier_.Reserve(bytes); }
  Result<SlotRef> TryReserve(size_t bytes) override { return tier_.TryReserve(bytes); }
  SlotRef TryExchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) override {
    return tier_.TryExchange(given, bytes, taken);
  }
  void Free(SlotRef slot, size_t bytes) override { tier_.Free(slot, bytes); }
  void SubmitWrite(std::span<IoRequest* const> batch) override { tier_.SubmitWrite(batch); }
  void SubmitRead(std::span<IoRequest* const> batch) override { tier_.SubmitRead(batch); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override { return tier_.Poll(done, wait); }
  void Upkeep() override { tier_.Upkeep(); }
  TierStats stats() const override { return tier_.stats(); }

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
