// const: sweeps that only read, with mutable and with const pulls (arXiv 1510.06358, section 4.1, figure 4), over the size
// of the data. What was pulled const and has a copy in swap is not written again.
#include <algorithm>
#include <memory>
#include <vector>

#include "bench/experiment.h"
#include "bench/plot.h"
#include "bench/rambrain.h"
#include "bench/roofline.h"
#include "common/units.h"
#include "rambrain/exceptions.h"
#include "rambrain/managedPtr.h"
#include "ramspan/runtime.h"

namespace ramspan::bench {
namespace {

using rambrain::adhereTo;

struct Cost {
  std::vector<double> seconds;  // of each sweep
  double out = 0, in = 0;       // bytes a sweep
};

class Chunks {
 public:
  Chunks(uint64_t data, uint64_t chunk) : count_(chunk / sizeof(uint64_t)), chunks_(data / chunk, count_) {
    for (size_t c = 0; c < chunks_.size(); ++c) {
      adhereTo<uint64_t> glue(chunks_[c]);
      uint64_t* const elements = glue;
      for (size_t i = 0; i < count_; ++i) elements[i] = c;
    }
  }

  // The first sweep is not counted: with const pulls it still evicts what the pulls before it made dirty.
  Cost Sweeps(bool mutable_pulls, int count) {
    WriteAll();
    Sweep(mutable_pulls);
    Settle();
    const Statistics before = GetStatistics();
    Cost cost;
    for (int i = 0; i < count; ++i) {
      const double begin = Now();
      Sweep(mutable_pulls);
      cost.seconds.push_back(Now() - begin);
    }
    Settle();
    const Statistics after = GetStatistics();
    cost.out = static_cast<double>(after.bytes_out - before.bytes_out) / count;
    cost.in = static_cast<double>(after.bytes_in - before.bytes_in) / count;
    return cost;
  }

  bool right() const { return right_; }

 private:
  // What a policy keeps in memory for long would be written later, once, so all of it leaves before: pinned chunks take its
  // place until there is no room for one more.
  void WriteAll() {
    rambrain::managedPtr<uint64_t, 2> others(GetStatistics().memory_limit / (count_ * sizeof(uint64_t)) + 1, count_);
    std::vector<std::unique_ptr<adhereTo<uint64_t>>> pins;
    try {
      for (size_t c = 0; c < others.size(); ++c) {
        pins.push_back(std::make_unique<adhereTo<uint64_t>>(others[c]));
        [[maybe_unused]] const uint64_t* const elements = *pins.back();
      }
    } catch (const rambrain::memoryException&) {
    }
  }
  void Sweep(bool mutable_pulls) {
    for (size_t c = 0; c < chunks_.size(); ++c) {
      adhereTo<uint64_t> glue(chunks_[c]);
      uint64_t sum = 0;
      if (mutable_pulls) {
        uint64_t* const elements = glue;
        sum = Sum(elements, count_);
      } else {
        const uint64_t* const elements = glue;
        sum = Sum(elements, count_);
      }
      right_ &= sum == c * count_;
    }
  }

  const size_t count_;
  rambrain::managedPtr<uint64_t, 2> chunks_;
  bool right_ = true;
};

// Both ways, with read-ahead on or off: with files in the page cache it can cost more than the writes.
struct Setting {
  uint64_t data = 0;
  bool ahead = false;
};

void AddRow(const Setting& setting, const Cost& writes, const Cost& reads, bool right, Table* table) {
  const double with = Median(writes.seconds), without = Median(reads.seconds);
  table->AddRow({{"data_bytes", setting.data}, {"read_ahead", setting.ahead}, {"mutable_s", with}, {"const_s", without},
                 {"mutable_bytes_out", writes.out}, {"const_bytes_out", reads.out}, {"const_bytes_in", reads.in},
                 {"verified", right}},
                {FormatBytes(setting.data), setting.ahead ? "on" : "off", Fixed(1e3 * with, 1), Fixed(1e3 * without, 1),
                 Fixed(100 * (1 - without / with), 0), Fixed(writes.out / 1048576, 1) + " MiB",
                 Fixed(reads.out / 1048576, 1) + " MiB", Fixed(reads.in / 1048576, 1) + " MiB"});
}

std::vector<Setting> Settings(const BenchOptions& options) {
  std::vector<uint64_t> sizes;
  for (const double times : {1.25, 2.0, 3.0}) {
    const auto bytes = static_cast<uint64_t>(times * static_cast<double>(options.limit));
    if ((!options.quick || times == 2) && bytes < options.data) sizes.push_back(bytes);
  }
  sizes.push_back(options.data);
  std::vector<Setting> settings;
  for (const bool ahead : {true, false}) {
    for (const uint64_t data : sizes) settings.push_back({data, ahead});
  }
  return settings;
}

Panel TimePanel(const char* title) {
  return {title, "data [MiB]", "time of a sweep [ms]", {}, {}, {{"mutable pulls", {}}, {"const pulls", {}}}, false, false,
          "set yrange [0:*]\n"};
}

}  // namespace

bool RunConst(const BenchOptions& options) {
  ConfigureLibrary(options);
  const std::vector<Setting> settings = Settings(options);
  Table table(options, "const: sweeps that only read, limit " + FormatBytes(options.limit) + ", chunks of " +
                           FormatBytes(options.chunk),
              {"data", "read-ahead", "mutable ms", "const ms", "time saved %", "mutable: written a sweep", "const",
               "const: read a sweep"});
  Progress progress(options, static_cast<int>(settings.size()));
  const int count = std::max(3, options.repetitions);
  std::vector<Panel> panels = {TimePanel("read-ahead on"), TimePanel("read-ahead off")};
  bool right = true;
  double most_written = 0;
  for (const Setting& setting : settings) {
    progress.Next(FormatBytes(setting.data) + ", read-ahead " + (setting.ahead ? "on" : "off"));
    SetPreemptive(setting.ahead, setting.ahead);
    Chunks chunks(setting.data, options.chunk);
    const Cost writes = chunks.Sweeps(true, count);
    const Cost reads = chunks.Sweeps(false, count);
    most_written = std::max(most_written, reads.out);
    right &= chunks.right();
    AddRow(setting, writes, reads, chunks.right(), &table);
    Panel& panel = panels[setting.ahead ? 0 : 1];
    panel.x.push_back(Mib(setting.data));
    panel.curves[0].y.push_back(1e3 * Median(writes.seconds));
    panel.curves[1].y.push_back(1e3 * Median(reads.seconds));
  }
  progress.Clear();
  table.AddTarget("const_bytes_out", most_written, "const sweeps write nothing", most_written == 0,
                  Fixed(most_written, 0) + " bytes a sweep at most");
  table.AddNote(right ? "every sum right (paper: const saves 20 to 30 % of the time)" : "WRONG: sums differ");
  table.Print();
  Draw(options.plots, {"const", "Mutable and const pulls, limit " + FormatBytes(options.limit), panels});
  return right;
}

}  // namespace ramspan::bench
