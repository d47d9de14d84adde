// The command lines of a plan: the application's, by mpiexec or without, and the servers'.
#include <algorithm>
#include <utility>

#include "launch/argument_code.h"
#include "launch/planner.h"

namespace ramspan {
namespace {

// Measured: 64 KiB segments bring MPI over TCP from 1.3 to 4.2 GB/s for 1 MiB blocks.
constexpr char kTcpSegmentName[] = "UCX_TCP_TX_SEG_SIZE";
constexpr char kTcpSegmentValue[] = "64k";

}  // namespace

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
  if (!hosts.empty()) line.insert(line.end(), {"-hosts", HostList(hosts)});
  else if (!options_.hostfile.empty()) line.insert(line.end(), {"-f", options_.hostfile});
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

}  // namespace ramspan
