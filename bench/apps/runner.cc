#include "bench/apps/runner.h"

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "bench/memory_cgroup.h"
#include "bench/process.h"

namespace ramspan::bench {
namespace {

using Words = std::vector<std::string>;

volatile sig_atomic_t app_process = 0, apps_ended_by = 0;
extern "C" void EndApp(int signal) {
  apps_ended_by = signal;
  if (app_process > 0) kill(static_cast<pid_t>(app_process), SIGTERM);
}

}  // namespace

int AppsEndedBy() { return apps_ended_by; }

AppRunner::AppRunner(const AppsOptions& o, uint64_t data_most) : o_(o) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    action.sa_handler = EndApp;
    sigaction(signal, &action, nullptr);
  }
  if (o.tier != "file") StartServer(data_most + data_most / 2 + (uint64_t{64} << 20));
  if (o.swap.empty()) return;
  if (const std::string told = SwapArea::RemoveStale(); !told.empty()) std::fprintf(stderr, "%s", told.c_str());
  if (!MemoryCgroup::Make(0, &why_no_swap_)) return;
  why_no_swap_.clear();  // it is set where it is not needed, too
  // Twice the data: what has come back keeps its place.
  std::optional<SwapArea> area = SwapArea::SwitchOn(o.swap == "zram" ? SwapArea::Kind::kZram : SwapArea::Kind::kFile, 2 * data_most + (uint64_t{64} << 20), folder_.Path(""), &why_no_swap_);
  if (!area) return;
  why_no_swap_.clear();
  area_.emplace(std::move(*area));
}

AppOutcome AppRunner::Run(const AppKind& kind, const std::string& version, int threads, uint64_t limit, bool damaged, By by) {
  const bool paged = o_.pages && limit > 0 && by == By::kRamspan;
  std::string why_not;
  std::optional<MemoryCgroup> group = by == By::kKernel ? MemoryCgroup::Make(0, &why_not) : std::nullopt;
  if (by == By::kKernel && !group) throw std::runtime_error(why_not);
  Words words = {SelfPath(), "apps", "--run", kind.name, "--version", version, "--run-threads", std::to_string(threads), "--limit", std::to_string(limit),
                 "--tier", o_.tier, "--ranks", std::to_string(o_.ranks), "--repeat", std::to_string(o_.repetitions)};
  if (o_.full) words.push_back("--full");
  if (damaged) words.push_back("--damaged");
  if (group) words.insert(words.end(), {"--in-cgroup", group->directory()});
  if (paged) words.push_back("--paged");
  if (!o_.data.empty()) words.insert(words.end(), {"--data", o_.data});
  if (!o_.directory.empty()) words.insert(words.end(), {"--dir", o_.directory});
  if (paged) {
    const Words job = {Launcher(), "run", "--pages", "--memory", std::to_string(limit), "-n", std::to_string(o_.ranks), "--"};
    words.insert(words.begin(), job.begin(), job.end());
  } else if (o_.ranks > 1) {
    std::optional<std::string> mpiexec = FindInPath("mpiexec.hydra");
    if (!mpiexec) mpiexec = FindInPath("mpiexec.mpich");
    if (!mpiexec) throw std::runtime_error("mpiexec.hydra (MPICH) is not in PATH; --ranks 1 needs none");
    words.insert(words.begin(), {*mpiexec, "-n", std::to_string(o_.ranks)});
  }
  Child child = Child::Server(words);
  app_process = child.pid();
  if (apps_ended_by != 0) {  // before its number was known
    app_process = 0;
    throw Interrupted();
  }
  std::string line;  // the launcher's come first
  do line = child.ReadLine();
  while (paged && !line.empty() && line.front() != '{');
  app_process = 0;
  const int status = child.Wait();
  if (apps_ended_by != 0) throw Interrupted();
  if (status != 0) throw std::runtime_error(std::string(kind.name) + " (" + version + ") ended with status " + std::to_string(status));
  return ParseOutcome(line);
}

std::string AppRunner::Launcher() {
  const std::string path = FindProgram("ramspan");
  if (path.empty()) throw std::runtime_error("ramspan, which --pages needs, is neither near " + SelfPath() + " nor in PATH");
  return path;
}

void AppRunner::StartServer(uint64_t memory) {
  const std::string program = FindProgram("ramspan-server"), key = folder_.Path("key");
  if (program.empty()) throw std::runtime_error("ramspan-server is neither near " + SelfPath() + " nor in PATH; --tier file measures files");
  server_.emplace(Child::Server({program, "--memory", std::to_string(memory), "--listen", "127.0.0.1:0", "--key-file", key}));
  const std::string line = server_->ReadLine();  // "... at HOST:PORT, ..."
  const size_t at = line.find(" at "), comma = line.find(',', at == std::string::npos ? 0 : at);
  if (at == std::string::npos || comma == std::string::npos) throw std::runtime_error("a memory server did not start: " + line);
  setenv("RAMSPAN_SERVERS", line.substr(at + 4, comma - at - 4).c_str(), 1);
  setenv("RAMSPAN_SERVER_KEY_FILE", key.c_str(), 1);
  setenv("RAMSPAN_TRANSPORT", "ofi", 1);
  if (o_.tier == "ofi") setenv("RAMSPAN_TEST_FAR", "1", 1);  // else they would see that it is on their own host
}

}  // namespace ramspan::bench
