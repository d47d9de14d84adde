// decay: ordered sweeps, random accesses, ordered sweeps (arXiv 1510.06358, section 4.2, figure 5): how soon read-ahead
// works again. The hit ratio is the paper's: of the accesses in a bin, how many found their chunk in memory.
#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "bench/experiment.h"
#include "bench/plot.h"
#include "bench/rambrain.h"
#include "bench/roofline.h"
#include "common/units.h"
#include "rambrain/managedPtr.h"
#include "ramspan/runtime.h"

namespace ramspan::bench {
namespace {

using rambrain::adhereTo;

constexpr int kBins = 16;         // a sweep
constexpr int kOrdered = 3;       // sweeps before the random phase, and after it
constexpr int kRandom = 2;        // as many random accesses as these sweeps have
constexpr int kPasses = 8;        // over a chunk: without computation no read-ahead can be faster than its user
constexpr double kBack = 0.9;     // of its former level: the ratio has recovered
constexpr uint64_t kSeed = 20151020;

struct Bin {
  double hit_ratio = 0;  // accesses that found their chunk in memory
  double ahead = 0;      // of the chunks that came from swap, those fetched ahead; 1 when none came
  double out = 0, in = 0;  // bytes, since the phases began
};

class Decay {
 public:
  explicit Decay(const BenchOptions& options)
      : count_(options.chunk / sizeof(uint64_t)),
        per_bin_(options.data / options.chunk / kBins),
        visits_(per_bin_ * kBins),
        chunks_(visits_.size(), count_) {}

  std::vector<Bin> Phases() {
    const Counts start = Read();
    std::vector<Bin> bins;
    const auto run = [&](int sweeps, const std::function<size_t(size_t)>& which) {
      for (size_t k = 0; k < static_cast<size_t>(sweeps) * kBins; ++k) bins.push_back(OneBin(k, which, start));
    };
    run(kOrdered, [&](size_t i) { return i % visits_.size(); });
    run(kRandom, [&](size_t) { return random_() % visits_.size(); });
    run(kOrdered, [&](size_t i) { return i % visits_.size(); });
    return bins;
  }

  bool IsRight() const {
    bool right = true;
    for (size_t c = 0; c < visits_.size(); ++c) {
      const adhereTo<uint64_t> glue(chunks_[c]);
      const uint64_t* const elements = glue;
      for (size_t i = 0; i < count_; ++i) right &= elements[i] == visits_[c];
    }
    return right;
  }

 private:
  struct Counts {
    double misses, ahead, out, in;
  };

  static Counts Read() {
    const Json stats = LibraryStats();
    return {stats["misses"].get<double>(), stats["prefetch"]["hits"].get<double>(),
            static_cast<double>(TierBytes(stats, "bytes_out")), static_cast<double>(TierBytes(stats, "bytes_in"))};
  }

  Bin OneBin(size_t k, const std::function<size_t(size_t)>& which, const Counts& start) {
    const Counts before = Read();
    for (size_t i = 0; i < per_bin_; ++i) {
      const size_t c = which(k * per_bin_ + i);
      adhereTo<uint64_t> glue(chunks_[c]);
      for (int pass = 0; pass < kPasses; ++pass) AddOne(glue, count_);
      visits_[c] += kPasses;
    }
    const Counts after = Read();
    const double misses = after.misses - before.misses, ahead = after.ahead - before.ahead;
    Bin bin;
    bin.hit_ratio = 1 - misses / static_cast<double>(per_bin_);
    bin.ahead = misses + ahead > 0 ? ahead / (misses + ahead) : 1;
    bin.out = after.out - start.out;
    bin.in = after.in - start.in;
    return bin;
  }

  const size_t count_;
  const size_t per_bin_;
  std::vector<uint64_t> visits_;
  rambrain::managedPtr<uint64_t, 2> chunks_;
  std::mt19937_64 random_{kSeed};
};

// The mean of `count` bins.
double Mean(const std::vector<Bin>& bins, size_t first, size_t count, double Bin::*what) {
  double sum = 0;
  for (size_t i = first; i < first + count; ++i) sum += bins[i].*what;
  return sum / static_cast<double>(count);
}

struct Recovery {
  double sweeps = std::numeric_limits<double>::infinity();  // until a quarter of a sweep is at 90 % of the former level
  double after_one = 0;  // the level of the second sweep after the random phase over that of the last one before it
};

Recovery Recover(const std::vector<Bin>& bins, double Bin::*what) {
  const size_t begin = (kOrdered + kRandom) * kBins;
  const double level = Mean(bins, (kOrdered - 1) * kBins, kBins, what);
  Recovery recovery;
  if (level > 0) recovery.after_one = Mean(bins, begin + kBins, kBins, what) / level;
  for (size_t i = begin; i + kBins / 4 <= bins.size(); ++i) {
    if (Mean(bins, i, kBins / 4, what) < kBack * level) continue;
    recovery.sweeps = static_cast<double>(i - begin) / kBins;
    break;
  }
  return recovery;
}

// `what` of all rounds, as a target.
void AddRecovery(const std::vector<std::vector<Bin>>& rounds, double Bin::*what, const std::string& name,
                 const std::string& text, Table* table) {
  std::vector<double> sweeps, after;
  for (const std::vector<Bin>& bins : rounds) {
    const Recovery recovery = Recover(bins, what);
    sweeps.push_back(recovery.sweeps);
    after.push_back(100 * recovery.after_one);
  }
  const double usual = Median(after);
  table->AddTarget(name, usual / 100, text, usual >= 100 * kBack,
                   Fixed(usual, 0) + " %, of rounds " + Range(after, 0) + " %; a quarter of a sweep is at 90 % after " +
                       Range(sweeps, 2) + " sweeps");
}

struct Phase {
  const char* name;
  size_t first, count;  // sweeps
};
constexpr Phase kPhases[] = {{"ordered, last sweep", kOrdered - 1, 1},
                             {"random", kOrdered, kRandom},
                             {"ordered again, first sweep", kOrdered + kRandom, 1},
                             {"ordered again, second sweep", kOrdered + kRandom + 1, 1}};

void Plot(const BenchOptions& options, const std::vector<Bin>& bins) {
  const char* const phases =
      "set yrange [0:*]\nset arrow from 3, graph 0 to 3, graph 1 nohead dashtype 2\n"
      "set arrow from 5, graph 0 to 5, graph 1 nohead dashtype 2\n"
      "set label 'ordered' at 1.5, graph 0.94 center\nset label 'random' at 4, graph 0.94 center\n"
      "set label 'ordered' at 6.5, graph 0.94 center\n";
  Panel ratio{"hit ratio", "accesses [sweeps]", "share [%]", {}, {},
              {{"found in memory", {}}, {"fetched ahead", {}}}, false, false,
              std::string(phases) + "set yrange [0:125]\n"};
  Panel moved{"moved since the beginning", ratio.x_label, "moved [MiB]", {}, {}, {{"out", {}}, {"in", {}}}, false, false,
              phases};
  for (size_t i = 0; i < bins.size(); ++i) {
    for (Panel* panel : {&ratio, &moved}) panel->x.push_back((static_cast<double>(i) + 0.5) / kBins);
    ratio.curves[0].y.push_back(100 * bins[i].hit_ratio);
    ratio.curves[1].y.push_back(100 * bins[i].ahead);
    moved.curves[0].y.push_back(bins[i].out / 1048576);
    moved.curves[1].y.push_back(bins[i].in / 1048576);
  }
  Draw(options.plots, {"decay", "Decay of pre-emptive elements: " + FormatBytes(options.data) + ", limit " +
                                    FormatBytes(options.limit), {ratio, moved}});
}

}  // namespace

bool RunDecay(const BenchOptions& options) {
  ConfigureLibrary(options);
  const int rounds = options.quick ? 2 : 5;
  Table table(options, "decay: " + FormatBytes(options.data) + " in chunks of " + FormatBytes(options.chunk) + ", limit " +
                           FormatBytes(options.limit) + ", " + std::to_string(rounds) + " rounds",
              {"phase", "hit ratio %", "of rounds", "fetched ahead %"});
  Decay decay(options);
  Progress progress(options, rounds);
  std::vector<std::vector<Bin>> all;
  for (int r = 0; r < rounds; ++r) {
    progress.Next("ordered, random, ordered");
    all.push_back(decay.Phases());
  }
  progress.Clear();
  for (const Phase& phase : kPhases) {
    std::vector<double> hits, ahead;
    for (const std::vector<Bin>& bins : all) {
      hits.push_back(100 * Mean(bins, phase.first * kBins, phase.count * kBins, &Bin::hit_ratio));
      ahead.push_back(100 * Mean(bins, phase.first * kBins, phase.count * kBins, &Bin::ahead));
    }
    table.AddRow({{"phase", phase.name}, {"hit_ratio", Median(hits) / 100}, {"fetched_ahead", Median(ahead) / 100}},
                 {phase.name, Fixed(Median(hits), 1), Range(hits, 1), Fixed(Median(ahead), 1)});
  }
  AddRecovery(all, &Bin::hit_ratio, "recovered_after_one_sweep",
              "after one ordered sweep the hit ratio is at 90 % of its former level", &table);
  AddRecovery(all, &Bin::ahead, "read_ahead_after_one_sweep", "the same of the share that is fetched ahead", &table);
  const bool right = decay.IsRight();
  table.AddNote(right ? "every element compared" : "WRONG: elements differ");
  table.Print();
  Plot(options, all[0]);
  return right;
}

}  // namespace ramspan::bench
