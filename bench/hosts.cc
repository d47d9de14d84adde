#include "bench/hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <thread>

#include "bench/process.h"

namespace ramspan::bench {
namespace {

constexpr char kRemedy[] = "; hosts are made of network namespaces, which needs root, or a kernel on which users may make user namespaces";

bool WriteFile(const char* path, const std::string& text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  const bool written = file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (file >= 0) close(file);
  return written;
}

// Root may make network namespaces; a user may in a user namespace, in which he is root.
bool BecomeRootOfOwnNamespace() {
  if (geteuid() == 0) return true;
  const std::string user = std::to_string(geteuid()), group = std::to_string(getegid());
  return unshare(CLONE_NEWUSER) == 0 && WriteFile("/proc/self/setgroups", "deny") && WriteFile("/proc/self/uid_map", "0 " + user + " 1") &&
         WriteFile("/proc/self/gid_map", "0 " + group + " 1");
}

// In the child: takes new namespaces, tells how that went, and stays.
[[noreturn]] void Hold(pid_t maker, const std::string& name, int told) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != maker) _exit(0);  // it died before the line above
  // /sys tells of the network in which it was mounted (UCX looks there for interfaces), so it has to be mounted anew.
  const bool made = unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS) == 0 && sethostname(name.data(), name.size()) == 0 &&
                    mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 && mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0;
  int error = made ? 0 : errno;
  static_cast<void>(!write(told, &error, sizeof error));
  close_range(0, ~0u, 0);  // nobody shall wait for the end of a pipe that this process holds
  // What ends a whole group of processes (^C) is for those that run here; the hosts are there until they have ended.
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  for (;;) pause();
}

std::string SystemProgram(const std::string& name) {
  if (const std::optional<std::string> found = FindInPath(name)) return *found;
  for (const char* folder : {"/usr/sbin/", "/sbin/", "/usr/bin/"}) {
    if (access((folder + name).c_str(), X_OK) == 0) return folder + name;
  }
  return "";
}

}  // namespace

std::optional<Hosts> Hosts::Make(int count, std::string* why_not) {
  if (SystemProgram("ip").empty() || SystemProgram("nsenter").empty()) {
    *why_not = "`ip` (iproute2) or `nsenter` (util-linux) is not installed";
    return std::nullopt;
  }
  if (!BecomeRootOfOwnNamespace()) {
    *why_not = std::string("this user may not make a user namespace (") + std::strerror(errno) + ")" + kRemedy;
    return std::nullopt;
  }
  Hosts hosts;
  for (int host = 0; host < count; ++host) {
    if (!hosts.StartHolder(Address(host), why_not)) return std::nullopt;
  }
  if (count > 2 && !hosts.StartHolder("switch", why_not)) return std::nullopt;
  bool joined = count == 2 ? hosts.JoinTwo() : hosts.JoinBySwitch(count);
  for (int host = 0; host < count; ++host) joined = joined && hosts.Configure(host);
  for (int host = 0; host < count; ++host) joined = joined && hosts.WaitForLink(host);
  if (joined) return hosts;
  *why_not = std::string("the hosts could not be joined by virtual cables (`ip link add type veth`)") + kRemedy;
  return std::nullopt;
}

Hosts::~Hosts() {
  for (const pid_t holder : holders_) kill(holder, SIGKILL);
  for (const pid_t holder : holders_) {
    while (waitpid(holder, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

bool Hosts::StartHolder(const std::string& name, std::string* why_not) {
  int told[2];
  if (pipe2(told, O_CLOEXEC) != 0) {
    *why_not = std::string("no pipe: ") + std::strerror(errno);
    return false;
  }
  const pid_t self = getpid();
  const pid_t holder = fork();
  if (holder == 0) Hold(self, name, told[1]);
  int error = errno;
  if (holder > 0) {
    holders_.push_back(holder);
    error = 0;
  }
  close(told[1]);
  if (holder > 0 && read(told[0], &error, sizeof error) != sizeof error) error = ECHILD;
  close(told[0]);
  if (error != 0) *why_not = std::string("no network namespace: ") + std::strerror(error) + kRemedy;
  return error == 0;
}

std::vector<std::string> Hosts::Enter(int host) const {
  return {SystemProgram("nsenter"), "-t", std::to_string(holders_[static_cast<size_t>(host)]), "-n", "-u", "-m", "--"};
}

bool Hosts::Configured(size_t holder, const std::string& program, const std::string& words) const {
  std::vector<std::string> line = {SystemProgram("nsenter"), "-t", std::to_string(holders_[holder]), "-n", "--", SystemProgram(program)};
  std::istringstream rest(words);
  for (std::string word; rest >> word;) line.push_back(word);
  return RunToEnd(std::move(line)) == 0;
}

bool Hosts::JoinTwo() const { return Ip(0, "link add eth0 type veth peer name eth0 netns " + std::to_string(holders_[1])); }

bool Hosts::JoinBySwitch(int count) const {
  const auto center = static_cast<size_t>(count);
  bool done = Ip(center, "link add switch type bridge") && Ip(center, "link set switch up");
  for (int host = 0; done && host < count; ++host) {
    const std::string port = "port" + std::to_string(host);
    done = Ip(center, "link add " + port + " type veth peer name eth0 netns " + std::to_string(holders_[static_cast<size_t>(host)])) &&
           Ip(center, "link set " + port + " master switch up");
  }
  return done;
}

bool Hosts::Configure(int host) const {
  const auto holder = static_cast<size_t>(host);
  return Ip(holder, "link set lo up") && Ip(holder, "address add " + Address(host) + "/24 dev eth0") && SetLink(host, true);
}

// The kernel tells that a cable has two ends up to a second late; UCX passes over an interface that does not run yet.
bool Hosts::WaitForLink(int host) const {
  std::vector<std::string> look = Enter(host);
  look.insert(look.end(), {"/bin/cat", "/sys/class/net/eth0/operstate"});
  for (int i = 0; i < 200; ++i) {
    std::string state;
    if (RunForOutput(look, &state) != 0) return false;
    if (state == "up\n") return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  return false;
}

// The bucket holds what the wire moves in a tenth of a millisecond, and at least two of the largest packets (64 KiB); who sends more waits
// in the queue for a millisecond at most.
bool Hosts::LimitWires(double gbit_s) const {
  if (SystemProgram("tc").empty()) return false;
  const auto mbit_s = static_cast<uint64_t>(gbit_s * 1000);
  const uint64_t bucket = std::max<uint64_t>(mbit_s * 1'000'000 / 8 / 10'000, 128 << 10);
  bool done = true;
  for (size_t host = 0; host < holders_.size(); ++host) {
    done = done && Configured(host, "tc", "qdisc replace dev eth0 root tbf rate " + std::to_string(mbit_s) + "mbit burst " + std::to_string(bucket) + " latency 1ms");
  }
  return done;
}

bool Hosts::SetLink(int host, bool up) const { return Ip(static_cast<size_t>(host), std::string("link set eth0 ") + (up ? "up" : "down")); }

}  // namespace ramspan::bench
