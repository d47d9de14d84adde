// What docs/operations.md tells people to type, as it stands there, on hosts. Only the names of hosts, the sizes and the folder are this test's.
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include <gmock/gmock.h>

#include "tests/cluster/cluster_fixture.h"
#include "tests/support/send_signal.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::SizeIs;

constexpr size_t kAppsData = 24 * kMiB;

class ClusterByHand : public ClusterFixture {
 protected:
  // The lines of the block in which `words` stand.
  Words Block(const std::string& words) const {
    const std::string all = ReadFile(OPERATIONS), fence = "```\n";
    const size_t at = all.find(words);
    if (at == std::string::npos) return ADD_FAILURE() << "docs/operations.md does not say any more: " << words, Words();
    const size_t begin = all.rfind(fence, at) + fence.size();
    std::string block = all.substr(begin, all.find(fence, begin) - begin);
    block = std::regex_replace(block, std::regex("node([0-9])"), "h$1");
    block = std::regex_replace(block, std::regex("([0-9])GiB"), "$1MiB");
    block = std::regex_replace(block, std::regex("/scratch/me"), folder_.string());
    Words lines;
    std::istringstream rest(block);
    for (std::string line; std::getline(rest, line);) lines.push_back(line);
    return lines;
  }

  void SetUp() override {
    ClusterFixture::SetUp();
    if (IsSkipped()) return;
    std::string app;
    for (const std::string& word : Sweep(kAppsData)) app += " '" + word + "'";
    Program("app", app);
    Program("mpiexec", " " MPIEXEC " \"$@\"");  // MPICH's, whichever another system has under this name; not by a link, beside which it would look for its proxy
  }
  void Program(const std::string& name, const std::string& words) const {
    std::ofstream(folder_ / "bin" / name) << "#!/bin/sh\nexec" << words << "\n";
    fs::permissions(folder_ / "bin" / name, fs::perms(0755));
  }

  // Of somebody at this host's terminal, in a folder with the program ./app.
  Started TypeOn(int host, const std::string& line) {
    const fs::path folder = folder_ / "bin";
    // By default swap would go to files where servers are missing, and UCX by shared memory.
    return StartOn(host, {"sh", "-c", "cd '" + folder.string() + "'\n" + line},
                   {"PATH=" + folder.string() + ":" PROGRAMS_FOLDER ":" + std::getenv("PATH"), "HYDRA_LAUNCHER=ssh", "HYDRA_LAUNCHER_EXEC=" + RemoteShell(),
                    "RAMSPAN_SWAP=remote", "UCX_TLS=tcp,self"});
  }
  std::string AnswerOn(int host, const std::string& line) {
    const Started typed = TypeOn(host, line);
    const Outcome outcome = WaitFor(typed);
    EXPECT_EQ(outcome.status, 0) << line << ": " << outcome.err;
    return outcome.out;
  }
  void EndsWell(const Started& typed) {
    const Outcome outcome = WaitFor(typed);
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  }
  void AwaitServers(const std::set<int>& hosts, const std::string& all) {
    EXPECT_TRUE(Becomes([&] {
      const std::string said = Ctl({"list", all}).out;
      return std::all_of(hosts.begin(), hosts.end(), [&](int host) { return said.find(AddressOf(host) + ":") != std::string::npos || said.find(NameOf(host) + ":") != std::string::npos; });
    })) << Ctl({"list", all}).err;
  }
  // `ranks` of them have verified all of it.
  void AppsEndWell(const Started& apps, int ranks) {
    SayStop(apps);
    EndsWell(apps);
    std::string lines;
    for (int i = 0; i < ranks; ++i) lines += "verified " + std::to_string(kAppsData) + " bytes\n";
    EXPECT_EQ(apps.out(), lines) << apps.err();
  }
};

TEST_F(ClusterByHand, ServersAreStartedListedDrainedAndStopped) {
  const Words start = Block("ramspan server --memory 64GiB --listen node7:7117"), use = Block("RAMSPAN_SERVERS=node7:7117,node8:7117 RAMSPAN_MEMORY=4GiB ./app");
  ASSERT_THAT(start, SizeIs(1));
  ASSERT_THAT(use, SizeIs(4));
  const auto on_the_other = [](const std::string& line) { return std::regex_replace(line, std::regex("h7"), "h8"); };
  const Started seven = TypeOn(7, start[0]);
  AwaitServers({7}, "h7:7117");  // it makes the key
  const Started eight = TypeOn(8, on_the_other(start[0]));
  AwaitServers({8}, "h8:7117");
  const Started app = TypeOn(1, use[0]);
  AwaitReady(app);
  EXPECT_THAT(AnswerOn(2, use[1]), HasSubstr("sweep_program"));
  AnswerOn(2, use[2]);
  EndsWell(seven);
  AppsEndWell(app, 1);
  AnswerOn(2, on_the_other(use[3]));
  EndsWell(eight);
}

TEST_F(ClusterByHand, NobodyHasToNameServersInAFolderOrAFile) {
  for (const auto& [words, place] : std::vector<std::pair<std::string, std::string>>{{"--rendezvous /scratch/me/servers     #", "dir:" + (folder_ / "servers").string()},
                                                                                     {"--rendezvous file:$HOME/servers", "file:" + (folder_ / "home/servers").string()}}) {
    const Words lines = Block(words);
    ASSERT_GE(lines.size(), 2u) << words;
    const Started one = TypeOn(3, lines[0]);
    AwaitServers({3}, place);
    const Started app = TypeOn(1, lines[1]);
    AwaitReady(app);
    const Started other = TypeOn(4, lines[0]);
    AwaitServers({3, 4}, place);
    if (lines.size() > 2) {
      EXPECT_THAT(AnswerOn(1, lines[2]), HasSubstr("sweep_program"));
    }
    AppsEndWell(app, 1);
    AnswerOn(1, "ramspan ctl stop " + place);
    EndsWell(one);
    EndsWell(other);
  }
}

TEST_F(ClusterByHand, MpiexecStartsServersForManyJobs) {
  const Words lines = Block("mpiexec -hosts node7,node8");
  ASSERT_THAT(lines, SizeIs(3));
  const std::string place = "dir:" + (folder_ / "servers").string();
  const Started servers = TypeOn(1, lines[0]);
  AwaitServers({7, 8}, place);
  EXPECT_TRUE(RunsOn({"h7", "h8"}, "ramspan-server"));
  for (int job = 0; job < 2; ++job) {
    const Started apps = TypeOn(1, lines[1]);
    AwaitReady(apps);
    EXPECT_TRUE(RunsOn({"h1", "h2"}, "sweep_program"));
    EXPECT_THAT(Ctl({"list", place}).out, HasSubstr("sweep_program"));
    AppsEndWell(apps, 2);
  }
  AnswerOn(2, lines[2]);
  EndsWell(servers);
  EXPECT_TRUE(JobProcesses().empty());
}

TEST_F(ClusterByHand, ServersEndWellWithTheMpiexecThatStartedThem) {
  const Words lines = Block("mpiexec -hosts node7,node8");
  ASSERT_THAT(lines, SizeIs(3));
  const Started servers = TypeOn(1, lines[0]);
  AwaitServers({7, 8}, "dir:" + (folder_ / "servers").string());
  SendSignal(JobProcess(fs::path(MPIEXEC).filename()), SIGTERM);
  EndsWell(servers);
  EXPECT_TRUE(Becomes([&] { return JobProcesses().empty(); }));
  for (const auto& entry : fs::directory_iterator(folder_ / "servers")) EXPECT_EQ(entry.path().filename(), "key");
}

TEST_F(ClusterByHand, MpiexecStartsServersAsRanksOfTheProgramsJob) {
  const Words lines = Block("mpiexec -hosts node1:2,node7:1,node8:1");
  ASSERT_THAT(lines, SizeIs(1));
  const Started job = TypeOn(1, lines[0]);
  AwaitReady(job);
  EXPECT_TRUE(RunsOn({"h1"}, "sweep_program"));
  EXPECT_TRUE(RunsOn({"h7", "h8"}, "ramspan-memserver"));
  AppsEndWell(job, 2);
}

}  // namespace
}  // namespace ramspan
