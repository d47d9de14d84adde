#include "bench/memory_cgroup.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "bench/process.h"

namespace ramspan::bench {
namespace {

constexpr char kPrefix[] = "ramspan-bench-";  // then the process id
constexpr char kLimitOfVersion1[] = "/memory.limit_in_bytes";

bool WriteFile(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return written;
}

bool HasWord(const std::string& path, const std::string& wanted) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (word == wanted) return true;
  }
  return false;
}

// This process's path in the hierarchy of `controller`; empty: version 2's.
std::string OwnPath(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",," ? controller.empty() : controllers.find("," + controller + ",") != std::string::npos) {
      return line.substr(second + 1);
    }
  }
  return "/";
}

struct Hierarchy {
  std::string mount;
  bool version_2 = false;
};

std::optional<Hierarchy> FindHierarchy() {
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string skip, mount, type, options;
    words >> skip >> skip >> skip >> skip >> mount;
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream rest(line.substr(dash + 3));
    rest >> type >> skip >> options;
    if (type == "cgroup" && ("," + options + ",").find(",memory,") != std::string::npos) return Hierarchy{mount, false};
    if (type == "cgroup2" && HasWord(mount + "/cgroup.controllers", "memory")) return Hierarchy{mount, true};
  }
  return std::nullopt;
}

// Where a new cgroup may be: below this process's own, so that its limits hold too; in version 2, where no cgroup has
// processes and children with controllers, beside it.
std::vector<std::string> Parents(const Hierarchy& h) {
  std::vector<std::string> parents;
  std::filesystem::path path = OwnPath(h.version_2 ? "" : "memory");
  for (;; path = path.parent_path()) {
    const std::string parent = h.mount + (path == "/" ? "" : path.string());
    const bool usable = !h.version_2 || HasWord(parent + "/cgroup.subtree_control", "memory");
    if (usable && std::filesystem::exists(parent)) parents.push_back(parent);
    if (path == path.parent_path()) return parents;
  }
}

// Those of benchmarks that were killed before they could.
void RemoveStale(const std::string& parent) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename();
    if (name.rfind(kPrefix, 0) != 0) continue;
    const int pid = std::atoi(name.c_str() + sizeof kPrefix - 1);
    if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) rmdir(entry.path().c_str());
  }
}

sigset_t Signals(std::initializer_list<int> numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : numbers) sigaddset(&set, number);
  return set;
}

// In the child, where little is allowed.
[[noreturn]] void Become(char* const* line, int procs, int out, const sigset_t* mask) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (write(procs, "0\n", 2) != 2 || dup2(out, STDOUT_FILENO) < 0) _exit(126);
  sigprocmask(SIG_SETMASK, mask, nullptr);
  execv(line[0], line);
  _exit(127);
}

std::string ReadAll(int fd) {
  std::string all;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) all.append(buffer, static_cast<size_t>(n));
  return all;
}

}  // namespace

std::optional<MemoryCgroup> MemoryCgroup::Make(uint64_t limit, std::string* why_not) {
  const std::optional<Hierarchy> hierarchy = FindHierarchy();
  if (!hierarchy) {
    *why_not = "no memory cgroups: the kernel's memory controller is not mounted (version 1 or 2)";
    return std::nullopt;
  }
  *why_not = "no memory cgroup can be made below " + hierarchy->mount + ": run it as root, outside of containers";
  for (const std::string& parent : Parents(*hierarchy)) {
    RemoveStale(parent);
    const std::string directory = parent + "/" + kPrefix + std::to_string(getpid());
    if (mkdir(directory.c_str(), 0755) != 0) continue;
    MemoryCgroup group(directory);
    const char* const file = hierarchy->version_2 ? "/memory.max" : kLimitOfVersion1;
    if (limit == 0 || WriteFile(directory + file, std::to_string(limit))) return group;
  }
  return std::nullopt;
}

MemoryCgroup::~MemoryCgroup() { Remove(); }

void MemoryCgroup::Remove() {
  if (directory_.empty()) return;
  // The kernel needs a moment after the last process.
  for (int i = 0; i < 100 && rmdir(directory_.c_str()) != 0 && errno == EBUSY; ++i) usleep(20'000);
  directory_.clear();
}

void MemoryCgroup::Enter(const std::string& directory) {
  if (!WriteFile(directory + "/cgroup.procs", "0\n")) throw std::runtime_error("cannot enter " + directory + ": " + std::strerror(errno));
}

void MemoryCgroup::HoldTo(const std::string& directory, uint64_t more) {
  const bool version_1 = access((directory + kLimitOfVersion1).c_str(), F_OK) == 0;
  uint64_t used = 0;
  std::ifstream(directory + (version_1 ? "/memory.usage_in_bytes" : "/memory.current")) >> used;
  if (!WriteFile(directory + (version_1 ? kLimitOfVersion1 : "/memory.max"), std::to_string(used + more))) {
    throw std::runtime_error("cannot limit " + directory + ": " + std::strerror(errno));
  }
}

MemoryCgroup::Use MemoryCgroup::UseOf(const std::string& directory) {
  Use use;
  uint64_t files = 0, value = 0;  // files with shared memory, in both versions
  std::ifstream stat(directory + "/memory.stat");
  for (std::string name; stat >> name >> value;) {
    if (name == "rss" || name == "anon") use.anonymous = value;
    if (name == "cache" || name == "file") files = value;
    if (name == "shmem") use.shared = value;
  }
  use.page_cache = files > use.shared ? files - use.shared : 0;
  return use;
}

MemoryCgroup::Outcome MemoryCgroup::RunChild(std::vector<std::string> words) {
  const sigset_t ends = Signals({SIGINT, SIGTERM, SIGHUP}), all = Signals({SIGINT, SIGTERM, SIGHUP, SIGCHLD});
  sigset_t before;
  sigprocmask(SIG_BLOCK, &all, &before);
  std::vector<char*> line = Pointers(&words);
  const int procs = open((directory_ + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
  int out[2];
  if (procs < 0 || pipe2(out, O_CLOEXEC) != 0) {
    throw std::runtime_error("cannot use " + directory_ + ": " + std::strerror(errno));
  }
  const pid_t child = fork();
  if (child == 0) Become(line.data(), procs, out[1], &before);
  close(procs);
  close(out[1]);
  Outcome outcome;
  int ended_by = 0;
  while (child > 0 && waitpid(child, &outcome.status, WNOHANG) == 0) {
    const timespec soon{.tv_sec = 0, .tv_nsec = 200'000'000};
    const int signal = sigtimedwait(&all, nullptr, &soon);
    if (signal > 0 && sigismember(&ends, signal) == 1 && ended_by == 0) {
      ended_by = signal;
      kill(child, SIGKILL);
    }
  }
  if (ended_by != 0) {
    Remove();
    sigprocmask(SIG_SETMASK, &before, nullptr);
    raise(ended_by);
  }
  outcome.output = ReadAll(out[0]);
  close(out[0]);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  return outcome;
}

}  // namespace ramspan::bench
