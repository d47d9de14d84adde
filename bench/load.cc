#include "bench/load.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace ramspan::bench {
namespace {

// Servers that are ranks, and servers outside of the job. The kernel keeps 15 letters of a program's name.
constexpr std::string_view kServerComms[] = {"ramspan-memserv", "ramspan-server"};

[[noreturn]] void Spin(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);  // it died before the line above
  close_range(0, ~0u, 0);             // nobody shall wait for the end of a pipe that this process holds
  for (volatile unsigned turns = 0;;) turns = turns + 1;
}

// Nanoseconds that all threads of a process have run.
double RunSeconds(const std::filesystem::path& process) {
  double seconds = 0;
  std::error_code gone;
  // Not a range-for, which throws when the process ends meanwhile.
  for (auto it = std::filesystem::directory_iterator(process / "task", gone); !gone && it != decltype(it)(); it.increment(gone)) {
    double nanoseconds = 0;
    if (std::ifstream(it->path() / "schedstat") >> nanoseconds) seconds += nanoseconds * 1e-9;
  }
  return seconds;
}

bool IsServerOf(const std::filesystem::path& process, pid_t parent) {
  std::string stat;
  if (!std::getline(std::ifstream(process / "stat"), stat)) return false;
  const size_t open = stat.find('('), close = stat.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return false;
  std::istringstream rest(stat.substr(close + 1));
  char state = 0;
  pid_t its_parent = 0;
  rest >> state >> its_parent;
  const std::string comm = stat.substr(open + 1, close - open - 1);
  return its_parent == parent && std::find(std::begin(kServerComms), std::end(kServerComms), comm) != std::end(kServerComms);
}

}  // namespace

Load::Load(int processes) {
  const pid_t self = getpid();
  for (int i = 0; i < processes; ++i) {
    const pid_t child = fork();
    if (child == 0) Spin(self);
    if (child < 0) {
      const int error = errno;
      End();
      throw std::runtime_error(std::string("--busy: no process can be made: ") + std::strerror(error) + " (ulimit -u)");
    }
    spinners_.push_back(child);
  }
  Rest();
}

Load::~Load() { End(); }

void Load::End() {
  for (const pid_t child : spinners_) kill(child, SIGKILL);
  for (const pid_t child : spinners_) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  spinners_.clear();
}

void Load::Run() {
  for (const pid_t child : spinners_) kill(child, SIGCONT);
}

void Load::Rest() {
  for (const pid_t child : spinners_) kill(child, SIGSTOP);
  for (const pid_t child : spinners_) {
    int status = 0;
    while (waitpid(child, &status, WUNTRACED) < 0 && errno == EINTR) {
    }
  }
}

double ProcessCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double ServerCpuSeconds() {
  double seconds = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (IsServerOf(entry.path(), getppid())) seconds += RunSeconds(entry.path());
  }
  return seconds;
}

// EEVDF's base slice (some 3 ms) is looked at once a tick, so a thread keeps its core for up to a tick more. The slice is told
// by debugfs to root only; 3 ms is what kernels since 6.6 have on machines of two to four cores, more have longer ones.
double TimeSliceSeconds() {
  double nanoseconds = 0;
  std::ifstream("/sys/kernel/debug/sched/base_slice_ns") >> nanoseconds;
  constexpr double kTick = 0.004;  // CONFIG_HZ=250, what Debian's kernels have; 1000 and 100 exist
  return (nanoseconds > 0 ? nanoseconds * 1e-9 : 0.003) + kTick;
}

}  // namespace ramspan::bench
