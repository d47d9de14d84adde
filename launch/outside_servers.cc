#include "launch/outside_servers.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "launch/control.h"
#include "launch/server_start.h"

namespace ramspan {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
// A server listens within milliseconds; mpiexec may take a while to reach many hosts, and a loaded machine anything.
constexpr int64_t kListeningMayTake = 60 * kSecond;
constexpr size_t kLineMax = 4096;

// What `ramspan server` says when it listens: "ramspan server: lends 64 MiB at PLACE, provider tcp, ...".
std::string PlaceIn(const std::string& line) {
  constexpr char kBegin[] = "ramspan server: lends ", kAt[] = " at ";
  if (line.rfind(kBegin, 0) != 0) return "";
  const size_t at = line.find(kAt);
  const size_t end = line.find(", ", at == std::string::npos ? 0 : at);
  if (at == std::string::npos || end == std::string::npos) return "";
  const size_t begin = at + std::strlen(kAt);
  return line.substr(begin, end - begin);
}

Status NoPipe() { return Unavailable(std::string("no pipe can be made: ") + std::strerror(errno) + " (ulimit -n)"); }

std::string HowItEnded(int wait_status) {
  if (WIFSIGNALED(wait_status)) return "was killed by " + DescribeSignal(WTERMSIG(wait_status));
  return "ended with status " + std::to_string(WEXITSTATUS(wait_status));
}

}  // namespace

OutsideServers::OutsideServers(EventLoop& loop, const Plan& plan, std::string folder, std::string control)
    : loop_(loop), plan_(plan), folder_(std::move(folder)), control_(std::move(control)) {}

OutsideServers::~OutsideServers() {
  for (Process& process : processes_) {
    if (process.output) loop_.Unwatch(process.output.get());
  }
}

Status OutsideServers::MakeSecret() {
  secret_ = RandomSecret();
  const UniqueFd file(open(key_file().c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file && write(file.get(), secret_.data(), secret_.size()) == static_cast<ssize_t>(secret_.size())) return {};
  return Unavailable("cannot write " + key_file() + ": " + std::strerror(errno) + "; set TMPDIR to another folder");
}

Status OutsideServers::Start() {
  if (Status made = MakeSecret(); !made.ok()) return made;
  if (plan_.servers_by_mpiexec) {
    no_input_ = MakePipe();
    if (!no_input_.read_end) return NoPipe();
    return StartOne(plan_.server_argv);
  }
  for (int i = 0; i < plan_.outside_servers; ++i) {
    std::vector<std::string> line = plan_.server_argv;
    line.insert(line.end(), {"--socket", folder_ + "/server-" + std::to_string(i + 1), "--key-file", key_file()});
    if (Status started = StartOne(std::move(line)); !started.ok()) return started;
  }
  return {};
}

Status OutsideServers::StartOne(std::vector<std::string> line) {
  Pipe pipe = MakePipe();
  if (!pipe.read_end) return NoPipe();
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ResourceExhausted(ForkError(errno));
  if (pid == 0) {
    setsid();  // ^C of the terminal is the application's; the servers are needed until it has ended
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != launcher) _exit(128 + SIGKILL);
    Become(line, pipe.write_end.get());
  }
  const size_t number = processes_.size();
  processes_.push_back({.pid = pid, .running = true, .output = std::move(pipe.read_end), .unread = ""});
  loop_.Watch(processes_[number].output.get(), POLLIN, [this, number](short) { ReadFrom(number); });
  return {};
}

void OutsideServers::Become(const std::vector<std::string>& line, int output) {
  IgnoreReportSignals();
  RestoreSignals();
  const UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  dup2(plan_.servers_by_mpiexec ? no_input_.read_end.get() : nothing.get(), STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  if (plan_.servers_by_mpiexec) {
    for (const auto& [name, value] : plan_.env) setenv(name.c_str(), value.c_str(), 1);
    setenv(kControlVariable, control_.c_str(), 1);
    setenv(kServerSecretVariable, secret_.c_str(), 1);
  }
  std::vector<char*> argv;
  for (const std::string& argument : line) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  std::fprintf(stderr, "ramspan: cannot run %s: %s\n", argv[0], std::strerror(errno));
  _exit(126);
}

void OutsideServers::ReadFrom(size_t number) {
  Process& process = processes_[number];
  char bytes[1024];
  const ssize_t length = read(process.output.get(), bytes, sizeof bytes);
  if (length < 0 && errno == EINTR) return;
  if (length <= 0) {
    loop_.Unwatch(process.output.get());
    process.output.Reset();
    return;
  }
  process.unread.append(bytes, static_cast<size_t>(length));
  for (size_t end; (end = process.unread.find('\n')) != std::string::npos; process.unread.erase(0, end + 1)) {
    const std::string place = PlaceIn(process.unread.substr(0, end));
    if (!place.empty() && !listening()) places_.push_back(place);
  }
  if (process.unread.size() > kLineMax) process.unread.clear();
}

OutsideServers::Environment OutsideServers::ForApplication() const {
  std::string all;
  for (const std::string& place : places_) all += (all.empty() ? "" : ",") + place;
  Environment environment = {{"RAMSPAN_SERVERS", all}, {"RAMSPAN_TRANSPORT", "ofi"}, {"RAMSPAN_SERVER_KEY_FILE", key_file()}};
  if (plan_.servers_by_mpiexec) environment.emplace_back(kServerSecretVariable, secret_);
  return environment;
}

bool OutsideServers::OnChildEnd(pid_t pid, int wait_status) {
  const auto process = std::find_if(processes_.begin(), processes_.end(), [pid](const Process& one) { return one.pid == pid; });
  if (process == processes_.end()) return false;
  process->running = false;
  if (ending_) return true;
  const size_t number = static_cast<size_t>(process - processes_.begin());
  const std::string who = plan_.servers_by_mpiexec ? "mpiexec of the memory servers" : "memory server " + std::to_string(number + 1);
  if (!listening()) {
    failure_ = Unavailable(who + " " + HowItEnded(wait_status) + " before it listened; the application was not started");
  } else {
    // On one host the application has mapped what its servers held.
    std::fprintf(stderr, "ramspan: %s (pid %d) %s. The application goes on; %s\n", who.c_str(), static_cast<int>(pid),
                 HowItEnded(wait_status).c_str(),
                 plan_.servers_by_mpiexec ? "chunks that lived only there are lost" : "what it held is not lost, because its memory is of this host");
  }
  return true;
}

void OutsideServers::OnTick(int64_t now_ns) {
  if (listening() || !failure_.ok()) return;
  if (begin_ns_ == 0) begin_ns_ = now_ns;
  if (now_ns - begin_ns_ < kListeningMayTake) return;
  failure_ = Unavailable(std::to_string(places_.size()) + " of " + std::to_string(plan_.outside_servers) +
                         " memory servers listen after " + std::to_string(kListeningMayTake / kSecond) +
                         " s; see what they or mpiexec have said, or use --transport mpi");
}

void OutsideServers::End() {
  ending_ = true;
  // mpiexec complains on its way out about processes that have ended long ago, unless it has no time to.
  const int signal_number = plan_.servers_by_mpiexec ? SIGKILL : SIGTERM;
  for (const Process& process : processes_) {
    if (process.running) kill(process.pid, signal_number);
  }
}

bool OutsideServers::running() const {
  return std::any_of(processes_.begin(), processes_.end(), [](const Process& one) { return one.running; });
}

}  // namespace ramspan
