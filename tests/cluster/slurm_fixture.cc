#include "tests/cluster/slurm_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <thread>

namespace ramspan {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

const fs::path kFolder = "/run/slurm";

// Long enough for what ends well, also on a busy machine.
constexpr seconds kKillWait{20};

bool SucceedsQuietly(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// A daemon in the foreground. It ends with the world.
void StartDaemon(const std::string& name, const std::string& command) {
  if (fork() != 0) return;
  setsid();
  const int log = open((kFolder / (name + ".out")).c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
  _exit(127);
}

// Nodes are said to be larger than this machine (config_overrides), so that the scripts run as they are. Memory is counted, as most
// sites do: steps of one job that each want all of it would wait for each other.
void WriteConfiguration(seconds kill_wait) {
  std::ofstream conf(kFolder / "slurm.conf");
  conf << "ClusterName=ramspan\nSlurmctldHost=login(10.77.0.100)\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nCredType=cred/munge\n"
       << "StateSaveLocation=/run/slurm/state\nSlurmdSpoolDir=/run/slurm/spool-%n\nSlurmdPidFile=/run/slurm/slurmd-%n.pid\n"
       << "SlurmctldPidFile=/run/slurm/slurmctld.pid\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n"
       << "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU_Memory\nReturnToService=2\nSlurmdParameters=config_overrides\n"
       << "SchedulerType=sched/backfill\nSchedulerParameters=bf_interval=1,sched_min_interval=0,batch_sched_delay=0\n"
       << "KillWait=" << kill_wait.count() << "\nMessageTimeout=60\nMailProg=/bin/true\nJobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n";
  // Nothing here uses cgroups; without a word slurmd looks for the kind that there is, and does not start where it finds none.
  std::ofstream(kFolder / "cgroup.conf") << "CgroupPlugin=cgroup/v1\n";
  for (int node = 1; node <= 4; ++node) conf << "NodeName=h" << node << " NodeAddr=10.77.0." << node << " CPUs=4 RealMemory=64000\n";
  conf << "PartitionName=all Nodes=h[1-4] Default=YES MaxTime=INFINITE State=UP\n";
}

void StartDaemons() {
  for (const char* folder : {"/run/slurm", "/run/slurm/state", "/run/munge"}) mkdir(folder, 0755);
  WriteConfiguration(kKillWait);
  setenv("SLURM_CONF", (kFolder / "slurm.conf").c_str(), 1);
  {
    std::ofstream key("/run/munge/key");
    key << "the key of a test that nobody else sees";
  }
  chmod("/run/munge/key", 0600);
  StartDaemon("munged", "munged --foreground --key-file=/run/munge/key --log-file=/run/munge/log --pid-file=/run/munge/pid --seed-file=/run/munge/seed");
  for (int i = 0; i < 6000 && !SucceedsQuietly("munge -n"); ++i) std::this_thread::sleep_for(milliseconds(10));
  StartDaemon("slurmctld", "unshare -u sh -c 'hostname login; exec slurmctld -D'");
  for (const char* node : {"h1", "h2", "h3", "h4"}) {
    mkdir((kFolder / ("spool-" + std::string(node))).c_str(), 0755);
    StartDaemon(node, std::string("ip netns exec ") + node + " unshare -u sh -c 'hostname " + node + "; exec slurmd -D -N " + node + "'");
  }
}

// Why there is no Slurm here; empty: it is ready. Once for the process.
std::string StartSlurm() {
  for (const char* program : {"munged", "munge", "slurmctld", "slurmd", "sbatch", "srun"}) {
    if (!SucceedsQuietly(std::string("command -v ") + program)) return std::string(program) + " is not installed (slurm-wlm, munge)";
  }
  StartDaemons();
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  while (std::system("test \"$(sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)\" = 4") != 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      return "Slurm does not start here: " + ReadFile(kFolder / "slurmctld.out") + ReadFile(kFolder / "h1.out");
    }
    std::this_thread::sleep_for(milliseconds(100));
  }
  return "";
}

}  // namespace

void SlurmFixture::SetUp() {
  ClusterFixture::SetUp();
  if (IsSkipped()) return;
  static const std::string missing = StartSlurm();
  if (!missing.empty()) GTEST_SKIP() << missing;
}

void SlurmFixture::TearDown() {
  if (IsSkipped()) return;
  Ask({"scancel", "--user=root"});
  if (kills_early_) KillAfter(kKillWait);
}

void SlurmFixture::KillAfter(seconds wait) {
  kills_early_ = wait != kKillWait;
  WriteConfiguration(wait);
  Ask({"scontrol", "reconfigure"});
  const std::string said = std::to_string(wait.count()) + " sec";
  EXPECT_TRUE(Becomes([&] { return std::regex_search(Ask({"scontrol", "show", "config"}), std::regex("KillWait += " + said)); }));
}

SlurmFixture::BatchJob SlurmFixture::Submit(const Words& options, const std::string& script, const Words& words, const Words& environment) {
  BatchJob job;
  job.said = folder_ / ("job-" + std::to_string(++submitted_));
  Words line = {"sbatch", "--parsable", "--output=" + job.said.string()};
  line.insert(line.end(), options.begin(), options.end());
  line.push_back(std::string(EXAMPLES_FOLDER) + "/batch/" + script);
  line.insert(line.end(), words.begin(), words.end());
  Words all = {std::string("PATH=") + PROGRAMS_FOLDER + ":" + std::getenv("PATH"), "RAMSPAN_MEMORY=4MiB", "RAMSPAN_SWAP=remote", "SERVER_MEMORY=64MiB",
               "RAMSPAN_SERVER_MEMORY=128MiB"};
  all.insert(all.end(), environment.begin(), environment.end());
  const Outcome outcome = Wait(StartCommand(line, all));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  job.id = outcome.out.substr(0, outcome.out.find('\n'));
  return job;
}

std::string SlurmFixture::Ask(const Words& command) {
  const Outcome outcome = Wait(StartCommand(command));
  EXPECT_EQ(outcome.status, 0) << command[0] << ": " << outcome.err;
  return outcome.out;
}

std::string SlurmFixture::StateOf(const BatchJob& job) {
  std::smatch found;
  const std::string text = Ask({"scontrol", "-o", "show", "job", job.id});
  return std::regex_search(text, found, std::regex("JobState=([A-Z_]+)")) ? found[1].str() : "?";
}

std::string SlurmFixture::EndOf(const BatchJob& job, seconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::string state = StateOf(job);
  while (state == "PENDING" || state == "CONFIGURING" || state == "RUNNING" || state == "COMPLETING") {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "job " << job.id << " is still " << state << ":\n" << Said(job) << Ask({"squeue", "--steps"}) << ReadFile(kFolder / "slurmctld.out");
      break;
    }
    std::this_thread::sleep_for(milliseconds(100));
    state = StateOf(job);
  }
  return state;
}

void SlurmFixture::AwaitProgram(const BatchJob& job) {
  EXPECT_TRUE(Becomes([&] { return fs::exists(folder_ / "ready/rank-0"); })) << Said(job) << ReadFile(kFolder / "slurmctld.out");
}

}  // namespace ramspan
