// Impossible wishes, full and forbidden places, and processes killed in mid-run: a clear end, and nothing left behind.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>

#include "tests/app/app_fixture.h"
#include "tests/support/send_signal.h"

namespace ramspan {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// ---- Bad input ----

TEST_F(BadInput, ALimitBelowOneChunkIsAnErrorAtOnce) {
  const Outcome outcome = Run(Sweep({.chunk_bytes = 2 * kMiB}), {"RAMSPAN_MEMORY=1MiB"});
  ExpectError(outcome, {"does not fit the memory limit", "raise the limit (RAMSPAN_MEMORY", "split the object"});
}

TEST_F(BadInput, MorePinsThanTheLimitInOneThreadIsAnErrorAtOnce) {
  double shortest = kPatience.count();  // of a few: a busy machine may hold up one of them
  for (int i = 0; i < 3 && shortest >= 3; ++i) {
    const Outcome outcome =
        Run(Sweep({.chunk_bytes = kMiB, .threads = 1, .pins = 12}), {"RAMSPAN_MEMORY=8MiB"});
    ExpectError(outcome, {"adhereTos pin all of the memory limit", "of adhereTos or spans, in ", "Hold fewer adhereTos or views at once", "adhereAll", "RAMSPAN_MEMORY"});
    shortest = std::min(shortest, outcome.seconds);
  }
  EXPECT_LT(shortest, 3);
}

TEST_F(BadInput, ThreadsThatWaitForEachOthersPinsAreNotHanging) {
  const Outcome outcome =
      Run(Sweep({.chunk_bytes = kMiB, .threads = 3, .pins = 4}), {"RAMSPAN_MEMORY=8MiB"});
  ExpectError(outcome, {"adhereTos pin all of the memory limit", "of adhereTos or spans, in ", "Hold fewer adhereTos or views at once", "RAMSPAN_MEMORY"});
  EXPECT_LT(outcome.seconds, kSoon);
}

TEST_F(BadInput, ASwapFolderThatIsAFileIsAnError) {
  WriteFile(folder_ / "file", "");
  const std::string mask = "RAMSPAN_SWAPFILES=" + (folder_ / "file/ramspan-%d-%d.swap").string();
  for (const Words& command : {Sweep(), Job({.ranks = 2, .servers = 1}, Sweep())}) {
    ExpectError(Run(command, {mask}), {"cannot create a swap file in " + (folder_ / "file").string(), "Not a directory",
                                       "set TMPDIR or the key swapfiles (RAMSPAN_SWAPFILES)"});
  }
}

// Runs in a mount namespace of its own, after `mount`; skips where that is not permitted.
class BadInputMounted : public AppFixture {
 protected:
  Outcome RunMounted(const std::string& mount, const Words& command, const Words& environment) {
    Words words = {"unshare", geteuid() == 0 ? "-m" : "-rm", "sh", "-c", mount + " || exit 77; exec \"$@\"", "sh"};
    words.insert(words.end(), command.begin(), command.end());
    return Run(words, environment);
  }
  void SetUp() override {
    if (RunMounted("mount -t tmpfs none " + (folder_ / "bin").string(), {"true"}, {}).status != 0) {
      GTEST_SKIP() << "mounting in a private namespace is not permitted here";
    }
  }
  std::string SwapIn(const fs::path& folder) const {
    return "RAMSPAN_SWAPFILES=" + (folder / "ramspan-%d-%d.swap").string();
  }
};

TEST_F(BadInputMounted, AReadOnlySwapFolderIsAnError) {
  const std::string bin = (folder_ / "bin").string();
  const Outcome outcome =
      RunMounted("mount --bind " + bin + " " + bin + " && mount -o remount,ro,bind " + bin, Sweep(), {SwapIn(bin)});
  ExpectError(outcome, {"cannot create a swap file in " + bin, "Read-only file system", "RAMSPAN_SWAPFILES"});
}

TEST_F(BadInputMounted, AFullDiskIsAnErrorAndAMessage) {
  const std::string bin = (folder_ / "bin").string(), mount = "mount -t tmpfs -o size=8m none " + bin;
  for (const char* policy : {"fail", "interactive", "autoextendable"}) {
    const Outcome outcome = RunMounted(mount, Sweep(), {SwapIn(bin), "RAMSPAN_MEMORY=8MiB", "RAMSPAN_SWAP_MEMORY=1GiB",
                                                        std::string("RAMSPAN_POLICY=") + policy});
    ExpectError(outcome, {"swap files in " + bin + " are full", "make room on the disk", "set swapfiles to"});
  }
}

TEST_F(BadInputMounted, ADiskThatIsFullButNotNeededStopsNobody) {
  const std::string bin = (folder_ / "bin").string();
  const Outcome outcome = RunMounted("mount -t tmpfs -o size=64k none " + bin + " && head -c 64k /dev/zero > " + bin + "/x",
                                     Sweep(), {SwapIn(bin), "RAMSPAN_MEMORY=64MiB"});
  ExpectVerified(outcome);
}

TEST_F(BadInput, AFullSwapCapIsAnErrorThatNamesTheKey) {
  for (const Words& command : {Sweep(), Job({.ranks = 2, .servers = 1, .server_memory = "2MiB"}, Sweep())}) {
    const Outcome outcome = Run(command, {"RAMSPAN_MEMORY=4MiB", "RAMSPAN_SWAP_MEMORY=4MiB", "RAMSPAN_POLICY=fail"});
    ExpectError(outcome, {"the limit of 4 MiB is used up", "raise swapMemory (RAMSPAN_SWAP_MEMORY)"});
    EXPECT_LT(outcome.seconds, kSoon);
  }
}

TEST_F(BadInput, TheSwapCapGrowsByDefault) {
  const Outcome grown = Run(Sweep(), {"RAMSPAN_MEMORY=8MiB", "RAMSPAN_SWAP_MEMORY=4MiB"});
  ExpectVerified(grown);
  EXPECT_THAT(grown.err, testing::ContainsRegex("^ramspan: swap files in .* grow beyond swapMemory .4 MiB., .*policy = fail[^\n]*\n$"))
      << "once, to who has set the one key and not the other";
  const Outcome wanted = Run(Sweep(), {"RAMSPAN_MEMORY=8MiB", "RAMSPAN_SWAP_MEMORY=4MiB", "RAMSPAN_POLICY=autoextendable"});
  ExpectVerified(wanted);
  EXPECT_EQ(wanted.err, "");
}

TEST_F(BadInput, FullServersWithoutFilesAreAnErrorThatNamesTheOptions) {
  const Outcome outcome =
      Run(Job({.ranks = 2, .servers = 1, .server_memory = "4MiB"}, Sweep()), {"RAMSPAN_SWAP=remote"});
  ExpectError(outcome, {"memory servers are full", "more servers (-s)", "--server-memory"});
  EXPECT_LT(outcome.seconds, kSoon);
}

TEST_F(BadInput, RemoteSwapWithoutServersIsAnErrorThatNamesTheOption) {
  for (const Words& command : {Sweep(), Job({.ranks = 2}, Sweep())}) {
    ExpectError(Run(command, {"RAMSPAN_SWAP=remote"}), {"there are no memory servers", "ramspan run -s SERVERS"});
  }
}

// ---- Killed in mid-run ----

class Kill : public AppFixture {
 protected:
  // Starts 2 ranks and a server that sweep for ever; returns the launcher's pid when all are in the middle of it.
  pid_t StartSweeping(const Words& environment = {}) {
    ClearReady();
    const pid_t launcher = StartCommand(Job({.ranks = 2, .servers = 1}, Sweep({.sweeps = 0})), environment);
    first_rank_ = Ready(0);
    Ready(1);
    return launcher;
  }
  void StopAServer() {
    Words environment = kFar;
    environment.push_back("RAMSPAN_TEST_GIVE_UP_AFTER=2");
    const pid_t launcher = StartSweeping(environment);
    const pid_t server = JobProcess("ramspan-memserver");
    ASSERT_GT(server, 1);
    SendSignal(server, SIGSTOP);
    const Outcome outcome = Wait(launcher);
    ExpectError(outcome, {"memory server rank 2 has not answered for", "Remedy:"});
    EXPECT_LT(outcome.seconds, kSoon);
    ExpectNothingLeft();
  }
  pid_t first_rank_ = -1;
};

TEST_F(Kill, ADeadServerEndsTheJobWithCauseAndRemedy) {
  for (const Words& environment : {Words{}, kFar}) {
    const pid_t launcher = StartSweeping(environment);
    const pid_t server = JobProcess("ramspan-memserver");
    ASSERT_GT(server, 1);
    SendSignal(server, SIGKILL);
    const Outcome outcome = Wait(launcher);
    EXPECT_EQ(outcome.status, 137);
    ExpectError(outcome, {"memory server rank 2 was killed by signal 9", "the chunks that it held are lost", "Remedy:"});
    EXPECT_LT(outcome.seconds, kSoon);
    ExpectNothingLeft();
  }
}

// It answers nothing and is not dead either. The watchdog hung with what it watched, inside MPI.
TEST_F(Kill, AServerThatIsStoppedEndsTheJobAfterAWhile) { StopAServer(); }

TEST_F(Kill, LongAServerThatIsStoppedInTheMiddleOfWhateverGoesOnEndsTheJob) {
  for (int round = 0; round < 10 && !HasFailure(); ++round) StopAServer();
}

// `scontrol suspend`, a laptop's lid: the watchdog counted the time of its own suspension and ended the job at once.
TEST_F(Kill, AJobThatIsSuspendedForLongerThanTheGiveUpTimeGoesOn) {
  Words environment = kFar;
  environment.push_back("RAMSPAN_TEST_GIVE_UP_AFTER=2");
  const pid_t launcher = StartSweeping(environment);
  const std::set<pid_t> all = JobProcesses();
  for (const pid_t pid : all) {
    if (pid != launcher) SendSignal(pid, SIGSTOP);
  }
  std::this_thread::sleep_for(std::chrono::seconds(5));  // the suspension itself
  for (const pid_t pid : all) SendSignal(pid, SIGCONT);
  std::this_thread::sleep_for(std::chrono::seconds(1));  // the end came within 0.4 s
  EXPECT_EQ(waitpid(launcher, nullptr, WNOHANG), 0) << "the job has ended";
  SendSignal(launcher, SIGTERM);
  const Outcome outcome = Wait(launcher);
  EXPECT_EQ(outcome.status, 143);
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("has not answered")));
  ExpectNothingLeft();
}

TEST_F(Kill, ADeadRankEndsTheJob) {
  for (const Words& environment : {Words{}, kFar}) {
    const pid_t launcher = StartSweeping(environment);
    SendSignal(first_rank_, SIGKILL);
    const Outcome outcome = Wait(launcher);
    EXPECT_EQ(outcome.status, 137);
    ExpectError(outcome, {"rank 0", "signal 9"});
    EXPECT_LT(outcome.seconds, kSoon);
    ExpectNothingLeft();
  }
}

TEST_F(Kill, AnInterruptEndsTheJob) {
  for (const auto& [number, status] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    const pid_t launcher = StartSweeping();
    SendSignal(launcher, number);
    const Outcome outcome = Wait(launcher);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_LT(outcome.seconds, kSoon);
    ExpectNothingLeft();
  }
}

TEST_F(Kill, ADeadLauncherTakesItsJobAlong) {
  const pid_t launcher = StartSweeping();
  SendSignal(launcher, SIGKILL);
  EXPECT_EQ(Wait(launcher).status, 137);
}

TEST_F(Kill, AProgramAloneLeavesNoFiles) {
  for (int number : {SIGKILL, SIGINT, SIGTERM}) {
    ClearReady();
    const pid_t pid = StartCommand(Sweep({.sweeps = 0}), {"RAMSPAN_MEMORY=8MiB"});
    ASSERT_EQ(Ready(0), pid);
    SendSignal(pid, number);
    EXPECT_EQ(Wait(pid).status, 128 + number);
    ExpectNothingLeft();
  }
}

}  // namespace
}  // namespace ramspan
