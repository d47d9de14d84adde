// Makes what is not in use leave: twice the limit of 16 MiB goes through memory.
#pragma once

#include <vector>

#include "rambrain/managedPtr.h"
#include "tests/rambrain/row.h"

inline void FillMemory() {
  std::vector<rambrain::managedPtr<char>> filler;
  for (int i = 0; i < 32; ++i) {
    filler.emplace_back(1 << 20);
    ROW(char, filler.back(), data);
    data[0] = static_cast<char>(i);
  }
}
