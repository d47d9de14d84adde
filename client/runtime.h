// Runtime: the composition root; it alone names concrete policies, tiers and transports. Started by the first use,
// never destroyed (static managedPtrs outlive main); at exit it writes the statistics, and it stops using remote memory
// when MPI is finalised.
// Thread-safety: any thread. Get() may block at the first call (it may meet the memory servers, which is collective).
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/engine/engine.h"
#include "client/front/bundles.h"
#include "client/swap/tiered_swap.h"
#include "common/config.h"

namespace ramspan {

class EvictionPolicy;
class FileSwap;
class RetirableTier;
class StoreSwap;
enum class SwapId : int;
struct Statistics;
class FileMap;
class MappedFile;
struct SwapFiles;
struct SwapUse;

// The exception that stands for a failed status (include/ramspan/errors.h).
[[noreturn]] void ThrowStatus(const Status& status);

class Runtime {
 public:
  // Throws ConfigError when the configuration cannot work, then again at each call; Error in a forked child.
  static Runtime& Get() {
    Runtime* runtime = instance_.load(std::memory_order_acquire);  // publishes the whole object
    return __builtin_expect(runtime != nullptr, 1) ? *runtime : Start();
  }
  // The runtime if there is one here: null before the first use, and in a forked child.
  static Runtime* IfStarted() { return instance_.load(std::memory_order_acquire); }
  static void SetOptions(const Options& options);

  Engine& engine() { return *engine_; }
  Bundles* bundles() { return bundles_.get(); }  // null: each object is a chunk
  std::string StatsJson();
  Statistics GetStatistics();
  Options EffectiveOptions();
  void Reload(const Options& options);  // throws what <ramspan/runtime.h> says of Reconfigure
  FileSwap* files() { return files_; }

  // What <ramspan/extend.h> says; each throws as it says there.
  SwapId AddSwap(std::unique_ptr<SwapTier> tier, FileSwap* files, StoreSwap* store);
  SwapId AddSwapFiles(const SwapFiles& files);
  void UseSwap(SwapId id);
  SwapId SwapInUse();
  void RemoveSwap(SwapId id, bool bring_home);
  void CloseSwap();
  SwapUse GetSwapUse(SwapId id);
  FileSwap& FilesOf(SwapId id);
  void SetEvictionPolicy(EvictionPolicy* policy);

  // A chunk that lives in a file of the program's until it is changed, and one that was written back to it.
  Result<Chunk*> MapChunk(const std::shared_ptr<const MappedFile>& file, uint64_t offset, uint64_t bytes);
  void MapAgain(Chunk* chunk, const std::shared_ptr<const MappedFile>& file, uint64_t offset);

 private:
  Runtime() = default;
  static Runtime& Start();
  Status Compose();
  Status AddRemoteTier(std::vector<std::unique_ptr<SwapTier>>* tiers);
  Status AddFileTier(std::vector<std::unique_ptr<SwapTier>>* tiers);
  void RunMover();
  void LeaveRemote();
  void WriteStats();

  static std::atomic<Runtime*> instance_;

  // Constant after Compose.
  Config config_;
  std::chrono::steady_clock::time_point started_;
  std::unique_ptr<TieredSwap> swap_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Bundles> bundles_;
  FileSwap* files_ = nullptr;        // in swap_, the last tier; null with swap = remote
  RetirableTier* remote_ = nullptr;  // in swap_, the first tier; null without servers
  std::thread mover_;

  // Swaps that the program made, by SwapId - 1. A place whose swap was abandoned is never used again: slots may name it.
  struct Added {
    RetirableTier* tier = nullptr;  // in swap_; null: removed
    FileSwap* files = nullptr;      // inside the tier, or null
    StoreSwap* store = nullptr;     // likewise
    size_t index = 0;               // in swap_
    bool abandoned = false;
  };
  Added& Find(SwapId id);        // REQUIRES: extend_mutex_ held
  void SetSwapOrder(SwapId id);  // the same
  std::mutex extend_mutex_;      // over what follows; held while a swap is brought home, never with the engine's
  std::vector<Added> added_;
  std::vector<size_t> configured_order_;
  SwapId swap_in_use_{};
  SlotRef PlaceIn(const std::shared_ptr<const MappedFile>& file, uint64_t offset);
  FileMap* file_map_ = nullptr;  // in swap_, after the first mapped file
  size_t file_map_index_ = 0;

  std::atomic<int> rank_{-1};
  std::atomic<bool> exiting_{false};
};

}  // namespace ramspan
