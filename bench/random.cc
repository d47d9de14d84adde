// random: read-modify-write of chunks in random order. Read-ahead cannot help here; it must not hurt either.
#include <memory>
#include <random>
#include <vector>

#include "bench/network_roofline.h"
#include "bench/random_access.h"
#include "bench/roofline.h"
#include "bench/together.h"
#include "common/units.h"

namespace ramspan::bench {

namespace {

// Beside the raw network, whose operation is a read and a write of a chunk, both under way at the same time.
int RunRandomOverNetwork(const BenchOptions& options) {
  ConfigureLibrary(options);
  RandomAccess access(options.data, options.chunk);
  NetworkRoofline roofline;
  Together& together = Together::Get();
  access.Round(options.operations);
  const Json before = LibraryStats();
  std::vector<double> rates;
  for (int i = 0; i < options.repetitions; ++i) {
    Settle();
    access.Round(options.operations);  // warms up, as the raw loops do (network_roofline.h)
    together.Wait();
    rates.push_back(together.Sum(static_cast<double>(options.operations) / access.Round(options.operations)));
    Settle();
    roofline.Measure();
  }
  const Json after = LibraryStats();
  access.MissSeconds(options.operations);
  std::vector<double> misses;  // the median of each pass
  for (int i = 0; i < options.repetitions; ++i) misses.push_back(Median(access.MissSeconds(options.operations)));
  const double miss_us = 1e6 * Median(misses);
  const bool right = access.IsRight();

  const RawRates raw = roofline.Medians();
  const double moved = static_cast<double>(TierBytes(after, "bytes_in") - TierBytes(before, "bytes_in")) / static_cast<double>(options.chunk);
  const double reads = moved / (2.0 * static_cast<double>(options.operations) * options.repetitions);
  const double rate = Median(rates), ratio = rate * reads / raw.random_ops_s;
  Json result = {{"chunks_s", rate}, {"rounds_chunks_s", rates}, {"roofline_chunks_s", raw.random_ops_s}, {"ratio", ratio}, {"reads_per_access", reads},
                 {"miss_us", miss_us}, {"misses_s", misses}, {"miss_added_us", miss_us - raw.read_us}, {"seed", RandomAccess::kSeed}, {"verified", right}, {"stats", after}};
  std::vector<Row> rows = {
      {"read-modify-write", Fixed(rate, 0) + " /s", "chunks, median of " + std::to_string(options.repetitions)},
      {"reads an access", Fixed(reads, 2), "chunks that came in, read-ahead included"},
      {"raw operations", Fixed(raw.random_ops_s, 0) + " /s", "a read and a write of a chunk at the same time"},
      {"ratio", Fixed(100 * ratio, 0) + " %", "reads to raw operations; target 80 %"},
      {"a miss", Fixed(miss_us, 1) + " us", "nothing to write; raw read " + Fixed(raw.read_us, 1) + " us, added " + Fixed(miss_us - raw.read_us, 1) + " us (target 5)"},
      {"data", right ? "right" : "WRONG", "every element compared at the end"}};
  AddRawRates(raw, roofline.depth(), &result, &rows);
  Report(options, std::move(result),
         "random: " + FormatBytes(options.data) + " in chunks of " + FormatBytes(options.chunk) + ", limit " + FormatBytes(options.limit) + ", " +
             NetworkText(options) + ", " + PlacesUsed(after) + ", read-ahead " + (options.preemptive ? "on" : "off"),
         rows);
  return right ? 0 : 1;
}

// The one that fits where the bytes go.
class RandomRoofline {
 public:
  explicit RandomRoofline(const BenchOptions& o) {
    if (o.tier == "file") {
      file_ = std::make_unique<FileRoofline>(o.directory, o.direct, o.chunk, o.data);
    } else {
      shared_ = std::make_unique<SharedRoofline>(o.chunk, std::min<uint64_t>(o.data, uint64_t{512} << 20), std::min<uint64_t>(o.limit, uint64_t{128} << 20));
    }
  }
  bool of_file() const { return file_ != nullptr; }
  double Seconds(size_t accesses) { return file_ ? file_->Random(accesses, &random_) : shared_->Random(accesses, &random_).total(); }

 private:
  std::mt19937_64 random_{RandomAccess::kSeed};
  std::unique_ptr<FileRoofline> file_;
  std::unique_ptr<SharedRoofline> shared_;
};

}  // namespace

int RunRandom(const BenchOptions& options) {
  if (NetworkRoofline::IsThere()) return RunRandomOverNetwork(options);
  ConfigureLibrary(options);
  RandomAccess access(options.data, options.chunk);
  RandomRoofline roofline(options);
  access.Round(options.operations);  // the order of allocation is forgotten from here on
  const Json before = LibraryStats();
  std::vector<double> rates, rooflines;
  for (int i = 0; i < options.repetitions; ++i) {
    Settle();
    rates.push_back(static_cast<double>(options.operations) / access.Round(options.operations));
    Settle();
    rooflines.push_back(static_cast<double>(options.operations) / roofline.Seconds(options.operations));
  }
  const Json after = LibraryStats();
  const bool right = access.IsRight();

  const double rate = Median(rates), best = Median(rooflines);
  const double accesses = static_cast<double>(options.operations) * options.repetitions;
  const double moved =
      static_cast<double>(TierBytes(after, "bytes_in") - TierBytes(before, "bytes_in")) / static_cast<double>(options.chunk);
  // A file's time is that of its transfers, and an access that finds its chunk in memory makes none.
  const double ratio = roofline.of_file() ? rate * moved / accesses / best : rate / best;
  Json result = {{"chunks_s", rate}, {"rounds_chunks_s", rates}, {"roofline_chunks_s", best}, {"ratio", ratio}, {"roofline_of", roofline.of_file() ? "file" : "memory of this node"},
                 {"reads_per_access", moved / accesses}, {"seed", RandomAccess::kSeed}, {"verified", right}, {"stats", after}};
  Report(options, std::move(result),
         "random: " + FormatBytes(options.data) + " in chunks of " + FormatBytes(options.chunk) + ", limit " +
             FormatBytes(options.limit) + ", " + PlacesUsed(after) + ", read-ahead " +
             (options.preemptive ? "on" : "off"),
         {{"read-modify-write", Fixed(rate, 0) + " /s", "chunks, median of " + std::to_string(options.repetitions)},
          {"roofline", Fixed(best, 0) + " /s", roofline.of_file() ? "this file system: a read each access, writes beside it" : "one put, one get, compute for each access, in memory"},
          {"ratio", Fixed(100 * ratio, 0) + " %", roofline.of_file() ? "reads to the roofline's; target 80 %" : "(some accesses find their chunk in memory)"},
          {"reads an access", Fixed(moved / accesses, 2), "chunks that came in, read-ahead included"},
          {"data", right ? "right" : "WRONG", "every element compared at the end"}});
  return right ? 0 : 1;
}

}  // namespace ramspan::bench
