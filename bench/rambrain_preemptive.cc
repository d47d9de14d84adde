// preemptive: ordered sweeps with a computation on each chunk (arXiv 1510.06358, section 4.3, figures 6 and 7; its listings
// 4 and 5), over the load and over the chunk size:
//   off       no read-ahead, no write-back ahead of need
//   explicit  the same, with adhereTos made one chunk ahead by hand
//   on        the library's own
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "bench/experiment.h"
#include "bench/plot.h"
#include "bench/rambrain.h"
#include "common/units.h"
#include "rambrain/managedPtr.h"
#include "ramspan/runtime.h"

namespace ramspan::bench {
namespace {

using rambrain::adhereTo;

enum Mode { kOff, kExplicit, kOn };
constexpr const char* kModes[] = {"off", "explicit", "on"};
constexpr int kRounds = 3;

// The papers' load: a simple integer multiplication, on `percent` of the elements; above 100 they are met again.
[[gnu::noinline]] void Compute(uint64_t* elements, size_t count, unsigned percent, uint64_t factor) {
  for (size_t left = count * percent / 100; left > 0;) {
    const size_t now = std::min(left, count);
    for (size_t i = 0; i < now; ++i) elements[i] = elements[i] * 3 + factor;
    left -= now;
  }
}

struct Sweep {
  double seconds = 0, computing = 0;
};

class Chunks {
 public:
  Chunks(uint64_t data, uint64_t chunk)
      : count_(chunk / sizeof(uint64_t)), chunks_(data / chunk, count_), expected_(count_, 0) {}

  Sweep Run(Mode mode, unsigned percent) {
    ++sweeps_;
    Sweep sweep;
    const double begin = Now();
    std::unique_ptr<adhereTo<uint64_t>> next;
    if (mode == kExplicit) next = std::make_unique<adhereTo<uint64_t>>(chunks_[0]);
    for (size_t c = 0; c < chunks_.size(); ++c) {
      if (mode == kExplicit) {
        const std::unique_ptr<adhereTo<uint64_t>> glue = std::move(next);
        if (c + 1 < chunks_.size()) next = std::make_unique<adhereTo<uint64_t>>(chunks_[c + 1]);
        Use(*glue, percent, &sweep);
      } else {
        adhereTo<uint64_t> glue(chunks_[c]);
        Use(glue, percent, &sweep);
      }
    }
    sweep.seconds = Now() - begin;
    Compute(expected_.data(), count_, percent, sweeps_);  // all chunks hold the same
    return sweep;
  }

  bool IsRight() const {
    for (size_t c = 0; c < chunks_.size(); ++c) {
      const adhereTo<uint64_t> glue(chunks_[c]);
      const uint64_t* const elements = glue;
      if (!std::equal(expected_.begin(), expected_.end(), elements)) return false;
    }
    return true;
  }

 private:
  void Use(adhereTo<uint64_t>& glue, unsigned percent, Sweep* sweep) {
    uint64_t* const elements = glue;
    const double begin = Now();
    Compute(elements, count_, percent, sweeps_);
    sweep->computing += Now() - begin;
  }

  const size_t count_;
  rambrain::managedPtr<uint64_t, 2> chunks_;
  std::vector<uint64_t> expected_;
  uint64_t sweeps_ = 0;
};

struct Figures {
  std::array<double, 3> seconds{}, idle{};  // by mode; idle: what is not computing, in percent
  double hidden = 0;                        // percent of the wait without read-ahead that is gone with it
  bool right = true;
};

// The modes take turns, so that all see the same machine. After a switch, one sweep is not counted.
Figures Measure(const BenchOptions& o, uint64_t chunk, unsigned percent) {
  Chunks chunks(o.data, chunk);
  std::array<std::vector<double>, 3> seconds, computing;
  for (int round = 0; round < (o.quick ? 1 : kRounds); ++round) {
    for (const Mode mode : {kOff, kExplicit, kOn}) {
      SetPreemptive(mode == kOn, mode == kOn);
      chunks.Run(mode, percent);
      Settle();
      for (int i = 0; i < 2; ++i) {
        const Sweep sweep = chunks.Run(mode, percent);
        seconds[mode].push_back(sweep.seconds);
        computing[mode].push_back(sweep.computing);
      }
    }
  }
  Figures f;
  std::array<double, 3> wait{};
  for (const Mode mode : {kOff, kExplicit, kOn}) {
    f.seconds[mode] = Median(seconds[mode]);
    wait[mode] = f.seconds[mode] - Median(computing[mode]);
    f.idle[mode] = 100 * wait[mode] / f.seconds[mode];
  }
  f.hidden = 100 * (1 - wait[kOn] / wait[kOff]);
  f.right = chunks.IsRight();
  return f;
}

class Experiment {
 public:
  Experiment(const BenchOptions& options, int steps)
      : options_(options),
        progress_(options, steps),
        table_(options,
               "preemptive: ordered sweeps over " + FormatBytes(options.data) + ", limit " + FormatBytes(options.limit) +
                   ", ms a sweep (idle: share of it that is not computing)",
               {"chunk", "load %", "off ms", "explicit ms", "on ms", "speed-up", "idle off %", "idle on %", "wait hidden %"}) {}

  Figures Run(uint64_t chunk, unsigned percent) {
    progress_.Next("chunks of " + FormatBytes(chunk) + ", load " + std::to_string(percent) + " %");
    const Figures f = Measure(options_, chunk, percent);
    right_ &= f.right;
    Json values = {{"chunk_bytes", chunk}, {"load_percent", percent}};
    std::vector<std::string> cells = {FormatBytes(chunk), std::to_string(percent)};
    for (const Mode mode : {kOff, kExplicit, kOn}) {
      values[std::string(kModes[mode]) + "_s"] = f.seconds[mode];
      values[std::string(kModes[mode]) + "_idle_percent"] = f.idle[mode];
      cells.push_back(Fixed(1e3 * f.seconds[mode], 1));
    }
    values.update({{"wait_hidden_percent", f.hidden}, {"verified", f.right}});
    cells.insert(cells.end(), {Fixed(f.seconds[kOff] / f.seconds[kOn], 2), Fixed(f.idle[kOff], 0), Fixed(f.idle[kOn], 0),
                               Fixed(f.hidden, 0)});
    table_.AddRow(values, cells);
    return f;
  }

  bool Finish() {
    progress_.Clear();
    table_.AddNote("wait hidden: of the time that a sweep without read-ahead does not compute, how much is gone with it");
    table_.AddNote(right_ ? "every element compared" : "WRONG: elements differ");
    table_.Print();
    return right_;
  }

 private:
  const BenchOptions& options_;
  Progress progress_;
  Table table_;
  bool right_ = true;
};

void AddTo(Panel* time, Panel* idle, double x, const Figures& f) {
  time->x.push_back(x);
  idle->x.push_back(x);
  for (size_t mode = 0; mode < 3; ++mode) {
    time->curves[mode].y.push_back(1e3 * f.seconds[mode]);
    idle->curves[mode].y.push_back(f.idle[mode]);
  }
}

}  // namespace

bool RunPreemptive(const BenchOptions& options) {
  ConfigureLibrary(options);
  const std::vector<unsigned> loads =
      options.quick ? std::vector<unsigned>{0, 400} : std::vector<unsigned>{0, 25, 50, 100, 200, 400, 800};
  const std::vector<uint64_t> sizes =
      options.quick ? std::vector<uint64_t>{64, 256} : std::vector<uint64_t>{16, 32, 64, 128, 256, 512, 1024};  // KiB
  const std::vector<Curve> curves = {{"off", {}}, {"by hand", {}}, {"on", {}}};
  const std::string range = "set yrange [0:*]\n";
  Panel load{"chunks of " + FormatBytes(options.chunk), "load [% of the elements]", "time of a sweep [ms]", {}, {}, curves,
             false, false, range};
  Panel load_idle{"idle time", load.x_label, "share of the sweep [%]", {}, {}, curves, false, false,
                  "set yrange [0:100]\n"};
  Panel size{"load 200 %", "chunk [KiB]", load.y_label, {}, {}, curves, true, false, range};
  Panel size_idle{"idle time", size.x_label, load_idle.y_label, {}, {}, curves, true, false, load_idle.more};
  Experiment experiment(options, static_cast<int>(loads.size() + sizes.size()));
  for (const unsigned percent : loads) {
    AddTo(&load, &load_idle, percent, experiment.Run(options.chunk, percent));
  }
  for (const uint64_t kib : sizes) {
    AddTo(&size, &size_idle, static_cast<double>(kib), experiment.Run(kib << 10, 200));
  }
  const bool right = experiment.Finish();
  Draw(options.plots, {"preemptive_load", "Pre-emptive loading over load", {load, load_idle}});
  Draw(options.plots, {"preemptive_size", "Pre-emptive loading over chunk size", {size, size_idle}});
  return right;
}

}  // namespace ramspan::bench
