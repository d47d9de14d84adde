// What a program's own manager or swap (managedMemory.h, managedSwap.h) sees of an object's data.
#pragma once

#include "rambrain/common.h"

namespace rambrain {

typedef uint64_t memoryID;

class managedMemoryChunk {
 public:
  memoryID id = 0;            // for a manager: the object's number. For a swap: the number of the place in it
  global_bytesize size = 0;   // bytes, as the program asked for
  void* locPtr = nullptr;     // for a swap, during swapOut and swapIn: the bytes in memory. Else null
  void* swapBuf = nullptr;    // the swap's own; null at first
  void* schedBuf = nullptr;   // the manager's own; null at first
};

}  // namespace rambrain
