// Whole jobs under the real launcher and the real mpiexec, with stand-ins for application and server: exit statuses,
// arguments, input and output, and that nothing is left behind whoever is killed whenever.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <thread>

#include "launch/process.h"
#include "tests/support/job_fixture.h"
#include "tests/support/send_signal.h"

namespace ramspan {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

std::string launcher_source, standin_source;

class RunTest : public JobFixture {
 protected:
  RunTest() {
    fs::copy_file(launcher_source, folder_ / "bin/ramspan");
    fs::copy_file(standin_source, folder_ / "bin/ramspan-memserver");
    app_ = standin_source;
  }

  pid_t Start(const Words& arguments, const std::string& input = "/dev/null") {
    Words all = {(folder_ / "bin/ramspan").string(), "run"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return StartCommand(all, {}, input);
  }

  Outcome Run(const Words& arguments, const std::string& input = "/dev/null") { return Wait(Start(arguments, input)); }

  // A job's arguments: ranks, servers, and the stand-in with its mode.
  Words Job(int ranks, int servers, const Words& app) {
    Words words = {"-n", std::to_string(ranks), "-s", std::to_string(servers), "--memory", "8MiB"};
    if (servers > 0) words.insert(words.end(), {"--server-memory", "8MiB", "--transport", "mpi"});
    words.push_back("--");
    words.insert(words.end(), app.begin(), app.end());
    return words;
  }

  void KillWhileAllSleep(const std::function<pid_t(pid_t launcher)>& victim, int expected_status) {
    const pid_t launcher = Start(Job(2, 1, {app_, "sleep"}));
    Ready(0);
    Ready(1);
    const pid_t pid = victim(launcher);
    ASSERT_GT(pid, 1);
    SendSignal(pid, SIGKILL);
    const Outcome outcome = Wait(launcher);
    EXPECT_EQ(outcome.status, expected_status) << outcome.err;
    ExpectNothingLeft();
  }

  // Until all ranks are there: on this machine, now.
  std::chrono::microseconds TimeOfAStart() {
    const auto begin = std::chrono::steady_clock::now();
    const pid_t launcher = Start(Job(2, 1, {app_, "sleep"}));
    Ready(0);
    Ready(1);
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
    SendSignal(launcher, SIGTERM);
    Wait(launcher);
    return took;
  }
  // At random moments of a start; so often.
  void KillSomethingWhileTheJobStarts(int rounds);
  void KillEverythingAtOnce(int rounds);

  std::string app_;
};

TEST_F(RunTest, AGoodJobIsSilentAndEndsWithZero) {
  const Outcome outcome = Run(Job(2, 1, {"env", app_, "ok"}));  // the stand-in by itself would be warned of: it includes <mpi.h> alone
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "");
}

TEST_F(RunTest, TheStatusOfAFailingRankIsTheJobs) {
  const Outcome outcome = Run(Job(2, 1, {app_, "exit7", "1"}));
  EXPECT_EQ(outcome.status, 7);
  EXPECT_NE(outcome.err.find("rank 1"), std::string::npos);
  EXPECT_EQ(outcome.out.find("BAD TERMINATION"), std::string::npos);
}

TEST_F(RunTest, AStatusAfterMpiFinalizeIsTheJobs) { EXPECT_EQ(Run(Job(2, 1, {app_, "late7", "1"})).status, 7); }

TEST_F(RunTest, ASegmentationFaultIs139) {
  const Outcome outcome = Run(Job(2, 1, {app_, "segv", "1"}));
  EXPECT_EQ(outcome.status, 139);
  EXPECT_NE(outcome.err.find("signal 11"), std::string::npos);
}

// On MPI_COMM_WORLD it is a word to mpiexec, which the rank's keeper hears before anybody ends; other communicators: JobTest.
TEST_F(RunTest, MpiAbortGivesItsCodeAndBlamesTheRankThatCalledIt) {
  for (const char* rank : {"0", "1"}) {
    for (int i = 0; i < 5; ++i) {
      const Outcome outcome = Run(Job(2, 1, {app_, "abort9", rank}));
      EXPECT_EQ(outcome.status, 9);
      EXPECT_NE(outcome.err.find(std::string("rank ") + rank + " ("), std::string::npos) << outcome.err;
    }
  }
}

TEST_F(RunTest, ARankThatLeavesWithoutFinalizeDoesNotPassForSuccess) {
  const Outcome outcome = Run(Job(2, 1, {app_, "exit0", "0"}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("without MPI_Finalize"), std::string::npos);
}

TEST_F(RunTest, AKilledServerEndsTheJobAndNamesTheRemedy) {
  setenv("RAMSPAN_TEST_SERVER", "kill", 1);
  const Outcome outcome = Run(Job(2, 1, {app_, "sleep"}));
  unsetenv("RAMSPAN_TEST_SERVER");
  EXPECT_EQ(outcome.status, 137);
  EXPECT_NE(outcome.err.find("memory server rank 2 was killed by signal 9; the chunks that it held are lost. Remedy:"),
            std::string::npos)
      << outcome.err;
}

// The keeper of a rank that was ended by the order to kill left at once, and hydra killed the server's keeper, which had not told yet: the job blamed a rank that had noticed
// the server's death. Here one rank stands for it, and the keeper is held up until the others have no program any more, and a while longer.
TEST_F(RunTest, AServersDeathThatIsToldLastIsStillTheCause) {
  constexpr milliseconds kHydraMayTake{100};  // to kill the others, if it does
  constexpr milliseconds kJudged{500};        // half of what keepers wait: on a machine that is too busy nothing is said
  setenv("RAMSPAN_TEST_SERVER", "sleep", 1);
  bool judged = false;
  for (int i = 0; i < 10 && !judged; ++i) {
    ClearReady();
    const pid_t launcher = Start(Job(2, 1, {app_, "sleep"}));
    const pid_t ranks[] = {Ready(0), Ready(1)}, server = Ready(2), keeper = ParentOf(server);
    ASSERT_GT(keeper, 1);
    SendSignal(keeper, SIGSTOP);
    SendSignal(server, SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    SendSignal(ranks[0], SIGTERM);
    EXPECT_TRUE(Becomes([&] { return SendSignal(ranks[0], 0) != 0 && SendSignal(ranks[1], 0) != 0; }));
    std::this_thread::sleep_for(kHydraMayTake);
    SendSignal(keeper, SIGCONT);  // it may be gone, which is the error
    judged = std::chrono::steady_clock::now() - begin < kJudged;
    const Outcome outcome = Wait(launcher);
    if (!judged) continue;
    EXPECT_EQ(outcome.status, 137);
    EXPECT_NE(outcome.err.find("memory server rank 2 was killed by signal 9"), std::string::npos) << outcome.err;
  }
  unsetenv("RAMSPAN_TEST_SERVER");
  if (!judged) GTEST_SKIP() << "this machine is too busy";
}

// The folder of the run stayed: without a descriptor nobody can look into it, and the signal of -f ended the launcher. (With
// -f 0 its message has no place to go: the test reads it from a file.)
TEST_F(RunTest, LimitsTooSmallForTheLauncherLeaveNothingBehind) {
  const std::pair<const char*, const char*> limits[] = {
      {"-n 6", "ulimit -n"}, {"-n 8", "ulimit -n"}, {"-n 23", "ulimit -n"}, {"-f 0", ""}};
  for (const auto& [limit, named] : limits) {
    std::string line = std::string("ulimit ") + limit + "; exec " + (folder_ / "bin/ramspan").string() + " run";
    for (const std::string& word : Job(1, 1, {app_, "ok"})) line += " " + word;
    const Outcome outcome = Wait(StartCommand({"sh", "-c", line}));
    EXPECT_NE(outcome.status, 0) << limit;
    EXPECT_LT(outcome.status, 128) << limit << outcome.err;
    EXPECT_NE(outcome.err.find(named), std::string::npos) << limit << outcome.err;
    ExpectNothingLeft();
  }
}

// The launcher itself was killed by a signal 11, or named no limit.
TEST_F(RunTest, SmallLimitsAreNamedWhenAJobFails) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own memory does not fit these limits";
#endif
  for (const std::string limit : {"-s 64", "-d 1000"}) {
    std::string line = "ulimit " + limit + "; exec " + (folder_ / "bin/ramspan").string() + " run";
    for (const std::string& word : Job(1, 1, {app_, "ok"})) line += " " + word;
    const Outcome outcome = Wait(StartCommand({"sh", "-c", line}));
    if (outcome.status == 0) continue;  // this machine's MPI needs less
    EXPECT_NE(outcome.err.find("ulimit " + limit), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("worker process was killed"), std::string::npos) << outcome.err;
  }
}

// Each finite limit of files, data and addresses was called small.
TEST_F(RunTest, LimitsOfWholeMachinesAreNotCalledSmall) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own memory does not fit these limits";
#endif
  for (const std::string limit : {"-f 4000000000", "-d 200000000", "-v 200000000"}) {
    std::string line = "ulimit " + limit + " && exec " + (folder_ / "bin/ramspan").string() + " run";
    for (const std::string& word : Job(1, 0, {"sh", "-c", "'kill -SEGV $$'"})) line += " " + word;
    const Outcome outcome = Wait(StartCommand({"sh", "-c", line}));
    EXPECT_EQ(outcome.status, 128 + SIGSEGV) << limit << outcome.err;
    EXPECT_EQ(outcome.err.find("small limits"), std::string::npos) << limit << outcome.err;
  }
}

TEST_F(RunTest, AProgramWithoutMpiDoesNotWaitForTheServers) {
  const Outcome outcome = Run(Job(1, 1, {"/bin/true"}));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.err.find("without using Ramspan or MPI"), std::string::npos);
}

TEST_F(RunTest, AFailingScriptGivesItsStatus) { EXPECT_EQ(Run(Job(1, 1, {"sh", "-c", "exit 3"})).status, 3); }

TEST_F(RunTest, AScriptMayStartTheMpiProgram) {
  EXPECT_EQ(Run(Job(2, 1, {"sh", "-c", app_ + " ok; echo done"})).out, "done\ndone\n");
}

TEST_F(RunTest, ARankThatNeverJoinsIsFoundOut) {
  const Outcome outcome = Run(Job(2, 0, {"sh", "-c", "[ $PMI_RANK = 0 ] || exec " + app_ + " ok"}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("without MPI_Init"), std::string::npos);
}

TEST_F(RunTest, OneProcessRunsWithoutMpiexec) {
  EXPECT_EQ(Run(Job(1, 0, {"sh", "-c", "exit 7"})).status, 7);
  EXPECT_EQ(Run(Job(1, 0, {"sh", "-c", "kill -SEGV $$"})).status, 139);
  EXPECT_EQ(Run(Job(1, 0, {app_, "ok"})).status, 0);  // an MPI singleton
}

TEST_F(RunTest, EveryArgumentArrivesUnchanged) {
  const Words odd = {"a b", ":", "", "%d", "$HOME", "it's", "\"", "\\", "=", "=61", "new\nline", "--help", "*", ""};
  std::string expected;
  for (const std::string& one : odd) expected += "<" + one + ">";
  for (int servers : {0, 1}) {
    Words app = {"sh", "-c", "for a; do printf '<%s>' \"$a\"; done", "x"};
    app.insert(app.end(), odd.begin(), odd.end());
    EXPECT_EQ(Run(Job(1, servers, app)).out, expected);
  }
}

TEST_F(RunTest, ThreeThousandArgumentsArrive) {
  Words app = {"sh", "-c", "echo $#", "x"};
  for (int i = 0; i < 3000; ++i) app.push_back(std::to_string(i));
  EXPECT_EQ(Run(Job(1, 1, app)).out, "3000\n");
}

TEST_F(RunTest, InputAndOutputPassByteForByte) {
  std::mt19937_64 random(11);
  std::string bytes(3 << 20, '\0');
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const uint64_t value = random();
    std::copy_n(reinterpret_cast<const char*>(&value), 8, &bytes[i]);
  }
  std::ofstream(folder_ / "in") << bytes;
  for (int servers : {0, 1}) {
    const Outcome outcome = Run(Job(1, servers, {"cat"}), (folder_ / "in").string());
    EXPECT_EQ(outcome.status, 0);
    EXPECT_TRUE(outcome.out == bytes) << "servers: " << servers;
  }
}

// A descriptor of the launcher's took the closed one's number and was read as the user's input, which never ended.
TEST_F(RunTest, AClosedStandardInputIsAnEmptyOne) {
  const std::string launcher = (folder_ / "bin/ramspan").string();
  for (const char* closed : {"<&-", "<&- 2>&-"}) {
    const std::string line = "exec " + launcher + " run -n 2 --memory 8MiB -- sh -c 'cat; echo end' " + closed;
    const Outcome outcome = Wait(StartCommand({"bash", "-c", line}));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "end\nend\n");
  }
}

// One descriptor of the launcher's for each rank.
TEST_F(RunTest, MoreRanksThanTheSoftLimitOfDescriptors) {
  const std::string launcher = (folder_ / "bin/ramspan").string();
  const Outcome outcome = Wait(StartCommand({"bash", "-c", "ulimit -Sn 30; exec " + launcher +
                                                 " run -n 24 --memory 8MiB -- sh -c 'ulimit -Sn'"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  std::string expected;
  for (int i = 0; i < 24; ++i) expected += "30\n";  // the application's limit is the user's
  EXPECT_EQ(outcome.out, expected);
}

TEST_F(RunTest, AReaderThatLeavesEndsTheJobLikeAPipeline) {
  const std::string command = "TMPDIR=" + (folder_ / "tmp").string() + " RAMSPAN_TEST_JOB=" + folder_.filename().string() +
                              " " + (folder_ / "bin/ramspan").string() +
                              " run -n 2 --memory 8MiB -- yes | head -1 > " + (folder_ / "out").string() +
                              "; exit ${PIPESTATUS[0]}";
  const int status = std::system(("bash -c '" + command + "'").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 141);
  EXPECT_EQ(ReadFile(folder_ / "out"), "y\n");
}

TEST_F(RunTest, WhereOutputCannotBeWrittenTheJobGoesOnAndItIsSaid) {
  const Outcome outcome = Wait(StartCommand({"bash", "-c", "exec " + (folder_ / "bin/ramspan").string() +
                                                 " run -n 2 --memory 8MiB -- sh -c 'echo out; sleep 0.5; echo still >&2' > /dev/full"}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("standard output cannot be written: No space left on device"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("still"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("of standard output 8 B could not be written"), std::string::npos) << outcome.err;
}

TEST_F(RunTest, InterruptsReachTheApplication) {
  for (const auto& [number, status] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}, std::pair{SIGHUP, 129}}) {
    ClearReady();
    const pid_t launcher = Start(Job(2, 1, {app_, "sleep"}));
    Ready(0);
    Ready(1);
    SendSignal(launcher, number);
    EXPECT_EQ(Wait(launcher).status, status);
  }
}

// They ended whoever did not listen: programs before their first managedPtr, and shells around them.
TEST_F(RunTest, ReportSignalsReachWhoListensBehindAShellThatDoesNot) {
  const std::string ready = "touch " + (folder_ / "ready/rank-0").string();
  const std::string handles = "sh -c \"trap 'echo heard; exit' USR1; " + ready + "; while :; do sleep 0.05; done\"; true";
  const std::string blocks = "env --block-signal=USR1 sleep 100 & until grep -q 'SigBlk:.*2..$' /proc/$!/status; do sleep 0.05; done; " + ready +
                             "; until grep -q 'ShdPnd:.*2..$' /proc/$!/status; do sleep 0.05; done; echo heard; kill -9 $!";
  for (const std::string& script : {handles, blocks}) {
    for (const auto& [ranks, servers] : {std::pair{1, 0}, std::pair{1, 1}}) {
      ClearReady();
      const pid_t launcher = Start(Job(ranks, servers, {"sh", "-c", script}));
      Ready(0);
      SendSignal(launcher, SIGUSR1);
      const Outcome outcome = Wait(launcher);
      EXPECT_EQ(outcome.status, 0) << outcome.err;
      EXPECT_EQ(outcome.out, "heard\n");
    }
  }
}

// 5 of 47 launchers that were asked in their first milliseconds were ended. Here one is held there, by a list of hosts that does not come.
TEST_F(RunTest, AReportSignalBeforeThereIsAJobDoesNotEndTheLauncher) {
  const fs::path hosts = folder_ / "hosts";
  ASSERT_EQ(mkfifo(hosts.c_str(), 0600), 0);
  const pid_t launcher = Start({"--hostfile", hosts.string(), "--memory", "8MiB", "--", "true"});
  UniqueFd list;
  ASSERT_TRUE(Becomes([&] { return (list = UniqueFd(open(hosts.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC))).get() >= 0; }));
  for (const int number : {SIGUSR1, SIGUSR2}) SendSignal(launcher, number);
  std::ofstream(folder_ / "hosts of mpiexec") << "localhost\n";
  fs::rename(folder_ / "hosts of mpiexec", hosts);
  ASSERT_EQ(write(list.get(), "localhost\n", 10), 10);
  list.Reset();
  const Outcome outcome = Wait(launcher);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

// Who ignores a signal gives no report, and nobody was told why.
TEST_F(RunTest, AReportSignalThatIsIgnoredIsToldAsNotHeard) {
  const pid_t launcher = Start(Job(1, 0, {"sh", "-c", "trap '' USR1; trap 'exit 3' USR2; touch " + (folder_ / "ready/rank-0").string() +
                                                          "; while :; do sleep 0.05; done"}));
  Ready(0);
  SendSignal(launcher, SIGUSR1);
  SendSignal(launcher, SIGUSR2);  // passed on after the other one
  const Outcome outcome = Wait(launcher);
  EXPECT_EQ(outcome.status, 3) << outcome.err;
  EXPECT_NE(outcome.err.find("sh does not listen to " + DescribeSignal(SIGUSR1)), std::string::npos) << outcome.err;
}

// One that came between the fork and the program waited for it there, and ended it.
TEST(Process, AReportSignalIsNotKeptForAProgramThatCouldNotHearIt) {
  const pid_t child = fork();
  if (child == 0) {
    const UniqueFd signals = BlockSignals({SIGUSR1, SIGUSR2});
    raise(SIGUSR1);
    raise(SIGUSR2);
    RestoreSignals();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(RunTest, AnApplicationMayTidyUpWhenInterrupted) {
  const pid_t launcher = Start(Job(1, 0, {"sh", "-c", "trap 'echo tidy; exit 4' INT; touch " +
                                                          (folder_ / "ready/rank-0").string() +
                                                          "; while :; do sleep 0.05; done"}));
  Ready(0);
  SendSignal(launcher, SIGINT);
  const Outcome outcome = Wait(launcher);
  EXPECT_EQ(outcome.status, 4);
  EXPECT_EQ(outcome.out, "tidy\n");
}

TEST_F(RunTest, AStubbornApplicationIsKilledAfterAWhileOrAtTheSecondInterrupt) {
  pid_t launcher = Start(Job(2, 1, {app_, "stubborn"}));
  Ready(0);
  Ready(1);
  SendSignal(launcher, SIGINT);
  EXPECT_EQ(Wait(launcher).status, 130);
  double shortest = kPatience.count();  // of a few: a busy machine may hold up one of them
  for (int i = 0; i < 3 && shortest >= 4; ++i) {
    ClearReady();
    launcher = Start(Job(2, 1, {app_, "stubborn"}));
    Ready(0);
    Ready(1);
    // Two that differ, because of two that are alike and come close together the launcher sees one.
    SendSignal(launcher, SIGINT);
    std::this_thread::sleep_for(milliseconds(300));
    SendSignal(launcher, SIGTERM);
    const Outcome outcome = Wait(launcher);
    EXPECT_EQ(outcome.status, 130) << outcome.err;
    shortest = std::min(shortest, outcome.seconds);
  }
  EXPECT_LT(shortest, 4) << "after one interrupt it takes 5 s";
}

TEST_F(RunTest, NothingIsLeftWhenTheLauncherIsKilled) {
  KillWhileAllSleep([](pid_t launcher) { return launcher; }, 137);
}

TEST_F(RunTest, NothingIsLeftWhenTheLaunchersWorkerIsKilled) {
  KillWhileAllSleep([this](pid_t) { return ParentOf(JobProcess("mpiexec.hydra")); }, 137);
}

TEST_F(RunTest, NothingIsLeftWhenMpiexecIsKilled) {
  KillWhileAllSleep([this](pid_t) { return JobProcess("mpiexec.hydra"); }, 137);
}

TEST_F(RunTest, NothingIsLeftWhenHydrasProxyIsKilled) {
  KillWhileAllSleep([this](pid_t) { return JobProcess("hydra_pmi_proxy"); }, 137);
}

TEST_F(RunTest, NothingIsLeftWhenARankIsKilled) {
  KillWhileAllSleep([this](pid_t) { return Ready(1); }, 137);
}

TEST_F(RunTest, NothingIsLeftWhenAKeeperIsKilled) {
  KillWhileAllSleep([this](pid_t) { return ParentOf(Ready(1)); }, 137);
}

TEST_F(RunTest, NothingIsLeftWhenTheLauncherOfADirectApplicationIsKilled) {
  const pid_t launcher = Start(Job(1, 0, {"sh", "-c", "setsid sleep 1000 & touch " + (folder_ / "ready/rank-0").string() +
                                                          "; sleep 1000"}));
  Ready(0);
  SendSignal(launcher, SIGKILL);
  EXPECT_EQ(Wait(launcher).status, 137);
}

TEST_F(RunTest, WhatTheApplicationLeavesRunningIsEnded) {
  for (int servers : {0, 1}) {
    EXPECT_EQ(Run(Job(1, servers, {"sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & exit 0"})).status, 0);
    ExpectNothingLeft();
  }
}

// The window in which shared-memory segments have names and keepers are half connected.
void RunTest::KillSomethingWhileTheJobStarts(int rounds) {
  const auto start = TimeOfAStart();
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  std::cout << "seed " << seed << std::endl;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const pid_t launcher = Start(Job(2, 1, {app_, "sleep"}));
    std::this_thread::sleep_for(start * (random() % 1000) / 1000);
    const std::set<pid_t> all = JobProcesses();
    pid_t victim = launcher;
    if (round % 3 != 0 && !all.empty()) victim = *std::next(all.begin(), static_cast<long>(random() % all.size()));
    SendSignal(victim, SIGKILL);
    EXPECT_NE(Wait(launcher).status, 0) << "round " << round;
    ExpectNothingLeft();
  }
}

// The folder was made before the guard had its worker: a guard that was killed in between left it.
TEST_F(RunTest, NothingIsLeftWhenTheGuardIsKilledAsSoonAsThereIsAFolder) {
  for (int round = 0; round < 10 && !HasFailure(); ++round) {
    const pid_t launcher = Start(Job(1, 0, {"sleep", "1000"}));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (fs::is_empty(folder_ / "tmp")) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    SendSignal(launcher, SIGKILL);
    EXPECT_EQ(Wait(launcher).status, 137) << "round " << round;
    ExpectNothingLeft();
  }
}

TEST_F(RunTest, NothingIsLeftWhateverIsKilledWhileTheJobStarts) { KillSomethingWhileTheJobStarts(8); }
TEST_F(RunTest, LongNothingIsLeftWhateverIsKilledWhileTheJobStarts) { KillSomethingWhileTheJobStarts(200); }

// hydra's proxy, when it cannot fork, spins for ever: the job was silent for as long as its user waited.
TEST_F(RunTest, TooFewProcessesEndTheJobSoonAndNameTheLimit) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to run as a user without processes";
  constexpr uid_t kNobody = 65534;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_)) {
    ASSERT_EQ(chown(entry.path().c_str(), kNobody, kNobody), 0);
  }
  ASSERT_EQ(chown(folder_.c_str(), kNobody, kNobody), 0);
  const std::string launcher = (folder_ / "bin/ramspan").string();
  for (int limit : {1, 2, 3, 4, 6}) {
    const Outcome outcome = Wait(StartCommand({"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "prlimit",
                                               "--nproc=" + std::to_string(limit), launcher, "run", "-n", "2", "-s", "1",
                                               "--memory", "8MiB", "--server-memory", "8MiB", "--", "sleep", "1000"}),
                                 std::chrono::seconds(50));  // after a minute it is given up, whatever the cause
    EXPECT_NE(outcome.status, 0);
    EXPECT_NE(outcome.err.find("ulimit -u"), std::string::npos) << limit << ": " << outcome.err;
    EXPECT_EQ(outcome.err.find("This is a bug"), std::string::npos) << limit << ": " << outcome.err;
  }
}

TEST_F(RunTest, AnMpiexecThatStartsNothingIsFoundOut) {
  const Outcome outcome = Run({"-n", "2", "--memory", "8MiB", "--mpiexec", "/bin/true", "--", app_});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("never reported"), std::string::npos) << outcome.err;
}

TEST_F(RunTest, AFileThatGrewTooLargeIsNamedWithItsLimit) {
  for (const char* ranks : {"1", "2"}) {
    const Outcome outcome = Run({"-n", ranks, "--memory", "8MiB", "--", "sh", "-c",
                                 "ulimit -f 1; exec dd if=/dev/zero of=" + (folder_ / "big").string() + " bs=64k count=9"});
    EXPECT_EQ(outcome.status, 128 + SIGXFSZ);
    EXPECT_NE(outcome.err.find("ulimit -f"), std::string::npos) << outcome.err;
  }
}

// hydra ends by SIGPIPE where all ranks have ended before it has told its proxy everything: seen in one run of sixty.
TEST_F(RunTest, InsideAnMpiJobItSaysSoAndStartsNothing) {
  const Outcome outcome = Wait(StartCommand({"mpiexec.hydra", "-n", "2", "sh", "-c", "sleep 0.3; exec \"$@\"", "sh", (folder_ / "bin/ramspan").string(), "run",
                                             "-n", "1", "--memory", "8MiB", "--", "true"}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("inside a rank of an MPI job"), std::string::npos) << outcome.err;
}

// Segments tell who made them, so that the next run needs the numbers of all processes that use MPI.
TEST_F(RunTest, AnMpiProgramThatAScriptStartsIsRecorded) {
  const pid_t launcher = Start(Job(2, 0, {"sh", "-c", app_ + " sleep; :"}));
  const std::string first = " " + std::to_string(Ready(0)) + " ", second = " " + std::to_string(Ready(1)) + " ";
  const std::string record = ReadFile(fs::directory_iterator(folder_ / "tmp")->path() / "processes");
  EXPECT_NE(record.find(first), std::string::npos) << record;
  EXPECT_NE(record.find(second), std::string::npos) << record;
  SendSignal(launcher, SIGTERM);
  EXPECT_EQ(Wait(launcher).status, 143);
}

// What a batch system does at the time limit: nobody is left to clean up, so the next run does.
void RunTest::KillEverythingAtOnce(int rounds) {
  const auto start = TimeOfAStart();
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  std::cout << "seed " << seed << std::endl;
  int folders = 0;
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    const Words tls = {round % 2 == 0 ? "UCX_TLS=all" : "UCX_TLS=^sysv"};
    Words line = Job(2, 1, {"sh", "-c", app_ + " sleep; :"});  // the MPI program is the script's child
    line.insert(line.begin(), {(folder_ / "bin/ramspan").string(), "run"});
    const pid_t launcher = StartCommand(line, tls);
    while (JobProcesses().empty()) std::this_thread::sleep_for(milliseconds(1));  // not before it has begun
    std::this_thread::sleep_for(start * (random() % 1000) / 1000);
    if (round == 0) {
      EXPECT_TRUE(Becomes([&] { return !fs::is_empty(folder_ / "tmp"); })) << "there must be something to sweep";
    }
    for (bool all = false; !all;) {  // stopped first, so that none sees another one die
      const std::set<pid_t> now = JobProcesses();
      for (pid_t pid : now) SendSignal(pid, SIGSTOP);
      all = JobProcesses() == now;
    }
    // Until none is left: where all of a process group are stopped and the group's last parent outside it dies, the kernel has them go on, and the launcher's
    // child, until its exec, holds the launcher's lock.
    std::vector<ProcessId> killed;
    for (std::set<pid_t> left = JobProcesses(); !left.empty(); left = JobProcesses()) {
      for (pid_t pid : left) killed.push_back(Identify(pid));
      for (pid_t pid : left) SendSignal(pid, SIGKILL);
    }
    Wait(launcher);
    EXPECT_TRUE(Becomes([&] { return std::none_of(killed.begin(), killed.end(), IsAlive); }));
    RemoveUcxProbes();
    // One without its owner's mark may be that of a launcher which is just making it, until it is a minute old.
    for (const fs::directory_entry& folder : fs::directory_iterator(folder_ / "tmp")) {
      if (!fs::exists(folder.path() / "owner")) fs::last_write_time(folder.path(), fs::file_time_type::clock::now() - std::chrono::minutes(2));
    }
    folders += !fs::is_empty(folder_ / "tmp");
    const Outcome next = Run(Job(1, 0, {"true"}));
    EXPECT_EQ(next.status, 0) << next.err;
    ExpectNothingLeft();
  }
  EXPECT_GT(folders, 0) << "nothing was ever left to sweep";
}
TEST_F(RunTest, WhatIsLeftWhenEverythingIsKilledAtOnceTheNextRunRemoves) { KillEverythingAtOnce(6); }
TEST_F(RunTest, LongWhatIsLeftWhenEverythingIsKilledAtOnceTheNextRunRemoves) { KillEverythingAtOnce(100); }

TEST_F(RunTest, DryRunPrintsTheLineAndStartsNothing) {
  const Outcome outcome = Run({"-n", "2", "-s", "1", "--server-memory", "8MiB", "--memory", "8MiB", "--dry-run", "--", app_});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.out.find("mpiexec.hydra -n 2 -env RAMSPAN_MEMORY 8MiB"), std::string::npos);
}

// A device was read until memory was gone.
TEST_F(RunTest, AHostFileWithoutAnEndIsNoListOfHosts) {
  const Outcome outcome = Run({"--hostfile", "/dev/zero", "--dry-run", "--", app_});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("--hostfile: /dev/zero is larger than 32 MiB: no list of hosts"), std::string::npos) << outcome.err;
}

// "there is no command" alone was said to those who forgot `run`.
TEST_F(RunTest, AProgramInTheCommandsPlaceIsAnsweredByTheLineThatRunsIt) {
  const Outcome outcome = Wait(StartCommand({(folder_ / "bin/ramspan").string(), "./app"}, {}, "/dev/null"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("ramspan run -- ./app"), std::string::npos) << outcome.err;
}

// The dynamic linker's line says what it has not found, and not where that is.
TEST_F(RunTest, WhereItsLibrariesAreIsSaidOfAProgramThatDoesNotFindThem) {
  if (std::string(LIBRARY).find(".so") == std::string::npos) GTEST_SKIP() << "it is linked into the program";
  fs::create_directory(folder_ / "lib");
  std::ofstream(folder_ / "lib/libramspan.so.0").put(' ');
  const Outcome outcome = Run({"--memory", "8MiB", "--", UNFOUND_PROGRAM});
  EXPECT_EQ(outcome.status, 127);
  EXPECT_NE(outcome.err.find("Remedy: export LD_LIBRARY_PATH=" + (folder_ / "lib").string()), std::string::npos) << outcome.err;
}

TEST_F(RunTest, BadLinesEndWithStatusTwo) {
  EXPECT_EQ(Run({"-n", "2", "--", "/nowhere/app"}).status, 2);
  EXPECT_EQ(Run({"--transport", "ofi", "--", "true"}).status, 2);
  EXPECT_EQ(Run({"-s", "1", "--server-memory", "900TiB", "--", "true"}).status, 2);
}

}  // namespace
}  // namespace ramspan

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 3) {
    std::cerr << "usage: launch_run_test LAUNCHER STANDIN\n";
    return 2;
  }
  ramspan::launcher_source = argv[1];
  ramspan::standin_source = argv[2];
  return RUN_ALL_TESTS();
}
