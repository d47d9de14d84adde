// `ramspan run --transport ofi`: whole jobs with memory servers beside them, as a user starts, interrupts and kills them.
#include <signal.h>

#include <cstdio>
#include <fstream>
#include <initializer_list>

#include <gmock/gmock.h>

#include "tests/support/job_fixture.h"
#include "tests/support/send_signal.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class OfiJob : public JobFixture {
 protected:
  // Four hosts, all of them this one, so that servers and ranks meet over the network and mpiexec starts the servers.
  static Words Hosts() {
    return {"--mpi-arg=-launcher", "--mpi-arg=fork", "--mpi-arg=-hosts", "--mpi-arg=localhost:1,127.0.0.1:1,127.0.0.2:1,127.0.0.3:1"};
  }
  static Words Run(int ranks, int servers, const Words& app, const Words& more = {}) {
    Words words = {LAUNCHER, "run", "--transport", "ofi", "-n", std::to_string(ranks), "-s", std::to_string(servers), "--memory", "4MiB",
                   "--server-memory", "64MiB"};
    words.insert(words.end(), more.begin(), more.end());
    words.push_back("--");
    words.insert(words.end(), app.begin(), app.end());
    return words;
  }
  static Words Sweep(size_t bytes, int sweeps = 1) { return {SWEEP_PROGRAM, std::to_string(bytes), std::to_string(256 << 10), "2", "1", std::to_string(sweeps)}; }
  static Words Loss() { return {LOSS_PROGRAM, "64", std::to_string(256 << 10)}; }
  Outcome RunAll(const Words& command, const Words& environment = {}) { return Wait(StartCommand(command, environment)); }
  // Without a server there is no pid but -1, and kill(-1) is for all processes of the user.
  void SendToServer(std::initializer_list<int> signals) {
    const pid_t server = JobProcess("ramspan-server");
    ASSERT_GT(server, 1);
    for (const int number : signals) SendSignal(server, number);
  }
  void SayGo() const { std::ofstream(folder_ / "ready/go") << ""; }

  // A launcher with this in the place of the server.
  std::string LauncherWithServer(const std::string& script) {
    fs::copy_file(LAUNCHER, folder_ / "bin/ramspan");
    const fs::path server = folder_ / "bin/ramspan-server";
    std::ofstream(server) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(server, fs::perms(0755));
    return (folder_ / "bin/ramspan").string();
  }
};

TEST_F(OfiJob, AnMpiProgramHasAWholeWorldAndSwapsToServersBesideIt) {
  const Outcome outcome = RunAll(Run(4, 2, {WORLD_PROGRAM, "40", std::to_string(256 << 10)}), {"RAMSPAN_SWAP=remote"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "ranks 4 bytes " + std::to_string(4 * 10 * kMiB) + "\n") << outcome.err;
  EXPECT_EQ(outcome.err, "") << "a good job is silent";
}

// It hung without a word, because its barrier waited for the server among its ranks, and the server for it.
TEST_F(OfiJob, AnMpiProgramThatServersAreRanksOfIsToldWhatItWaitsFor) {
  const fs::path script = folder_ / "bin/script";
  std::ofstream(script) << "#!/bin/sh\nexec " << WORLD_PROGRAM << " 40 262144 barrier\n";
  fs::permissions(script, fs::perms(0755));
  Words command = {LAUNCHER, "run", "--transport", "mpi", "-n", "2", "-s", "2", "--memory", "4MiB", "--server-memory", "64MiB", "--", script.string()};
  const fs::path said = folder_ / "said";
  Words quiet = {"sh", "-c", "exec \"$@\" 2>" + said.string(), "sh"};
  quiet.insert(quiet.end(), command.begin(), command.end());
  const pid_t launcher = StartCommand(quiet, {"RAMSPAN_TEST_JOIN_PATIENCE=1"});
  const char* const why = "has 4 ranks in MPI_COMM_WORLD, servers among them";
  EXPECT_TRUE(Becomes([&] { return ReadFile(said).find(why) != std::string::npos; })) << ReadFile(said);
  SendSignal(launcher, SIGTERM);
  Wait(launcher);
  const std::string text = ReadFile(said);
  EXPECT_THAT(text, HasSubstr("Remedy: ramspan run --transport ofi"));
  EXPECT_EQ(text.find(why), text.rfind(why)) << "once";
  // By itself the launcher takes servers that are not in its way.
  command[3] = "auto";
  const Outcome outcome = RunAll(command);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "ranks 2 bytes " + std::to_string(2 * 10 * kMiB) + "\n");
  EXPECT_THAT(outcome.err, HasSubstr("--transport ofi: "));
}

TEST_F(OfiJob, AProgramWithoutMpiNeedsNoMpiexec) {
  const pid_t launcher = StartCommand(Run(1, 1, Sweep(24 * kMiB, 0)), {"RAMSPAN_SWAP=remote"});
  const pid_t program = Ready(0);
  EXPECT_EQ(JobProcess("mpiexec.hydra"), -1);
  EXPECT_THAT(ReadFile("/proc/" + std::to_string(program) + "/maps"), HasSubstr("memfd:")) << "the server's memory, by load and store";
  std::ofstream(folder_ / "ready/stop") << "";
  const Outcome outcome = Wait(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST_F(OfiJob, TheStatusIsTheApplications) {
  EXPECT_EQ(RunAll(Run(1, 1, {"sh", "-c", "exit 7"})).status, 7);
  EXPECT_EQ(RunAll(Run(1, 1, {"sh", "-c", "kill -SEGV $$"})).status, 139);
  EXPECT_EQ(RunAll(Run(2, 1, {"sh", "-c", "exit 3"})).status, 3);
}

TEST_F(OfiJob, TheSecretIsTheJobsAloneAndOnlyItsOwnerCanReadIt) {
  const Outcome outcome = RunAll(Run(1, 1, {"sh", "-c", "stat -c %a $RAMSPAN_SERVER_KEY_FILE; cat $RAMSPAN_SERVER_KEY_FILE; env"}));
  EXPECT_THAT(outcome.out, testing::StartsWith("600\n"));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("RAMSPAN_RUN_SERVER_SECRET")));
  EXPECT_NE(outcome.out.substr(4, 32), RunAll(Run(1, 1, {"sh", "-c", "cat $RAMSPAN_SERVER_KEY_FILE"})).out.substr(0, 32));
}

TEST_F(OfiJob, AServerThatIsKilledDoesNotEndTheJob) {
  const pid_t launcher = StartCommand(Run(1, 2, Loss()));
  Ready(0);
  SendToServer({SIGKILL});
  // Its memory is given back first, which may take longer than what the program still has to do.
  EXPECT_TRUE(Becomes([&] { return ReadFile(folder_ / "err").find("was killed") != std::string::npos; }));
  SayGo();
  const Outcome outcome = Wait(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "kept 64 lost 0 wrong 0 new 64\n") << "on one host what it held stays mapped. " << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("was killed by signal 9 (Killed). The application goes on"));
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("are lost"))) << "by whomever";
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("start it again"))) << "the program cannot know one that it was not told of at its start";
}

// `pkill -USR1`, by name or by group, reaches servers, too. They were ended.
TEST_F(OfiJob, ReportSignalsDoNotEndAServer) {
  for (const Words& more : {Words(), Hosts()}) {
    ClearReady();
    const pid_t launcher = StartCommand(Run(1, 1, Loss(), more), {"UCX_TCP_TX_SEG_SIZE=64k"});
    Ready(0);
    SendToServer({SIGUSR1, SIGUSR2});
    SayGo();
    const Outcome outcome = Wait(launcher);
    fs::remove(folder_ / "ready/go");
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.out, "kept 64 lost 0 wrong 0 new 64\n") << outcome.err;
    EXPECT_EQ(outcome.err, "");
  }
}

TEST_F(OfiJob, OverTheNetworkAKilledServerTakesOnlyWhatWasThere) {
  const pid_t launcher = StartCommand(Run(1, 2, Loss(), Hosts()), {"RAMSPAN_TEST_FAR=1"});
  Ready(0);
  SendToServer({SIGKILL});
  SayGo();
  const Outcome outcome = Wait(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  unsigned kept = 0, lost = 0;
  ASSERT_EQ(std::sscanf(outcome.out.c_str(), "kept %u lost %u wrong 0 new 64", &kept, &lost), 2) << outcome.out << outcome.err;
  EXPECT_EQ(kept + lost, 64u);
  EXPECT_GE(lost, 1u);
  EXPECT_GE(kept, 9u) << "what was in memory and on the other server";
  EXPECT_THAT(outcome.err, HasSubstr("died with"));
}

TEST_F(OfiJob, ServersOfSeveralHostsListenAtOneInterfaceAndAreReached) {
  const Outcome outcome = RunAll(Run(2, 2, {"sh", "-c", "echo $RAMSPAN_SERVERS >&2; exec \"$@\"", "sh", WORLD_PROGRAM, "40", std::to_string(256 << 10)}, Hosts()),
                                 {"RAMSPAN_SWAP=remote", "RAMSPAN_TEST_FAR=1", "UCX_TCP_TX_SEG_SIZE=64k"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "ranks 2 bytes " + std::to_string(2 * 10 * kMiB) + "\n") << outcome.err;
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("0.0.0.0")));
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("mpiexec@"))) << "nothing of how the servers were ended";
}

// hydra hands the end of its input to the proxy of rank 0. Where that had ended before the others, as the places that are held for
// servers do, mpiexec died of SIGPIPE or with status 255: one start of five. So the input does not end while a job runs.
TEST_F(OfiJob, MpiexecSeesNoEndOfItsInputWhileTheJobRuns) {
  const fs::path script = folder_ / "bin/mpiexec", end = folder_ / "ended";
  std::ofstream(script) << "#!/bin/sh\nexec 3<&0\n(cat <&3 >/dev/null; touch " << end << ") &\nmkfifo " << folder_ / "never-$$"
                        << "\nexec mpiexec.hydra \"$@\" 3<&- 0<>" << folder_ / "never-$$" << "\n";
  fs::permissions(script, fs::perms(0755));
  Words more = Hosts();
  more.insert(more.end(), {"--mpiexec", script.string()});
  const Outcome outcome = RunAll(Run(1, 1, {"sh", "-c", "sleep 0.3; test ! -e " + end.string()}, more));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

// On another host the folder with the secret is not there.
TEST_F(OfiJob, ARankThatDoesNotSeeTheFolderGetsTheSecretByADescriptor) {
  const std::string key = "RAMSPAN_SERVER_KEY_FILE=/nowhere";
  Words command = {"env", key, "RAMSPAN_RUN_SERVER_SECRET=a secret of a test, long enough", LAUNCHER, "__rank", "--", "sh", "-c",
                   "cat $RAMSPAN_SERVER_KEY_FILE; stat -L -c :%a $RAMSPAN_SERVER_KEY_FILE; echo $RAMSPAN_RUN_SERVER_SECRET"};
  EXPECT_EQ(RunAll(command).out, "a secret of a test, long enough:600\n\n");
}

TEST_F(OfiJob, InterruptsReachTheApplicationAndEndTheServers) {
  for (const auto& [number, status] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    ClearReady();
    const pid_t launcher = StartCommand(Run(1, 2, Sweep(8 * kMiB, 0)));
    Ready(0);
    SendSignal(launcher, number);
    EXPECT_EQ(Wait(launcher).status, status);
    ExpectNothingLeft();
  }
}

TEST_F(OfiJob, NothingIsLeftWhoeverIsKilled) {
  for (const bool several_hosts : {false, true}) {
    for (const char* victim : {"launcher", "worker", "both", "keeper"}) {
      // mpiexec's proxies kill the keepers before these can clean up; the next run does.
      if (several_hosts && std::string(victim) == "both") continue;
      ClearReady();
      const pid_t launcher = StartCommand(Run(1, 2, Sweep(8 * kMiB, 0), several_hosts ? Hosts() : Words()));
      const pid_t program = Ready(0);
      ASSERT_GT(program, 1);
      const pid_t server = JobProcess("ramspan-server");
      ASSERT_GT(server, 1);
      pid_t worker = program;
      for (pid_t up = program; up > 1 && up != launcher; up = ParentOf(up)) worker = up;
      const std::string who = victim;
      if (who == "keeper") SendSignal(ParentOf(program), SIGKILL);
      if (who == "worker" || who == "both") SendSignal(worker, SIGKILL);
      if (who == "launcher" || who == "both") SendSignal(launcher, SIGKILL);
      EXPECT_EQ(Wait(launcher).status, 128 + SIGKILL) << who;
      ExpectNothingLeft();
    }
  }
}

TEST_F(OfiJob, AServerThatDoesNotStartIsAnErrorBeforeTheApplicationStarts) {
  Words command = Run(1, 2, {"touch", (folder_ / "started").string()});
  command[0] = LauncherWithServer("echo 'no memory, no wonder' >&2; exit 3");
  const Outcome outcome = RunAll(command);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("no memory, no wonder"));
  EXPECT_THAT(outcome.err, HasSubstr("ended with status 3 before it listened; the application was not started"));
  EXPECT_FALSE(fs::exists(folder_ / "started"));
}

TEST_F(OfiJob, AnInterruptWhileServersStartEndsTheJob) {
  Words command = Run(1, 2, {"true"});
  command[0] = LauncherWithServer("touch \"$RAMSPAN_TEST_READY/new-$$\"; mv \"$RAMSPAN_TEST_READY/new-$$\" "
                                  "\"$RAMSPAN_TEST_READY/starting\"; while :; do sleep 0.1; done");
  const pid_t launcher = StartCommand(command);
  ASSERT_TRUE(Becomes([&] { return fs::exists(folder_ / "ready/starting"); }));
  SendSignal(launcher, SIGTERM);
  EXPECT_EQ(Wait(launcher).status, 143);
}

// Servers that are ranks need MPI, which a program without it loads for them.
TEST_F(OfiJob, AProgramThatIsNotLinkedWithMpiMeetsServersThatAreRanks) {
  Words command = Run(1, 1, Sweep(24 * kMiB));
  command[3] = "mpi";
  const Outcome outcome = RunAll(command, {"RAMSPAN_SWAP=remote"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "verified " + std::to_string(24 * kMiB) + " bytes\n") << outcome.err;
  ClearReady();
  command.back() = "0";
  const pid_t launcher = StartCommand(command, {"RAMSPAN_SWAP=remote"});
  const std::string libraries = ReadFile("/proc/" + std::to_string(Ready(0)) + "/maps");
  EXPECT_THAT(libraries, testing::AllOf(HasSubstr("libramspan-mpi.so"), HasSubstr("libmpi"), testing::Not(HasSubstr("libfabric"))));
  std::ofstream(folder_ / "ready/stop") << "";
  EXPECT_EQ(Wait(launcher).status, 0);
}

// Its collective calls on MPI_COMM_WORLD, in which the servers are, would not be seen by Ramspan.
TEST_F(OfiJob, AnMpiProgramThatIsLinkedWithoutRamspansLibraryForMpiIsToldSo) {
  Words command = Run(2, 1, {WORLD_PROGRAM, "40", std::to_string(256 << 10)});
  command[3] = "mpi";
  const Outcome outcome = RunAll(command);
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("pkg-config ramspan-mpi"));
}

}  // namespace
}  // namespace ramspan
