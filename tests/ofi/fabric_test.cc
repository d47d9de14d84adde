// An endpoint of the fabric that goes while its peer has stopped in the middle of a transfer: a network that was cut, a host that
// hangs.
#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <array>
#include <cstring>
#include <vector>

#include "common/fabric.h"
#include "tests/support/eventually.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// A client's frames were registered and never bound to an endpoint there, so each transfer would have failed.
TEST(Fabric, ProvidersThatBindLocalMemoryToOneEndpointArePassedOver) {
  const auto provider = [](int modes, fi_info* next) {
    fi_info* one = fi_allocinfo();
    one->domain_attr->mr_mode = modes;
    one->next = next;
    return one;
  };
  fi_info* const good = provider(FI_MR_ENDPOINT, provider(FI_MR_LOCAL | FI_MR_ENDPOINT, nullptr));
  EXPECT_EQ(FabricDomain::WithoutUnusable(provider(FI_MR_LOCAL | FI_MR_ENDPOINT, good)), good);
  fi_freeinfo(good);
  fi_info* const local = provider(FI_MR_LOCAL | FI_MR_PROV_KEY, nullptr);
  EXPECT_EQ(FabricDomain::WithoutUnusable(local), local);
  fi_freeinfo(local);
  EXPECT_EQ(FabricDomain::WithoutUnusable(provider(FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_VIRT_ADDR, nullptr)), nullptr);
}

class HalfWay : public testing::TestWithParam<bool> {
 protected:
  static std::unique_ptr<FabricEndpoint> Make() { return FabricEndpoint::Open(FabricDomain::OpenAt("127.0.0.1", {}).value()).value(); }
  static void Progress(FabricEndpoint& endpoint) {
    std::array<FabricCompletion, 16> done;
    bool broken;
    endpoint.Poll(done, &broken);
  }
};

// libfabric 1.17 (Debian 12) ended the transfer that was half way twice, and crashed the program in fi_close.
TEST_P(HalfWay, ATransferEndsWithItsEndpoint) {
  const bool is_write = GetParam();
  std::unique_ptr<FabricEndpoint> peer = Make(), mine = Make();
  const std::byte before{1}, after{2};
  // More than the sockets of both sides hold.
  std::vector<std::byte> theirs(24 * kMiB, is_write ? before : after), here(2 * theirs.size(), is_write ? after : before);
  const FabricRegion region = FabricRegion::ForPeer(*peer, theirs).value();
  const uint64_t number = mine->AddPeer(peer->address()).value();
  std::array<std::array<std::byte, kFabricContextBytes>, 2> contexts{};
  for (size_t i = 0; i < contexts.size(); ++i) {
    const std::span<std::byte> piece(here.data() + i * theirs.size(), theirs.size());
    ASSERT_TRUE(Eventually([&] {
      const auto posted = mine->Post({.is_write = is_write, .local = piece, .peer = number,
                                      .address = region.address(), .key = region.key(), .context = contexts[i].data()});
      Progress(*mine);
      Progress(*peer);
      return posted == FabricEndpoint::Posted::kYes;
    }));
  }
  const volatile std::byte* const first = is_write ? theirs.data() : here.data();
  ASSERT_TRUE(Eventually([&] {
    Progress(*mine);
    if (*first != after) Progress(*peer);
    return *first == after;
  }));
  Progress(*mine);
  mine.reset();
  // Nothing touches the buffers any more.
  std::memset(here.data(), 3, here.size());
  for (int i = 0; i < 1000; ++i) Progress(*peer);
  EXPECT_TRUE(here[0] == std::byte{3} && std::memcmp(here.data(), here.data() + 1, here.size() - 1) == 0);
}

INSTANTIATE_TEST_SUITE_P(Both, HalfWay, testing::Bool(), [](const auto& info) { return info.param ? "Write" : "Read"; });

}  // namespace
}  // namespace ramspan
