#include "bench/compute_loops.h"

#include <cmath>

namespace ramspan::bench {

void SineLoop(double* x, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] += std::sin(0.1 * static_cast<double>(i));
}

void IntegerLoop(uint64_t* x, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    uint64_t v = x[i];
    for (int round = 0; round < 8; ++round) v = (v ^ (v >> 29)) * 0x9e3779b97f4a7c15u;
    x[i] = v;
  }
}

}  // namespace ramspan::bench
