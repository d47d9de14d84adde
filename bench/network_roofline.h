// The raw figures of the network between a benchmark and its memory servers (bench/raw.h), measured between the library's own passes,
// by a process of its own that the job knows how to start (bench/network_job.h).
//
// After such a pause a client and a server on one machine may share a core while another one is idle: the first bytes wake the one where the
// other runs, and the kernel takes up to 300 ms to part two that take turns so fast. The raw loops have warmed up when their figures begin, so
// each pass of the library is made once before the one that is timed. (Random accesses in slices of 30 ms: 3 to 9 thousand a second there, 14
// to 23 thousand from then on; AMD EPYC, 2 cores.)
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/raw.h"
#include "bench/report.h"

namespace ramspan::bench {

inline constexpr const char* kRawScript = "RSBENCH_RAW";  // environment: what measures
inline constexpr const char* kRawOfAll = "RSBENCH_RAW_OF_ALL";  // set: for all clients at once, else each of them its own part

class NetworkRoofline {
 public:
  NetworkRoofline() { TakeDepth(); }

  // Whether this process is in such a job.
  static bool IsThere();

  // All clients at the same time; rates are their sums. Once more, with as many transfers under way as the library had on the mean since this was made or measured last, at least
  // two. Throws std::runtime_error.
  void Measure();
  int depth() const { return depth_; }  // of the last time
  // Of all that were measured.
  RawRates Medians() const;
  // How long the raw network takes for so many bytes in each direction: as many at once as go both ways, the rest alone.
  static double Seconds(const RawRates& rates, double bytes_in, double bytes_out);

 private:
  int TakeDepth();

  std::vector<RawRates> measured_;
  double in_flight_before_ = 0, transfers_before_ = 0;
  int depth_ = 0;
};

// "tcp loopback", "two network namespaces".
std::string NetworkText(const BenchOptions& options);
// The raw rates as rows and as JSON.
void AddRawRates(const RawRates& rates, int depth, Json* result, std::vector<Row>* rows);

}  // namespace ramspan::bench
