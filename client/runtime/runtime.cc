#include "client/runtime/runtime.h"

#include <algorithm>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/engine/engine.h"
#include "client/front/bundles.h"
#include "client/front/pin_registry.h"
#include "client/front/throw_status.h"
#include "client/front/write_sites.h"
#include "client/pages/page_scanner.h"
#include "client/pages/page_space.h"
#include "client/policy/policy_factory.h"
#include "client/policy/trace_file.h"
#include "client/policy/trace_policy.h"
#include "client/runtime/mapped_files.h"
#include "client/runtime/options.h"
#include "client/runtime/pages_door.h"
#include "client/runtime/signals.h"
#include "client/runtime/statistics.h"
#include "client/runtime/stats_json.h"
#include "client/runtime/swaps.h"
#include "client/swap/file_swap.h"
#include "client/swap/remote_swap.h"
#include "client/swap/retirable_tier.h"
#include "client/transport/mpi_door.h"
#include "client/transport/ofi_door.h"
#include "common/cancel_disabled.h"
#include "common/engine_call.h"
#include "common/log.h"
#include "common/other_stack.h"
#include "common/process_mark.h"
#include "common/public_call.h"
#include "common/raise.h"
#include "common/write_signals_blocked.h"
#include "ramspan/errors.h"

namespace ramspan {

namespace {
constexpr size_t kSitesTold = 8;  // of pulls that changed nothing; the rest is rare beside them
constexpr auto kTraceWrittenEvery = std::chrono::milliseconds(10);
}  // namespace

std::atomic<Runtime*> Runtime::instance_{nullptr};

Runtime::Runtime() = default;
Runtime::~Runtime() = default;

Session& Session::Start() {
  if (InForkedChild()) Runtime::Start();  // which throws
  return Runtime::Get().session_;
}

Runtime& Runtime::Start() {
  const CancelDisabled uncancelled;  // neither malloc nor an object's making is a cancellation point
  const PublicCall call;
  return AsPublicCall([]() -> Runtime& { return TryStart(); });
}

// What was begun is given back where it fails, and the next use tries again.
Runtime& Runtime::TryStart() {
  if (Session::InForkedChild()) {
    Raise(Error("this process was forked from one that uses Ramspan, and the data is the parent's: it has the memory "
                "servers, the swap files and the thread that moves data. Let the child exec another program, or fork "
                "before the first managedPtr is made"));
  }
  ProgramOptions& program = ProgramOptions::Get();
  MutexLock lock(program.mutex);
  if (Runtime* runtime = instance_.load()) return *runtime;
  auto runtime = std::unique_ptr<Runtime>(new Runtime);
  if (Status status = runtime->Compose(program.options); !status.ok()) Raise(ConfigError(status.message()));
  // A trace needs short epochs, which the mover begins, and is written by it.
  const MoverPace pace = runtime->trace_ ? MoverPace{kTraceWrittenEvery, TracePolicy::kEpochEvery} : MoverPace{};
  if (Status status = runtime->mover_.Start(&runtime->engine(), [self = runtime.get(), swaps = runtime->swaps_.get(), trace = runtime->trace_.get()](const std::atomic<bool>& stop) {
        if (trace != nullptr) trace->WriteOut(false);
        swaps->TellLosses();
        swaps->LeaveDraining(stop);
        self->engine_->GiveBackIdle(stop);
        LogWhatWasKept();
        static_cast<void>(WithinHeap([&] { return self->statistics_->WriteFileNowAndThen(), self->statistics_->TellOfWaits(), true; }, false));
        // Not by what asks for the running one: the mover's first turn may come before it is known as that.
        detail::TellOfMemoryBeside(self->engine_->budget()->limit(), self->pages_above(), [swaps] { return swaps->FarServers(); });
      }, pace); !status.ok()) Raise(ConfigError(status.message()));
  // For ever, as the servers of a job: the mover and exit handlers may still be there when the process ends.
  static_cast<void>(runtime->outside_.release());
  Runtime* started = runtime.release();
  static_cast<void>(ProcessMark::Set());  // children of fork are told of by handlers, too
  instance_.store(started, std::memory_order_release);
  Session::Open(&started->session_);
  SetBeforeLeaveHook([] {
    if (Runtime* here = instance_.load(); here != nullptr && !Session::InForkedChild()) here->LeaveRemote();
  });
  std::atexit([] {
    Runtime* const here = instance_.load();
    if (here == nullptr || Session::InForkedChild()) return;
    if (here->servers_ != nullptr) here->servers_->EndMeetings();
    const PageSpace* const pages = here->pages_if_started();
    if (pages != nullptr && pages->Owns(__builtin_frame_address(0))) return OnOtherStack([here] { here->AtExit(); });  // a coroutine has called exit()
    if (EngineCall::IsInterrupted()) {  // by a handler that has called exit(): this thread has locks that the rest needs
      constexpr std::string_view kSaid = "ramspan: exit() in a signal handler that has interrupted Ramspan: it ends at once, and writes no statistics\n";
      static_cast<void>(!write(STDERR_FILENO, kSaid.data(), kSaid.size()));
      return;
    }
    here->AtExit();
  });
  pthread_atfork(nullptr, nullptr, [] {
    const CancelDisabled uncancelled;
    instance_.store(nullptr);
    Session::CloseInForkedChild();
  });
  StartSignalReports([] { std::fprintf(stderr, "%s\n", Runtime::Get().statistics().Json().c_str()); });
  return *started;
}

Status Runtime::Compose(const Options& program) {
  const auto started = std::chrono::steady_clock::now();
  Result<Config> config = LoadConfig(ProcessConfigSources(program));
  if (!config.ok()) return config.status();
  config_ = config.value();
  read_ = ChangeableKeys(config_);
  WarnOfPassedOver(config_);
  if (config_.memory == 0) {
    config_.memory = DefaultMemory();
  } else {
    WarnIfOverMachine(config_);
  }
  if (Status s = CheckAddresses(config_); !s.ok()) return s;
  std::vector<std::unique_ptr<SwapTier>> tiers;
  if (Status s = AddRemoteTier(&tiers); !s.ok()) return s;
  if (Status s = AddFileTier(program.rambrain, &tiers); !s.ok()) return s;
  swap_ = std::make_unique<TieredSwap>(std::move(tiers));
  try {
    MakeParts(program.rambrain, started);
  } catch (const std::bad_alloc&) {  // what servers' transports have taken meanwhile, CheckAddresses could not know
    return NoAddresses(config_);
  }
  return Status();
}

// A program runs without its trace as without its statistics.
void Runtime::OpenTrace() {
  if (config_.trace.empty()) return;
  Result<std::unique_ptr<TraceFile>> file = TraceFile::Create(ExpandStatsPath(config_.trace, WorldRank()));
  if (file.ok()) {
    trace_ = std::move(file).value();
  } else {
    LogWarning("nothing is traced (key trace, RAMSPAN_TRACE): %s", file.status().message().c_str());
  }
}

// All above the tiers. std::bad_alloc: there are too few addresses.
void Runtime::MakeParts(bool rambrain, std::chrono::steady_clock::time_point started) {
  OpenTrace();
  Engine::Options options;
  options.budget = config_.memory;
  options.metadata_beside_limit = rambrain;
  options.keep_room = !options.metadata_beside_limit;  // such a program fills memory and swap to the last byte
  options.preemptive = config_.preemptive;
  options.debug = config_.debug;
  options.checksum = config_.checksum;
  scanner_ = std::make_unique<PageScanner>(&PinRegistry::Get());
  engine_ = std::make_unique<Engine>(options, swap_.get(), scanner_.get(), [this](const ChunkTable* chunks) {
    return MakeConfiguredPolicy(chunks);
  });
  // Debug mode wants each object on pages of its own.
  if (config_.bundles && !config_.debug) bundles_ = std::make_unique<Bundles>(engine_.get());
  swaps_ = std::make_unique<Swaps>(engine_.get(), Swaps::Configured{swap_.get(), remote_, files_});
  mapped_files_ = std::make_unique<MappedFiles>(engine_.get(), swap_.get(), swaps_.get());
  statistics_ = std::make_unique<RuntimeStatistics>(
      RuntimeStatistics::Sources{&config_, engine_.get(), bundles_.get(), swap_.get(), files_, started});
  statistics_->set_rank(WorldRank());
  statistics_->CheckFile();
  session_ = {engine_.get(), bundles_.get(), config_.debug};
}

// The servers of this job, or those outside of it that are configured; null: none, or not wanted.
Result<ServerTransport*> Runtime::ChooseTransport() {
  const Result<ServerTransport*> job = JobTransport();
  if (!job.ok()) return job;
  const bool wanted = config_.transport != Transport::kNone && config_.swap != "file";
  if (job.value() != nullptr && config_.transport != Transport::kOfi) return wanted ? job : Result<ServerTransport*>(nullptr);
  if (config_.transport == Transport::kMpi || config_.servers.empty()) {
    if (config_.swap != "remote" && config_.transport != Transport::kMpi && config_.transport != Transport::kOfi) return nullptr;
    if (!config_.servers.empty()) {
      return InvalidArgument("transport = mpi is asked for, but no servers are ranks of this job; the servers that are named (servers) are "
                             "reached by transport = ofi, or auto");
    }
    const std::string key = config_.swap == "remote" ? "swap = remote" : config_.transport == Transport::kMpi ? "transport = mpi" : "transport = ofi";
    return InvalidArgument("remote swap is asked for (" + key + "), but there are no memory servers; start the program with `ramspan run -s "
                           "SERVERS -- PROGRAM`, or name servers that `ramspan server` started (servers = HOST:PORT), or leave the key at auto");
  }
  if (!wanted) return nullptr;
  Result<std::unique_ptr<ServerTransport>> outside = OpenOfi({config_.servers, config_.server_key_file, config_.fabric_provider});
  if (!outside.ok()) return outside.status();
  outside_ = std::move(outside).value();
  return outside_.get();
}

Status Runtime::AddRemoteTier(std::vector<std::unique_ptr<SwapTier>>* tiers) {
  const Result<ServerTransport*> transport = ChooseTransport();
  if (!transport.ok()) return transport.status();
  if (transport.value() == nullptr) return Status();
  servers_ = transport.value();
  auto remote = std::make_unique<RetirableTier>(std::make_unique<RemoteSwap>(*transport.value(), RemoteSwapOptions{.is_all = config_.swap == "remote"}));
  remote_ = remote.get();
  tiers->push_back(std::move(remote));
  return Status();
}

Status Runtime::AddFileTier(bool rambrain, std::vector<std::unique_ptr<SwapTier>>* tiers) {
  if (config_.swap == "remote") return Status();
  FileSwapOptions options;
  options.mask = SwapfileMask(config_);
  options.bytes_max = config_.swap_memory != 0 ? config_.swap_memory : HalfOfFreeDisk(options.mask);
  options.direct = config_.enable_dma;
  options.policy = config_.policy;
  // Programs written for Rambrain know the policy as theirs.
  options.warn_of_growth = !rambrain && config_.source.count("swapMemory") != 0 && config_.source.count("policy") == 0;
  Result<std::unique_ptr<FileSwap>> files = FileSwap::Create(options);
  if (!files.ok()) return files.status();
  files_ = files.value().get();
  tiers->push_back(std::move(files).value());
  return Status();
}

std::unique_ptr<CachePolicy> Runtime::MakeConfiguredPolicy(const ChunkTable* chunks) const {
  std::unique_ptr<CachePolicy> policy = MakePolicy(config_.memory_manager, chunks).value();  // the configuration knows no other names
  if (trace_ == nullptr) return policy;
  return std::make_unique<TracePolicy>(std::move(policy), chunks, trace_.get());
}

void Runtime::KeepConfiguredPolicy(const ChunkTable* chunks) {
  if (spare_policy_ == nullptr) spare_policy_ = MakeConfiguredPolicy(chunks);
  engine_->KeepReserved(spare_policy_.get());
}

std::unique_ptr<CachePolicy> Runtime::TakeConfiguredPolicy(const ChunkTable* chunks) {
  engine_->KeepReserved(nullptr);
  return spare_policy_ != nullptr ? std::move(spare_policy_) : MakeConfiguredPolicy(chunks);
}

void Runtime::FreeEmptyBundles() noexcept {
  if (bundles_) bundles_->FreeEmpty();
}

// MPI is about to go. What lives on servers comes home (and leaves for files, where the limit asks for it), unless the
// program is ending and nobody will look at it again.
void Runtime::LeaveRemote() {
  statistics_->set_rank(WorldRank());
  swaps_->LeaveRemote(!mover_.stopping());
}

// Called before remote memory is left, which joined earlier and therefore goes later: exit handlers run backwards.
void Runtime::AtExit() {
  Session::End();
  if (const int rank = WorldRank(); rank >= 0) statistics_->set_rank(rank);
  mover_.Stop();
  // An exception would end the program in place of its own status.
  const auto say = [](const char* what, const auto& words) {
    if (!WithinHeap([&] { return words(), true; }, false)) LogWarning("%s: %s", what, OutOfHeapText());
  };
  if (config_.debug) {
    say("unchanged writes to swap are not told", [this] {
      std::string words = engine_->DescribeUnchangedWrites();
      std::vector<std::pair<std::string, uint64_t>> places;  // one line may be several places in the code
      for (const auto& [site, times] : engine_->UnchangedBySite()) {
        const std::string place = DescribeSite(site);
        const auto known = std::find_if(places.begin(), places.end(), [&](const auto& one) { return one.first == place; });
        known != places.end() ? void(known->second += times) : void(places.emplace_back(place, times));
        if (places.size() == kSitesTold) break;
      }
      for (const auto& [place, times] : places) words += "ramspan debug:   pulled as T* at " + place + " (" + std::to_string(times) + " times)\n";
      const WriteSignalsBlocked blocked;
      std::fputs(words.c_str(), stderr);
    });
  }
  if (trace_) say("the end of the trace is not written (key trace, RAMSPAN_TRACE)", [this] { trace_->WriteOut(true); });
  say("statistics are not written (key stats, RAMSPAN_STATS)", [this] { statistics_->WriteFile(); });
  LogWhatWasKept();
}

}  // namespace ramspan
