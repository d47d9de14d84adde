// The tests' own means: a cluster that is killed is gone.
#include <signal.h>

#include <cstdio>
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/cluster/cluster_fixture.h"
#include "tests/support/send_signal.h"

namespace ramspan {
namespace {

class World : public ClusterFixture {
 protected:
  // Network namespaces that some process is in. The processes of a world within this one are seen from here.
  static std::set<std::string> Networks() {
    std::set<std::string> networks;
    std::error_code error;
    for (auto it = std::filesystem::directory_iterator("/proc", error); !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
      std::error_code gone;
      const std::string network = std::filesystem::read_symlink(it->path() / "ns/net", gone).string();
      if (!gone) networks.insert(network);
    }
    return networks;
  }
};

// A test within another test: the second one's hosts and processes are in a world within the first one's.
TEST_F(World, AClusterThatIsKilledLeavesNothing) {
  const std::set<std::string> before = Networks();
  const pid_t other = StartCommand({"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_filter=World.DISABLED_WaitsToBeKilled"});
  EXPECT_TRUE(Becomes([&] { return ReadFile(folder_ / "out").find("waits") != std::string::npos; }));
  // Its own, and that of a host that a process has got to.
  EXPECT_TRUE(Becomes([&] { return Networks().size() >= before.size() + 2; }));
  SendSignal(other, SIGKILL);
  EXPECT_EQ(Wait(other).status, 128 + SIGKILL);
  EXPECT_TRUE(Becomes([&] { return Networks() == before; }));
  EXPECT_TRUE(JobProcesses().empty());
}

TEST_F(World, HostsHaveNamesAndReachEachOther) {
  const Started one = StartOn(1, {"sh", "-c", "hostname; getent hosts h2; ip -o -4 addr show dev eth0"});
  EXPECT_EQ(WaitFor(one).status, 0);
  EXPECT_EQ(one.out().find("h1\n10.77.0.2"), 0u) << one.out();
  EXPECT_NE(one.out().find("10.77.0.1/24"), std::string::npos) << one.out();
}

TEST_F(World, DISABLED_WaitsToBeKilled) {
  const Started one = StartOn(1, {"sleep", "1000"});
  std::puts("waits");
  std::fflush(stdout);
  Wait(one.pid, std::chrono::seconds(1000));
}

}  // namespace
}  // namespace ramspan
