#include "launch/options.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <sstream>

#include "common/command_line.h"

namespace ramspan {
namespace {

namespace po = boost::program_options;

po::options_description Description(RunOptions& options) {
  po::options_description text("options");
  auto add = text.add_options();
  add("ranks,n", po::value<int>()->notifier([&options](int ranks) { options.ranks = ranks; })->value_name("RANKS"),
      "compute ranks (also -np). Default: 1; in a job of SLURM or PBS its tasks minus the servers");
  add("servers,s", po::value(&options.servers)->value_name("SERVERS")->default_value(0),
      "memory servers: ranks after the compute ranks, or processes of their own (--transport). 0: swap goes to local files only");
  add("memory", po::value(&options.memory)->value_name("SIZE"),
      "limit of each compute rank for managed data, like 64MiB. Default: RAMSPAN_MEMORY, else the configuration file, "
      "else (and with auto) a fair part of the memory that is available here, as the batch system limits it");
  add("server-memory", po::value(&options.server_memory)->value_name("SIZE"),
      "what each server lends. Default: half of its host's available memory, shared between the host's servers");
  add("transport", po::value(&options.transport)->value_name("T")->default_value("auto"),
      "mpi: servers are ranks of the program's MPI job; ofi: they are processes outside of it (ramspan server), so MPI is not needed, "
      "MPI_COMM_WORLD is the program's alone and a server's death does not end the job; none: files only, -s is ignored; auto: mpi for "
      "programs that are linked with Ramspan's MPI library (<ramspan/mpi.h>), ofi for all others and for scripts, and says which and why");
  add("stats", po::value(&options.stats)->value_name("FILE"),
      "each compute rank writes its statistics (JSON) at its end; %r is the rank, %p the process id");
  add("hostfile", po::value(&options.hostfile)->value_name("FILE"),
      "hosts, one a line (host:slots), for mpiexec; the servers get the last ones");
  add("env,x", po::value(&options.env)->value_name("NAME=VALUE")->composing(),
      "an environment variable for all ranks; may be repeated");
  add("mpiexec", po::value(&options.mpiexec)->value_name("PATH"),
      "MPICH's mpiexec. Default: mpiexec.hydra, mpiexec.mpich or mpiexec in PATH");
  add("mpi-arg", po::value(&options.mpi_args)->value_name("ARG")->composing(),
      "a global option for mpiexec, as --mpi-arg=-bind-to --mpi-arg=core; may be repeated");
  add("pages", po::bool_switch(&options.pages),
      "for programs that do not know Ramspan, unmodified (C, C++, Fortran, Python ...): what they allocate in large pieces is swapped by blocks of pages "
      "beyond --memory. Needs Linux 5.11 on the ranks' hosts, is faster from 6.8 on");
  add("pages-above", po::value(&options.pages_above)->value_name("SIZE"), "with --pages: smaller allocations are left to malloc. Default: 128KiB");
  add("page-block", po::value(&options.page_block)->value_name("SIZE"),
      "with --pages: what moves as one. Default: adaptive, of the size that suits its use. Or a power of two from 4KiB (scattered use) to 2MiB (sweeps; huge pages)");
  add("dry-run", po::bool_switch(&options.dry_run), "print the lines that would be started, and start nothing");
  add("help,h", "this text");
  return text;
}

}  // namespace

Result<RunOptions> ParseRunOptions(const std::vector<std::string>& arguments) {
  RunOptions options;
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes != arguments.end()) options.app.assign(dashes + 1, arguments.end());
  std::vector<std::string> own(arguments.begin(), dashes);
  // mpiexec's word, which would be read as -n with the number "p".
  std::replace(own.begin(), own.end(), std::string("-np"), std::string("-n"));
  std::vector<std::string> words;
  if (Status parsed = ParseCommandLine("ramspan run", own, Description(options), &words); !parsed.ok()) return parsed;
  if (options.memory == "auto") options.memory.clear();
  if (!words.empty()) return InvalidArgument("write -- before the program: ramspan run -n 2 -s 1 -- ./app ARGUMENTS");
  return options;
}

std::string RunHelp() {
  RunOptions options;
  std::ostringstream text;
  text << "usage: ramspan run [options] -- APP [ARGUMENTS]\n\n"
          "Runs APP on RANKS compute ranks beside SERVERS memory servers, whose memory holds what does not fit into\n"
          "the ranks' limit; what does not fit there either goes to local files. APP may be any program that uses\n"
          "Ramspan, with MPI or without; with --pages, any program.\n\n"
          "examples:\n"
          "  ramspan run -n 2 -s 1 --memory 64MiB --server-memory 512MiB -- ./app input.dat\n"
          "      two ranks that keep at most 64 MiB each, one server that lends them 512 MiB\n"
          "  ramspan run --memory 1GiB -- ./app\n"
          "      one process, no server, swap to files in $TMPDIR\n"
          "  ramspan run -n 6 -s 2 --hostfile hosts.txt --stats run.%r.json -- ./app && ramspan report run.*.json\n"
          "      eight ranks over several hosts, and a table of what they did\n"
          "  ramspan run -n 4 -s 2 --transport ofi -- ./app\n"
          "      an MPI program with a whole MPI_COMM_WORLD of four, and two servers beside its job\n"
          "  ramspan run --pages -s 1 --memory 2GiB -- python3 analysis.py\n"
          "      a program that knows nothing of Ramspan, with 2 GiB in memory and the rest at a server\n"
          "  ramspan run -s 2 -- ./app\n"
          "      inside a SLURM allocation: all its tasks, two of them as servers\n\n"
       << Description(options)
       << "\nSizes: 4096, 64MiB, 1.5GiB, 1TB (10^12). Settings of the library itself (RAMSPAN_*, ~/.ramspan.conf) apply\n"
          "as without the launcher.\n\n"
          "Exit status: that of the application (of the rank that failed first), 128 + N when signal N killed it.\n"
          "^C and SIGTERM are passed on to the application; after 5 s, or at the second one, everything is killed.\n"
          "SIGUSR1 and SIGUSR2 are passed on to those of its processes that listen to them. Rank 0 gets the standard input.\n";
  return text.str();
}

std::string ReportHelp() {
  return "usage: ramspan report FILE...\n"
         "       ramspan report --name A FILE... [--name B FILE...]...\n\n"
         "Prints a table of the statistics files that `ramspan run --stats FILE` (or RAMSPAN_STATS=FILE) wrote: one\n"
         "column a file and their total or, with names, one column a name: a job's total each. Below it, under \"What to\n"
         "change\": what the figures say about how the program uses Ramspan (chunks too large or too small, data that is\n"
         "read but pulled for writing, a limit just under the data, adhereTos that hold too much, ...), each with its\n"
         "evidence and with the line of code or the option to change.\n\n"
         "example:\n"
         "  ramspan run -n 2 -s 1 --stats a.%r.json -- ./app\n"
         "  ramspan run -n 2 -s 0 --stats b.%r.json -- ./app\n"
         "  ramspan report --name \"remote memory\" a.*.json --name \"files only\" b.*.json\n";
}

std::string MainHelp() {
  return "usage: ramspan COMMAND [options]\n\n"
         "Ramspan lets a program use more memory than its node has: what is not in use moves to memory servers on\n"
         "other nodes, and from there to files.\n\n"
         "commands:\n"
         "  run      run a program, with MPI ranks and memory servers:  ramspan run -n 2 -s 1 -- ./app\n"
         "  server   lend this node's memory to other jobs:             ramspan server --memory 64GiB --listen node7:7117\n"
         "  ctl      look at such servers, and end them:                ramspan ctl list node7:7117\n"
         "  bench    measure this machine and the library:              ramspan bench stream\n"
         "  report   a table from a run's statistics, and advice:       ramspan report stats.*.json\n\n"
         "ramspan COMMAND --help explains each; ramspan --version tells the version.\n";
}

}  // namespace ramspan
