// Runtime: the composition root; it alone names concrete policies, tiers and transports. Started by the first use,
// never destroyed (static managedPtrs outlive main); at exit it writes the statistics, and it stops using remote memory
// when MPI is finalised.
// Thread-safety: any thread. Get() may block at the first call (it may meet the memory servers, which is collective).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "client/engine/engine.h"
#include "client/swap/tiered_swap.h"
#include "common/config.h"

namespace ramspan {

class RetirableTier;

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
  std::string StatsJson();

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
  RetirableTier* remote_ = nullptr;  // in swap_, the first tier; null without servers
  std::thread mover_;

  std::atomic<int> rank_{-1};
  std::atomic<bool> exiting_{false};
};

}  // namespace ramspan
