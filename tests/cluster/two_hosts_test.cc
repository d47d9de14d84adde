// The contracts of transports and tiers between two hosts: this process is on one, and its threads that are servers are on the other,
// which is a network namespace with a cable to this one. Loopback hides what a host does not know of the other: here each has the
// interface of its own address only.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/cluster/world.h"
#include "tests/support/ofi_bed.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr char kServersAddress[] = "10.78.0.2";

bool Succeeds(const std::string& command) { return std::system(command.c_str()) == 0; }

bool MakeTwoHosts() {
  std::ofstream("/run/here.ip") << "link set lo up\nnetns add servers\nlink add eth0 type veth peer name eth0 netns servers\n"
                                << "addr add 10.78.0.1/24 dev eth0\nlink set eth0 up\n";
  std::ofstream("/run/there.ip") << "link set lo up\naddr add " << kServersAddress << "/24 dev eth0\nlink set eth0 up\n";
  return Succeeds("ip -batch /run/here.ip") && Succeeds("ip -n servers -batch /run/there.ip");
}

OfiServers::Options OnTheOtherHost(uint32_t servers, uint64_t pool_bytes) {
  return {.servers = servers, .pool_bytes = pool_bytes, .listen = kServersAddress + std::string(":0"), .network = "/run/netns/servers"};
}

const OfiShape kTwoServersThere{.servers = OnTheOtherHost(2, 32 * kMiB)};
const OfiShape kOneServerThere{.servers = OnTheOtherHost(1, 32 * kMiB)};

INSTANTIATE_TEST_SUITE_P(TwoHosts, TransportContract, testing::Values(OfiUnderTest("Tcp", kTwoServersThere)), TransportName);
INSTANTIATE_TEST_SUITE_P(TwoHosts, SwapTierContract, testing::Values(TierOverOfiUnderTest("Tcp", kOneServerThere, {}, 8 * kMiB)), TierName);

// What these suites would not notice: that all of it went another way.
TEST(TwoHosts, AServerThereIsReachedFromItsNetworkOnlyAndFromOurs) {
  OfiBed bed(kOneServerThere);
  EXPECT_EQ(bed.transport().server(0).mapped, nullptr);
  EXPECT_EQ(bed.transport().server(0).label.find(kServersAddress), 0u) << bed.transport().server(0).label;
  const std::string port = bed.transport().server(0).label.substr(sizeof kServersAddress);
  EXPECT_TRUE(Succeeds("ip netns exec servers ss -Hltn | grep -q '" + std::string(kServersAddress) + ":" + port + " '"));
  EXPECT_FALSE(Succeeds("ss -Hltn | grep -q ':" + port + " '"));
}

}  // namespace
}  // namespace ramspan

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!testing::GTEST_FLAG(list_tests)) {
    constexpr int kSkipped = 77;  // as CMakeLists.txt knows it
    std::string missing = ramspan::Succeeds("command -v ip >/dev/null") ? ramspan::EnterWorld() : "ip is not installed";
    if (missing.empty() && !ramspan::MakeTwoHosts()) missing = "networks cannot be set up here (ip said why)";
    if (!missing.empty()) return std::printf("skipped: %s\n", missing.c_str()), kSkipped;
  }
  return RUN_ALL_TESTS();
}
