// The raw figures of the network between a benchmark and its memory servers (bench/raw.h), measured between the library's own passes,
// by a process of its own that the job knows how to start (bench/network_job.h).
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

class NetworkRoofline {
 public:
  // Whether this process is in such a job.
  static bool IsThere();

  // Once more. Throws std::runtime_error.
  void Measure();
  // Of all that were measured.
  RawRates Medians() const;
  // How long the raw network takes for so many bytes in each direction: as many at once as go both ways, the rest alone.
  static double Seconds(const RawRates& rates, double bytes_in, double bytes_out);

 private:
  std::vector<RawRates> measured_;
};

// "tcp loopback", "two network namespaces".
std::string NetworkText(const BenchOptions& options);
// The raw rates as rows and as JSON.
void AddRawRates(const RawRates& rates, Json* result, std::vector<Row>* rows);

}  // namespace ramspan::bench
