#include "launch/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "common/running_clock.h"

namespace ramspan {
namespace {

constexpr std::chrono::seconds kUnkillableAfter{5};

struct ProcessStat {
  char state = 'X';  // also when there is no such process
  pid_t parent = -1;
  unsigned long flags = 0;
  uint64_t start = 0;
};

// The fields of /proc/PID/stat come after the name, which may hold blanks and brackets.
ProcessStat ReadStat(const std::string& pid) {
  constexpr int kFlagsField = 9, kStartField = 22;
  ProcessStat stat;
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line, skipped;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return stat;
  std::istringstream rest(line.substr(name_end + 1));
  rest >> stat.state >> stat.parent;
  for (int i = 5; i < kFlagsField; ++i) rest >> skipped;
  rest >> stat.flags;
  for (int i = kFlagsField + 1; i < kStartField; ++i) rest >> skipped;
  rest >> stat.start;
  return stat;
}

void KillChildren() {
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return;
  const pid_t self = getpid();
  while (const dirent* entry = readdir(proc)) {
    const pid_t pid = static_cast<pid_t>(std::atol(entry->d_name));
    if (pid > 0 && ReadStat(entry->d_name).parent == self) kill(pid, SIGKILL);
  }
  closedir(proc);
}

bool IsFile(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

void UniqueFd::Reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Pipe MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return {UniqueFd(), UniqueFd()};
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::string RandomSecret() {
  unsigned char bytes[16];
  RS_CHECK(getrandom(bytes, sizeof bytes, 0) == sizeof bytes, "getrandom: %s", std::strerror(errno));
  std::string text;
  char hex[3];
  for (unsigned char byte : bytes) {
    std::snprintf(hex, sizeof hex, "%02x", byte);
    text += hex;
  }
  return text;
}

std::string SelfPath() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  RS_CHECK(length > 0 && length < PATH_MAX, "/proc/self/exe: %s", std::strerror(errno));
  return std::string(path, static_cast<size_t>(length));
}

std::string SelfFolder() {
  const std::string path = SelfPath();
  return path.substr(0, path.rfind('/'));
}

bool IsExecutableFile(const std::string& path) { return IsFile(path) && access(path.c_str(), X_OK) == 0; }

Result<std::string> FindProgram(const std::string& name, const std::string& path) {
  if (name.empty()) return InvalidArgument("the name of the program is empty");
  if (name.find('/') != std::string::npos) {
    if (IsExecutableFile(name)) return name;
    struct stat info {};
    if (stat(name.c_str(), &info) != 0) return InvalidArgument(name + ": " + std::strerror(errno));
    if (S_ISDIR(info.st_mode)) return InvalidArgument(name + " is a folder, not a program");
    return InvalidArgument(name + " is not executable (chmod +x " + name + ")");
  }
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (IsExecutableFile(candidate)) return candidate;
  }
  if (IsExecutableFile("./" + name)) return InvalidArgument(name + " is not in PATH; did you mean ./" + name + " ?");
  return InvalidArgument(name + " is not in PATH");
}

std::string ProcessLimits() {
  rlimit processes{};
  getrlimit(RLIMIT_NPROC, &processes);
  const std::string limit =
      processes.rlim_cur == RLIM_INFINITY ? "unlimited" : "now " + std::to_string(processes.rlim_cur);
  return "raise the limit of processes and threads of this user (ulimit -u, " + limit +
         ") or of the cgroup (pids.max), or end other processes";
}

void TellSmallLimits() {
  struct Limit {
    int resource;
    const char* option;
    rlim_t enough;  // a job runs with it, so it explains nothing
    rlim_t unit;    // of the option
  };
  // Of data and addresses a rank without much data of its own takes some 100 MiB; clusters set them to a node's memory.
  constexpr rlim_t kKiB = 1024, kMiB = kKiB * kKiB, kGiB = kKiB * kMiB;
  constexpr Limit kLimits[] = {
      {RLIMIT_STACK, "-s", kMiB, kKiB},   {RLIMIT_DATA, "-d", kGiB, kKiB}, {RLIMIT_AS, "-v", 4 * kGiB, kKiB},
      {RLIMIT_NPROC, "-u", 256, 1},       {RLIMIT_NOFILE, "-n", 64, 1},            {RLIMIT_FSIZE, "-f", kGiB, kKiB},
  };
  std::string small;
  for (const Limit& one : kLimits) {
    rlimit now{};
    if (getrlimit(static_cast<__rlimit_resource_t>(one.resource), &now) != 0 || now.rlim_cur >= one.enough) continue;
    small += std::string(small.empty() ? "" : ", ") + one.option + " " + std::to_string(now.rlim_cur / one.unit);
  }
  if (small.empty()) return;
  std::fprintf(stderr, "ramspan: small limits may be the reason (ulimit %s; kilobytes but for -u and -n): raise them\n", small.c_str());
}

std::string ForkError(int error) {
  std::string text = std::string("no process can be made (") + std::strerror(error) + ")";
  if (error == ENOMEM) return text + ": the memory of this host or of the job's cgroup is used up";
  return text + ". Remedy: " + ProcessLimits();
}

bool CanFork() {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  const int error = errno;
  if (pid > 0) waitpid(pid, nullptr, 0);
  errno = error;
  return pid > 0;
}

std::string DescribeSignal(int signal_number) {
  const char* text = strsignal(signal_number);
  return "signal " + std::to_string(signal_number) + " (" + (text != nullptr ? text : "unknown") + ")";
}

ProcessId Identify(pid_t pid) { return {pid, ReadStat(std::to_string(pid)).start}; }

bool IsAlive(const ProcessId& process) {
  const ProcessStat now = ReadStat(std::to_string(process.pid));
  return now.state != 'X' && now.state != 'Z' && now.start == process.start;
}

bool Hears(pid_t pid, int signal_number) {
  // Shells block everything for an instant now and then, and while a child that they have made by vfork has not called exec, which takes long where
  // there is no core for it. They sleep uninterruptibly then; who listens with the signal blocked does not.
  constexpr int kLooks = 3, kLooksMax = 100;
  constexpr std::chrono::milliseconds kBetween{10};
  for (int look = 0, counted = 0; look < kLooksMax; ++look) {
    if (look > 0) std::this_thread::sleep_for(kBetween);
    std::ifstream file("/proc/" + std::to_string(pid) + "/status");
    bool is_blocked = false, is_held_up = false;
    for (std::string line; std::getline(file, line);) {
      const size_t end = line.find(':') + 1;
      const std::string name = line.substr(0, end);
      if (name == "State:") is_held_up = line.find('D', end) == line.find_first_not_of(" \t", end);
      if (name != "SigBlk:" && name != "SigCgt:") continue;
      if ((std::strtoull(line.c_str() + end, nullptr, 16) >> (signal_number - 1) & 1) == 0) continue;
      if (name == "SigCgt:") return true;
      is_blocked = true;
    }
    if (!is_blocked) return false;
    counted = is_held_up ? 0 : counted + 1;
    if (counted == kLooks) return true;
  }
  return false;
}

std::vector<pid_t> Descendants() {
  std::multimap<pid_t, pid_t> children;
  DIR* const processes = opendir("/proc");
  if (processes == nullptr) return {};
  while (const dirent* const entry = readdir(processes)) {
    const pid_t pid = static_cast<pid_t>(std::atol(entry->d_name));
    if (pid > 0) children.emplace(ReadStat(entry->d_name).parent, pid);
  }
  closedir(processes);
  std::vector<pid_t> found;
  for (pid_t parent = getpid();;) {
    const auto [begin, end] = children.equal_range(parent);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
    children.erase(begin, end);  // each parent once, whatever /proc says meanwhile
    const auto next = std::find_if(found.begin(), found.end(), [&](pid_t pid) { return children.count(pid) != 0; });
    if (next == found.end()) return found;
    parent = *next;
  }
}

bool IsEnding(pid_t pid) {
  constexpr unsigned long kExiting = 4;  // PF_EXITING of include/linux/sched.h
  const ProcessStat now = ReadStat(std::to_string(pid));
  if ((now.flags & kExiting) != 0 || now.state == 'Z' || now.state == 'X') return true;
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    const bool pending = line.rfind("SigPnd:", 0) == 0 || line.rfind("ShdPnd:", 0) == 0;
    if (pending && (std::strtoull(line.c_str() + 7, nullptr, 16) >> (SIGKILL - 1) & 1) != 0) return true;
  }
  return false;
}

void AdoptOrphans() { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

void EndChildren(std::chrono::milliseconds grace) {
  const auto start = RunningClock::ProcessNow();
  for (;;) {
    const pid_t pid = waitpid(-1, nullptr, WNOHANG);
    if (pid > 0) continue;
    if (pid < 0 && errno == ECHILD) return;
    const auto waited = RunningClock::ProcessNow() - start;
    if (waited > grace + kUnkillableAfter) return;
    if (waited >= grace) KillChildren();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

UniqueFd BlockSignals(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (int one : signals) sigaddset(&set, one);
  RS_CHECK(sigprocmask(SIG_BLOCK, &set, nullptr) == 0, "sigprocmask: %s", std::strerror(errno));
  UniqueFd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  RS_CHECK(fd, "signalfd: %s", std::strerror(errno));
  return fd;
}

namespace {
void (*file_size_before)(int) = SIG_ERR;  // SIG_ERR: not touched
}  // namespace

void IgnoreFileSizeSignal() { file_size_before = signal(SIGXFSZ, SIG_IGN); }

namespace {
constexpr int kReportSignals[] = {SIGUSR1, SIGUSR2};

void MaskReportSignals(int how) {
  sigset_t set;
  sigemptyset(&set);
  for (const int one : kReportSignals) sigaddset(&set, one);
  sigprocmask(how, &set, nullptr);
}
}  // namespace

void HoldReportSignals() { MaskReportSignals(SIG_BLOCK); }
void ReleaseReportSignals() { MaskReportSignals(SIG_UNBLOCK); }

void IgnoreReportSignals() {
  for (const int one : kReportSignals) signal(one, SIG_IGN);
}

void RestoreSignals() {
  for (const int one : kReportSignals) signal(one, signal(one, SIG_IGN));  // ignored for a moment, they wait no longer
  if (file_size_before != SIG_ERR) signal(SIGXFSZ, file_size_before);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
}

int64_t RunningNs() { return RunningClock::ProcessNow().time_since_epoch().count(); }

int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace ramspan
