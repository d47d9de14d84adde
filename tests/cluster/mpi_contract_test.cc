// The contracts of transports and tiers over MPI between two hosts: the programs of tests/mpi on one, memory servers on the other. In
// tests/mpi all ranks are on one host, and MPICH is told not to see that; here it decides by the hosts' names.
#include "tests/cluster/cluster_fixture.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

class ClusterMpiContract : public ClusterFixture {
 protected:
  // `written_bytes`: at least; a third of what was seen. By shared memory it is some KiB.
  void KeepsItsContract(const std::string& program, int servers, uint64_t written_bytes) {
    const std::string count = std::to_string(servers);
    const uint64_t before = BytesTo(2);
    // UCX sees by the kernel's boot that memory could be shared, whatever the hosts are called.
    const Started job = StartOn(1, {MPIEXEC, "-launcher", "ssh", "-launcher-exec", RemoteShell(), "-hosts", "h1:1,h2:" + count, "-genv", "UCX_TLS", "tcp,self",
                                    "-genv", "RAMSPAN_SERVERS", count, "-genv", "RAMSPAN_TEST_CLIENTS", "1", "-genv", "RAMSPAN_SERVER_MEMORY", "32MiB",
                                    "-n", "1", program, ":", "-n", count, PROGRAMS_FOLDER "/ramspan-memserver"});
    const Outcome outcome = WaitFor(job);
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
    EXPECT_NE(outcome.out.find("[  PASSED  ]"), std::string::npos) << outcome.out << outcome.err;
    // What the suite would not notice: that all of it went another way.
    EXPECT_GE(BytesTo(2) - before, written_bytes);
  }
};

TEST_F(ClusterMpiContract, OfTransportsToTwoServers) { KeepsItsContract(TRANSPORT_CONTRACT, 2, 4 * kMiB); }
TEST_F(ClusterMpiContract, OfTiersOverOneServer) { KeepsItsContract(TIER_CONTRACT, 1, 64 * kMiB); }
TEST_F(ClusterMpiContract, OfTiersOverTwoServers) { KeepsItsContract(TIER_CONTRACT, 2, 64 * kMiB); }

}  // namespace
}  // namespace ramspan
