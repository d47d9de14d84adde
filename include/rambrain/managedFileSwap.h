// Swap in local files (and in server memory before them, where the program runs under `ramspan run`).
#pragma once

#include "rambrain/managedSwap.h"

namespace rambrain {

class RAMSPAN_API managedFileSwap : public managedSwap {
 public:
  // `filemask` is a path with two %d. The files have no names that anybody sees: nothing is left behind by a kill. The
  // swap holds a whole number of `one_file` bytes (0: a 16th of `size`, at least 1 MiB), one at least; how Ramspan cuts
  // that into files is its own business. Throws incompleteSetupException for a mask that is none; that the folder cannot
  // be written is told by the manager's constructor.
  managedFileSwap(global_bytesize size, const char* filemask, global_bytesize one_file = 0, bool enable_dma = false);

  // O_DIRECT, where the file system can. REQUIRES: before a manager uses the swap; later it throws
  // incompleteSetupException.
  void setDMA(bool enable);

  const unsigned int pageSize;  // of the machine, in bytes

 private:
  // Transfers to files are Ramspan's own: a class derived from this one cannot take them over, but one from managedSwap.
  global_bytesize swapOut(managedMemoryChunk* chunk) final { return managedSwap::swapOut(chunk); }
  global_bytesize swapIn(managedMemoryChunk* chunk) final { return managedSwap::swapIn(chunk); }
  void swapDelete(managedMemoryChunk* chunk) final { managedSwap::swapDelete(chunk); }
};

}  // namespace rambrain
