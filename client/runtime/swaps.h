// Swaps: which swaps there are and which of them is in use: remote memory and local files as configured, those that the
// program added (include/ramspan/extend.h), and the tier of mapped files. Each call throws what extend.h says there.
//
// Thread-safety: any thread; one change at a time. Who brings a swap home, which waits for transfers and evicts, has the turn for as
// long, and no mutex: a program's store may ask for its use from within each of its calls. Removing or closing one from within such a
// call would wait for itself; it is refused before it comes here (extend.cc).
// Ownership: owns nothing; the tiers belong to the TieredSwap, which lives as long as the engine.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "client/front/turn_queue.h"
#include "client/runtime/leave_pace.h"
#include "client/swap/tiered_swap.h"
#include "common/mutex.h"
#include "ramspan/extend.h"

namespace ramspan {

class Engine;
class FileSwap;
class RetirableTier;
class StoreSwap;

class Swaps {
 public:
  struct Configured {
    TieredSwap* swap;
    RetirableTier* remote;  // the first tier; null without servers
    FileSwap* files;        // the last tier; null with swap = remote
  };
  Swaps(Engine* engine, const Configured& configured);

  SwapId Add(SwapStore* store);
  SwapId Add(const SwapFiles& files);
  void Use(SwapId id);
  SwapId in_use();
  enum class Removal { kBringHome, kPatient, kAbandon };  // kPatient: as kBringHome, but waits for pins as long as a pull would
  void Remove(SwapId id, Removal how);
  void Close();
  SwapUse UseOf(SwapId id);
  void WithFiles(SwapId id, const std::function<void(FileSwap&)>& call);

  // One more tier from which chunks are only read. Its index in the TieredSwap, or TieredSwap::kTiersMax: no place left.
  size_t AddReadOnly(std::unique_ptr<SwapTier> tier);
  // Says of each memory server that has died since the last call how much was lost with it, if anything. For LeaveDraining's thread.
  void TellLosses();
  size_t FarServers() const;  // that are not dead; as TellLosses
  // Brings home some of what is on servers that drain, while the program goes on; it leaves for other servers, or files. For one
  // thread, again and again: each call takes half a second or little more, and ends when `stop` is set.
  void LeaveDraining(const std::atomic<bool>& stop);
  // Gives up remote memory, for good; what lives there comes home before, if that is wanted.
  void LeaveRemote(bool bring_home);

 private:
  // A swap that the program made. Its place is used again when it was removed or abandoned, its number never.
  struct Added {
    SwapId id{};
    RetirableTier* tier = nullptr;  // null: removed
    FileSwap* files = nullptr;      // inside the tier, or null
    StoreSwap* store = nullptr;     // likewise
    size_t index = 0;               // in the TieredSwap
    bool is_leaving = false;        // Remove is under way
  };
  SwapId Add(std::unique_ptr<SwapTier> tier, FileSwap* files, StoreSwap* store);
  Added& Find(SwapId id) RS_REQUIRES(mutex_);
  void SetOrder(SwapId id) RS_REQUIRES(mutex_);

  Engine* const engine_;
  const Configured configured_;
  const std::vector<size_t> configured_order_;
  Mutex mutex_{LockRank::kSwaps};  // for looks and short changes
  TurnQueue turns_;  // of those that bring a swap's objects home, or give them up
  std::vector<Added> added_ RS_GUARDED_BY(mutex_);
  // LeaveDraining's and TellLosses's, for their one thread.
  std::vector<bool> told_losses_;  // by memory server
  LeavePace leave_pace_;
  uint32_t leave_next_ = 0;  // the chunk with which the next turn begins
  bool is_closing_ RS_GUARDED_BY(mutex_) = false;
  int last_id_ RS_GUARDED_BY(mutex_) = 0;
  SwapId in_use_ RS_GUARDED_BY(mutex_){};
};

}  // namespace ramspan
