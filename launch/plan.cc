#include "launch/plan.h"

#include <algorithm>
#include <utility>

#include "common/config_values.h"
#include "common/units.h"
#include "launch/planner.h"

namespace ramspan {
namespace {

// Half of those that a program can get to know while it runs: servers may be started again.
constexpr int kOutsideServersMax = 128;
// More than this on a host is a slip of the keyboard, and would take the host down before anybody could interrupt it. MPI jobs for
// tests have several ranks a core; whoever debugs with hundreds of ranks has them on any host.
constexpr int kProcessesACoreMax = 16;
constexpr int kProcessesAHostMax = 256;
// Of either kind, also where only mpiexec knows the hosts: more than any job has, and the sum of both is an int.
constexpr int kProcessesMax = 1'000'000'000;

}  // namespace

Result<Plan> Planner::Make() {
  for (auto step : {&Planner::CheckTransport, &Planner::CountRanks, &Planner::FindApp, &Planner::CheckMpiOfTheApp, &Planner::FindHosts, &Planner::CheckProcesses,
                    &Planner::CheckEnvironment, &Planner::ChooseTransport, &Planner::PlaceAll, &Planner::CheckMemory, &Planner::TuneTcp,
                    &Planner::WarnOfTheApp, &Planner::PreloadPages, &Planner::BuildLine}) {
    if (Status status = (this->*step)(); !status.ok()) return status;
  }
  return std::move(plan_);
}

Status Planner::CheckTransport() {
  const std::string& transport = options_.transport;
  if (transport != "auto" && transport != "mpi" && transport != "ofi" && transport != "none") {
    return InvalidArgument("--transport " + transport + ": choose auto, mpi, ofi or none (files only)");
  }
  if (options_.servers < 0 || options_.servers > kProcessesMax) {
    return InvalidArgument("-s " + std::to_string(options_.servers) + ": 0 servers or more, up to " + std::to_string(kProcessesMax));
  }
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

// Which kind of servers, when nobody says. Both reach servers of this host by load and store. Servers that are ranks are for programs that know
// of them; any other that uses MPI, itself or behind a script or an interpreter, would wait for them in its first collective call.
std::string Planner::ChooseByFacts() {
  const std::optional<MpiUse> mpi = facts_.mpi_use(app_[0]);
  const std::string& app = plan_.app_name;
  if (facts_.memserver.empty() && !facts_.server.empty()) return "ofi: ramspan-memserver (MPI) is not installed";
  if (mpi == MpiUse::kRamspan) return "mpi: " + app + " is linked with Ramspan's MPI library, so servers are ranks of its job";
  if (facts_.server.empty()) return "mpi: ramspan-server (libfabric) is not installed";
  const std::string beside = "servers are processes of their own, whose death does not end the job";
  if (mpi == MpiUse::kOpenMpi) return "ofi: " + app + " is linked with Open MPI: " + beside;
  if (mpi == MpiUse::kPlain) {
    return "ofi: " + app + " is linked with MPI, but not with Ramspan's MPI library (<ramspan/mpi.h>): servers are processes of their own, "
           "beside the ranks of its MPI_COMM_WORLD";
  }
  if (!mpi) return "ofi: " + app + " is no binary that says whether it uses MPI: " + beside + ", and no ranks of MPI_COMM_WORLD";
  if (plan_.ranks == 1) return "ofi: " + app + " is not linked with MPI, so " + beside;
  return "ofi: " + app + " names no MPI library: " + beside + ". Unless it is an interpreter, or one of its libraries uses MPI, it runs " +
         std::to_string(plan_.ranks) + " times, each by itself";
}

// Its file says that it calls MPI, and names no library that would take the servers out of MPI_COMM_WORLD. (It may hold a static one.)
void Planner::WarnOfServersInWorld() {
  if (facts_.mpi_use(app_[0]) != MpiUse::kPlain) return;
  plan_.notes.push_back(
      "warning: " + plan_.app_name + " is linked with MPI, but not with Ramspan's MPI library. With --transport mpi its MPI_COMM_WORLD has " +
      std::to_string(plan_.ranks + plan_.servers) + " ranks, servers among them, and its first collective call waits for these for ever. Remedy: "
      "--transport ofi, or include <ramspan/mpi.h> instead of <mpi.h> and link ramspan::mpi");
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
  if (transport == "mpi") WarnOfServersInWorld();
  if (transport != "ofi") return {};
  if (facts_.server.empty()) {
    return InvalidArgument("--transport ofi: ramspan-server is neither beside " + facts_.launcher + " nor in PATH: the installation is incomplete; "
                           "use --transport mpi");
  }
  if (plan_.servers > kOutsideServersMax) {
    return InvalidArgument("-s " + std::to_string(plan_.servers) + ": a program uses " + std::to_string(kOutsideServersMax) +
                           " memory servers at most; fewer ones with more memory each (--server-memory) do the same");
  }
  plan_.outside_servers = std::exchange(plan_.servers, 0);
  return {};
}

Status Planner::CountRanks() {
  const std::optional<int> tasks = allocation_.tasks;
  if (options_.ranks) {
    plan_.ranks = *options_.ranks;
    if (plan_.ranks < 1 || plan_.ranks > kProcessesMax) {
      return InvalidArgument("-n " + std::to_string(plan_.ranks) + ": at least 1 compute rank, up to " + std::to_string(kProcessesMax));
    }
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

// Such ranks, started by MPICH's mpiexec, are one job each, without a word: each computes all of it, and they write over each other's files.
Status Planner::CheckMpiOfTheApp() {
  if (facts_.mpi_use(app_[0]) != MpiUse::kOpenMpi) return {};
  const std::string ranks = std::to_string(plan_.ranks), app = plan_.app_name, name = app.substr(app.rfind('/') + 1);
  if (options_.transport == "mpi") return InvalidArgument("--transport mpi: " + app + " is linked with Open MPI, and servers that are ranks are MPICH's. Leave it at auto, or ofi");
  if (plan_.ranks == 1) return {};
  for (const char* starter : {"mpirun", "mpiexec", "orterun", "prterun"}) {  // themselves
    if (name.rfind(starter, 0) == 0) return InvalidArgument("-n " + ranks + ": " + app + " starts the ranks itself, and would be started " + ranks + " times. Remedy: ramspan run -n 1 ... -- " + app + " -n " + ranks + " ...");
  }
  return InvalidArgument(app + " is linked with Open MPI, whose ranks only Open MPI's own mpirun can start: as -n " + ranks + " it would run " + ranks +
                         " times, each by itself. Remedy: ramspan run -n 1 ... -- mpirun -n " + ranks + " " + app +
                         " ... (mpirun.openmpi, where that is its name); the memory limit is each rank's, and the servers are there for all of them");
}

// The dynamic linker itself, by which a program may be started, looks like a static one.
bool Planner::IsBeyondPreload() const {
  const std::string name = app_[0].substr(app_[0].rfind('/') + 1);
  return facts_.is_static && facts_.is_static(app_[0]) == true && name.rfind("ld-", 0) != 0 && name.rfind("ld.so", 0) != 0;
}

// What its file shows of an option that will do nothing. Of another program that it starts, or a library of it, the file says nothing.
Status Planner::WarnOfTheApp() {
  const std::string& app = plan_.app_name;
  if (options_.pages && IsBeyondPreload()) {
    plan_.notes.push_back("warning: " + app + " is linked statically: nothing can be preloaded into it, so --pages does nothing for it, and there is no memory limit. Link it dynamically");
  }
  const std::optional<bool> uses_ramspan = facts_.uses_ramspan ? facts_.uses_ramspan(app_[0]) : std::nullopt;
  if (!options_.pages && uses_ramspan == false) {
    plan_.notes.push_back("warning: " + app + " is not linked with Ramspan (libramspan): unless one of its libraries, or a program that it starts, is, there is no memory limit. "
                          "An unmodified program needs --pages");
  }
  // It would end with "terminate called" and status 134, on each rank. What -x gives instead the launcher has not looked at.
  const bool sees_the_same = std::none_of(plan_.env.begin(), plan_.env.end(), [](const auto& one) { return one.first.rfind("RAMSPAN_", 0) == 0; });
  if (uses_ramspan == true && sees_the_same && !facts_.app_configuration_mistake.empty()) return InvalidArgument(facts_.app_configuration_mistake);
  const bool told = options_.transport == "auto" && plan_.servers + plan_.outside_servers > 0;  // ChooseByFacts
  if (plan_.ranks > 1 && !told && uses_ramspan && facts_.mpi_use(app_[0]) == MpiUse::kNone) {
    plan_.notes.push_back("-n " + std::to_string(plan_.ranks) + ": " + app + " names no MPI library: unless one of its libraries uses MPI, it runs " + std::to_string(plan_.ranks) + " times, each by itself");
  }
  return {};
}

// After what the application's own file says has been looked at. The library goes to the application alone, and not to what starts it.
Status Planner::PreloadPages() {
  if (!options_.pages) {
    if (options_.page_block.empty() && options_.pages_above.empty()) return {};
    return InvalidArgument("--page-block and --pages-above are for --pages");
  }
  if (!facts_.app_configuration_mistake.empty()) return InvalidArgument(facts_.app_configuration_mistake);
  if (facts_.pages_mode.empty()) return InvalidArgument("--pages: " + facts_.pages_why_not);
  if (facts_.pages_library.empty()) return InvalidArgument("--pages: libramspan-pages.so is not in lib/ramspan beside the folder of this program");
  if (options_.transport == "mpi") {
    return InvalidArgument("--pages does not go with --transport mpi: a page of a buffer that MPI uses would wait for MPI, which waits for the page. Leave it at auto, or ofi");
  }
  // Not by each process, and only when it allocates something.
  uint64_t block = facts_.page_block, above = facts_.pages_above;
  if (!options_.page_block.empty()) {
    if (const Status status = SetPageBlock(options_.page_block, &block); !status.ok()) return InvalidArgument("--page-block: " + status.message());
  }
  if (!options_.pages_above.empty()) {
    if (const Status status = SetPagesAbove(options_.pages_above, &above); !status.ok()) return InvalidArgument("--pages-above: " + status.message());
  }
  const bool is_reached = !IsBeyondPreload();
  const std::string preloaded = Setting("LD_PRELOAD");
  std::vector<std::string> app = {"/usr/bin/env", "LD_PRELOAD=" + facts_.pages_library + (preloaded.empty() ? "" : ":" + preloaded)};
  if (!options_.page_block.empty()) app.push_back("RAMSPAN_PAGE_BLOCK=" + options_.page_block);
  // Always: what a configuration file says is read by the start of the page mode, which comes with the first allocation that is as large.
  if (above != kPagesAbove || !options_.pages_above.empty()) app.push_back("RAMSPAN_PAGES_ABOVE=" + std::to_string(above));
  // Other processes would read it where it has left (process_vm_readv), and the kernel does not bring it for them.
  if (facts_.pages_mode.find("EFAULT") != std::string::npos || facts_.pages_mode.find("copies") != std::string::npos) {
    for (const auto& [name, value] : {std::pair("UCX_TLS", "^cma"), std::pair("OMPI_MCA_btl_vader_single_copy_mechanism", "none")}) {
      if (!UserHas(name)) app.push_back(name + ("=" + std::string(value)));
    }
  }
  app.insert(app.end(), app_.begin(), app_.end());
  app_ = std::move(app);
  if (!is_reached) return {};
  constexpr uint64_t kWasteMost = 4;  // times what was asked for, of an allocation as small as it may be
  const bool adapts = block <= kPageBlockRestless;
  const uint64_t whole = adapts ? kPageUnit : block;
  if (above < kPagesAbove && above * kWasteMost < whole) {
    plan_.notes.push_back("warning: each allocation takes whole blocks, " + FormatBytes(whole) + " of memory and of swap for one of " + FormatBytes(above) + ": give a --page-block of about the size of --pages-above");
  }
  plan_.notes.push_back("--pages: allocations from " + FormatBytes(above) + " on are swapped in blocks " + (adapts ? "as large as suits their use" : "of " + FormatBytes(block)) + "; " + facts_.pages_mode);
  return {};
}

Status Planner::FindHosts() {
  if (!options_.hostfile.empty()) {
    hosts_named_ = true;
    Result<std::string> text = facts_.read_file(options_.hostfile);
    if (!text.ok()) return InvalidArgument("--hostfile: " + text.status().message());
    const HostFile file = ParseHostFile(text.value());
    if (file.hosts.empty()) return InvalidArgument("--hostfile " + options_.hostfile + " names no host (one a line)");
    if (!file.is_special) hosts_of_file_ = file.hosts;
    hosts_ = file.hosts.size();
    slots_ = file.slots;
    plan_.several_hosts = file.hosts.size() > 1;
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
  // Flux tells them to who asks its broker, not in the environment (flux-hostlist(1)).
  if (!allocation_.present() && facts_.getenv("FLUX_URI") != nullptr) {
    plan_.notes.push_back("this is a Flux instance, which does not tell its nodes by itself: all is started on this host. For several nodes, with so many processes on each as is behind "
                          "the colon: flux hostlist -e local | tr ' ' '\\n' | sed 's/$/:4/' > hosts, and --hostfile hosts");
  }
  return {};
}

// Where slots or tasks are told, as many as these are right, too. Where mpiexec may know hosts that are not seen here (its own arguments and
// variables, other batch systems), the number is the user's affair.
Status Planner::CheckProcesses() {
  if (!options_.mpi_args.empty()) return {};
  for (const char* others : {"HYDRA_HOST_FILE", "LSB_JOBID", "PE_HOSTFILE", "LOADL_STEP_ID", "COBALT_NODEFILE", "OAR_NODEFILE"}) {
    if (facts_.getenv(others) != nullptr) return {};
  }
  const uint64_t hosts = hosts_named_ ? hosts_ : static_cast<uint64_t>(std::max(allocation_.nodes, 1));
  const uint64_t counted = hosts_named_ ? slots_ : static_cast<uint64_t>(allocation_.tasks.value_or(0));
  const uint64_t most = std::max(counted, hosts * std::max<uint64_t>(kProcessesAHostMax, uint64_t{facts_.cores} * kProcessesACoreMax));
  const uint64_t wanted = static_cast<uint64_t>(plan_.ranks) + static_cast<uint64_t>(plan_.servers);
  if (wanted <= most) return {};
  return InvalidArgument("-n " + std::to_string(plan_.ranks) + " -s " + std::to_string(plan_.servers) + ": " + std::to_string(wanted) + " processes on " +
                         std::to_string(hosts) + (hosts == 1 ? " host" : " hosts") + ", where " + std::to_string(most) +
                         " are started at most. Ask for fewer, or name more hosts, or their slots (--hostfile, host:slots)");
}

// Within the hosts of a file, or the allocation of a batch system: which have ranks, which have servers.
Status Planner::PlaceAll() {
  if (!plan_.several_hosts) return {};
  if (hosts_named_) {
    if (AllServers() == 0) return {};
    placement_ = Place(hosts_of_file_, plan_.ranks, AllServers(), plan_.servers > 0);
    if (placement_) plan_.notes.push_back("--hostfile " + options_.hostfile + ": " + Describe(*placement_));
    return {};
  }
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

bool Planner::UserHas(const std::string& name) const {
  if (facts_.getenv(name.c_str()) != nullptr) return true;
  return std::any_of(plan_.env.begin(), plan_.env.end(), [&](const auto& one) { return one.first == name; });
}

// What the application will find: -x wins over this process's environment.
std::string Planner::Setting(const std::string& name) const {
  for (const auto& [key, value] : plan_.env) {
    if (key == name) return value;
  }
  const char* value = facts_.getenv(name.c_str());
  return value == nullptr ? "" : value;
}

Result<Plan> MakePlan(const RunOptions& options, const Facts& facts) { return Planner(options, facts).Make(); }

}  // namespace ramspan
