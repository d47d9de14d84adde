// Planning of `ramspan run`: from the user's options and what the host offers to the one line that is started. Pure:
// nothing is started, everything about the host comes in by Facts. All validation happens here, before anything runs.
// Value types; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/config.h"
#include "common/status.h"
#include "launch/elf_needs.h"

namespace ramspan {

struct RunOptions {
  std::optional<int> ranks;           // -n; default: the tasks of the SLURM or PBS job minus the servers, else 1
  int servers = 0;                    // -s
  std::string memory;                 // a size as the user wrote it; empty: not given
  std::string server_memory;          // the same
  std::string transport = "auto";     // auto, mpi, ofi, none
  std::string stats;                  // a file; empty: none
  std::string hostfile;               // handed to mpiexec
  std::string mpiexec;                // empty: mpiexec.hydra, mpiexec.mpich or mpiexec in PATH
  std::vector<std::string> mpi_args;  // handed to mpiexec as global options
  std::vector<std::string> env;       // NAME=VALUE for all ranks
  bool pages = false;                 // large allocations of a program that does not know Ramspan are swapped
  std::string page_block, pages_above;  // sizes; empty: not given
  bool dry_run = false;
  std::vector<std::string> app;       // program and arguments
};

// Whether RAMSPAN_SERVERS, or the key, says places of servers and not how many there are.
inline bool NamesServers(std::string_view servers) { return servers.find_first_of(":/@") != std::string_view::npos; }

struct Facts {
  std::function<const char*(const char*)> getenv;
  std::function<Result<std::string>(const std::string&)> find_program;  // as FindProgram along PATH
  std::function<Result<std::string>(const std::string&)> read_file;
  std::string launcher;                // this executable
  std::string memserver;               // empty: not found; likewise:
  std::string server;                  // ramspan-server
  std::string pages_library;           // libramspan-pages.so, for --pages
  std::string pages_mode;              // how pages are brought on this host, in words; empty: not at all, and then:
  std::string pages_why_not;
  std::function<std::optional<MpiUse>(const std::string&)> mpi_use;  // launch/elf_needs.h
  std::function<std::optional<bool>(const std::string&)> is_static, uses_ramspan;  // the same; empty: it cannot be told
  uint32_t cores = 1;                  // of this host
  uint64_t available_memory = 0;       // of this host, bytes
  uint64_t shared_memory_free = 0;     // of this host's /dev/shm, bytes
  std::string app_configuration_mistake;  // in the same; a program that knows nothing of pages may never come to say so
  std::string app_servers;             // what the application will find as `servers`, from the environment or a configuration file
  bool app_memory_configured = false;  // the environment or a configuration file limits the application already
  uint64_t page_block = kPageBlock, pages_above = kPagesAbove;  // bytes; as those say
};

struct Plan {
  std::vector<std::string> argv;                             // what to start: mpiexec, or the application's keeper
  std::vector<std::pair<std::string, std::string>> env;      // added to the environment of all of it
  std::vector<std::string> notes;                            // for stderr: what was chosen without being asked for
  std::string app_name;                                      // for messages
  int ranks = 1;
  int servers = 0;               // ranks of the job that are memory servers
  // Memory servers that are no ranks: the line of one, without where it listens and its secret; or mpiexec's, for all of them.
  int outside_servers = 0;
  bool servers_by_mpiexec = false;
  std::vector<std::string> server_argv;
  bool several_hosts = false;
  bool by_mpiexec = false;  // else the application is started without MPI's help
};

// kInvalidArgument: names the option and what would work. kResourceExhausted: asks for more memory than there is.
Result<Plan> MakePlan(const RunOptions& options, const Facts& facts);

// The plan as lines for a POSIX shell: the servers outside of the job, if any, and the job with its environment in front.
std::string ShellLine(const Plan& plan);

}  // namespace ramspan
