// The cyclic strategy: the one that Ramspan runs by itself, with the limits of this object while it is the default.
#pragma once

#include "rambrain/managedMemory.h"

namespace rambrain {

class RAMSPAN_API cyclicManagedMemory : public managedMemory {
 public:
  // Becomes the default manager: the memory limit is `size` (at least 1 MiB), and objects leave to `swap`. Starts Ramspan.
  // Throws incompleteSetupException for a null swap or one whose files cannot be made; memoryException when more is
  // pinned than the new limit allows, or what must leave does not fit the swap in use so far. Then nothing has changed.
  cyclicManagedMemory(managedSwap* swap, global_bytesize size = gig);
  ~cyclicManagedMemory() override;

  // Each returns the old setting. Loading: reading ahead of need; unloading: writing ahead of need.
  bool setPreemptiveLoading(bool preemptive);
  bool setPreemptiveUnloading(bool preemptive);

  void printCycle() const;     // to stdout: the objects in the order of the cycle, with their states
  void printMemUsage() const;  // to stderr: memory used, swap used = swapped bytes, pre-emptive bytes
  bool checkCycle() const;     // whether the cycle is closed and complete

 private:
  friend class managedMemory;
  struct Configured {};
  explicit cyclicManagedMemory(Configured);
  static managedMemory* TheConfigured();
};

}  // namespace rambrain
