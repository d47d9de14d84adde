// memory: what a chunk costs beside its data.
#include <vector>

#include "bench/report.h"
#include "common/units.h"
#include "ramspan/managed_ptr.h"

namespace ramspan::bench {

int RunMemory(const BenchOptions& options) {
  ConfigureLibrary(options);
  const auto metadata = [] { return LibraryStats()["metadata_bytes"].get<double>(); };
  const size_t count = options.chunk / sizeof(uint64_t);
  std::vector<managedPtr<uint64_t>> chunks;
  chunks.reserve(options.chunks);
  chunks.emplace_back(count);
  { const adhereTo<uint64_t> first(chunks[0]); static_cast<void>(static_cast<const uint64_t*>(first)); }
  Settle();
  const double empty = metadata();
  while (chunks.size() < options.chunks) chunks.emplace_back(count);
  Settle();
  const double described = metadata();
  for (const managedPtr<uint64_t>& chunk : chunks) {
    adhereTo<uint64_t> glue(chunk);
    uint64_t* const elements = glue;
    elements[0] = 1;
  }
  Settle();
  const double swapped = metadata();

  const auto n = static_cast<double>(options.chunks);
  Json result = {{"constant_bytes", empty}, {"bytes_per_chunk", (described - empty) / n},
                 {"bytes_per_chunk_swapped", (swapped - empty) / n}, {"stats", LibraryStats()}};
  Report(options, std::move(result),
         "memory: " + std::to_string(options.chunks) + " chunks of " + FormatBytes(options.chunk) + ", limit " +
             FormatBytes(options.limit),
         {{"without chunks", FormatBytes(static_cast<uint64_t>(empty)), "pin tables, tiers, first slab"},
          {"a chunk", Fixed((described - empty) / n, 1) + " bytes", "its descriptor (64), and what the policy keeps (replay: 16)"},
          {"a chunk with its slot", Fixed((swapped - empty) / n, 1) + " bytes", "when most are swapped out"}});
  return 0;
}

}  // namespace ramspan::bench
