// `ramspan run` over several hosts: mpiexec starts everything by something like ssh.
#include <signal.h>

#include <fstream>

#include <gmock/gmock.h>

#include "tests/cluster/cluster_fixture.h"
#include "tests/support/send_signal.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

class ClusterJobs : public ClusterFixture {
 protected:
  // Ranks on the first hosts, then servers, one a host.
  Words Job(const Words& options, const Words& app) const {
    std::ofstream(folder_ / "hosts") << "h1:1\nh2:1\nh3:1\nh4:1\n";
    Words words = {LAUNCHER, "run", "--memory", "4MiB", "--server-memory", "64MiB", "--hostfile", (folder_ / "hosts").string()};
    for (const std::string& word : {std::string("-launcher"), std::string("ssh"), std::string("-launcher-exec"), RemoteShell()}) words.push_back("--mpi-arg=" + word);
    words.insert(words.end(), options.begin(), options.end());
    words.push_back("--");
    words.insert(words.end(), app.begin(), app.end());
    return words;
  }
};

TEST_F(ClusterJobs, RanksAndServersOfAJobAreOnHostsOfTheirOwn) {
  for (const auto& [transport, server] : std::vector<std::pair<std::string, std::string>>{{"ofi", "ramspan-server"}, {"mpi", "ramspan-memserver"}}) {
    const Started job = StartOn(1, Job({"-n", "2", "-s", "2", "--transport", transport}, Sweep(24 * kMiB)), {"RAMSPAN_SWAP=remote"});
    AwaitReady(job);
    EXPECT_TRUE(RunsOn({"h1", "h2"}, "sweep_program")) << transport;
    EXPECT_TRUE(RunsOn({"h3", "h4"}, server)) << transport;
    SayStop(job);
    const Outcome outcome = WaitFor(job);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const std::string line = "verified " + std::to_string(24 * kMiB) + " bytes\n";
    EXPECT_EQ(outcome.out, line + line) << outcome.err;
  }
}

TEST_F(ClusterJobs, NothingIsLeftOnAnyHostWhenTheLauncherIsKilled) {
  const Started job = StartOn(1, Job({"-n", "2", "-s", "2", "--transport", "ofi"}, Sweep(24 * kMiB)), {"RAMSPAN_SWAP=remote"});
  AwaitReady(job);
  SendSignal(job.pid, SIGKILL);
  WaitFor(job);
  EXPECT_TRUE(Becomes([&] { return JobProcesses().empty(); }));
  // Of what a killed launcher left in TMPDIR, the next one takes care.
  EXPECT_EQ(WaitFor(StartOn(1, {LAUNCHER, "run", "--", "true"})).status, 0);
}

}  // namespace
}  // namespace ramspan
