// swap-targets: the same program, with the same limit of memory, on everything that could take what does not fit: Ramspan's tiers, and what
// a user would take instead. Each contestant is a process of its own, in a memory cgroup of its own where those can be made, so that all
// are counted the same way. What has a limit of its own is given it; what has none is held to it by the cgroup.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "bench/child.h"
#include "bench/experiment.h"
#include "bench/memory_cgroup.h"
#include "bench/network_job.h"
#include "bench/process.h"
#include "bench/swap_area.h"
#include "bench/swap_targets_accesses.h"
#include "bench/swap_targets_contestants.h"
#include "bench/swap_targets_program.h"
#include "bench/swap_targets_stores.h"
#include "bench/swap_targets_table.h"
#include "common/units.h"

namespace ramspan::bench {
namespace {

using Words = std::vector<std::string>;

// What memory that is swapped by pages needs of the system.
bool CanMovePages() {
  constexpr int kUserModeOnly = 1;                    // of Linux 5.11, and
  constexpr uint64_t kFeatureMove = uint64_t{1} << 16;  // of 6.8 (linux/userfaultfd.h)
  const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | kUserModeOnly));
  if (fd < 0) return false;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kFeatureMove;
  const bool can = ioctl(fd, UFFDIO_API, &api) == 0;
  close(fd);
  return can;
}

// ^C and the like end the contestant; what stands around it is taken down as ever, and then this process ends by the same signal.
volatile sig_atomic_t contestant_pid = 0, targets_ended_by = 0;
extern "C" void EndContestant(int signal) {
  targets_ended_by = signal;
  if (contestant_pid > 0) kill(static_cast<pid_t>(contestant_pid), SIGTERM);
}

// All files of a run: the servers' secret, and what contestants swap to. That of a run that was killed is removed by the next one here.
class TargetFolder {
 public:
  explicit TargetFolder(const std::string& directory) : path_(directory + "/" + kName + std::to_string(getpid())) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
      const std::string name = entry.path().filename();
      const int pid = name.rfind(kName, 0) == 0 ? std::atoi(name.c_str() + sizeof kName - 1) : 0;
      if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) std::filesystem::remove_all(entry.path(), error);
    }
    if (mkdir(path_.c_str(), 0700) != 0) throw std::runtime_error("cannot make the folder " + path_ + ": " + std::strerror(errno));
  }
  ~TargetFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TargetFolder(const TargetFolder&) = delete;
  TargetFolder& operator=(const TargetFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  static constexpr char kName[] = "ramspan-targets-";  // then the process id
  const std::string path_;
};

// While a contestant runs: the most of each kind of memory, looked at fifty times a second.
class MemoryWatch {
 public:
  MemoryWatch(const std::optional<MemoryCgroup>& group, const std::optional<SwapArea>& area) : group_(group), area_(area), thread_([this] { Watch(); }) {}
  ~MemoryWatch() { Stop(); }
  void AddTo(TargetRow* row) {
    Stop();
    row->counted = group_.has_value();
    row->anonymous = most_.anonymous;
    row->page_cache = most_.page_cache;
    row->shared = most_.shared;
    row->elsewhere = std::max(row->elsewhere, held_.memory);
    if (held_.original > 0) row->compression = static_cast<double>(held_.compressed) / static_cast<double>(held_.original);
  }

 private:
  void Stop() {
    end_.store(true, std::memory_order_relaxed);  // publishes nothing: join does
    if (thread_.joinable()) thread_.join();
  }
  void Watch() {
    while (!end_.load(std::memory_order_relaxed)) {
      if (group_) {
        const MemoryCgroup::Use use = MemoryCgroup::UseOf(group_->directory());
        most_.anonymous = std::max(most_.anonymous, use.anonymous);
        most_.page_cache = std::max(most_.page_cache, use.page_cache);
        most_.shared = std::max(most_.shared, use.shared);
      }
      if (area_) {
        if (const SwapArea::Held held = area_->Now(); held.original >= held_.original) held_ = held;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  const std::optional<MemoryCgroup>& group_;
  const std::optional<SwapArea>& area_;
  MemoryCgroup::Use most_;
  SwapArea::Held held_;
  std::atomic<bool> end_{false};
  std::thread thread_;  // last: it uses the others
};

// One contestant at one limit.
class Trial {
 public:
  Trial(const BenchOptions& options, const TargetContestant& contestant, double lmr, int threads, const std::string& folder)
      : o_(options), contestant_(contestant), lmr_(lmr), threads_(threads), folder_(folder) {}

  // A row for each access.
  std::vector<TargetRow> Run() {
    std::string why_not;
    try {
      why_not = Prepare();
    } catch (const std::runtime_error& e) {
      why_not = e.what();
      failed_ = targets_ended_by == 0;
    }
    Json result;
    if (targets_ended_by != 0) return {};
    if (why_not.empty()) {
      Child child = Start();
      contestant_pid = child.pid();
      if (targets_ended_by != 0) {  // before its number was known
        contestant_pid = 0;
        return {};
      }
      MemoryWatch watch(group_, area_);
      for (std::string line; !(line = child.ReadLine()).empty();) {
        if (line.front() == '{') result = Json::parse(line, nullptr, false);
      }
      watch.AddTo(&common_);
      const int status = child.Wait();
      contestant_pid = 0;
      if (!result.contains("accesses")) why_not = Fate(status);
    }
    return why_not.empty() ? RowsOf(result) : Skipped(why_not);
  }
  // Whether it ran, and did not come to its end.
  bool failed() const { return failed_; }

 private:
  uint64_t limit() const {
    // For bookkeeping, each contestant alike: page tables here, descriptors there.
    return static_cast<uint64_t>(lmr_ / 100 * static_cast<double>(o_.data)) + o_.data / 128;
  }

  // Makes what it needs; empty, or why it cannot run.
  std::string Prepare() {
    std::string why_not;
    if (std::optional<MemoryCgroup> group = MemoryCgroup::Make(0, &why_not)) group_.emplace(std::move(*group));
    if (contestant_.held && !group_) return why_not;
    if (contestant_.store == TargetContestant::Store::kStxxl && !HasStxxl()) return "built without STXXL: install libstxxl-dev and build anew";
    if (contestant_.store == TargetContestant::Store::kPages && !CanMovePages()) return "this system gives no userfaultfd that moves pages (Linux 6.8 or newer; docs/pages.md)";
    // Twice the data: what has come back keeps its place.
    if (contestant_.swap != nullptr) {
      std::optional<SwapArea> area = SwapArea::SwitchOn(*contestant_.swap, 2 * o_.data + (uint64_t{64} << 20), folder_, &why_not);
      if (!area) return why_not;
      area_.emplace(std::move(*area));
    }
    const bool server = contestant_.servers == TargetContestant::Servers::kNear || contestant_.servers == TargetContestant::Servers::kFar;
    const bool rank = contestant_.servers == TargetContestant::Servers::kRank;
    if (server && FindProgram("ramspan-server").empty()) return "ramspan-server is neither near " + SelfPath() + " nor in PATH (built without libfabric?)";
    if (rank && (FindProgram("ramspan-memserver").empty() || !Mpiexec())) return "ramspan-memserver, or mpiexec.hydra of MPICH, is not in PATH";
    if (server) {
      server_.emplace(Child::Server({FindProgram("ramspan-server"), "--memory", std::to_string(ServerMemory()), "--listen", "127.0.0.1:0", "--key-file", folder_ + "/key"}));
      place_ = PlaceOfServer(server_->ReadLine());
    }
    return "";
  }

  uint64_t ServerMemory() const {
    const uint64_t share = static_cast<uint64_t>(contestant_.server_share * static_cast<double>(o_.data));
    return contestant_.server_share < 1 ? share : share + (uint64_t{64} << 20);
  }

  static std::optional<std::string> Mpiexec() {
    std::optional<std::string> path = FindInPath("mpiexec.hydra");
    return path ? path : FindInPath("mpiexec.mpich");
  }

  Child Start() {
    Words words = {SelfPath(), o_.name, "--only", contestant_.name, "--data", std::to_string(o_.data), "--chunk", std::to_string(o_.chunk), "--limit", std::to_string(limit()),
                   "--threads", std::to_string(threads_), "--dir", folder_, "--tier", contestant_.servers == TargetContestant::Servers::kNone ? "file" : "auto"};
    if (!o_.accesses.empty()) words.insert(words.end(), {"--access", o_.accesses});
    if (group_) words.insert(words.end(), {"--in-cgroup", group_->directory()});
    if (contestant_.direct) words.push_back("--direct");
    if (!o_.checksum) words.push_back("--no-checksum");
    if (o_.quick) words.push_back("--quick");
    Child::Environment environment = {{"STXXLLOGFILE", "/dev/null"}, {"STXXLERRLOGFILE", "/dev/null"}};
    if (contestant_.servers == TargetContestant::Servers::kNone) environment.push_back({"RAMSPAN_TRANSPORT", "none"});
    if (server_) {
      environment.insert(environment.end(), {{"RAMSPAN_SERVERS", place_}, {"RAMSPAN_SERVER_KEY_FILE", folder_ + "/key"}, {"RAMSPAN_TRANSPORT", "ofi"}});
      if (contestant_.servers == TargetContestant::Servers::kFar) environment.push_back({"RAMSPAN_TEST_FAR", "1"});  // else it would see that it is on its own host
    }
    if (contestant_.servers == TargetContestant::Servers::kRank) {
      // Ranks of one host would share memory.
      Words job = {*Mpiexec(), "-genv", "RAMSPAN_SERVERS", "1", "-genv", "MPIR_CVAR_NOLOCAL", "1"};
      if (std::getenv("UCX_TLS") == nullptr) job.insert(job.end(), {"-genv", "UCX_TLS", "tcp,self"});
      job.insert(job.end(), {"-n", "1"});
      words.insert(words.begin(), job.begin(), job.end());
      words.insert(words.end(), {":", "-n", "1", "-env", "RAMSPAN_SERVER_MEMORY", std::to_string(ServerMemory()), FindProgram("ramspan-memserver")});
    }
    return Child::Server(std::move(words), environment);
  }

  std::string Fate(int status) {
    failed_ = targets_ended_by == 0;
    if (status == 128 + SIGKILL) return "killed, out of memory in its cgroup of " + FormatBytes(limit()) + ", or by somebody";
    return "its process ended with status " + std::to_string(status) + " and no result";
  }

  std::vector<TargetRow> RowsOf(const Json& result) {
    std::vector<TargetRow> rows;
    const TargetLayout layout{.chunks = static_cast<uint32_t>(o_.data / o_.chunk), .chunk_bytes = o_.chunk, .threads = threads_};
    for (const Json& one : result["accesses"]) {
      TargetRow row = Common();
      one["access"].get_to(row.access);
      one["pass_s"].get_to(row.pass_s);
      one["passes"].get_to(row.passes);
      one["bytes_moved"].get_to(row.moved);
      one["own_cpu_s"].get_to(row.own_cpu_s);
      one["all_cpu_s"].get_to(row.all_cpu_s);
      result["verified"].get_to(row.right);
      row.elsewhere = std::max(row.elsewhere, result["bytes_lent"].get<uint64_t>());
      row.data = layout.bytes();
      if (!contestant_.in_memory()) row.least = row.passes * LeastBytesMoved(row.access, layout, limit());
      rows.push_back(std::move(row));
    }
    return rows;
  }

  std::vector<TargetRow> Skipped(const std::string& why_not) {
    std::vector<TargetRow> rows;
    for (const std::string& access : ChosenTargetAccesses(o_)) {
      TargetRow row = Common();
      row.access = access;
      row.skipped = why_not;
      rows.push_back(std::move(row));
    }
    return rows;
  }

  TargetRow Common() const {
    TargetRow row = common_;
    row.contestant = contestant_.name;
    row.lmr = lmr_;
    row.threads = threads_;
    return row;
  }

  const BenchOptions& o_;
  const TargetContestant& contestant_;
  const double lmr_;
  const int threads_;
  const std::string folder_;
  bool failed_ = false;
  TargetRow common_;
  // Gone in the reverse order: the server, the swap area, the cgroup, which is empty then.
  std::optional<MemoryCgroup> group_;
  std::optional<SwapArea> area_;
  std::optional<Child> server_;
  std::string place_;
};

struct Cell {
  const TargetContestant* contestant;
  double lmr;
  int threads;
};

// Memory has no limit, so it runs once for each count of threads: 1, 2, 4 ... and the last one.
std::vector<Cell> CellsOf(const BenchOptions& options) {
  std::vector<int> counts;
  for (int n = 1; n < options.threads; n *= 2) counts.push_back(n);
  counts.push_back(options.threads);
  const std::vector<double> ratios = ChosenRatios(options);
  std::vector<Cell> cells;
  for (const int threads : counts) {
    for (const double lmr : ratios) {
      for (const TargetContestant* one : ChosenTargetContestants(options)) {
        if (!one->in_memory() || lmr == ratios.front()) cells.push_back({one, one->in_memory() ? 100 : lmr, threads});
      }
    }
  }
  return cells;
}

void CatchSignals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    action.sa_handler = EndContestant;
    sigaction(signal, &action, nullptr);
  }
}

std::string DirectoryOf(const BenchOptions& options) {
  if (!options.directory.empty()) return std::filesystem::absolute(options.directory);
  const char* const tmpdir = std::getenv("TMPDIR");
  return tmpdir != nullptr && *tmpdir != '\0' ? tmpdir : "/tmp";
}

// The exit status.
int RunCells(const BenchOptions& options, std::vector<TargetRow>* rows) {
  const std::vector<Cell> cells = CellsOf(options);
  if (const std::string told = SwapArea::RemoveStale(); !told.empty()) std::fprintf(stderr, "%s", told.c_str());
  const TargetFolder folder(DirectoryOf(options));
  CatchSignals();
  Progress progress(options, static_cast<int>(cells.size()));
  const double begin = Now();
  bool good = true;
  for (const Cell& cell : cells) {
    if (targets_ended_by != 0) break;
    progress.Next(std::string(cell.contestant->name) + ", LMR " + Fixed(cell.lmr, 0) + " %, " + std::to_string(cell.threads) + (cell.threads == 1 ? " thread, " : " threads, ") +
                  Fixed(Now() - begin, 0) + " s so far");
    Trial trial(options, *cell.contestant, cell.lmr, cell.threads, folder.path());
    for (TargetRow& row : trial.Run()) {
      if (options.json && targets_ended_by == 0) PrintJson(options, ToJson(row));
      good &= !row.skipped.empty() || row.right;
      rows->push_back(std::move(row));
    }
    good &= !trial.failed();
  }
  return good ? 0 : 1;
}

}  // namespace

int RunSwapTargets(const BenchOptions& options) {
  if (!options.only.empty()) return RunTargetProgram(options);
  std::vector<TargetRow> rows;
  int status = 0;
  if (!options.traces.empty()) {
    rows = RowsFrom(options.traces);
  } else {
    status = RunCells(options, &rows);
  }
  if (targets_ended_by != 0) {
    signal(targets_ended_by, SIG_DFL);
    raise(targets_ended_by);
  }
  PrintTargetTables(options, rows);
  DrawTargets(options, rows);
  for (const TargetRow& row : rows) {
    if (!row.skipped.empty() || row.right) continue;
    std::fprintf(stderr, "WRONG DATA: %s, LMR %.0f %%\n", row.contestant.c_str(), row.lmr);
    status = 1;
  }
  return status;
}

}  // namespace ramspan::bench
