// A manager that refuses: while it is the default, making a managedPtr throws memoryException. What exists lives on.
#pragma once

#include "rambrain/managedDummySwap.h"
#include "rambrain/managedMemory.h"

namespace rambrain {

class RAMSPAN_API dummyManagedMemory : public managedMemory {
 public:
  dummyManagedMemory();
  ~dummyManagedMemory() override;
};

}  // namespace rambrain
