#include "tests/cluster/cluster_fixture.h"

#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

#include "common/units.h"
#include "tests/cluster/world.h"
#include "tests/support/send_signal.h"

namespace ramspan {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kNetwork[] = "10.77.0.";
constexpr int kTestsOwnHost = 100;
std::string missing = "the world was not entered";

bool Succeeds(const std::string& command) { return std::system(command.c_str()) == 0; }

// One call of `ip` for all of it: each costs some milliseconds.
bool MakeHosts() {
  std::ofstream lines("/run/hosts.ip"), names("/run/hosts");
  lines << "link set lo up\nlink add cluster type bridge\nlink set cluster up\naddr add " << kNetwork << kTestsOwnHost << "/24 dev cluster\n";
  names << "127.0.0.1 localhost\n" << kNetwork << kTestsOwnHost << " login\n";
  for (int host = 1; host <= ClusterFixture::kHosts; ++host) {
    const std::string name = "h" + std::to_string(host);
    lines << "netns add " << name << "\nlink add to-" << name << " type veth peer name eth0 netns " << name << "\nlink set to-" << name
          << " master cluster up\n";
    names << kNetwork << host << " " << name << "\n";
  }
  lines.close();
  names.close();
  // hydra tells it to the hosts as the place where it was started.
  if (sethostname("login", std::strlen("login")) != 0) return false;
  if (!Succeeds("ip -batch /run/hosts.ip") || mount("/run/hosts", "/etc/hosts", nullptr, MS_BIND, nullptr) != 0) return false;
  for (int host = 1; host <= ClusterFixture::kHosts; ++host) {
    std::ofstream inside("/run/inside.ip");
    inside << "link set lo up\naddr add " << kNetwork << host << "/24 dev eth0\nlink set eth0 up\n" << std::flush;
    if (!Succeeds("ip -n h" + std::to_string(host) + " -batch /run/inside.ip")) return false;
  }
  return true;
}

}  // namespace

void ClusterFixture::EnterWorldOrSay() {
  if (!Succeeds("command -v ip >/dev/null && command -v unshare >/dev/null && command -v hostname >/dev/null")) {
    missing = "ip, unshare or hostname is not installed";
    return;
  }
  missing = EnterWorld();
  if (missing.empty() && !MakeHosts()) missing = "networks cannot be set up here (ip said why)";
}

void ClusterFixture::SetUp() {
  if (!missing.empty()) GTEST_SKIP() << missing;
  for (int host = 1; host <= kHosts; ++host) Plug(host);
}

void ClusterFixture::Unplug(int host) { EXPECT_TRUE(Succeeds("ip link set to-" + NameOf(host) + " down")); }
void ClusterFixture::Plug(int host) { EXPECT_TRUE(Succeeds("ip link set to-" + NameOf(host) + " up")); }

ClusterFixture::Started ClusterFixture::StartOn(int host, const Words& command, const Words& environment) {
  Started started;
  started.folder = folder_ / ("started-" + std::to_string(++started_));
  fs::create_directory(started.folder);
  Words words = {"ip", "netns", "exec", NameOf(host), "unshare", "-u", "sh", "-c",
                 "hostname \"$1\"; cd \"$2\"; shift 2; exec \"$@\" > out 2> err", "sh", NameOf(host), started.folder.string()};
  words.insert(words.end(), command.begin(), command.end());
  Words all = {"RAMSPAN_TEST_READY=" + started.folder.string()};
  all.insert(all.end(), environment.begin(), environment.end());
  started.pid = StartCommand(words, all);
  return started;
}

std::string ClusterFixture::RemoteShell() const {
  const fs::path script = folder_ / "bin/remote-shell";
  std::ofstream(script) << "#!/bin/sh\n"
                           "while :; do case $1 in -*) shift ;; *) break ;; esac; done\n"
                           "host=$1; shift\n"
                           "exec ip netns exec $host unshare -u sh -c \"hostname $host; $*\"\n";
  fs::permissions(script, fs::perms(0755));
  return script.string();
}

ClusterFixture::Server ClusterFixture::StartServer(int host, const std::string& memory, const Words& more) {
  Server server;
  Words words = {LAUNCHER, "server", "--memory", memory, "--listen", PlaceOf(host)};
  words.insert(words.end(), more.begin(), more.end());
  static_cast<Started&>(server) = StartOn(host, words);
  server.host = host;
  server.place = AddressOf(host) + ":7117";
  EXPECT_TRUE(Becomes([&] { return server.out().find(server.place) != std::string::npos; })) << server.out() << server.err();
  return server;
}

void ClusterFixture::EndServer(const Server& server, int signal, int status) {
  SendSignal(server.pid, signal);
  EXPECT_EQ(WaitFor(server).status, status) << server.err();
}

ClusterFixture::Started ClusterFixture::StartClient(int host, const Words& command, const std::string& servers, const Words& more,
                                                    const std::string& swap) {
  Words environment = {"RAMSPAN_SERVERS=" + servers, "RAMSPAN_TRANSPORT=ofi", "RAMSPAN_MEMORY=4MiB", "RAMSPAN_SWAP=" + swap};
  environment.insert(environment.end(), more.begin(), more.end());
  return StartOn(host, command, environment);
}

Words ClusterFixture::Sweep(size_t bytes, int sweeps) { return {SWEEP_PROGRAM, std::to_string(bytes), std::to_string(256 << 10), "2", "1", std::to_string(sweeps)}; }
Words ClusterFixture::Loss(int chunks) { return {LOSS_PROGRAM, std::to_string(chunks), std::to_string(256 << 10)}; }

void ClusterFixture::AwaitReady(const Started& program) {
  EXPECT_TRUE(Becomes([&] { return fs::exists(program.folder / "rank-0"); })) << program.err();
}

void ClusterFixture::SayStop(const Started& program) { std::ofstream(program.folder / "stop") << ""; }
void ClusterFixture::SayGo(const Started& program) { std::ofstream(program.folder / "go") << ""; }

Outcome ClusterFixture::WaitFor(const Started& program, seconds patience) {
  Outcome outcome = Wait(program.pid, patience);
  outcome.out = program.out();
  outcome.err = program.err();
  return outcome;
}

void ClusterFixture::Kill(const Started& program) {
  SendSignal(program.pid, SIGKILL);
  EXPECT_EQ(WaitFor(program).status, 128 + SIGKILL);
}

void ClusterFixture::ExpectVerified(const Started& program, size_t bytes) {
  const Outcome outcome = WaitFor(program);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "verified " + std::to_string(bytes) + " bytes\n") << outcome.err;
}

Outcome ClusterFixture::Ctl(const Words& words) {
  Words all = {LAUNCHER, "ctl"};
  all.insert(all.end(), words.begin(), words.end());
  return Wait(StartCommand(all));
}

ClusterFixture::Listing ClusterFixture::List(const std::string& place) {
  const Outcome said = Ctl({"list", place});
  Listing listing;
  std::istringstream lines(said.out);
  std::string line;
  std::smatch found;
  if (!std::getline(lines, line) || !std::regex_match(line, found, std::regex(".* lends (.*), of which [0-9]+ clients? holds? ([^;]*)(; it drains)?(; each job may hold .*)?"))) {
    return listing;
  }
  listing.answers = true;
  listing.lent_bytes = ParseBytes(found[1].str()).value();
  listing.held_bytes = ParseBytes(found[2].str()).value();
  listing.drains = found[3].matched;
  while (std::getline(lines, line)) {
    if (line.find(" may hold ") != std::string::npos) continue;  // a quota
    if (!std::regex_match(line, found, std::regex("  ([^ ]+ [^ ]+) +(?:of at most [^ ]+ [^ ]+ )?([^ \\[]+)\\[[0-9]+\\]@([^ ,]+).*"))) ADD_FAILURE() << line;
    else listing.bytes_of[found[2].str() + "@" + found[3].str()] += ParseBytes(found[1].str()).value();
  }
  return listing;
}

ClusterFixture::Listing ClusterFixture::ListUntil(const std::string& place, const std::function<bool(const Listing&)>& wanted, seconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  Listing listing = List(place);
  while (!wanted(listing) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(20));
    listing = List(place);
  }
  EXPECT_TRUE(wanted(listing)) << place << " lends " << listing.lent_bytes << " to " << listing.bytes_of.size() << " clients that hold " << listing.held_bytes;
  return listing;
}

std::set<std::string> ClusterFixture::HostsOf(const std::string& program) {
  std::set<std::string> hosts;
  for (const pid_t pid : JobProcesses()) {
    const fs::path process = "/proc/" + std::to_string(pid);
    if (ReadFile(process / "comm") != program.substr(0, 15) + "\n") continue;
    // The addresses of the network that the process is in.
    const std::string addresses = ReadFile(process / "net/fib_trie");
    for (int host = 1; host <= kHosts; ++host) {
      if (addresses.find("-- " + AddressOf(host) + "\n") != std::string::npos) hosts.insert(NameOf(host));
    }
  }
  return hosts;
}

// The switch has sent it. /sys tells of the network in which it was mounted, /proc of this process's.
uint64_t ClusterFixture::BytesTo(int host) {
  std::smatch found;
  const std::string all = ReadFile("/proc/net/dev"), eight = "(?: +[0-9]+){8}";  // received: bytes, packets, ... before what was sent
  EXPECT_TRUE(std::regex_search(all, found, std::regex("to-" + NameOf(host) + ":" + eight + " +([0-9]+)"))) << all;
  return found.size() == 2 ? std::stoull(found[1].str()) : 0;
}

testing::AssertionResult ClusterFixture::RunsOn(const std::set<std::string>& hosts, const std::string& program) {
  std::set<std::string> found;
  if (Becomes([&] { return (found = HostsOf(program)) == hosts; })) return testing::AssertionSuccess();
  return testing::AssertionFailure() << program << " is on " << testing::PrintToString(found);
}

}  // namespace ramspan
