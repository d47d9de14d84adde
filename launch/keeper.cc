#include "launch/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "launch/argument_code.h"
#include "launch/control.h"
#include "launch/event_loop.h"
#include "launch/leftovers.h"
#include "launch/pmi_relay.h"
#include "launch/process.h"
#include "launch/run_folder.h"
#include "launch/server_start.h"

namespace ramspan {
namespace {

constexpr int kCannotRun = 126;                             // a shell's status for it
constexpr std::chrono::milliseconds kOrphansMayTake{1000};  // a shell's `| tee log` ends a little after the shell
constexpr int64_t kReportsMayTake = 1'000'000'000;           // of other keepers on a machine under heavy load; what is later explains nothing (launch/job.cc)
constexpr std::chrono::milliseconds kAbortMayWait{300};      // for reports, too: the program is still there, and nobody ends it meanwhile
constexpr int64_t kSweepBack = 10'000'000'000;              // the job may have started this long before this keeper

class Keeper {
 public:
  explicit Keeper(std::vector<std::string> program) : program_(std::move(program)) {}
  int Run();

 private:
  std::optional<int> Connect();
  bool Start();
  [[noreturn]] void BecomeProgram(pid_t keeper);
  void OnLauncher();
  void OnSignal();
  void OnPmiNews();
  void OnProxyGone();
  void KillProgram();
  void Report(int code, int signal_number);
  void AskForReport(int signal_number);
  void LetOthersReport(bool failed);
  void Record(pid_t maker);
  void CleanUpAfterLauncher();
  bool LeftMpi() const { return relay_ == nullptr || relay_->scanner().finalize(); }

  const std::vector<std::string> program_;
  EventLoop loop_;
  std::unique_ptr<PmiRelay> relay_;  // null without PMI: a program that was started directly
  UniqueFd signals_, launcher_;
  LineReader lines_;
  std::string folder_;
  std::vector<ProcessId> makers_;  // of shared memory, maybe
  const int64_t started_ns_ = RealtimeNs();
  pid_t pid_ = -1;
  int wait_status_ = 0;
  bool ended_ = false, killed_ = false, ordered_ = false, launcher_lost_ = false, proxy_lost_ = false;
  bool init_told_ = false, reported_ = false;
  bool others_told_ = false;     // the launcher has all reports
  bool leaves_quietly_ = false;  // a server that is not needed any more
};

// A status to exit with: there is a launcher, but it cannot be reached or wants no more ranks.
std::optional<int> Keeper::Connect() {
  const char* folder = std::getenv("RAMSPAN_RUN_DIR");
  const char* address = std::getenv(kControlVariable);
  if (folder == nullptr && address == nullptr) return std::nullopt;  // a line from --dry-run, started by hand
  folder_ = folder == nullptr ? "" : folder;
  const char* rank = std::getenv("PMI_RANK");
  const char* pmi = std::getenv("PMI_FD");
  const std::string secret = address == nullptr ? "-" : std::string(address).substr(std::string(address).rfind(':') + 1);
  char host[HOST_NAME_MAX + 1] = "";
  gethostname(host, sizeof host);
  const std::string hello = "hello " + secret + " " + (rank == nullptr || pmi == nullptr ? "0" : rank) + " " + host;
  UniqueFd input;
  const std::optional<std::string> answer = GreetLauncher(folder, address, hello, launcher_, input);
  if (!answer) {
    std::fprintf(stderr, "ramspan: cannot reach the launcher%s%s\n", address == nullptr ? "" : " at ",
                 address == nullptr ? "" : std::string(address).substr(0, std::string(address).rfind(':')).c_str());
    return 1;
  }
  if (answer != "go") return answer == "end" ? 0 : 1;
  if (!input && rank != nullptr && std::atoi(rank) > 0) {
    // hydra leaves the others a pipe that never ends; they should see what a batch system shows them.
    input = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  if (input) dup2(input.get(), STDIN_FILENO);
  prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);  // from here on the socket tells of the launcher's death, and more gently
  loop_.Watch(launcher_.get(), POLLIN, [this](short) { OnLauncher(); });
  return std::nullopt;
}

// The launcher and hydra need a few descriptors for each rank, and run with all they may have. Not so the program.
void RestoreFileLimit() {
  const char* before = std::getenv(kFileLimitVariable);
  rlimit files;
  if (before == nullptr || getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = std::min<rlim_t>(std::strtoull(before, nullptr, 10), files.rlim_max);
  setrlimit(RLIMIT_NOFILE, &files);
  unsetenv(kFileLimitVariable);
}

// The memory servers' secret lies in the job's folder, on the launcher's host. On others this process has been told it.
void ProvideServerSecret() {
  const char* secret = std::getenv(kServerSecretVariable);
  const char* file = std::getenv("RAMSPAN_SERVER_KEY_FILE");
  if (secret == nullptr) return;
  if (file == nullptr || access(file, R_OK) != 0) {
    const Result<std::string> path = SecretAsDescriptor(secret);
    if (path.ok()) setenv("RAMSPAN_SERVER_KEY_FILE", path.value().c_str(), 1);
    if (!path.ok()) std::fprintf(stderr, "ramspan: %s\n", path.status().message().c_str());
  }
  unsetenv(kServerSecretVariable);
}

void Keeper::BecomeProgram(pid_t keeper) {
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (getppid() != keeper) _exit(128 + SIGKILL);  // died before the line above
  RecordProcess(folder_, Identify(getpid()));     // before it can make anything
  RestoreSignals();
  unsetenv(kControlVariable);
  ProvideServerSecret();
  RestoreFileLimit();
  std::vector<char*> argv;
  for (const std::string& argument : program_) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int error = errno;
  std::fprintf(stderr, "ramspan: cannot run %s: %s\n", argv[0], std::strerror(error));
  _exit(error == ENOENT ? 127 : kCannotRun);
}

bool Keeper::Start() {
  const pid_t keeper = getpid();
  pid_ = fork();
  if (pid_ == 0) BecomeProgram(keeper);
  if (relay_ != nullptr) relay_->CloseProgramsEnd();
  if (pid_ > 0) makers_.push_back(Identify(pid_));
  return pid_ > 0;
}

void Keeper::KillProgram() {
  // Who is dying already was not killed by this: it may be the cause of what this follows from.
  if (!killed_ && !ended_) ordered_ = !IsEnding(pid_);
  killed_ = true;
  if (!ended_) kill(pid_, SIGKILL);
}

void Keeper::OnLauncher() {
  if (!lines_.ReadFrom(launcher_.get())) {
    loop_.Unwatch(launcher_.get());
    launcher_lost_ = true;
    KillProgram();
    return;
  }
  while (const std::optional<std::string> line = lines_.Next()) {
    if (*line == "end") leaves_quietly_ = true;
    if (*line == "told") others_told_ = true;
    if (*line == "end" || *line == "kill") KillProgram();
    if (line->rfind("signal ", 0) != 0) continue;
    const int number = std::atoi(line->c_str() + std::strlen("signal "));
    if (number == SIGUSR1 || number == SIGUSR2) {
      AskForReport(number);
      continue;
    }
    // hydra gives each rank a session of its own: the signal goes to all of the rank's processes, as ^C would. (The
    // keeper has it blocked.) A directly started program shares its group with the shell's pipeline.
    if (getpgrp() == getpid()) {
      kill(0, number);
    } else if (!ended_) {
      kill(pid_, number);
    }
  }
}

// To those of the rank's processes that listen: the others, a program before its first managedPtr or the shell around it, would be ended.
void Keeper::AskForReport(int signal_number) {
  bool heard = false;
  for (const pid_t pid : Descendants()) {
    if (Hears(pid, signal_number)) heard = kill(pid, signal_number) == 0 || heard;
  }
  if (!heard) {
    std::fprintf(stderr, "ramspan: %s does not listen to %s now: programs print statistics from their first managedPtr on, unless they handle or ignore it themselves\n", program_[0].c_str(),
                 DescribeSignal(signal_number).c_str());
  }
}

void Keeper::OnSignal() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
  }
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return;
    if (pid != pid_) continue;  // an orphan of the program's
    ended_ = true;
    wait_status_ = status;
  }
}

void Keeper::OnPmiNews() {
  if (relay_->scanner().init() && !init_told_) {
    SendLine(launcher_.get(), "init");
    init_told_ = true;
  }
  // hydra answers an abort by killing every rank, this keeper included; it is passed on when the others have reported.
  const int code = relay_->scanner().abort_code();
  if (code < 0 || reported_) return;
  Report((code & 0xff) == 0 ? 1 : code & 0xff, 0);
  std::this_thread::sleep_for(kAbortMayWait);
}

void Keeper::OnProxyGone() {
  if (LeftMpi()) return;
  proxy_lost_ = true;
  KillProgram();
}

void Keeper::Report(int code, int signal_number) {
  if (reported_ || proxy_lost_) return;
  reported_ = true;
  SendLine(launcher_.get(), EndLine({code, signal_number, LeftMpi(), MonotonicNs(), ordered_}));
}

// hydra kills all other keepers as soon as this one ends with an error. One of their programs may have died before this
// keeper's did, and be the cause; a process with much memory is not dead at once, and its keeper is to report it. That holds
// behind an order to kill as well: it follows from the first report, and the cause's may be the second.
void Keeper::LetOthersReport(bool failed) {
  if (!failed || leaves_quietly_ || !launcher_ || relay_ == nullptr || !relay_->scanner().init() || LeftMpi()) return;
  const int64_t until_ns = RunningNs() + kReportsMayTake;
  while (RunningNs() < until_ns && !others_told_ && !proxy_lost_ && !launcher_lost_) loop_.RunOnce(10);
}

// A process that may make shared memory, for those who clean up when everything was killed.
void Keeper::Record(pid_t maker) {
  makers_.push_back(Identify(maker));
  RecordProcess(folder_, makers_.back());
}

void Keeper::CleanUpAfterLauncher() {
  CleanUpRun(folder_, started_ns_ - kSweepBack, makers_);
}

int Keeper::Run() {
  signal(SIGPIPE, SIG_IGN);
  IgnoreFileSizeSignal();
  signals_ = BlockSignals({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2});
  AdoptOrphans();
  if (const std::optional<int> status = Connect()) return *status;
  relay_ = PmiRelay::FromEnvironment(
      loop_, {[this] { OnPmiNews(); }, [this] { OnProxyGone(); }, [this](pid_t speaker) { Record(speaker); }});
  loop_.Watch(signals_.get(), POLLIN, [this](short) { OnSignal(); });
  if (!Start()) {
    std::fprintf(stderr, "ramspan: cannot start %s: %s\n", program_[0].c_str(), ForkError(errno).c_str());
    Report(kCannotRun, 0);
    return kCannotRun;
  }
  SendLine(launcher_.get(), "pid " + std::to_string(pid_));
  while (!ended_) loop_.RunOnce(-1);
  if (relay_ != nullptr) relay_->Drain();
  const int signal_number = WIFSIGNALED(wait_status_) ? WTERMSIG(wait_status_) : 0;
  Report(signal_number == 0 ? WEXITSTATUS(wait_status_) : 0, signal_number);
  if (killed_) EndChildren(std::chrono::milliseconds(0));
  LetOthersReport(signal_number != 0 || WEXITSTATUS(wait_status_) != 0);
  EndChildren(killed_ ? std::chrono::milliseconds(0) : kOrphansMayTake);
  if (launcher_lost_) CleanUpAfterLauncher();
  if (leaves_quietly_) {
    if (relay_ != nullptr) relay_->FinalizeForProgram();
    return 0;
  }
  return signal_number != 0 ? 128 + signal_number : WEXITSTATUS(wait_status_);
}

}  // namespace

int RunKeeper(const std::vector<std::string>& words) {
  Result<std::vector<std::string>> program = DecodeArguments(words);
  if (!program.ok() || program.value().empty()) {
    std::fprintf(stderr, "ramspan: __rank is used by `ramspan run` only\n");
    return 2;
  }
  return Keeper(std::move(program).value()).Run();
}

}  // namespace ramspan
