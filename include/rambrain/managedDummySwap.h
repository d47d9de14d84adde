// Rambrain's swap for tests: it copies to another place in memory, beyond the memory limit.
#pragma once

#include "rambrain/managedSwap.h"

namespace rambrain {

class RAMSPAN_API managedDummySwap : public managedSwap {
 public:
  explicit managedDummySwap(global_bytesize size) : managedSwap(size) {}

 protected:
  global_bytesize swapOut(managedMemoryChunk* chunk) override;
  global_bytesize swapIn(managedMemoryChunk* chunk) override;
  void swapDelete(managedMemoryChunk* chunk) override;
};

}  // namespace rambrain
