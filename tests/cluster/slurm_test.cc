// The scripts of examples/batch, as they are, in a real Slurm.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <regex>

#include <gmock/gmock.h>

#include "tests/cluster/slurm_fixture.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr size_t kData = 24 * kMiB;

const std::vector<std::pair<std::string, std::string>> kShapes = {
    {"servers_among_tasks.sbatch", "mpi"}, {"servers_among_tasks.sbatch", "ofi"}, {"srun_pmi2.sbatch", ""}, {"heterogeneous.sbatch", ""}};

// Processes that do not hear a SIGTERM any more. By ptrace: Slurm sends a SIGCONT first, which would end a SIGSTOP. A SIGKILL ends them.
class HungProcesses {
 public:
  // False: this is not allowed here.
  bool Add(pid_t pid) {
    for (bool all = false; !all;) {
      all = true;  // a thread may have begun another one meanwhile
      for (const pid_t thread : ThreadsOf(pid)) {
        if (threads_.count(thread) != 0) continue;
        if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) {
          if (errno != ESRCH) return false;
          continue;  // it has just ended
        }
        all = false;
        ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
        int status = 0;
        if (waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status)) threads_.insert(thread);
      }
    }
    return true;
  }

  // Takes in who has ended; any other end than by a SIGKILL is a failure.
  bool AreKilled() {
    for (auto it = threads_.begin(); it != threads_.end();) {
      int status = 0;
      if (waitpid(*it, &status, __WALL | WNOHANG) != *it || WIFSTOPPED(status)) {
        ++it;
        continue;
      }
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
      it = threads_.erase(it);
    }
    return threads_.empty();
  }

 private:
  static std::set<pid_t> ThreadsOf(pid_t pid) {
    std::set<pid_t> threads;
    std::error_code gone;
    for (auto it = std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone); !gone && it != std::filesystem::directory_iterator(); it.increment(gone)) {
      threads.insert(static_cast<pid_t>(std::atol(it->path().filename().c_str())));
    }
    return threads;
  }

  std::set<pid_t> threads_;
};

class Slurm : public SlurmFixture {
 protected:
  static size_t Count(const std::string& text, const std::string& what) {
    size_t count = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++count;
    return count;
  }
  static std::string Verified() { return "verified " + std::to_string(kData) + " bytes\n"; }
  void SayStopToAll() const { std::ofstream(folder_ / "ready/stop") << ""; }
  static std::set<std::string> NamesIn(const std::filesystem::path& folder) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
    return names;
  }
  // Of the user's home: what the scripts put there while they run.
  std::set<std::string> Home() const { return NamesIn(folder_ / "home"); }
  // A job whose launcher, ranks and servers hang, until Slurm has lost patience with them. What the launcher could not take away any more, the
  // next one of each node does.
  void IsKilled(const BatchJob& job, const std::string& state) {
    KillAfter(seconds(5));  // Slurm's least
    AwaitProgram(job);
    HungProcesses hung;
    for (const pid_t pid : JobProcesses()) {
      const std::string name = ReadFile("/proc/" + std::to_string(pid) + "/comm");
      if (name == "srun\n" || name == "slurm_script\n") continue;  // Slurm's and the user's
      if (!hung.Add(pid)) GTEST_SKIP() << "processes cannot be stopped here by ptrace";
    }
    if (state == "CANCELLED") Ask({"scancel", job.id});
    EXPECT_TRUE(Becomes([&] { return hung.AreKilled(); }));
    EXPECT_EQ(EndOf(job), state) << Said(job);
    EXPECT_TRUE(Becomes([&] { return JobProcesses().empty(); }));
    for (int host = 1; host <= 3; ++host) EXPECT_EQ(WaitFor(StartOn(host, {LAUNCHER, "run", "--", "true"})).status, 0);
    ExpectNothingLeft();
    EXPECT_TRUE(Home().empty());
    ClearReady();
  }
  // Of the server on this host, as the list of all tells it.
  std::string PlaceOn(int host, const std::string& all) {
    const std::string text = Ctl({"list", all}).out;
    std::smatch found;
    return std::regex_search(text, found, std::regex("(" + AddressOf(host) + ":[0-9]+) lends")) ? found[1].str() : "nobody on " + NameOf(host) + ": " + text;
  }
};

TEST_F(Slurm, ServersAmongTheTasksOfAJobHaveNodesOfTheirOwn) {
  for (const auto& [transport, server] : std::vector<std::pair<std::string, std::string>>{{"mpi", "ramspan-memserver"}, {"ofi", "ramspan-server"}}) {
    ClearReady();
    const BatchJob job = Submit({}, "servers_among_tasks.sbatch", Sweep(kData), {"TRANSPORT=" + transport});
    AwaitProgram(job);
    EXPECT_TRUE(RunsOn({"h1"}, "sweep_program")) << transport;
    EXPECT_TRUE(RunsOn({"h2", "h3"}, server)) << transport;
    SayStopToAll();
    EXPECT_EQ(EndOf(job), "COMPLETED") << Said(job);
    EXPECT_EQ(Count(Said(job), Verified()), 2u) << Said(job);
    EXPECT_THAT(Said(job), HasSubstr("SLURM job on 3 nodes: 2 ranks on h1, 2 servers on h2 h3"));
  }
}

// The launcher is on the login node then, which has no rank.
TEST_F(Slurm, AnInteractiveAllocationRunsItsRanksOnItsNodes) {
  Words line = {"salloc", "--nodes=2", "--ntasks=2", "--mem=1G", LAUNCHER, "run", "-s", "1", "--transport", "ofi", "--memory", "4MiB", "--server-memory", "64MiB", "--"};
  for (const std::string& word : Sweep(kData)) line.push_back(word);
  const pid_t salloc = StartCommand(line, {"RAMSPAN_SWAP=remote"});
  Ready(0);
  EXPECT_TRUE(RunsOn({"h1"}, "sweep_program"));
  EXPECT_TRUE(RunsOn({"h2"}, "ramspan-server"));
  SayStopToAll();
  const Outcome outcome = Wait(salloc);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, Verified()) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("SLURM job on 2 nodes: 1 rank on h1, 1 server on h2"));
}

TEST_F(Slurm, SrunStartsRanksAndServersWithoutMpiexec) {
  const BatchJob job = Submit({}, "srun_pmi2.sbatch", Sweep(kData, 2));
  EXPECT_EQ(EndOf(job), "COMPLETED") << Said(job);
  EXPECT_EQ(Count(Said(job), Verified()), 3u) << Said(job);
}

TEST_F(Slurm, AHeterogeneousJobHasItsServersOnTheOtherNodes) {
  const BatchJob job = Submit({}, "heterogeneous.sbatch", Sweep(kData));
  AwaitProgram(job);
  EXPECT_TRUE(RunsOn({"h1", "h2"}, "sweep_program"));
  EXPECT_TRUE(RunsOn({"h3"}, "ramspan-server"));
  SayStopToAll();
  EXPECT_EQ(EndOf(job), "COMPLETED") << Said(job);
  EXPECT_EQ(Count(Said(job), Verified()), 2u) << Said(job);
  EXPECT_TRUE(Home().empty()) << "the job's secret and files are gone";
}

// The others served, so the job waited for its time limit, and what the server had said was in a file that went with the job.
TEST_F(Slurm, AHeterogeneousJobOneOfWhoseServersDoesNotStartEndsAndSaysWhy) {
  const std::string programs = (folder_ / "bin").string();
  std::ofstream(programs + "/ramspan") << "#!/bin/sh\n"
                                          "if [ \"$1\" = server ] && [ \"$SLURM_PROCID\" = 1 ]; then echo 'ramspan server: not on this node' >&2; exit 2; fi\n"
                                          "exec " PROGRAMS_FOLDER "/ramspan \"$@\"\n";
  std::filesystem::permissions(programs + "/ramspan", std::filesystem::perms(0755));
  const BatchJob job = Submit({"--nodes=1", "--ntasks=1", ":", "--nodes=2", "--ntasks=2"}, "heterogeneous.sbatch", Sweep(kData),
                              {"PATH=" + programs + ":" + PROGRAMS_FOLDER + ":" + std::getenv("PATH")});
  EXPECT_EQ(EndOf(job, seconds(60)), "FAILED") << Said(job);
  EXPECT_THAT(Said(job), HasSubstr("not on this node"));
  EXPECT_TRUE(Home().empty()) << "the job's secret and files are gone";
}

TEST_F(Slurm, AnMpiProgramOfAHeterogeneousJobHasAWholeWorld) {
  const BatchJob job = Submit({}, "heterogeneous.sbatch", {WORLD_PROGRAM, "40", std::to_string(256 << 10)});
  EXPECT_EQ(EndOf(job), "COMPLETED") << Said(job);
  EXPECT_THAT(Said(job), HasSubstr("ranks 2 bytes " + std::to_string(2 * 10 * kMiB)));
}

TEST_F(Slurm, ServersOfOneJobServeSeveralOthersUntilTheyAreCancelled) {
  const BatchJob servers = Submit({}, "servers.sbatch", {});
  const Words after = {"--dependency=after:" + servers.id};
  const std::vector<BatchJob> jobs = {Submit(after, "computing.sbatch", Sweep(kData, 2)), Submit(after, "computing.sbatch", Sweep(kData, 2))};
  for (const BatchJob& job : jobs) {
    EXPECT_EQ(EndOf(job), "COMPLETED") << Said(job) << Said(servers);
    EXPECT_EQ(Count(Said(job), Verified()), 2u) << Said(job);
  }
  EXPECT_TRUE(RunsOn({"h1", "h2"}, "ramspan-server"));
  Ask({"scancel", servers.id});
  EXPECT_EQ(EndOf(servers), "CANCELLED");
  EXPECT_THAT(Home(), ElementsAre("ramspan-servers"));
  EXPECT_THAT(NamesIn(folder_ / "home/ramspan-servers"), ElementsAre("key")) << "the key is the user's; the servers have taken themselves out";
}

// A job that computes was bound to the servers that were there when it began.
TEST_F(Slurm, ServersOfALaterJobAreUsedAndThoseThatDrainAreLeft) {
  const BatchJob first = Submit({"--nodes=1", "--exclusive"}, "servers.sbatch", {});
  const BatchJob job = Submit({"--dependency=after:" + first.id, "--ntasks=1"}, "computing.sbatch", Sweep(kData));
  AwaitProgram(job);
  EXPECT_TRUE(RunsOn({"h1"}, "ramspan-server"));
  const BatchJob second = Submit({"--nodes=1", "--exclusive"}, "servers.sbatch", {});
  EXPECT_TRUE(RunsOn({"h1", "h3"}, "ramspan-server"));
  const std::string all = "dir:" + (folder_ / "home/ramspan-servers").string();
  const Outcome drained = Ctl({"drain", "--wait", "--key-file", (folder_ / "home/ramspan-servers/key").string(), PlaceOn(1, all)});
  ASSERT_EQ(drained.status, 0) << drained.err;
  EXPECT_EQ(EndOf(first), "COMPLETED") << Said(first) << "a server that is empty ends, and its job with it";
  EXPECT_THAT(Ctl({"list", all}).out, HasSubstr("sweep_program"));
  SayStopToAll();
  EXPECT_EQ(EndOf(job), "COMPLETED") << Said(job);
  EXPECT_EQ(Count(Said(job), Verified()), 1u) << Said(job);
  Ask({"scancel", second.id});
  EXPECT_EQ(EndOf(second), "CANCELLED");
}

// The fixture looks for processes, shared memory and files in TMPDIR that are left.
TEST_F(Slurm, ACancelledJobLeavesNothing) {
  for (const char* script : {"servers_among_tasks.sbatch", "srun_pmi2.sbatch", "heterogeneous.sbatch"}) {
    ClearReady();
    const BatchJob job = Submit({}, script, Sweep(kData));
    AwaitProgram(job);
    Ask({"scancel", job.id});
    EXPECT_EQ(EndOf(job), "CANCELLED") << script;
    ExpectNothingLeft();
    EXPECT_TRUE(Home().empty()) << script;
  }
}

// After KillWait, where a SIGTERM has ended nobody.
TEST_F(Slurm, AKilledJobLeavesNothingThatTheNextOneDoesNotTakeAway) {
  for (const auto& [script, transport] : kShapes) {
    SCOPED_TRACE(script + " " + transport);
    IsKilled(Submit({}, script, Sweep(kData), {"TRANSPORT=" + transport}), "CANCELLED");
  }
}

// Whole minutes only: Slurm's own unit.
TEST_F(Slurm, LongAJobThatReachesItsTimeLimitLeavesNothing) {
  const BatchJob job = Submit({"--time=1"}, "servers_among_tasks.sbatch", Sweep(kData));
  AwaitProgram(job);
  EXPECT_EQ(EndOf(job, seconds(200)), "TIMEOUT");
}

TEST_F(Slurm, LongAJobThatIsKilledAfterItsTimeLimitLeavesNothingThatTheNextOneDoesNotTakeAway) {
  IsKilled(Submit({"--time=1"}, "servers_among_tasks.sbatch", Sweep(kData), {"TRANSPORT=ofi"}), "TIMEOUT");
}

}  // namespace
}  // namespace ramspan
