// random: read-modify-write of chunks in random order. Read-ahead cannot help here; it must not hurt either.
#include <random>
#include <vector>

#include "bench/report.h"
#include "bench/roofline.h"
#include "common/units.h"
#include "ramspan/managed_ptr.h"

namespace ramspan::bench {
namespace {

constexpr uint64_t kSeed = 20240229;

class RandomAccess {
 public:
  explicit RandomAccess(const BenchOptions& options)
      : count_(options.chunk / sizeof(uint64_t)), visits_(options.data / options.chunk) {
    for (size_t c = 0; c < visits_.size(); ++c) chunks_.emplace_back(count_, uint64_t{c});
  }

  // Chunks a second.
  double Round(uint64_t operations) {
    const double begin = Now();
    for (uint64_t k = 0; k < operations; ++k) {
      const size_t c = random_() % chunks_.size();
      adhereTo<uint64_t> glue(chunks_[c]);
      AddOne(glue, count_);
      ++visits_[c];
    }
    return static_cast<double>(operations) / (Now() - begin);
  }

  bool IsRight() const {
    for (size_t c = 0; c < chunks_.size(); ++c) {
      const adhereTo<uint64_t> glue(chunks_[c]);
      const uint64_t* const elements = glue;
      for (size_t i = 0; i < count_; ++i) {
        if (elements[i] != c + visits_[c]) return false;
      }
    }
    return true;
  }

 private:
  const size_t count_;
  std::vector<uint64_t> visits_;
  std::vector<managedPtr<uint64_t>> chunks_;
  std::mt19937_64 random_{kSeed};
};

}  // namespace

int RunRandom(const BenchOptions& options) {
  ConfigureLibrary(options);
  RandomAccess access(options);
  SharedRoofline roofline(options.chunk, std::min<uint64_t>(options.data, uint64_t{512} << 20),
                          std::min<uint64_t>(options.limit, uint64_t{128} << 20));
  std::mt19937_64 random(kSeed);
  access.Round(options.operations);  // the order of allocation is forgotten from here on
  const Json before = LibraryStats();
  std::vector<double> rates, rooflines;
  for (int i = 0; i < options.repetitions; ++i) {
    Settle();
    rates.push_back(access.Round(options.operations));
    Settle();
    rooflines.push_back(static_cast<double>(options.operations) / roofline.Random(options.operations, &random).total());
  }
  const Json after = LibraryStats();
  const bool right = access.IsRight();

  const double rate = Median(rates), best = Median(rooflines);
  const double accesses = static_cast<double>(options.operations) * options.repetitions;
  const double moved =
      static_cast<double>(TierBytes(after, "bytes_in") - TierBytes(before, "bytes_in")) / static_cast<double>(options.chunk);
  Json result = {{"chunks_s", rate}, {"rounds_chunks_s", rates}, {"roofline_chunks_s", best}, {"ratio", rate / best},
                 {"reads_per_access", moved / accesses}, {"seed", kSeed}, {"verified", right}, {"stats", after}};
  Report(options, std::move(result),
         "random: " + FormatBytes(options.data) + " in chunks of " + FormatBytes(options.chunk) + ", limit " +
             FormatBytes(options.limit) + ", " + PlacesUsed(after) + ", read-ahead " +
             (options.preemptive ? "on" : "off"),
         {{"read-modify-write", Fixed(rate, 0) + " /s", "chunks, median of " + std::to_string(options.repetitions)},
          {"roofline", Fixed(best, 0) + " /s", "one put, one get, compute for each access, in memory"},
          {"ratio", Fixed(100 * rate / best, 0) + " %", "(some accesses find their chunk in memory)"},
          {"reads an access", Fixed(moved / accesses, 2), "chunks that came in, read-ahead included"},
          {"data", right ? "right" : "WRONG", "every element compared at the end"}});
  return right ? 0 : 1;
}

}  // namespace ramspan::bench
