// Swaps: where objects go that leave memory. A swap does something from the construction of the first manager with it to
// the destruction of the last one; then the objects in it come home. managedFileSwap and managedDummySwap are ready to
// use; a program derives its own from managedSwap.
//
// Thread-safety: as in Rambrain, swaps and managers are set up by one thread; getters from any.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "rambrain/common.h"
#include "rambrain/exceptions.h"
#include "rambrain/managedMemoryChunk.h"

namespace rambrain {

// fixed: a full swap is an exception. interactive: asks on the terminal; without one it is an exception too.
enum class swapPolicy { fixed, autoextendable, interactive };

class RAMSPAN_API managedSwap {
 public:
  managedSwap(const managedSwap&) = delete;
  managedSwap& operator=(const managedSwap&) = delete;
  // REQUIRES: the managers that use it are gone (else the objects that are only here are lost, and the log says so). Within a call of a
  // derived swap's or a strategy's the program ends, with a message.
  virtual ~managedSwap();

  // Bytes. Before a manager uses the swap, and after, nothing is used.
  virtual global_bytesize getSwapSize() const;
  virtual global_bytesize getUsedSwap() const;
  virtual global_bytesize getFreeSwap() const;

  virtual swapPolicy getSwapPolicy() const { return policy; }
  virtual swapPolicy setSwapPolicy(swapPolicy new_policy);  // returns the old one

  // Makes the swap larger by `bytes`. Returns whether it is.
  virtual bool extendSwap(global_bytesize bytes);
  // As the policy says, by at least min_size: not at all when fixed. A full swap is extended without this call.
  virtual bool extendSwapByPolicy(global_bytesize min_size);

  // Waits until no transfer is under way (also to other swaps: one Ramspan holds all objects).
  void waitForCleanExit() const;
  // Whether transfers are under way. Does not wait.
  virtual bool checkForAIO();
  // Gives up the swap's copies of objects that are in memory, too, until minimum_size bytes are free (0: all of them).
  // True when more than minimum_size bytes became free.
  virtual bool cleanupCachedElements(global_bytesize minimum_size = 0);

  // What addresses and sizes of transfers are multiples of: 1, or a page where files bypass the page cache.
  size_t getMemoryAlignment() const;

  // The swap takes no more objects. managedMemory::closeSwap brings home what is in it, too.
  virtual void close();

 protected:
  // For a program's own swap. All calls below come from threads of the program and of Ramspan, one at a time a swap.
  // REQUIRES: none of them uses managedPtr or adhereTo.
  explicit managedSwap(global_bytesize size);

  // Saves chunk->size bytes at chunk->locPtr, keeping in chunk->swapBuf whatever finds them again (that is null before
  // the first swapOut; later ones may overwrite). Returns chunk->size, or less for a failure: the object stays in memory.
  // Rambrain's derived swaps also freed locPtr, set the status and claimed usage: Ramspan does that.
  virtual global_bytesize swapOut(managedMemoryChunk* chunk);
  // Brings them back to chunk->locPtr. Returns chunk->size, or less for a failure.
  virtual global_bytesize swapIn(managedMemoryChunk* chunk);
  // chunk->swapBuf (not null) is not needed any more.
  virtual void swapDelete(managedMemoryChunk* chunk);

  // Read by Ramspan's threads while the program changes them. Relaxed would do: nothing is published with them.
  std::atomic<global_bytesize> swapSize;  // change it by extendSwap
  std::atomic<swapPolicy> policy{swapPolicy::fixed};

 private:
  friend class managedFileSwap;
  friend class managedMemory;
  class Store;
  void Attach();  // a manager begins to use it; throws rambrainException
  // A manager ends to use it. With the last one the objects come home (those that do not fit are lost, and the log says so), but for a
  // manager that ends within a call of the program's code.
  void Detach() noexcept;
  void LeaveRamspan() noexcept;

  std::atomic<bool> closed_{false};
  std::atomic<int> users_{0};  // read by who asks it to grow while its manager ends
  int id_ = -1;                   // ramspan::SwapId from when it was attached until its objects are home
  std::unique_ptr<Store> store_;  // of a program's own swap, while attached
  std::string mask_;              // of a managedFileSwap; else empty
  bool dma_ = false;
};

}  // namespace rambrain
