// swap-targets: what the program does with its data, the same on each contestant. Its data are doubles in chunks; each thread has a part
// of the chunks for itself. A pass is as many uses of chunks as there are chunks, whatever the access, so passes of all accesses compare.
// Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ramspan::bench {

struct TargetAccess {
  const char* name;
  const char* what;
};
std::span<const TargetAccess> TargetAccesses();

struct TargetLayout {
  uint32_t chunks = 0;
  size_t chunk_bytes = 0;
  int threads = 1;

  size_t elements() const { return chunk_bytes / sizeof(double); }  // of a chunk
  uint64_t bytes() const { return uint64_t{chunks} * chunk_bytes; }
  uint32_t PartBegin(int thread) const { return static_cast<uint32_t>(uint64_t{chunks} * static_cast<uint64_t>(thread) / static_cast<uint64_t>(threads)); }
};

struct TargetStep {
  uint32_t chunk;
  bool write;  // read-modify-write of all elements; else they are only read
};
// What `thread` does in one pass. The same arguments give the same steps. REQUIRES: `access` is one of TargetAccesses.
std::vector<TargetStep> StepsOfPass(const std::string& access, const TargetLayout& layout, int thread, uint64_t pass);

// What a pass has to move in and out with memory for `limit` bytes of the data, on the mean of many: Belady's MIN
// (bench/policy_reference.h), which knows all that comes.
double LeastBytesMoved(const std::string& access, const TargetLayout& layout, uint64_t limit);

// The contents of a chunk at the start: a smooth field, as a computation makes it, between 1 and 2. Of every second chunk in full
// precision (noise in the low bits); the others hold values that were single precision once, so their last 29 bits are zero. Data that
// compress well would flatter zram, noise would ruin it.
void FillField(uint32_t chunk, double* elements, size_t count);
// One addition to each element, and the sum of all: neither is inlined, so that each contestant runs the same code.
void AddOneTo(double* elements, size_t count);
double SumOf(const double* elements, size_t count);

}  // namespace ramspan::bench
