#include "launch/server_start.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/topology.h"
#include "launch/allocation.h"
#include "launch/argument_code.h"
#include "launch/control.h"
#include "launch/process.h"

namespace ramspan {
namespace {

constexpr int kCannotRun = 126;

std::string TextOf(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

bool IsLoopback(const in_addr& address) { return (ntohl(address.s_addr) >> IN_CLASSA_NSHIFT) == IN_LOOPBACKNET; }

// The only place where nothing but the host's own interfaces can tell: the launcher's own host, whose name often means a
// loopback address there.
std::string FirstAddressOfThisHost() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_UP) == 0) continue;
    const in_addr address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    if (!IsLoopback(address)) found = TextOf(address);
  }
  freeifaddrs(all);
  return found;
}

// Of the interface by which this host reaches the launcher's.
std::string AddressTowardsLauncher(const char* control) {
  const UniqueFd connection = ConnectToLauncher(nullptr, control);
  sockaddr_in here{};
  socklen_t length = sizeof here;
  if (!connection || getsockname(connection.get(), reinterpret_cast<sockaddr*>(&here), &length) != 0 || here.sin_family != AF_INET) return "";
  if (!IsLoopback(here.sin_addr)) return TextOf(here.sin_addr);
  const std::string other = FirstAddressOfThisHost();
  return other.empty() ? TextOf(here.sin_addr) : other;
}

// Half of what this host has, between the servers that may be here: not more than all of the job's, nor than mpiexec's processes.
std::string ShareOfMemory(int servers) {
  const char* processes = std::getenv("MPI_LOCALNRANKS");
  const int here = std::min(servers, PositiveNumber(processes == nullptr ? "" : processes).value_or(servers));
  return std::to_string(std::max<uint64_t>(1, (AvailableMemory() / 2 / static_cast<uint64_t>(here)) >> 20)) + "MiB";
}

int Fail(const std::string& what) {
  std::fprintf(stderr, "ramspan: %s\n", what.c_str());
  return kCannotRun;
}

}  // namespace

Result<std::string> SecretAsDescriptor(const std::string& secret) {
  const int fd = memfd_create("ramspan-secret", 0);  // inherited: no close-on-exec
  if (fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, secret.data(), secret.size()) == static_cast<ssize_t>(secret.size())) {
    return "/dev/fd/" + std::to_string(fd);
  }
  return Unavailable(std::string("no file in memory for the secret of the memory servers: ") + std::strerror(errno));
}

int BecomeServer(const std::vector<std::string>& arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);  // of hydra's proxy
  const char* control = std::getenv(kControlVariable);
  const char* secret = std::getenv(kServerSecretVariable);
  const Result<std::vector<std::string>> decoded = DecodeArguments(arguments);
  if (control == nullptr || secret == nullptr || !decoded.ok() || decoded.value().size() < 2) {
    return Fail("__server is used by `ramspan run` only");
  }
  std::vector<std::string> line(decoded.value().begin() + 1, decoded.value().end());
  const std::string address = AddressTowardsLauncher(control);
  if (address.empty()) return Fail("a memory server cannot reach the launcher's host, so it does not know where to listen");
  const Result<std::string> key = SecretAsDescriptor(secret);
  if (!key.ok()) return Fail(key.status().message());
  unsetenv(kControlVariable);
  unsetenv(kServerSecretVariable);
  if (std::find(line.begin(), line.end(), "--memory") == line.end()) {
    line.insert(line.end(), {"--memory", ShareOfMemory(PositiveNumber(decoded.value()[0]).value_or(1))});
  }
  line.insert(line.end(), {"--listen", address + ":0", "--key-file", key.value()});
  IgnoreReportSignals();
  std::vector<char*> argv;
  for (std::string& argument : line) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  return Fail("cannot run " + line[0] + ": " + std::strerror(errno));
}

}  // namespace ramspan
