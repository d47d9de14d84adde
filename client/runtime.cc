#include "client/runtime.h"

#include <pthread.h>
#include <signal.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdio>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>

#include "client/front/pin_registry.h"
#include "client/policy/policy_factory.h"
#include "client/stats_json.h"
#include "client/swap/file_swap.h"
#include "client/swap/remote_swap.h"
#include "client/swap/retirable_tier.h"
#include "client/transport/mpi_entry.h"
#include "common/log.h"
#include "common/own_thread.h"
#include "common/topology.h"
#include "common/units.h"
#include "ramspan/errors.h"
#include "ramspan/extend.h"
#include "ramspan/runtime.h"

namespace ramspan {
namespace {

std::mutex start_mutex;
Options& ProgramOptions() {
  static auto* options = new Options;
  return *options;
}

constinit std::atomic<bool> forked{false};  // a child that has not called exec: it must not touch what is the parent's

// SIGUSR1 and SIGUSR2: a signal sets `wanted`, the mover calls `report`.
struct SignalReport {
  const int signal;
  std::atomic<bool> wanted{false};
  std::atomic<void (*)()> report{nullptr};
};
SignalReport reports[] = {{SIGUSR1}, {SIGUSR2}};

extern "C" void OnReportSignal(int signal) {
  reports[signal == SIGUSR2].wanted.store(true, std::memory_order_relaxed);
}

// Only where the program has no handler of its own.
void InstallHandler(const SignalReport& report) {
  struct sigaction old;
  if (report.report.load() == nullptr || sigaction(report.signal, nullptr, &old) != 0 || old.sa_handler != SIG_DFL) return;
  struct sigaction action = {};
  action.sa_handler = OnReportSignal;
  action.sa_flags = SA_RESTART;
  sigaction(report.signal, &action, nullptr);
}

void PrintStatsJson() { std::fprintf(stderr, "%s\n", Runtime::Get().StatsJson().c_str()); }

// Half of what the machine leaves, shared with the other ranks on this host.
uint64_t DefaultMemory() {
  const char* local_ranks = std::getenv("MPI_LOCALNRANKS");
  const uint64_t ranks = local_ranks ? std::max(1, std::atoi(local_ranks)) : 1;
  return std::max<uint64_t>(AvailableMemory() / 2 / ranks, 1 << 20);
}

std::string SwapfileMask(const Config& config) {
  if (!config.swapfiles.empty()) return config.swapfiles;
  const char* tmpdir = std::getenv("TMPDIR");
  return std::string(tmpdir && *tmpdir ? tmpdir : "/tmp") + "/ramspan-%d-%d.swap";
}

// At least one granule: when the folder is missing or the disk is full now, file_swap says so, where and with a remedy.
uint64_t HalfOfFreeDisk(const std::string& mask) {
  struct statvfs fs;
  const size_t slash = mask.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : mask.substr(0, slash + 1);
  if (statvfs(directory.c_str(), &fs) != 0) return kSwapGranule;
  return std::max<uint64_t>(static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize / 2, kSwapGranule);
}

}  // namespace

std::atomic<Runtime*> Runtime::instance_{nullptr};

namespace {
void Merge(const Options& options, Options* merged) {
  Options& all = *merged;
  const auto take = [](auto& to, const auto& from) {
    if (from) to = from;
  };
  take(all.memory, options.memory);
  take(all.swapMemory, options.swapMemory);
  take(all.memoryManager, options.memoryManager);
  take(all.swap, options.swap);
  take(all.swapfiles, options.swapfiles);
  take(all.enableDMA, options.enableDMA);
  take(all.policy, options.policy);
  take(all.transport, options.transport);
  take(all.checksum, options.checksum);
  take(all.preemptive, options.preemptive);
  take(all.debug, options.debug);
  take(all.bundles, options.bundles);
  take(all.stats, options.stats);
  take(all.customConfig, options.customConfig);
  all.rambrain = all.rambrain || options.rambrain;
}
}  // namespace

void Runtime::SetOptions(const Options& options) {
  std::lock_guard lock(start_mutex);
  if (instance_.load() != nullptr) {
    throw ConfigError("ramspan::Configure was called after the first managedPtr was made; call it first in main()");
  }
  Merge(options, &ProgramOptions());
}

void Runtime::Reload(const Options& options) {
  Options merged;
  {
    std::lock_guard lock(start_mutex);
    merged = ProgramOptions();
  }
  Merge(options, &merged);
  Result<Config> loaded = LoadConfig(ProcessConfigSources(merged));
  if (!loaded.ok()) throw ConfigError(loaded.status().message());
  const Config& next = loaded.value();
  const auto fixed = [](bool same, const char* key) {
    if (!same) {
      throw ConfigError("configuration read again: the key " + std::string(key) +
                        " differs, but it cannot change in a running program; set it before the first managedPtr");
    }
  };
  fixed(next.memory_manager == config_.memory_manager, "memoryManager");
  fixed(next.swap == config_.swap, "swap");
  fixed(next.swapfiles == config_.swapfiles, "swapfiles");
  fixed(next.enable_dma == config_.enable_dma, "enableDMA");
  fixed(next.transport == config_.transport, "transport");
  fixed(next.checksum == config_.checksum, "checksum");
  fixed(next.debug == config_.debug, "debug");
  fixed(next.bundles == config_.bundles, "bundles");
  if (next.memory != 0) ramspan::SetMemoryLimit(next.memory);
  if (files_ != nullptr) {
    if (next.swap_memory != 0) ramspan::SetSwapLimit(next.swap_memory);
    files_->SetPolicy(next.policy);
  }
  engine_->SetPreemptive(next.preemptive, next.preemptive);
  std::lock_guard lock(start_mutex);
  ProgramOptions() = merged;
}

Options Runtime::EffectiveOptions() {
  Options options;
  options.memory = engine_->budget()->limit();
  options.swapMemory = files_ != nullptr ? files_->limit() : 0;
  options.memoryManager = config_.memory_manager;
  options.swap = config_.swap;
  options.swapfiles = SwapfileMask(config_);
  options.enableDMA = config_.enable_dma;
  options.policy = files_ != nullptr ? files_->policy() : config_.policy;
  options.transport = config_.transport;
  options.checksum = config_.checksum;
  options.preemptive = engine_->load_ahead() || engine_->write_ahead();
  options.debug = config_.debug;
  options.bundles = config_.bundles;
  options.stats = config_.stats;
  return options;
}

Statistics Runtime::GetStatistics() {
  const EngineCounters c = engine_->counters();
  const TierStats tiers = swap_->stats();
  Statistics s;
  s.memory_limit = c.budget_bytes;
  s.memory_used = c.resident_bytes;
  s.data = c.data_bytes;
  s.chunks = c.chunks;
  s.small_objects = bundles_ ? bundles_->objects() : 0;
  s.swapped = c.swapped_bytes;
  s.swap_used = tiers.slot_bytes_used;
  s.swap_capacity = tiers.slot_bytes_capacity;
  if (files_ != nullptr) s.swap_capacity += files_->limit() - files_->stats().slot_bytes_capacity;
  s.bytes_out = tiers.bytes_written;
  s.bytes_in = tiers.bytes_read;
  s.writes = tiers.writes;
  s.reads = tiers.reads;
  s.evictions = c.evictions;
  s.clean_evictions = c.clean_evictions;
  s.clean_bytes = c.clean_bytes;
  s.misses = c.misses;
  s.pulls = PinRegistry::Get().pulls();
  s.preemptive = c.preemptive_bytes;
  return s;
}

Runtime& Runtime::Start() {
  if (forked) {
    throw Error("this process was forked from one that uses Ramspan, and the data is the parent's: it has the memory "
                "servers, the swap files and the thread that moves data. Let the child exec another program, or fork "
                "before the first managedPtr is made");
  }
  std::lock_guard lock(start_mutex);
  if (Runtime* runtime = instance_.load()) return *runtime;
  auto runtime = std::unique_ptr<Runtime>(new Runtime);
  if (Status status = runtime->Compose(); !status.ok()) throw ConfigError(status.message());
  Runtime* started = runtime.get();
  try {
    started->mover_ = std::thread([started] { started->RunMover(); });
  } catch (const std::system_error& e) {
    throw ConfigError(std::string("no thread can be started for moving data: ") + e.what() + "; see `ulimit -u`");
  }
  runtime.release();
  instance_.store(started, std::memory_order_release);
  SetBeforeLeaveHook([] {
    if (Runtime* here = instance_.load()) here->LeaveRemote();
  });
  std::atexit([] {
    if (Runtime* here = instance_.load()) here->WriteStats();
  });
  pthread_atfork(nullptr, nullptr, [] {
    forked = true;
    instance_.store(nullptr);
  });
  void (*none)() = nullptr;
  reports[0].report.compare_exchange_strong(none, PrintStatsJson);
  for (const SignalReport& report : reports) InstallHandler(report);
  return *started;
}

Status Runtime::Compose() {
  started_ = std::chrono::steady_clock::now();
  Result<Config> config = LoadConfig(ProcessConfigSources(ProgramOptions()));
  if (!config.ok()) return config.status();
  config_ = config.value();
  if (config_.memory == 0) config_.memory = DefaultMemory();
  std::vector<std::unique_ptr<SwapTier>> tiers;
  if (Status s = AddRemoteTier(&tiers); !s.ok()) return s;
  if (Status s = AddFileTier(&tiers); !s.ok()) return s;
  swap_ = std::make_unique<TieredSwap>(std::move(tiers));
  configured_order_ = swap_->order();
  Engine::Options options;
  options.budget = config_.memory;
  options.preemptive = config_.preemptive;
  options.debug = config_.debug;
  options.checksum = config_.checksum;
  engine_ = std::make_unique<Engine>(options, swap_.get(), &PinRegistry::Get(), [this](const ChunkTable* chunks) {
    return MakePolicy(config_.memory_manager, chunks).value();  // the configuration knows no other names
  });
  // Debug mode wants each object on pages of its own.
  if (config_.bundles && !config_.debug) bundles_ = std::make_unique<Bundles>(engine_.get());
  return Status();
}

Status Runtime::AddRemoteTier(std::vector<std::unique_ptr<SwapTier>>* tiers) {
  Result<MpiWorld*> world = EnsureJoined();
  if (!world.ok()) return world.status();
  rank_ = WorldRank();
  const bool has_servers = world.value() != nullptr;
  const bool wanted = config_.transport != Transport::kNone && config_.swap != "file";
  if (!has_servers && (config_.swap == "remote" || config_.transport == Transport::kMpi)) {
    return InvalidArgument("remote swap is asked for (" + std::string(config_.swap == "remote" ? "swap = remote"
                           : "transport = mpi") + "), but there are no memory servers; start the program with "
                           "`ramspan run -s SERVERS -- PROGRAM`, or leave the key at auto");
  }
  if (!has_servers || !wanted) return Status();
  RemoteSwapOptions options;
  if (const char* seconds = std::getenv("RAMSPAN_TEST_GIVE_UP_AFTER")) {
    options.give_up_after = std::chrono::seconds(std::atoi(seconds));
  }
  auto remote = std::make_unique<RetirableTier>(std::make_unique<RemoteSwap>(*world.value(), options));
  remote_ = remote.get();
  tiers->push_back(std::move(remote));
  return Status();
}

Status Runtime::AddFileTier(std::vector<std::unique_ptr<SwapTier>>* tiers) {
  if (config_.swap == "remote") return Status();
  FileSwapOptions options;
  options.mask = SwapfileMask(config_);
  options.bytes_max = config_.swap_memory != 0 ? config_.swap_memory : HalfOfFreeDisk(options.mask);
  options.direct = config_.enable_dma;
  options.policy = config_.policy;
  Result<std::unique_ptr<FileSwap>> files = FileSwap::Create(options);
  if (!files.ok()) return files.status();
  files_ = files.value().get();
  tiers->push_back(std::move(files).value());
  return Status();
}

void Runtime::RunMover() {
  BlockSignals();
  BindThreadToSpareCore(UsableCores());
  while (!exiting_.load(std::memory_order_relaxed)) {
    if (!engine_->MoverStep()) engine_->MoverWait(std::chrono::milliseconds(20));
    for (SignalReport& report : reports) {
      if (report.wanted.exchange(false)) report.report.load()();
    }
  }
}

// MPI is about to go. What lives on servers comes home (and leaves for files, where the limit asks for it), unless the
// program is ending and nobody will look at it again.
void Runtime::LeaveRemote() {
  rank_ = WorldRank();
  if (remote_ == nullptr) return;
  std::lock_guard lock(extend_mutex_);  // no other swap is brought home meanwhile
  remote_->Close();
  if (!exiting_.load()) {
    // Remote memory is the first tier wherever there is one.
    const Status status = engine_->Vacate([this](SlotRef slot) { return swap_->TierIndexOf(slot) == 0; });
    if (!status.ok()) LogWarning("data on memory servers is lost with MPI_Finalize: %s", status.message().c_str());
  }
  engine_->Drain();
  remote_->Retire();
}

std::string Runtime::StatsJson() {
  StatsInput in;
  in.config = &config_;
  in.counters = engine_->counters();
  in.small_objects = bundles_ ? bundles_->objects() : 0;
  in.rank = rank_;
  in.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  for (size_t i = 0; i < swap_->tier_count(); ++i) {  // the program may have added several of a kind
    const std::string name = swap_->tier(i).capabilities().name;
    const auto same = std::find_if(in.tiers.begin(), in.tiers.end(), [&](const auto& t) { return t.first == name; });
    if (same == in.tiers.end()) {
      in.tiers.push_back({name, swap_->tier(i).stats()});
    } else {
      same->second += swap_->tier(i).stats();
    }
  }
  return FormatStats(in);
}

void Runtime::WriteStats() {
  const int rank = WorldRank();
  if (rank >= 0) rank_ = rank;
  exiting_ = true;
  engine_->WakeMover();
  mover_.join();
  if (config_.debug) std::fputs(engine_->DescribeUnchangedWrites().c_str(), stderr);
  if (config_.stats.empty()) return;
  const std::string path = ExpandStatsPath(config_.stats, rank_);
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    LogWarning("cannot write statistics to %s (key stats, RAMSPAN_STATS)", path.c_str());
    return;
  }
  const bool written = std::fprintf(file, "%s\n", StatsJson().c_str()) > 0;
  if (std::fclose(file) != 0 || !written) {
    LogWarning("statistics in %s are not complete: %s", path.c_str(), std::strerror(errno));
  }
}

void Configure(const Options& options) { Runtime::SetOptions(options); }

uint64_t MemoryLimit() { return Runtime::Get().engine().budget()->limit(); }

void SetMemoryLimit(uint64_t bytes) {
  if (bytes < (1 << 20)) throw ConfigError("a memory limit of " + FormatBytes(bytes) + " is below 1 MiB");
  if (Status status = Runtime::Get().engine().SetBudget(bytes); !status.ok()) ThrowStatus(status);
}

void SetSignalReport(int signal, void (*report)()) {
  SignalReport& slot = reports[signal == SIGUSR2];
  slot.report.store(report);
  if (Runtime::IfStarted()) InstallHandler(slot);
}

bool Started() { return Runtime::IfStarted() != nullptr; }

void Reconfigure(const Options& options) {
  if (Runtime* runtime = Runtime::IfStarted()) return runtime->Reload(options);
  Runtime::SetOptions(options);
}

Options EffectiveOptions() { return Runtime::Get().EffectiveOptions(); }

namespace {
FileSwap& Files() {
  FileSwap* files = Runtime::Get().files();
  if (files == nullptr) throw ConfigError("no local swap files are used (swap = remote), so they have no limit to set");
  return *files;
}
}  // namespace

uint64_t SwapLimit() { return Files().limit(); }

void SetSwapLimit(uint64_t bytes) {
  if (Status status = Files().SetLimit(bytes); !status.ok()) throw Error(status.message());
}

void SetSwapPolicy(SwapPolicy policy) { Files().SetPolicy(policy); }

void SetPreemptive(bool loading, bool unloading) { Runtime::Get().engine().SetPreemptive(loading, unloading); }

void SetWaitForPins(bool wait) { Runtime::Get().engine().SetWaitForPins(wait); }

Statistics GetStatistics() { return Runtime::Get().GetStatistics(); }

std::string DescribePolicy() { return Runtime::Get().engine().DescribePolicy(); }

bool CheckPolicy() { return Runtime::Get().engine().CheckPolicy(); }

std::string StatsJson() { return Runtime::Get().StatsJson(); }

}  // namespace ramspan
