// Raw transfers: what a network does for one process that reads and writes another one's memory, without the library. The same loops
// for each network (bench/raw_fabric.cc, bench/raw_mpi.cc), so that their figures compare. Printed as one JSON object, which
// the benchmark of the library reads (bench/network_roofline.h).
// Thread-safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace ramspan::bench {

struct RawOptions {
  size_t chunk = size_t{1} << 20;
  size_t frames = size_t{64} << 20;   // bytes of local memory that take part: as cold as a program's frames
  size_t window = size_t{256} << 20;  // bytes of each server's
  int depth = 4;                      // transfers in flight
};

// One process's way to the memory of servers.
class RawNetwork {
 public:
  virtual ~RawNetwork() = default;
  virtual uint32_t servers() const = 0;
  virtual std::byte* frames() = 0;
  // Begins a transfer of `chunk` bytes. REQUIRES: fewer than the depth under way.
  virtual void Start(bool is_write, uint32_t server, size_t frame_offset, size_t window_offset) = 0;
  // Waits until at least one has ended; how many have. Adds to *reads how many of them were reads.
  virtual int Wait(int* reads) = 0;
};

struct RawRates {
  double read_gb_s = 0, write_gb_s = 0;
  double both_gb_s = 0;     // half of the bytes in each direction at the same time
  // The same two, where the thread that moves them does a program's pass over what came, too, and checksums of all that comes and goes.
  double read_and_work_gb_s = 0, both_and_work_gb_s = 0;
  double read_us = 0;       // one read at a time, median
  // Reads that are waited for, each with a write that is not, anywhere, as random access in a program does: writes go on beside the
  // next reads as far as the depth allows.
  double random_ops_s = 0;
};

RawRates MeasureRaw(RawNetwork* network, const RawOptions& options);
void PrintRaw(const RawRates& rates);

}  // namespace ramspan::bench
