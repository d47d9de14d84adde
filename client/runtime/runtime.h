// Runtime: the composition root. It alone names concrete tiers, policies and transports, puts them together and opens
// the front's Session. Started by the first use, never destroyed (static managedPtrs outlive main); at exit it writes the
// statistics, and it stops using remote memory when MPI is finalised.
// Thread-safety: any thread. Get() may block at the first call (it may meet the memory servers, which is collective).
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "client/front/session.h"
#include "client/front/turn_queue.h"
#include "client/runtime/mover.h"
#include "common/config.h"
#include "common/mutex.h"

namespace ramspan {

class CachePolicy;
class ChunkTable;
class EvictionPolicy;
class FileSwap;
class MappedFiles;
class PageScanner;
class PageSpace;
class RetirableTier;
class RuntimeStatistics;
class ServerTransport;
class Swaps;
class SwapTier;
class TieredSwap;
class TraceFile;

class Runtime {
 public:
  // Throws ConfigError when the configuration cannot work, then again at each call; Error in a forked child.
  static Runtime& Get() {
    Runtime* runtime = instance_.load(std::memory_order_acquire);  // publishes the whole object
    return __builtin_expect(runtime != nullptr, 1) ? *runtime : Start();
  }
  // The runtime if there is one here: null before the first use, and in a forked child.
  static Runtime* IfStarted() { return instance_.load(std::memory_order_acquire); }
  // For the start that is to come; false, with nothing done, after it. Waits for one that is under way.
  static bool SetOptions(const Options& options);
  ~Runtime();  // only of one whose start has failed

  Engine& engine() { return *engine_; }
  Swaps& swaps() { return *swaps_; }
  // For calls that lower a limit or take a swap away: bundles without an object would have to find room, or would be said to be lost.
  void FreeEmptyBundles() noexcept;
  MappedFiles& mapped_files() { return *mapped_files_; }
  // Memory that is swapped by pages; the first call starts it. Throws ConfigError where the system does not allow it.
  PageSpace& pages() {
    PageSpace* const space = pages_if_started();
    return __builtin_expect(space != nullptr, 1) ? *space : StartPages();
  }
  uint64_t pages_above() const { return config_.pages_above; }
  PageSpace* pages_if_started() { return pages_.load(std::memory_order_acquire); }
  RuntimeStatistics& statistics() { return *statistics_; }
  FileSwap* files() { return files_; }  // as configured; null with swap = remote
  std::unique_ptr<CachePolicy> MakeConfiguredPolicy(const ChunkTable* chunks) const;
  // While a policy of the program's is in force, the one to go back to is there already: going back must not need heap, because the
  // program destroys its own next. REQUIRES of both: called by Engine::ReplacePolicy.
  void KeepConfiguredPolicy(const ChunkTable* chunks);
  std::unique_ptr<CachePolicy> TakeConfiguredPolicy(const ChunkTable* chunks);
  // Changes that wait for other threads (memory limit, policy) are made one after another.
  TurnQueue* changes() { return &changes_; }
  EvictionPolicy* program_policy = nullptr;  // in force; in a turn of changes()

  Options EffectiveOptions();
  void Reload(const Options& options);  // throws what <ramspan/runtime.h> says of Reconfigure

 private:
  friend struct Session;
  // Those that Reconfigure applies, as the sources said them.
  struct ChangeableKeys {
    ChangeableKeys() = default;
    explicit ChangeableKeys(const Config& c) : memory(c.memory), swap_memory(c.swap_memory), policy(c.policy), preemptive(c.preemptive) {}
    uint64_t memory = 0, swap_memory = 0;  // 0: none says one
    SwapPolicy policy{};
    bool preemptive = false;
  };
  Runtime();
  static Runtime& Start();
  static Runtime& TryStart();
  Status Compose(const Options& program);
  void OpenTrace();
  void MakeParts(bool rambrain, std::chrono::steady_clock::time_point started);
  Result<ServerTransport*> ChooseTransport();
  Status AddRemoteTier(std::vector<std::unique_ptr<SwapTier>>* tiers);
  Status AddFileTier(bool rambrain, std::vector<std::unique_ptr<SwapTier>>* tiers);
  PageSpace& StartPages();
  void UseLimits(const Options& named, const Config& next);
  void LeaveRemote();
  void AtExit();

  static std::atomic<Runtime*> instance_;

  // Constant after Compose.
  Config config_;
  std::unique_ptr<ServerTransport> outside_;  // of servers that are no ranks, until the start has succeeded; swap_ uses it to its end
  std::unique_ptr<TieredSwap> swap_;
  std::unique_ptr<TraceFile> trace_;  // null: nothing is traced
  std::unique_ptr<PageScanner> scanner_;
  std::unique_ptr<Engine> engine_;
  Mutex pages_mutex_{LockRank::kRuntime};  // one thread starts them
  std::atomic<PageSpace*> pages_{nullptr};
  TurnQueue changes_;
  TurnQueue reloads_;  // of Reconfigure; a turn of changes_ comes within it
  ChangeableKeys read_;  // when they were last read; in a turn of reloads_
  std::unique_ptr<CachePolicy> spare_policy_;  // guarded by the engine's mutex
  std::unique_ptr<Bundles> bundles_;
  FileSwap* files_ = nullptr;        // in swap_, the last tier; null with swap = remote
  RetirableTier* remote_ = nullptr;  // in swap_, the first tier; null without servers; likewise:
  ServerTransport* servers_ = nullptr;  // lives for ever
  std::unique_ptr<Swaps> swaps_;
  std::unique_ptr<MappedFiles> mapped_files_;
  std::unique_ptr<RuntimeStatistics> statistics_;
  Session session_;
  Mover mover_;
};

}  // namespace ramspan
