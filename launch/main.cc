// ramspan: the command that starts jobs, benchmarks and reports.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "common/config.h"
#include "common/descriptor.h"
#include "common/topology.h"
#include "common/units.h"
#include "common/userfault.h"
#include "launch/elf_needs.h"
#include "launch/keeper.h"
#include "launch/leftovers.h"
#include "launch/nesting.h"
#include "launch/options.h"
#include "launch/plan.h"
#include "launch/process.h"
#include "launch/report.h"
#include "launch/run.h"
#include "launch/run_folder.h"
#include "launch/server_start.h"

namespace ramspan {
namespace {

using Arguments = std::vector<std::string>;

constexpr int kUsageError = 2;

int Fail(const Status& status) {
  std::fprintf(stderr, "ramspan: %s\n", status.message().c_str());
  return kUsageError;
}

bool AsksForHelp(const Arguments& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return false;
    if (argument == "--help" || argument == "-h") return true;
  }
  return false;
}

std::string SearchPath() {
  const char* path = std::getenv("PATH");
  return path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
}

// The project's other executables: beside this one (build folder, bin), in libexec, then along PATH.
std::string FindCompanion(const std::string& name) {
  const std::string folder = SelfFolder();
  for (const std::string& candidate : {folder + "/" + name, folder + "/../libexec/ramspan/" + name}) {
    if (IsExecutableFile(candidate)) return candidate;
  }
  const Result<std::string> found = FindProgram(name, SearchPath());
  return found.ok() ? found.value() : "";
}

// A list of hosts. A device has no end, and would be read until memory has.
Result<std::string> ReadWholeFile(const std::string& path) {
  constexpr size_t kBytesMax = size_t{32} << 20;  // 100 000 names of 255 bytes
  std::ifstream file(path);
  if (!file) return InvalidArgument("cannot read " + path + ": " + std::strerror(errno));
  if (std::filesystem::is_directory(path)) return InvalidArgument(path + " is a folder, and no list of hosts");
  std::string text;
  for (std::array<char, 4096> part; file.read(part.data(), part.size()), file.gcount() > 0;) {
    text.append(part.data(), static_cast<size_t>(file.gcount()));
    if (text.size() > kBytesMax) return InvalidArgument(path + " is larger than " + FormatBytes(kBytesMax) + ": no list of hosts");
  }
  return text;
}

// Whether the application will find a memory limit of its own, so that the launcher must not choose one. A broken
// configuration counts as one: the application reports it, with file and line, where it uses Ramspan by itself. And what it will find of pages.
void LookAtConfiguration(const RunOptions& options, Facts* facts) {
  ConfigSources sources = ProcessConfigSources(Options());
  sources.program_name = options.app[0].substr(options.app[0].rfind('/') + 1);
  Result<Config> config = LoadConfig(sources);
  if (!config.ok()) {
    // A mistake in what the launcher says instead is none. Servers that are named are used if the job has none, and then these two stay.
    const auto getenv = sources.getenv;
    const auto load = [&](bool own) {
      sources.getenv = [&options, &getenv, own](const char* name) {
        const std::string_view known = name;
        const bool replaced = known == "RAMSPAN_MEMORY" ? !options.memory.empty() : own && (known == "RAMSPAN_SERVERS" || known == "RAMSPAN_TRANSPORT");
        return replaced ? nullptr : getenv(name);
      };
      return LoadConfig(sources);
    };
    const char* const set = getenv("RAMSPAN_SERVERS");
    config = load(/*own=*/true);
    const bool outside = options.servers == 0 && NamesServers(set != nullptr ? set : config.ok() ? config.value().servers : "");
    if (outside) config = load(/*own=*/false);
    sources.getenv = getenv;
  }
  facts->app_memory_configured = !config.ok() || config.value().source.count("memory") != 0;
  if (!config.ok()) {
    facts->app_configuration_mistake = config.status().message();
    return;
  }
  facts->app_servers = config.value().servers;
  facts->page_block = config.value().page_block;
  facts->pages_above = config.value().pages_above;
}

// How pages are brought here, in words; else why they are not.
void LookForPages(Facts* facts) {
  const std::string folder = SelfFolder();
  for (const char* library : {"/../lib/ramspan/libramspan-pages.so", "/../lib64/ramspan/libramspan-pages.so", "/../lib/x86_64-linux-gnu/ramspan/libramspan-pages.so"}) {
    if (facts->pages_library.empty() && access((folder + library).c_str(), R_OK) == 0) facts->pages_library = std::filesystem::canonical(folder + library).string();
  }
  Userfault userfault;
  const auto is_set = [](const char* name, std::string_view value) {
    const char* const set = std::getenv(name);
    return set != nullptr && value == set;
  };
  const FaultMode faults = is_set("RAMSPAN_PAGE_FAULTS", "signal") ? FaultMode::kSignal : is_set("RAMSPAN_PAGE_FAULTS", "protect") ? FaultMode::kProtect : FaultMode::kAuto;
  const PageMoves moves = is_set("RAMSPAN_PAGE_MOVES", "copy") ? PageMoves::kCopy : PageMoves::kAuto;
  if (const Status status = userfault.Open(faults, moves); !status.ok()) {
    facts->pages_why_not = status.message();
  } else if (userfault.serves_system_calls()) {
    facts->pages_mode = "who touches what has left waits for it, system calls too";
  } else if (userfault.mode() == FaultMode::kProtect) {
    facts->pages_mode = std::string("who touches what has left gets it by SIGSEGV, which takes some times as long as by userfaultfd: ") +
                        (faults == FaultMode::kProtect ? "RAMSPAN_PAGE_FAULTS=protect asks for that" : "the kernel gives none here (in containers a seccomp profile that lets that system call through allows it)") +
                        "; libc's calls for files and sockets bring it before, other system calls on it may fail (EFAULT); pages come as copies";
  } else {
    facts->pages_mode = std::string("who touches what has left gets it by a signal; libc's calls for files and sockets bring it before, other system calls on it may fail (EFAULT), because ") +
                        (faults == FaultMode::kSignal ? "RAMSPAN_PAGE_FAULTS=signal asks for that"
                                                      : "this user may not have the kernel's own page faults served (sysctl vm.unprivileged_userfaultfd=1, or access to /dev/userfaultfd, allows it)");
  }
  if (facts->pages_why_not.empty() && !userfault.moves() && userfault.mode() != FaultMode::kProtect) {
    facts->pages_mode += std::string("; pages come as copies, because ") + (moves == PageMoves::kCopy ? "RAMSPAN_PAGE_MOVES=copy asks for that" : "this kernel cannot move them (Linux 6.8 can)") + ": no device may write to memory of the program's but by libc's calls (no io_uring with "
                         "O_DIRECT, no network that registers it)";
  }
}

Facts HostFacts(const RunOptions& options) {
  Facts facts;
  facts.getenv = [](const char* name) -> const char* { return std::getenv(name); };
  facts.find_program = [](const std::string& name) { return FindProgram(name, SearchPath()); };
  facts.read_file = ReadWholeFile;
  facts.launcher = SelfPath();
  facts.memserver = FindCompanion("ramspan-memserver");
  facts.server = FindCompanion("ramspan-server");
  if (options.pages) LookForPages(&facts);
  facts.mpi_use = MpiUseOf;
  facts.is_static = IsStatic;
  // What the system has installed are interpreters, and programs that start others.
  facts.uses_ramspan = [](const std::string& program) {
    std::error_code error;
    const std::string file = std::filesystem::canonical(program, error).string();
    return file.starts_with("/usr/") || file.starts_with("/bin/") ? std::nullopt : UsesRamspan(program);
  };
  facts.cores = std::max(std::thread::hardware_concurrency(), 1U);
  facts.available_memory = AvailableMemory();
  facts.shared_memory_free = SharedMemoryFree();
  if (!options.app.empty()) LookAtConfiguration(options, &facts);
  return facts;
}

// Before the plan, which asks how much room there is.
void SweepBefore() {
  const char* tmp = std::getenv("TMPDIR");
  const int jobs = SweepOrphans(RunFolderParent(tmp == nullptr ? "" : tmp), "/dev/shm");
  if (jobs == 0) return;
  std::fprintf(stderr, "ramspan: removed what %d killed job%s had left (a folder in %s, shared memory)\n", jobs,
               jobs == 1 ? "" : "s", RunFolderParent(tmp == nullptr ? "" : tmp).c_str());
}

// A shell's status for what is not found, and the dynamic linker's for a library that is not. Its line does not say where Ramspan's are.
constexpr int kNotFound = 127;
void SayWhereLibrariesAre(const std::string& app) {
  if (!UsesRamspan(app).value_or(false)) return;
  for (const char* folder : {"/../lib", "/../lib64", "/../lib/x86_64-linux-gnu"}) {
    std::error_code error;
    const std::string libraries = std::filesystem::canonical(SelfFolder() + folder, error).string();
    if (error || access((libraries + "/libramspan.so.0").c_str(), R_OK) != 0) continue;
    std::fprintf(stderr, "ramspan: status 127: if a library of Ramspan's was not found (a line above says so): they are in %s. Remedy: export LD_LIBRARY_PATH=%s:$LD_LIBRARY_PATH, "
                 "or link %s with -Wl,-rpath,%s\n", libraries.c_str(), libraries.c_str(), app.c_str(), libraries.c_str());
    return;
  }
}

int Run(const Arguments& arguments) {
  if (AsksForHelp(arguments)) {
    std::fputs(RunHelp().c_str(), stdout);
    return 0;
  }
  const Result<RunOptions> options = ParseRunOptions(arguments);
  if (!options.ok()) return Fail(options.status());
  if (Status status = CheckNotNested([](const char* name) -> const char* { return std::getenv(name); }); !status.ok()) return Fail(status);
  IgnoreFileSizeSignal();  // before the first note: stderr may be a file
  if (!options.value().dry_run) SweepBefore();
  const Result<Plan> plan = MakePlan(options.value(), HostFacts(options.value()));
  if (!plan.ok()) return Fail(plan.status());
  for (const std::string& note : plan.value().notes) std::fprintf(stderr, "ramspan: %s\n", note.c_str());
  if (options.value().dry_run) {
    std::printf("%s\n", ShellLine(plan.value()).c_str());
    return 0;
  }
  const int status = RunPlan(plan.value());
  if (status == kNotFound) SayWhereLibrariesAre(options.value().app[0]);
  return status;
}

int Become(const std::string& program, const Arguments& arguments) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ReleaseReportSignals();
  execv(program.c_str(), argv.data());
  return Fail(Unavailable("cannot run " + program + ": " + std::strerror(errno)));
}

// The benchmarks are an executable of their own, so that the launcher does not link what they measure.
int Bench(const Arguments& arguments) {
  const std::string bench = FindCompanion("ramspan-bench");
  if (bench.empty()) return Fail(InvalidArgument("ramspan-bench is not beside " + SelfPath() + " nor in PATH"));
  return Become(bench, arguments);
}

// The server is an executable of its own, so that the launcher links no network. Signals wait until it takes them
// (memserver/ends_by_signals.h): it is loaded for 0.2 s, and meanwhile libinfinipath would make them an exit with status 1.
int Server(const Arguments& arguments) {
  const std::string server = FindCompanion("ramspan-server");
  if (server.empty()) return Fail(InvalidArgument("ramspan-server is not beside " + SelfPath() + " nor in PATH"));
  IgnoreReportSignals();
  sigset_t ends;
  sigemptyset(&ends);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ends, number);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  return Become(server, arguments);
}

// Likewise.
int Ctl(const Arguments& arguments) {
  const std::string ctl = FindCompanion("ramspan-ctl");
  if (ctl.empty()) return Fail(InvalidArgument("ramspan-ctl is not beside " + SelfPath() + " nor in PATH"));
  return Become(ctl, arguments);
}

int Report(const Arguments& arguments) {
  if (AsksForHelp(arguments)) {
    std::fputs(ReportHelp().c_str(), stdout);
    return 0;
  }
  const Result<std::vector<ReportColumn>> columns = ParseReportArguments(arguments);
  if (!columns.ok()) return Fail(columns.status());
  const Result<std::string> text = ReportText(columns.value());
  if (!text.ok()) return Fail(text.status());
  std::fputs(text.value().c_str(), stdout);
  return 0;
}

int Dispatch(const Arguments& all) {
  if (all.empty()) {
    std::fputs(MainHelp().c_str(), stderr);
    return kUsageError;
  }
  const std::string& command = all[0];
  const Arguments rest(all.begin() + 1, all.end());
  if (command == "run") return Run(rest);
  if (command == "bench") return Bench(rest);
  if (command == "report") return Report(rest);
  if (command == "server") return Server(rest);
  if (command == "ctl") return Ctl(rest);
  if (command == "__nothing") return 0;
  if (command == "__server" && rest.size() > 1) return BecomeServer(Arguments(rest.begin() + 1, rest.end()));
  if (command == "__rank" && rest.size() > 1) return RunKeeper(Arguments(rest.begin() + 1, rest.end()));
  if (command == "--help" || command == "-h" || command == "help") {
    std::fputs(MainHelp().c_str(), stdout);
    return 0;
  }
  if (command == "--version") {
    std::printf("ramspan %s\n", RAMSPAN_VERSION);
    return 0;
  }
  const bool is_file = command.find('/') != std::string::npos;
  return Fail(InvalidArgument("there is no command \"" + command + "\" (" +
                              (is_file ? "to run a program: ramspan run -- " + command + " ..." : "see ramspan --help") + ")"));
}

}  // namespace
}  // namespace ramspan

int main(int argc, char** argv) {
  ramspan::HoldReportSignals();
  // A closed stream's number would go to some descriptor of the launcher's, which would then pass for the user's input.
  ramspan::FillStandardStreams();
  const int status = ramspan::Dispatch({argv + 1, argv + argc});
  errno = EIO;  // of a write before
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "ramspan: not all of the output could be written: %s\n", std::strerror(errno));
  return status != 0 ? status : 1;
}
