// random: what read-ahead costs where it cannot help (arXiv 1510.06358, section 3.2: it should cost nothing): read-modify-
// write of chunks in random order, with read-ahead on and off in turns, over the chunk size.
#include <array>
#include <random>
#include <vector>

#include "bench/experiment.h"
#include "bench/plot.h"
#include "bench/rambrain.h"
#include "bench/random_access.h"
#include "common/units.h"
#include "ramspan/runtime.h"

namespace ramspan::bench {
namespace {

struct Preemptive {
  const char* name;
  bool loading, unloading;
};
constexpr Preemptive kSettings[] = {{"off", false, false}, {"write-back only", false, true}, {"on", true, true}};

struct RandomFigures {
  std::array<std::vector<double>, 3> rates;  // accesses a second, by setting
  std::vector<double> cost, roofline;        // percent of each round's time; accesses a second
  double reads_on = 0, reads_off = 0;        // chunks that came in for an access
  bool right = true;
};

double Reads(uint64_t chunk) { return static_cast<double>(GetStatistics().bytes_in) / static_cast<double>(chunk); }

RandomFigures MeasureRandom(const BenchOptions& o, uint64_t chunk) {
  RandomAccess chunks(o.data, chunk);
  SharedRoofline roofline(chunk, std::min<uint64_t>(o.data, uint64_t{512} << 20),
                          std::min<uint64_t>(o.limit, uint64_t{128} << 20));
  std::mt19937_64 random(RandomAccess::kSeed);
  const uint64_t accesses = 2 * o.data / chunk;
  chunks.Round(accesses);  // the order of allocation is forgotten from here on
  RandomFigures f;
  std::array<double, 3> seconds{}, reads{};
  const int rounds = o.quick ? 3 : std::max(7, o.repetitions);
  for (int round = 0; round < rounds; ++round) {
    for (size_t s = 0; s < 3; ++s) {
      SetPreemptive(kSettings[s].loading, kSettings[s].unloading);
      chunks.Round(accesses / 8);  // what the last setting left is gone
      Settle();
      const double before = Reads(chunk);
      seconds[s] = chunks.Round(accesses);
      reads[s] += Reads(chunk) - before;
      f.rates[s].push_back(static_cast<double>(accesses) / seconds[s]);
    }
    f.cost.push_back(100 * (seconds[2] / seconds[0] - 1));
    Settle();
    f.roofline.push_back(static_cast<double>(accesses) / roofline.Random(accesses, &random).total());
  }
  f.reads_off = reads[0] / static_cast<double>(accesses) / rounds;
  f.reads_on = reads[2] / static_cast<double>(accesses) / rounds;
  f.right = chunks.IsRight();
  return f;
}

void AddRow(uint64_t chunk, const RandomFigures& f, Table* table) {
  const double off = Median(f.rates[0]), write_back = Median(f.rates[1]), on = Median(f.rates[2]);
  const double cost = Median(f.cost), best = Median(f.roofline);
  table->AddRow({{"chunk_bytes", chunk}, {"off_s", off}, {"write_back_only_s", write_back}, {"on_s", on},
                 {"cost_percent", cost}, {"cost_percents", f.cost}, {"reads_off", f.reads_off}, {"reads_on", f.reads_on},
                 {"roofline_s", best}, {"ratio_off", off / best}, {"verified", f.right}},
                {FormatBytes(chunk), Fixed(off, 0), Fixed(write_back, 0), Fixed(on, 0), Fixed(cost, 0), Range(f.cost, 0),
                 Fixed(f.reads_off, 2), Fixed(f.reads_on, 2), Fixed(best, 0), Fixed(100 * off / best, 0)});
}

void AddRandomTo(Panel* rates, Panel* costs, double kib, const RandomFigures& f) {
  rates->x.push_back(kib);
  costs->x.push_back(kib);
  rates->curves[0].y.push_back(Median(f.rates[0]));
  rates->curves[1].y.push_back(Median(f.rates[2]));
  rates->curves[2].y.push_back(Median(f.roofline));
  costs->curves[0].y.push_back(Median(f.cost));
}

}  // namespace

bool RunRandomCost(const BenchOptions& options) {
  ConfigureLibrary(options);
  const std::vector<uint64_t> sizes =
      options.quick ? std::vector<uint64_t>{64, 256} : std::vector<uint64_t>{16, 64, 256, 1024};  // KiB
  const std::string setting = FormatBytes(options.data) + ", limit " + FormatBytes(options.limit);
  Table table(options, "random: chunks in random order, " + setting + ", accesses a second",
              {"chunk", "off", "write-back only", "on", "cost of on %", "of rounds", "reads off", "reads on", "roofline",
               "off/roofline %"});
  Progress progress(options, static_cast<int>(sizes.size()));
  Panel rates{"accesses", "chunk [KiB]", "accesses [1/s]", {}, {}, {{"off", {}}, {"on", {}}, {"roofline, by hand", {}}},
              true, true};
  Panel costs{"cost of read-ahead", rates.x_label, "time more than without [%]", {}, {}, {{"cost", {}}}, true, false,
              "set yrange [*<-10:20<*]\nset arrow from graph 0, first 10 to graph 1, first 10 nohead dashtype 2\n"
              "set label 'target 10 %' at graph 0.98, first 12 right\n"};
  bool right = true;
  for (const uint64_t kib : sizes) {
    progress.Next("chunks of " + FormatBytes(kib << 10));
    const RandomFigures f = MeasureRandom(options, kib << 10);
    right &= f.right;
    AddRow(kib << 10, f, &table);
    AddRandomTo(&rates, &costs, static_cast<double>(kib), f);
  }
  progress.Clear();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double cost = costs.curves[0].y[i];
    const std::string chunk = FormatBytes(sizes[i] << 10);
    table.AddTarget("cost_percent", cost, "read-ahead costs at most 10 %, chunks of " + chunk, cost <= 10,
                    Fixed(cost, 0) + " %, median of rounds");
  }
  table.AddNote("reads: chunks that came in for an access; roofline: one get, one put by hand for each, in memory");
  table.AddNote(right ? "every element compared" : "WRONG: elements differ");
  table.Print();
  Draw(options.plots, {"random", "Random access: " + setting, {rates, costs}});
  return right;
}

}  // namespace ramspan::bench
