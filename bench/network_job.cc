#include "bench/network_job.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/child.h"
#include "bench/folder.h"
#include "bench/hosts.h"
#include "bench/network_roofline.h"
#include "bench/process.h"
#include "bench/report.h"
#include "bench/together.h"

namespace ramspan::bench {
namespace {

using Words = std::vector<std::string>;

Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

std::string Quoted(const Words& words) {
  std::string line;
  for (const std::string& word : words) {
    line += " '";
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += "'";
  }
  return line;
}

// ^C and the like end the program; then the rest is taken down as ever, and this process ends by the same signal.
volatile sig_atomic_t program = 0, ended_by = 0;
extern "C" void EndProgram(int signal) {
  ended_by = signal;
  if (program > 0) kill(static_cast<pid_t>(program), signal);
}

int WaitForProgram(Child* child) {
  program = child->pid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    action.sa_handler = EndProgram;
    sigaction(signal, &action, nullptr);
  }
  const int status = child->Wait();
  program = 0;
  return status;
}

class NetworkJob {
 public:
  NetworkJob(const BenchOptions& options, std::optional<Hosts> hosts) : o_(options), hosts_(std::move(hosts)), self_(SelfPath()) {}

  int Run(int argc, char** argv) {
    const Words same(argv + 1, argv + argc);
    Child client = o_.transport == "mpi" ? StartMpi(same) : StartOfi(same);
    int status = WaitForProgram(&client);
    if (status != 0) return status;  // the others would wait for it
    for (Child& other : others_) status = std::max(status, other.Wait());
    return status;
  }

 private:
  Words On(int host) const { return hosts_ ? hosts_->Enter(host) : Words(); }
  std::string Address(int host) const { return hosts_ ? Hosts::Address(host) : "127.0.0.1"; }

  std::string Program(const std::string& name) const {
    const std::string path = FindProgram(name);
    if (path.empty()) throw std::runtime_error(name + " is neither near " + self_ + " nor in PATH");
    return path;
  }

  // ---- Servers that stand by themselves ----

  Child StartOfi(const Words& same) {
    std::string places, peers;
    const RawOptions raw = RawOptionsOf(o_);
    for (int i = 0; i < o_.servers; ++i) {
      servers_.push_back(Child::Server(On(1) + Words{Program("ramspan-server"), "--memory", std::to_string(o_.server_memory), "--listen", Address(1) + ":0",
                                          "--key-file", folder_.Path("key")} + (o_.server_threads > 1 ? Words{"--threads", std::to_string(o_.server_threads)} : Words())));
      places += (i > 0 ? "," : "") + PlaceOfServer(servers_.back().ReadLine());
      servers_.push_back(Child::Server(On(1) + Words{Program("ramspan-bench-fabric"), "serve", Address(1), std::to_string(raw.window)}));
      const std::string peer = servers_.back().ReadLine();
      if (peer.empty()) throw std::runtime_error("the raw peer did not start");
      peers += " '" + peer + "'";
    }
    const std::string script =
        "exec" + Quoted({Program("ramspan-bench-fabric"), "measure", std::to_string(raw.chunk), std::to_string(raw.frames)}) + " \"$1\"" + peers + "\n";
    Child::Environment environment = {{"RAMSPAN_SERVERS", places}, {"RAMSPAN_SERVER_KEY_FILE", folder_.Path("key")}, {"RAMSPAN_TRANSPORT", "ofi"},
                                      {kRawScript, folder_.Script("raw", script)}};
    if (!hosts_) environment.push_back({"RAMSPAN_TEST_FAR", "1"});  // else it would see that they are on its own host
    if (o_.clients == 1) return Child::Program(On(0) + Words{self_} + same, environment);
    const std::string meeting = Meeting();
    for (int i = 1; i < o_.clients; ++i) others_.push_back(Child::Program(On(0) + Silent() + Words{self_} + same, With(environment, meeting, i)));
    return Child::Program(On(0) + Words{self_} + same, With(environment, meeting, 0));
  }

  std::string Meeting() const {
    const std::string path = folder_.Path("together");
    Together::Make(path, o_.clients);
    return path;
  }
  // In front of all clients but the first one, which prints for all.
  static Words Silent() { return {"/bin/sh", "-c", "exec \"$@\" > /dev/null", "sh"}; }

  static Child::Environment With(Child::Environment environment, const std::string& meeting, int number) {
    environment.push_back({Together::kVariable, Together::Environment(meeting, number)});
    return environment;
  }

  // ---- Ranks ----

  Words Mpiexec() const {
    std::optional<std::string> mpiexec = FindInPath("mpiexec.hydra");
    if (!mpiexec) mpiexec = FindInPath("mpiexec.mpich");
    if (!mpiexec) throw std::runtime_error("mpiexec.hydra (MPICH) is not in PATH");
    Words line = {*mpiexec};
    if (hosts_) {
      line = line + Words{"-launcher", "ssh", "-launcher-exec", folder_.Path("enter"), "-hosts", Hosts::Address(0) + ":" + std::to_string(o_.clients) + "," + Hosts::Address(1) + ":" + std::to_string(o_.servers)};
    }
    // Ranks of one host would share memory.
    line = line + Words{"-genv", "MPIR_CVAR_NOLOCAL", "1"};
    if (std::getenv("UCX_TLS") == nullptr) line = line + Words{"-genv", "UCX_TLS", "tcp,self"};
    return line;
  }
  Child StartMpi(const Words& same) {
    if (hosts_) {
      // As hydra calls its launcher: options, the host, a command.
      std::string script = "while [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1; shift\ncase $host in\n";
      for (const int host : {0, 1}) script += "  " + Hosts::Address(host) + ") exec" + Quoted(hosts_->Enter(host)) + " sh -c \"$*\" ;;\n";
      folder_.Script("enter", script + "esac\n");
    }
    const std::string count = std::to_string(o_.servers), clients = std::to_string(o_.clients);
    // A job within a job: the inner one must not take itself for a rank of the outer one.
    const std::string unset = "for name in $(env | sed -n 's/^\\(PMI[A-Z_]*\\|HYD[A-Z_]*\\|MPI_[A-Z]*\\|RAMSPAN_[A-Z_]*\\)=.*/\\1/p'); do unset \"$name\"; done\n";
    const std::string depth = "DEPTH";
    const Words raw = {self_, o_.name, "--raw", depth, "--chunk", std::to_string(o_.chunk), "--data", std::to_string(o_.data), "--limit", std::to_string(o_.limit),
                       "--transport", "mpi", "--clients", clients};
    const Words raw_job = Mpiexec() + Words{"-n", clients} + raw + Words{":"} + Words{"-n", count} + raw;
    std::string line = Quoted(raw_job);  // the depth is known when it is asked for
    const std::string quoted = "'" + depth + "'";
    for (size_t at; (at = line.find(quoted)) != std::string::npos;) line.replace(at, quoted.size(), "\"$1\"");
    // One job for all clients: ranks spin, so a job for each would measure who gets a core.
    const Child::Environment environment = {{kRawScript, folder_.Script("raw", unset + "exec" + line + " < /dev/null\n")}, {kRawOfAll, "1"}};
    Words job = Mpiexec() + Words{"-genv", "RAMSPAN_SERVERS", count};
    const std::string meeting = o_.clients > 1 ? Meeting() : "";
    for (int i = 0; i < o_.clients; ++i) {
      job = job + Words{"-n", "1"};
      if (o_.clients > 1) job = job + Words{"-env", Together::kVariable, Together::Environment(meeting, i)};
      job = job + (i > 0 ? Silent() : Words()) + Words{self_} + same + Words{":"};
    }
    job = job + Words{"-n", count, "-env", "RAMSPAN_SERVER_MEMORY", std::to_string(o_.server_memory), Program("ramspan-memserver")};
    return Child::Program(On(0) + job, environment);
  }

  const BenchOptions& o_;
  const std::optional<Hosts> hosts_;
  const std::string self_;
  const Folder folder_;
  std::vector<Child> servers_;
  std::vector<Child> others_;  // clients beside the first one
};

}  // namespace

bool NeedsNetworkJob(const BenchOptions& options) {
  return (options.transport == "mpi" || options.transport == "ofi") && options.servers > 0 && !NetworkRoofline::IsThere() && options.raw == 0;
}

int RunNetworkJob(const BenchOptions& options, int argc, char** argv) {
  std::optional<Hosts> hosts;
  if (options.hosts == 2) {
    std::string why_not;
    hosts = Hosts::Make(2, &why_not);
    if (!hosts) {
      if (options.json) {
        PrintJson(options, {{"skipped", why_not}});
      } else {
        std::printf("%s --hosts 2: skipped: %s\n", options.name.c_str(), why_not.c_str());
      }
      return 0;
    }
    if (options.wire_gbit_s > 0 && !hosts->LimitWires(options.wire_gbit_s)) {
      throw std::runtime_error("--wire: the cable cannot be made slower; it needs `tc` (iproute2) and a kernel with sch_tbf");
    }
  }
  int status = 1;
  {
    NetworkJob job(options, std::move(hosts));
    status = job.Run(argc, argv);
  }
  if (ended_by != 0) {
    signal(ended_by, SIG_DFL);
    raise(ended_by);
  }
  return status;
}

// From "... at HOST:PORT, ...".
std::string PlaceOfServer(const std::string& line) {
  const size_t at = line.find(" at "), comma = line.find(',', at == std::string::npos ? 0 : at);
  if (at == std::string::npos || comma == std::string::npos) throw std::runtime_error("a memory server did not start: " + line);
  return line.substr(at + 4, comma - at - 4);
}

RawOptions RawOptionsOf(const BenchOptions& o) {
  const auto whole = [&](uint64_t bytes, uint64_t most) { return static_cast<size_t>(std::max<uint64_t>(2, std::min(bytes, most) / o.chunk) * o.chunk); };
  RawOptions raw{.chunk = static_cast<size_t>(o.chunk), .frames = whole(o.limit, uint64_t{128} << 20), .window = whole(o.data, uint64_t{512} << 20)};
  raw.depth = std::max(2, o.raw);
  return raw;
}

}  // namespace ramspan::bench
