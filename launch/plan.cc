#include "launch/plan.h"

#include <algorithm>
#include <utility>

#include "common/topology.h"
#include "common/units.h"
#include "launch/allocation.h"
#include "launch/argument_code.h"

namespace ramspan {
namespace {

// limits.md: 64 KiB segments bring MPI over TCP from 1.3 to 4.2 GB/s for 1 MiB blocks.
constexpr char kTcpSegmentName[] = "UCX_TCP_TX_SEG_SIZE";
constexpr char kTcpSegmentValue[] = "64k";
constexpr uint64_t kSmallestMemory = 1 << 20;

std::string Env(const Facts& facts, const char* name) {
  const char* value = facts.getenv(name);
  return value == nullptr ? "" : value;
}

class Planner {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  Planner(const RunOptions& options, const Facts& facts)
      : options_(options), facts_(facts), allocation_(FindAllocation(facts.getenv, facts.read_file)) {}

  Result<Plan> Make() {
    for (auto step : {&Planner::CheckTransport, &Planner::CountRanks, &Planner::FindApp, &Planner::FindHosts,
                      &Planner::CheckEnvironment, &Planner::ChooseTransport, &Planner::PlaceAll, &Planner::CheckMemory, &Planner::TuneTcp, &Planner::BuildLine}) {
      if (Status status = (this->*step)(); !status.ok()) return status;
    }
    return std::move(plan_);
  }

 private:
  Status CheckTransport();
  Status CountRanks();
  Status FindApp();
  Status FindHosts();
  Status CheckEnvironment();
  Status ChooseTransport();
  std::string ChooseByFacts();
  Status PlaceAll();
  Status CheckMemory();
  Status CheckServerMemory(uint64_t server_bytes);
  void WarnOfMemory(uint64_t servers_take);
  void ChooseMemory(uint64_t servers_take);
  Status TuneTcp();
  Status BuildLine();
  Result<std::string> FindMpiexec();
  Result<uint64_t> Size(const char* option, const std::string& text) const;
  Status BuildMpiexecLine(const Environment& app_env);
  Status BuildServerLine();
  std::vector<std::string> MpiexecLine(const std::string& mpiexec, const std::vector<HostSlots>& hosts) const;
  void AddKept(const std::vector<std::string>& program);
  void AddRanks(int count, const Environment& env, const std::vector<std::string>& program);
  std::string StatsFile();
  int AllServers() const { return plan_.servers + plan_.outside_servers; }
  bool NamesServers() const { return Setting("RAMSPAN_SERVERS").find_first_of(":/@") != std::string::npos; }
  bool UserHas(const std::string& name) const;
  std::string Setting(const std::string& name) const;

  const RunOptions& options_;
  const Facts& facts_;
  const Allocation allocation_;
  Plan plan_;
  std::vector<std::string> app_;
  std::string server_memory_;  // of one server; empty: nobody says
  std::optional<Placement> placement_;  // nothing: mpiexec's choice
  bool hosts_named_ = false;            // by the user
  std::string memory_;  // RAMSPAN_MEMORY for the application; empty: leave it to the application
};

Status Planner::CheckTransport() {
  const std::string& transport = options_.transport;
  if (transport != "auto" && transport != "mpi" && transport != "ofi" && transport != "none") {
    return InvalidArgument("--transport " + transport + ": choose auto, mpi, ofi or none (files only)");
  }
  if (options_.servers < 0) return InvalidArgument("-s " + std::to_string(options_.servers) + ": 0 servers or more");
  plan_.servers = options_.servers;
  if (transport == "none" && plan_.servers > 0) {
    plan_.notes.push_back("--transport none: no memory servers are started, swap goes to files");
    plan_.servers = 0;
  }
  if (transport == "mpi" && plan_.servers == 0) {
    return InvalidArgument("--transport mpi needs memory servers: give -s 1 or more, or --transport none");
  }
  return {};
}

// Which kind of servers, when nobody says. Both reach servers of this host by load and store.
std::string Planner::ChooseByFacts() {
  if (facts_.server.empty()) return "mpi: ramspan-server (libfabric) is not installed";
  if (facts_.memserver.empty()) return "ofi: ramspan-memserver (MPI) is not installed";
  if (plan_.ranks > 1) {
    return "mpi: with several ranks servers are ranks, too, so MPI_COMM_WORLD has " + std::to_string(plan_.ranks + plan_.servers) +
           " ranks for who includes <mpi.h>; by <ramspan/mpi.h> it has " + std::to_string(plan_.ranks) +
           ". With ofi they would be processes outside of the job, whose death does not end it";
  }
  const std::optional<bool> mpi = facts_.is_linked_with_mpi(app_[0]);
  if (!mpi) return "mpi: " + plan_.app_name + " is no binary that says whether it uses MPI";
  if (*mpi) return "mpi: " + plan_.app_name + " is linked with MPI, so servers are ranks of its job";
  return "ofi: " + plan_.app_name + " is not linked with MPI, so servers are processes of their own, whose death does not end the job";
}

Status Planner::ChooseTransport() {
  std::string transport = options_.transport;
  if (plan_.servers == 0) {
    if (transport != "ofi" || NamesServers()) return {};
    return InvalidArgument("--transport ofi needs memory servers: give -s 1 or more, or name some (RAMSPAN_SERVERS=HOST:PORT), or --transport none");
  }
  if (transport == "auto") {
    const std::string choice = ChooseByFacts();
    transport = choice.substr(0, choice.find(':'));
    plan_.notes.push_back("--transport " + choice);
  }
  if (transport != "ofi") return {};
  if (facts_.server.empty()) {
    return InvalidArgument("--transport ofi: ramspan-server is neither beside " + facts_.launcher + " nor in PATH: the installation is incomplete; "
                           "use --transport mpi");
  }
  plan_.outside_servers = std::exchange(plan_.servers, 0);
  return {};
}

Status Planner::CountRanks() {
  const std::optional<int> tasks = allocation_.tasks;
  if (options_.ranks) {
    plan_.ranks = *options_.ranks;
    if (plan_.ranks < 1) return InvalidArgument("-n " + std::to_string(plan_.ranks) + ": at least 1 compute rank");
    if (tasks && plan_.ranks + plan_.servers > *tasks) {
      plan_.notes.push_back(std::to_string(plan_.ranks) + " compute ranks and " + std::to_string(plan_.servers) +
                            " servers are more than the " + std::to_string(*tasks) + " tasks of this " + allocation_.system + " job");
    }
    return {};
  }
  if (!tasks) return {};
  plan_.ranks = *tasks - plan_.servers;
  if (plan_.ranks < 1) {
    return InvalidArgument("this " + allocation_.system + " job has " + std::to_string(*tasks) + " tasks, and -s takes " +
                           std::to_string(plan_.servers) + " of them: no compute rank is left; ask for more tasks");
  }
  plan_.notes.push_back("-n " + std::to_string(plan_.ranks) + " (the tasks of this " + allocation_.system + " job minus the servers)");
  return {};
}

Status Planner::FindApp() {
  if (options_.app.empty()) {
    return InvalidArgument("no program to run: ramspan run -n 2 -s 1 -- ./app ARGUMENTS");
  }
  Result<std::string> found = facts_.find_program(options_.app[0]);
  if (!found.ok()) return InvalidArgument("cannot run the application: " + found.status().message());
  app_ = options_.app;
  app_[0] = found.value();
  plan_.app_name = options_.app[0];
  return {};
}

Status Planner::FindHosts() {
  if (!options_.hostfile.empty()) {
    hosts_named_ = true;
    Result<std::string> text = facts_.read_file(options_.hostfile);
    if (!text.ok()) return InvalidArgument("--hostfile: " + text.status().message());
    const size_t hosts = HostsOf(text.value()).size();
    if (hosts == 0) return InvalidArgument("--hostfile " + options_.hostfile + " names no host (one a line)");
    plan_.several_hosts = hosts > 1;
    return {};
  }
  for (size_t i = 0; i + 1 < options_.mpi_args.size(); ++i) {
    const std::string& argument = options_.mpi_args[i];
    if (argument != "-hosts" && argument != "--hosts") continue;
    hosts_named_ = true;
    plan_.several_hosts = options_.mpi_args[i + 1].find(',') != std::string::npos;
    return {};
  }
  plan_.several_hosts = allocation_.nodes > 1;
  return {};
}

// Within the allocation of a batch system: which nodes have ranks, which have servers.
Status Planner::PlaceAll() {
  if (hosts_named_ || !plan_.several_hosts) return {};
  const bool as_ranks = plan_.servers > 0;
  placement_ = Place(allocation_.hosts, plan_.ranks, AllServers(), as_ranks);
  const std::string job = allocation_.system + " job on " + std::to_string(allocation_.nodes) + " nodes: ";
  if (!placement_) {
    plan_.notes.push_back(job + "mpiexec takes the nodes from the allocation" + (as_ranks ? ", the servers come last" : ""));
    return {};
  }
  std::string what = job + Describe(*placement_);
  if (AllServers() > 0 && !placement_->servers_alone) {
    what += as_ranks ? ", the last ones, because no node is free of ranks; --transport ofi would spread them" : ", because no node is free of ranks";
  }
  plan_.notes.push_back(what);
  return {};
}

Status Planner::CheckEnvironment() {
  for (const std::string& setting : options_.env) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      return InvalidArgument("-x " + setting + ": write -x NAME=VALUE");
    }
    plan_.env.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
  }
  return {};
}

Result<uint64_t> Planner::Size(const char* option, const std::string& text) const {
  Result<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return InvalidArgument(std::string(option) + ": " + bytes.status().message());
  if (bytes.value() < kSmallestMemory) {
    return InvalidArgument(std::string(option) + " " + text + ": at least " + FormatBytes(kSmallestMemory) +
                           UnitsForgotten(text));
  }
  return bytes;
}

Status Planner::CheckMemory() {
  if (!options_.memory.empty()) {
    if (Result<uint64_t> bytes = Size("--memory", options_.memory); !bytes.ok()) return bytes.status();
    memory_ = options_.memory;
  }
  uint64_t servers_take = AllServers() > 0 ? facts_.available_memory / 2 : 0;  // the servers' own default
  const bool by_option = !options_.server_memory.empty();
  const std::string text = by_option ? options_.server_memory : Setting("RAMSPAN_SERVER_MEMORY");
  if (!text.empty()) {
    Result<uint64_t> bytes = Size(by_option ? "--server-memory" : "RAMSPAN_SERVER_MEMORY", text);
    if (!bytes.ok()) return bytes.status();
    if (AllServers() == 0) {
      if (by_option) plan_.notes.push_back("--server-memory has no effect without servers (-s)");
    } else if (Status status = CheckServerMemory(bytes.value()); !status.ok()) {
      return status;
    } else {
      servers_take = bytes.value() * static_cast<uint64_t>(AllServers());
      server_memory_ = text;
    }
  }
  WarnOfMemory(servers_take);
  const bool limited = facts_.app_memory_configured || UserHas("RAMSPAN_MEMORY") || UserHas("RAMSPAN_CONFIG");
  if (memory_.empty() && !limited) ChooseMemory(servers_take);
  return {};
}

// Which host a server lands on is mpiexec's choice, so that only a job on this host alone can be checked here; the
// servers themselves check it everywhere.
Status Planner::CheckServerMemory(uint64_t server_bytes) {
  if (plan_.several_hosts) return {};
  const uint64_t servers = static_cast<uint64_t>(AllServers());
  // Servers outside of MPI lend files in memory that are not in /dev/shm.
  const uint64_t shared = plan_.servers == 0 ? UINT64_MAX : SharedMemoryRoom(facts_.shared_memory_free, plan_.ranks + plan_.servers);
  const bool shared_is_smaller = shared < facts_.available_memory;
  const uint64_t room = std::min(facts_.available_memory, shared);
  if (server_bytes <= room / servers) return {};
  std::string what = std::to_string(servers) + (servers == 1 ? " server" : " servers") + " of " +
                     FormatBytes(server_bytes) + " do not fit: this host has " + FormatBytes(room) +
                     (shared_is_smaller ? " for servers in /dev/shm" : " of memory available") + ". Remedy: --server-memory " +
                     std::to_string((room / servers) >> 20) + "MiB or less";
  if (shared_is_smaller) what += ", or enlarge it (mount -o remount,size=SIZE /dev/shm; in a container: --shm-size)";
  return ResourceExhausted(what);
}

// No error: limits that are never reached are legal, and memory may become free.
void Planner::WarnOfMemory(uint64_t servers_take) {
  const std::string text = memory_.empty() ? Setting("RAMSPAN_MEMORY") : memory_;
  const Result<uint64_t> bytes = ParseBytes(text);
  if (plan_.several_hosts || text.empty() || !bytes.ok()) return;
  const auto ranks = static_cast<uint64_t>(plan_.ranks);
  const uint64_t all = bytes.value() > (UINT64_MAX - servers_take) / ranks ? UINT64_MAX : bytes.value() * ranks + servers_take;
  if (all <= facts_.available_memory) return;
  std::string what = "warning: " + std::to_string(plan_.ranks) + (plan_.ranks == 1 ? " rank of " : " ranks of ") +
                     FormatBytes(bytes.value());
  if (AllServers() > 0) what += " and " + FormatBytes(servers_take) + " for the servers";
  plan_.notes.push_back(what + " make " + FormatBytes(all) + ", but this host has " +
                        FormatBytes(facts_.available_memory) +
                        " of memory available: a job that uses its limits is killed. Lower --memory or --server-memory");
}

// Each process's own default is half of what is available, which several of them on one host must not take at once.
void Planner::ChooseMemory(uint64_t servers_take) {
  if (plan_.several_hosts || (plan_.ranks == 1 && AllServers() == 0)) return;
  const uint64_t left = facts_.available_memory - std::min(servers_take, facts_.available_memory);
  const uint64_t mebibytes = std::max<uint64_t>(1, (left / 2 / static_cast<uint64_t>(plan_.ranks)) >> 20);
  memory_ = std::to_string(mebibytes) + "MiB";
  plan_.notes.push_back("--memory " + memory_ + " for each compute rank (half of what the servers leave, shared)");
}

bool Planner::UserHas(const std::string& name) const {
  if (facts_.getenv(name.c_str()) != nullptr) return true;
  return std::any_of(plan_.env.begin(), plan_.env.end(), [&](const auto& one) { return one.first == name; });
}

// What the application will find: -x wins over this process's environment.
std::string Planner::Setting(const std::string& name) const {
  for (const auto& [key, value] : plan_.env) {
    if (key == name) return value;
  }
  return Env(facts_, name.c_str());
}

Status Planner::TuneTcp() {
  const std::string transports = Setting("UCX_TLS");
  const bool over_tcp = plan_.several_hosts || transports.find("tcp") != std::string::npos;
  if (!over_tcp || UserHas(kTcpSegmentName)) return {};
  plan_.env.emplace_back(kTcpSegmentName, kTcpSegmentValue);
  plan_.notes.push_back(std::string(kTcpSegmentName) + "=" + kTcpSegmentValue +
                        " for MPI over TCP (set it yourself to override)");
  return {};
}

Result<std::string> Planner::FindMpiexec() {
  if (!options_.mpiexec.empty()) {
    Result<std::string> found = facts_.find_program(options_.mpiexec);
    if (!found.ok()) return InvalidArgument("--mpiexec: " + found.status().message());
    return found;
  }
  for (const char* name : {"mpiexec.hydra", "mpiexec.mpich", "mpiexec"}) {
    Result<std::string> found = facts_.find_program(name);
    if (found.ok()) return found;
  }
  return InvalidArgument("MPICH's mpiexec is not in PATH: install it (apt-get install mpich) or give --mpiexec PATH");
}

// One FILE for several processes would keep only the last one's object.
std::string Planner::StatsFile() {
  std::string file = options_.stats;
  if (plan_.ranks == 1 || file.find("%r") != std::string::npos || file.find("%p") != std::string::npos) return file;
  const size_t slash = file.rfind('/');
  const size_t dot = file.rfind('.');
  const bool has_ending = dot != std::string::npos && dot > 0 && (slash == std::string::npos || dot > slash + 1);
  file.insert(has_ending ? dot : file.size(), ".%r");
  plan_.notes.push_back("--stats: one file a rank, " + file + " (%r is the rank)");
  return file;
}

// Each rank is started by a keeper, `ramspan __rank` (launch/keeper.h).
void Planner::AddKept(const std::vector<std::string>& program) {
  plan_.argv.insert(plan_.argv.end(), {facts_.launcher, "__rank", "--"});
  const std::vector<std::string> words = EncodeArguments(program);
  plan_.argv.insert(plan_.argv.end(), words.begin(), words.end());
}

void Planner::AddRanks(int count, const Environment& env, const std::vector<std::string>& program) {
  plan_.argv.insert(plan_.argv.end(), {"-n", std::to_string(count)});
  for (const auto& [name, value] : env) plan_.argv.insert(plan_.argv.end(), {"-env", name, value});
  AddKept(program);
}

Status Planner::BuildLine() {
  const bool hosts_named = !options_.hostfile.empty() || !options_.mpi_args.empty();
  // The one rank of a job in an allocation has its node there; this process may be on a login node.
  const bool is_placed = placement_ && AllServers() > 0;
  plan_.by_mpiexec = plan_.ranks > 1 || plan_.servers > 0 || hosts_named || is_placed || !options_.mpiexec.empty();
  // Servers outside of the job, named by the user in the same variable, stay named.
  const bool outside = plan_.outside_servers > 0 ||
                       (plan_.servers == 0 && (options_.transport == "auto" || options_.transport == "ofi") && NamesServers());
  if (!outside) plan_.env.emplace_back("RAMSPAN_SERVERS", std::to_string(plan_.servers));
  if (!outside && plan_.servers == 0) plan_.env.emplace_back("RAMSPAN_TRANSPORT", "none");
  if (plan_.servers > 0 && options_.transport == "mpi") plan_.env.emplace_back("RAMSPAN_TRANSPORT", "mpi");
  Environment app_env;
  if (!memory_.empty()) app_env.emplace_back("RAMSPAN_MEMORY", memory_);
  if (!options_.stats.empty()) app_env.emplace_back("RAMSPAN_STATS", StatsFile());
  if (Status status = BuildServerLine(); !status.ok()) return status;
  if (plan_.by_mpiexec) return BuildMpiexecLine(app_env);
  plan_.env.insert(plan_.env.end(), app_env.begin(), app_env.end());
  AddKept(app_);
  return {};
}

std::vector<std::string> Planner::MpiexecLine(const std::string& mpiexec, const std::vector<HostSlots>& hosts) const {
  std::vector<std::string> line = {mpiexec};
  line.insert(line.end(), options_.mpi_args.begin(), options_.mpi_args.end());
  if (!options_.hostfile.empty()) line.insert(line.end(), {"-f", options_.hostfile});
  if (!hosts.empty()) line.insert(line.end(), {"-hosts", HostList(hosts)});
  return line;
}

// Servers outside of the job. On several hosts mpiexec starts them, on those of the placement. Where there is none, it puts them where ranks
// behind the application's would be: the places of the application's ranks are held by processes that end at once.
Status Planner::BuildServerLine() {
  if (plan_.outside_servers == 0) return {};
  std::vector<std::string> server = {facts_.server};
  if (server_memory_.empty() && !plan_.several_hosts) {
    const uint64_t each = facts_.available_memory / 2 / static_cast<uint64_t>(plan_.outside_servers);
    server_memory_ = std::to_string(std::max<uint64_t>(1, each >> 20)) + "MiB";
    plan_.notes.push_back("--server-memory " + server_memory_ + " for each server (half of what is available, shared)");
  }
  if (!server_memory_.empty()) server.insert(server.end(), {"--memory", server_memory_});
  if (!plan_.several_hosts) {
    plan_.server_argv = std::move(server);
    return {};
  }
  Result<std::string> mpiexec = FindMpiexec();
  if (!mpiexec.ok()) return mpiexec.status();
  plan_.servers_by_mpiexec = true;
  plan_.server_argv = MpiexecLine(mpiexec.value(), placement_ ? placement_->servers : std::vector<HostSlots>());
  std::vector<std::string>& line = plan_.server_argv;
  const std::string servers = std::to_string(plan_.outside_servers);
  line.push_back("-disable-auto-cleanup");  // the death of one is not the end of the others
  if (!placement_) line.insert(line.end(), {"-n", std::to_string(plan_.ranks), facts_.launcher, "__nothing", ":"});
  // Both jobs use the same nodes of the allocation at the same time; without this the second step of SLURM may wait for the first.
  if (allocation_.system == "SLURM" && !UserHas("SLURM_OVERLAP")) plan_.env.emplace_back("SLURM_OVERLAP", "1");
  line.insert(line.end(), {"-n", servers, facts_.launcher, "__server", "--"});
  server.insert(server.begin(), servers);
  const std::vector<std::string> words = EncodeArguments(server);
  line.insert(line.end(), words.begin(), words.end());
  return {};
}

Status Planner::BuildMpiexecLine(const Environment& app_env) {
  Result<std::string> mpiexec = FindMpiexec();
  if (!mpiexec.ok()) return mpiexec.status();
  std::vector<HostSlots> hosts;
  if (placement_) hosts = placement_->ranks;
  if (placement_ && plan_.servers > 0) hosts.insert(hosts.end(), placement_->servers.begin(), placement_->servers.end());
  plan_.argv = MpiexecLine(mpiexec.value(), hosts);
  AddRanks(plan_.ranks, app_env, app_);
  if (plan_.servers == 0) return {};
  if (facts_.memserver.empty()) {
    return InvalidArgument("ramspan-memserver is neither beside " + facts_.launcher +
                           " nor in PATH: the installation is incomplete");
  }
  plan_.argv.push_back(":");
  Environment server_env;
  if (!options_.server_memory.empty()) server_env.emplace_back("RAMSPAN_SERVER_MEMORY", options_.server_memory);
  AddRanks(plan_.servers, server_env, {facts_.memserver});
  return {};
}

}  // namespace

Result<Plan> MakePlan(const RunOptions& options, const Facts& facts) { return Planner(options, facts).Make(); }

}  // namespace ramspan
