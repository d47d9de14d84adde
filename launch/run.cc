#include "launch/run.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/units.h"
#include "launch/control.h"
#include "launch/event_loop.h"
#include "launch/guard.h"
#include "launch/job.h"
#include "launch/leftovers.h"
#include "launch/outside_servers.h"
#include "launch/process.h"
#include "launch/run_folder.h"
#include "launch/start_watch.h"
#include "launch/streams.h"

namespace ramspan {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int kTickMs = 100;
constexpr int kSettleMs = 20;                      // a paused stream's held-back bytes are let out after this
constexpr int64_t kMpiexecMayTake = 3 * kSecond;   // to end by itself after all ranks were killed
constexpr int64_t kMpiexecMayIdle = 15 * kSecond;  // to end by itself after all ranks have ended
constexpr int64_t kServersMayTake = 3 * kSecond;   // to end by themselves; then they are killed
constexpr int64_t kLastBytesMayTake = 2 * kSecond;

constexpr int kFilesMin = 24;  // of the guard, its worker and mpiexec, for one rank

class Runner {
 public:
  Runner(const Plan& plan, std::string folder, UniqueFd orders)
      : plan_(plan), job_(plan.ranks, plan.servers, plan.app_name),
        start_watch_(job_.size(), plan.several_hosts), folder_(std::move(folder)), orders_(std::move(orders)) {}
  int Run();

 private:
  Status Listen();
  Status StartServers();
  Status Start();
  [[noreturn]] void BecomeChild(pid_t launcher);
  void RaiseFileLimit();
  void OnHello(int rank, const std::string& host, bool local);
  void OnEnd(int rank, const RankEnd& end);
  void OnOrders();
  void OnSignal(int signal_number, bool by_terminal);
  void Stop(int signal_number, bool app_has_it);
  void ReapChild();
  void Tick();
  void EndServers();
  void GiveOrders();
  void WatchMpiexec(int64_t now_ns);
  void WatchStart(int64_t now_ns);
  void FinishOutput();
  int Conclude();

  const Plan& plan_;
  Job job_;
  StartWatch start_watch_;
  EventLoop loop_;
  const std::string folder_;
  const int64_t started_ns_ = RealtimeNs();
  const UniqueFd orders_;  // from the guard
  LineReader order_lines_;
  UniqueFd signals_;
  std::unique_ptr<ControlServer> control_;
  std::unique_ptr<OutsideServers> servers_;  // null without such
  std::vector<int> closed_;  // ranks whose keepers have gone; told to the job when all their words have been read
  pid_t child_ = -1;         // mpiexec, or the keeper
  rlim_t soft_file_limit_ = RLIM_INFINITY;  // the user's
  bool child_ended_ = false;
  int stop_signal_ = 0;  // for ranks that are heard of later; 0: none
  int stops_ = 0;
  bool kill_sent_ = false, servers_end_sent_ = false, told_sent_ = false;
  int64_t kill_sent_ns_ = 0, idle_since_ns_ = 0;
  Streams streams_{loop_};  // only with mpiexec
};

Status Runner::Listen() {
  ControlServer::Handlers handlers;
  handlers.hello = [this](int rank, const std::string& host, bool local) { OnHello(rank, host, local); };
  handlers.pid = [this](int rank, long pid) { job_.OnPid(rank, pid); };
  handlers.init = [this](int rank) { job_.OnMpiInit(rank); };
  handlers.end = [this](int rank, const RankEnd& end) { OnEnd(rank, end); };
  handlers.closed = [this](int rank) { closed_.push_back(rank); };
  Result<std::unique_ptr<ControlServer>> control =
      ControlServer::Listen(loop_, folder_, plan_.several_hosts, job_.size(), handlers);
  if (!control.ok()) return control.status();
  control_ = std::move(control).value();
  return {};
}

void Runner::OnHello(int rank, const std::string& host, bool local) {
  job_.OnHello(rank, host);
  if (kill_sent_ || (servers_end_sent_ && job_.IsServer(rank))) {
    control_->Send(rank, kill_sent_ ? "kill" : "end");
  } else if (rank == 0 && plan_.by_mpiexec) {
    streams_.StartInput(local, [this](int descriptor) { control_->Send(0, "go", descriptor); });
  } else {
    control_->Send(rank, "go");
  }
  if (stop_signal_ != 0 && !job_.IsServer(rank)) control_->Send(rank, "signal " + std::to_string(stop_signal_));
}

void Runner::OnEnd(int rank, const RankEnd& end) {
  RankEnd checked = end;
  if (plan_.several_hosts) checked.at_ns = MonotonicNs();  // another host's clock says nothing here
  job_.OnEnd(rank, checked);
}

void Runner::BecomeChild(pid_t launcher) {
  // The keeper of a directly started application shares the terminal; mpiexec must not, or ^C would reach it past us.
  if (plan_.by_mpiexec) setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (getppid() != launcher) _exit(128 + SIGKILL);
  RestoreSignals();
  if (plan_.by_mpiexec) streams_.TakeEnds();
  for (const auto& [name, value] : plan_.env) setenv(name.c_str(), value.c_str(), 1);
  for (const auto& [name, value] : servers_ ? servers_->ForApplication() : OutsideServers::Environment()) setenv(name.c_str(), value.c_str(), 1);
  setenv("RAMSPAN_RUN_DIR", folder_.c_str(), 1);
  setenv(kFileLimitVariable, std::to_string(soft_file_limit_).c_str(), 1);
  unsetenv(kControlVariable);
  if (!control_->address().empty()) setenv(kControlVariable, control_->address().c_str(), 1);
  std::vector<char*> argv;
  for (const std::string& argument : plan_.argv) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  std::fprintf(stderr, "ramspan: cannot run %s: %s\n", argv[0], std::strerror(errno));
  _exit(126);
}

// A descriptor for each keeper, and four of hydra's: the usual soft limit of 1024 would end at 250 ranks a host. Keepers
// give the programs the user's limit.
void Runner::RaiseFileLimit() {
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  soft_file_limit_ = files.rlim_cur;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

// Returns when all of them listen, or the job is to end before it has begun.
Status Runner::StartServers() {
  if (plan_.outside_servers == 0) return {};
  servers_ = std::make_unique<OutsideServers>(loop_, plan_, folder_, control_->address());
  if (Status started = servers_->Start(); !started.ok()) return started;
  while (!servers_->listening() && servers_->failure().ok() && stops_ == 0) {
    loop_.RunOnce(kTickMs);
    servers_->OnTick(RunningNs());
  }
  return servers_->failure();
}

Status Runner::Start() {
  if (plan_.by_mpiexec) {
    if (Status opened = streams_.Open(); !opened.ok()) return opened;
  }
  const pid_t launcher = getpid();
  child_ = fork();
  if (child_ < 0) return ResourceExhausted(ForkError(errno));
  if (child_ == 0) BecomeChild(launcher);
  // Without a reader it ends like any program in a pipeline.
  if (plan_.by_mpiexec) streams_.StartOutput([this] { Stop(SIGPIPE, false); });
  return {};
}

void Runner::OnOrders() {
  if (!order_lines_.ReadFrom(orders_.get())) {
    loop_.Unwatch(orders_.get());
    // The guard was killed: what it cannot do any more, we do at once.
    ++stops_;
    job_.OnSignal(SIGKILL);
    job_.OnSignal(SIGKILL);
    return;
  }
  while (const std::optional<std::string> line = order_lines_.Next()) {
    int number = 0, by_terminal = 0;
    if (std::sscanf(line->c_str(), "signal %d %d", &number, &by_terminal) == 2) OnSignal(number, by_terminal != 0);
  }
}

void Runner::OnSignal(int signal_number, bool by_terminal) {
  if (signal_number != SIGUSR1 && signal_number != SIGUSR2) {
    // The terminal's ^C has reached a directly started application by itself.
    Stop(signal_number, by_terminal && !plan_.by_mpiexec);
    return;
  }
  for (int rank = 0; rank < plan_.ranks; ++rank) control_->Send(rank, "signal " + std::to_string(signal_number));
}

void Runner::Stop(int signal_number, bool app_has_it) {
  ++stops_;
  job_.OnSignal(signal_number);
  if (!child_ended_ && child_ > 0 && control_->connected() == 0) {  // still starting: what comes later is not let begin
    kill(child_, SIGTERM);
    if (plan_.by_mpiexec) job_.OnSignal(signal_number);  // which may not hear it yet
  }
  if (app_has_it) return;
  if (signal_number == SIGHUP) signal_number = SIGTERM;  // UCX takes a SIGHUP as a wish to debug
  // Not to the servers: an application that ends in order still needs them.
  stop_signal_ = signal_number;
  for (int rank = 0; rank < plan_.ranks; ++rank) control_->Send(rank, "signal " + std::to_string(signal_number));
}

void Runner::ReapChild() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
  }
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return;
    if (servers_ && servers_->OnChildEnd(pid, status)) continue;
    if (pid != child_) continue;  // an orphan that fell to us
    child_ended_ = true;
    // The keeper's status repeats its report; only mpiexec's own death is news.
    if (plan_.by_mpiexec) job_.OnMpiexecEnd(status, MonotonicNs());
  }
}

void Runner::GiveOrders() {
  if (job_.end_servers() && !servers_end_sent_) {
    servers_end_sent_ = true;
    for (int rank = plan_.ranks; rank < job_.size(); ++rank) control_->Send(rank, "end");
  }
  if (job_.told() && !told_sent_) {
    told_sent_ = true;
    for (int rank = 0; rank < job_.size(); ++rank) control_->Send(rank, "told");
  }
  if (!job_.kill_all() || kill_sent_) return;
  kill_sent_ = true;
  kill_sent_ns_ = RunningNs();
  for (int rank = 0; rank < job_.size(); ++rank) control_->Send(rank, "kill");
}

void Runner::WatchStart(int64_t now_ns) {
  const std::string rest = std::to_string(job_.size() - job_.heard()) + " of " + std::to_string(job_.size()) + " ranks";
  std::string error;
  switch (start_watch_.OnTick(job_.heard(), now_ns)) {
    case StartWatch::Advice::kNone:
      return;
    case StartWatch::Advice::kProbe:
      if (!CanFork()) error = ForkError(errno);
      break;
    case StartWatch::Advice::kTell:
      std::fprintf(stderr, "ramspan: still waiting for mpiexec to start %s\n", rest.c_str());
      return;
    case StartWatch::Advice::kGiveUp:
      error = "mpiexec did not start the others. Remedy: see whether `mpiexec -n 1 true` works, and " + ProcessLimits();
  }
  if (error.empty()) return;
  job_.OnCannotStart(error, now_ns);
  kill(child_, SIGKILL);  // it would wait for what it cannot start
}

// hydra waits for ever when its proxy was killed.
void Runner::WatchMpiexec(int64_t now_ns) {  // RunningNs
  if (child_ended_ || !plan_.by_mpiexec) return;
  const bool working = control_->connected() > 0 || !job_.started() || streams_.busy();
  if (working || idle_since_ns_ == 0) idle_since_ns_ = now_ns;
  const bool too_slow = kill_sent_ && now_ns - kill_sent_ns_ > kMpiexecMayTake;
  if (too_slow || now_ns - idle_since_ns_ > kMpiexecMayIdle) kill(child_, SIGKILL);
}

void Runner::Tick() {
  const int64_t now_ns = MonotonicNs();
  for (int rank : closed_) job_.OnKeeperLost(rank, now_ns);
  closed_.clear();
  job_.OnTick(now_ns);
  if (!child_ended_) WatchStart(now_ns);
  control_->OnTick(RunningNs());
  GiveOrders();
  WatchMpiexec(RunningNs());
  streams_.PauseInput();
}

// Everybody who could write is gone; what the pipes hold must still come out.
void Runner::FinishOutput() {
  streams_.EndInput();
  const int stops_before = stops_;  // one more ^C: do not wait for a reader that does not read
  int64_t last_ns = RunningNs();
  while (!streams_.is_done() && stops_ == stops_before) {
    if (loop_.RunOnce(kTickMs) > 0) last_ns = RunningNs();
    if (RunningNs() - last_ns > kLastBytesMayTake && !streams_.busy()) break;
  }
}

void Runner::EndServers() {
  if (servers_ == nullptr) return;
  servers_->End();
  for (int64_t until = RunningNs() + kServersMayTake; servers_->running() && RunningNs() < until;) loop_.RunOnce(kTickMs);
}

int Runner::Conclude() {
  const Job::Verdict verdict = job_.Finish();
  if (!verdict.explained) streams_.PrintAdditions();
  for (const std::string& message : verdict.messages) std::fprintf(stderr, "ramspan: %s\n", message.c_str());
  if (verdict.status != 0 && !verdict.messages.empty()) TellSmallLimits();
  if (const uint64_t lost = streams_.lost_bytes(); lost > 0) {
    std::fprintf(stderr, "ramspan: of standard output %s could not be written\n", FormatBytes(lost).c_str());
    if (verdict.status == 0) return 1;  // who reads that output should not take it for all there was
  }
  return verdict.status;
}

int Runner::Run() {
  signal(SIGPIPE, SIG_IGN);
  signals_ = BlockSignals({SIGCHLD});  // the others are the guard's
  AdoptOrphans();
  loop_.Watch(signals_.get(), POLLIN, [this](short) { ReapChild(); });
  loop_.Watch(orders_.get(), POLLIN, [this](short) { OnOrders(); });
  RaiseFileLimit();
  Status status = Listen();
  if (status.ok()) status = StartServers();
  if (status.ok() && stops_ == 0) status = Start();
  if (!status.ok() || stops_ > 0) {
    if (!status.ok()) std::fprintf(stderr, "ramspan: %s\n", status.message().c_str());
    EndServers();
    EndChildren(std::chrono::milliseconds(0));
    RemoveRunFolder(folder_);
    return status.ok() ? job_.Finish().status : 1;
  }
  while (!child_ended_) {
    const bool held_back = streams_.holds_back();
    if (loop_.RunOnce(held_back ? kSettleMs : kTickMs) == 0 && held_back) streams_.Settle();
    Tick();
  }
  // Reports that are still in the sockets; keepers on this host end within moments, whatever became of mpiexec.
  for (int64_t until = RunningNs() + kMpiexecMayTake; control_->connected() > 0 && RunningNs() < until;) {
    loop_.RunOnce(kTickMs);
    Tick();
  }
  EndServers();
  EndChildren(std::chrono::milliseconds(0));
  if (plan_.by_mpiexec) FinishOutput();
  CleanUpRun(folder_, started_ns_);
  return Conclude();
}

// In the worker: were the folder there before the fork, nobody would remove it for a guard that is killed until then.
int RunInFolder(const Plan& plan, const std::string& name, UniqueFd orders) {
  const Result<std::string> folder = MakeRunFolder(name);
  if (!folder.ok()) {
    std::fprintf(stderr, "ramspan: %s\n", folder.status().message().c_str());
    return 1;
  }
  const Result<UniqueFd> owned = OwnRunFolder(name);
  if (owned.ok()) return Runner(plan, name, std::move(orders)).Run();
  std::fprintf(stderr, "ramspan: %s\n", owned.status().message().c_str());
  RemoveRunFolder(name);
  return 1;
}

}  // namespace

int RunPlan(const Plan& plan) {
  // Before there is anything to leave behind. The soft limit is raised to the hard one later.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < rlim_t{kFilesMin}) {
    std::fprintf(stderr, "ramspan: a job needs %d open files at least: raise the limit (ulimit -n, now %d)\n", kFilesMin,
                 static_cast<int>(files.rlim_max));
    return 1;
  }
  const char* tmp = std::getenv("TMPDIR");
  const std::string folder = NameRunFolder(tmp == nullptr ? "" : tmp);
  return RunGuarded(folder, [&](UniqueFd orders) {
    const int status = RunInFolder(plan, folder, std::move(orders));
    std::fflush(nullptr);
    return status;
  });
}

}  // namespace ramspan
