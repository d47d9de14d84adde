// Planner: one plan in the making. plan.cc decides what the user wants, and where each process goes; plan_memory.cc how much memory each
// one gets; plan_line.cc writes the lines that start them.
//
// Thread-safety: none; made, asked once, and forgotten.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/allocation.h"
#include "launch/plan.h"

namespace ramspan {

class Planner {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  Planner(const RunOptions& options, const Facts& facts)
      : options_(options), facts_(facts), allocation_(FindAllocation(facts.getenv, facts.read_file)) {}

  Result<Plan> Make();

 private:
  // plan.cc
  Status CheckTransport();
  Status CountRanks();
  Status FindApp();
  Status CheckMpiOfTheApp();
  Status PreloadPages();
  bool IsBeyondPreload() const;
  Status WarnOfTheApp();
  Status FindHosts();
  Status CheckProcesses();
  Status CheckEnvironment();
  Status ChooseTransport();
  std::string ChooseByFacts();
  void WarnOfServersInWorld();
  Status PlaceAll();
  int AllServers() const { return plan_.servers + plan_.outside_servers; }
  // Places of servers, not a number of them; -x, else the environment, else a configuration file.
  bool NamesServers() const { return ramspan::NamesServers(UserHas("RAMSPAN_SERVERS") ? Setting("RAMSPAN_SERVERS") : facts_.app_servers); }
  bool UserHas(const std::string& name) const;
  std::string Setting(const std::string& name) const;

  // plan_memory.cc
  Result<uint64_t> Size(const char* option, const std::string& text) const;
  Status CheckMemory();
  Status CheckServerMemory(uint64_t server_bytes);
  void WarnOfMemory(uint64_t servers_take);
  void ChooseMemory(uint64_t servers_take);

  // plan_line.cc
  Status TuneTcp();
  Status BuildLine();
  Status BuildMpiexecLine(const Environment& app_env);
  Status BuildServerLine();
  Result<std::string> FindMpiexec();
  std::vector<std::string> MpiexecLine(const std::string& mpiexec, const std::vector<HostSlots>& hosts) const;
  void AddKept(const std::vector<std::string>& program);
  void AddRanks(int count, const Environment& env, const std::vector<std::string>& program);
  std::string StatsFile();

  const RunOptions& options_;
  const Facts& facts_;
  const Allocation allocation_;
  Plan plan_;
  std::vector<std::string> app_;
  std::string server_memory_;  // of one server; empty: nobody says
  std::optional<Placement> placement_;  // nothing: mpiexec's choice
  bool hosts_named_ = false;            // by the user
  uint64_t hosts_ = 1, slots_ = 0;       // of the host file
  std::vector<HostSlots> hosts_of_file_;  // empty: no file, or one that only hydra understands
  std::string memory_;  // RAMSPAN_MEMORY for the application; empty: leave it to the application
};

}  // namespace ramspan
