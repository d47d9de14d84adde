// nbody: what the library costs where nothing is swapped (SoftwareX 2017, section 5.1): n bodies, all pairs, forward
// Euler, positions and velocities of all time steps kept. Written against include/rambrain/, and once more with arrays.
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstring>
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

struct Vec {
  double d[3];
};

// Not inlined, so both variants run the very same instructions and differ only in how they come by their pointers.
[[gnu::noinline]] void Step(const Vec* x, const Vec* v, Vec* x_next, Vec* v_next, size_t n) {
  constexpr double kTimeStep = 1e-3;
  for (size_t i = 0; i < n; ++i) {
    double pull[3] = {};
    for (size_t j = 0; j < n; ++j) {
      double r[3], square = 1e-4;  // softened, so a body does not pull at itself
      for (int d = 0; d < 3; ++d) {
        r[d] = x[j].d[d] - x[i].d[d];
        square += r[d] * r[d];
      }
      const double factor = 1e-3 / (square * std::sqrt(square));
      for (int d = 0; d < 3; ++d) pull[d] += factor * r[d];
    }
    for (int d = 0; d < 3; ++d) {
      x_next[i].d[d] = x[i].d[d] + kTimeStep * v[i].d[d];
      v_next[i].d[d] = v[i].d[d] + kTimeStep * pull[d];
    }
  }
}

[[gnu::noinline]] void Start(Vec* x, Vec* v, size_t n) {
  uint64_t state = 88172645463325252u;
  for (Vec* vectors : {x, v}) {
    for (size_t i = 0; i < n; ++i) {
      for (double& value : vectors[i].d) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;  // xorshift64
        value = static_cast<double>(state >> 11) * 0x1p-53 - 0.5;
      }
    }
  }
}

// The trajectories so far. The two classes differ in nothing but how memory is had and pointers are pulled.
class Raw {
 public:
  explicit Raw(size_t n) : n_(n), x_(1), v_(1) {
    x_[0].reset(new Vec[n]);
    v_[0].reset(new Vec[n]);
    Start(x_[0].get(), v_[0].get(), n);
  }

  void Advance(size_t steps) {
    for (size_t t = x_.size() - 1; steps > 0; ++t, --steps) {
      x_.emplace_back(new Vec[n_]);
      v_.emplace_back(new Vec[n_]);
      Step(x_[t].get(), v_[t].get(), x_[t + 1].get(), v_[t + 1].get(), n_);
    }
  }

  std::vector<Vec> Last() const { return {x_.back().get(), x_.back().get() + n_}; }

 private:
  const size_t n_;
  std::vector<std::unique_ptr<Vec[]>> x_, v_;
};

class Managed {
 public:
  explicit Managed(size_t n) : n_(n) {
    x_.emplace_back(n);
    v_.emplace_back(n);
    adhereTo<Vec> x0(x_[0]), v0(v_[0]);
    Start(x0, v0, n);
  }

  void Advance(size_t steps) {
    for (size_t t = x_.size() - 1; steps > 0; ++t, --steps) {
      x_.emplace_back(n_);
      v_.emplace_back(n_);
      const adhereTo<Vec> x(x_[t]), v(v_[t]);
      adhereTo<Vec> x_next(x_[t + 1]), v_next(v_[t + 1]);
      Step(x, v, x_next, v_next, n_);
    }
  }

  std::vector<Vec> Last() const {
    const adhereTo<Vec> glue(x_.back());
    const Vec* const last = glue;
    return {last, last + n_};
  }

 private:
  const size_t n_;
  std::vector<rambrain::managedPtr<Vec>> x_, v_;
};

struct Times {
  double wall = 0, cpu = 0;  // seconds
};

template <typename Variant>
Times Timed(Variant* variant, size_t steps) {
  const double wall = Now(), cpu = ThreadCpuSeconds();
  variant->Advance(steps);
  return {Now() - wall, ThreadCpuSeconds() - cpu};
}

struct Part {
  std::vector<double> raw, managed;         // seconds of a time step, a value a pair
  std::vector<double> over_wall, over_cpu;  // percent, of each pair
};

// Both variants advance in turns, a few milliseconds each, so that both meet the same machine; each pair is compared by
// itself, and who goes first changes.
bool Round(size_t n, size_t steps, size_t each, std::vector<Part>* parts) {
  Raw raw(n);
  Managed managed(n);
  for (size_t done = 0, pair = 0; done + each <= steps; done += each, ++pair) {
    Times a, b;
    if (pair % 2 == 0) {
      a = Timed(&raw, each);
      b = Timed(&managed, each);
    } else {
      b = Timed(&managed, each);
      a = Timed(&raw, each);
    }
    if (parts == nullptr) continue;
    Part& part = (*parts)[done * parts->size() / steps];
    part.raw.push_back(a.wall / static_cast<double>(each));
    part.managed.push_back(b.wall / static_cast<double>(each));
    part.over_wall.push_back(100 * (b.wall / a.wall - 1));
    part.over_cpu.push_back(100 * (b.cpu / a.cpu - 1));
  }
  const std::vector<Vec> one = raw.Last(), other = managed.Last();
  return std::memcmp(one.data(), other.data(), n * sizeof(Vec)) == 0;
}

struct Setting {
  size_t bodies;
  uint64_t kept;  // bytes of trajectories in the end, of each variant
  int rounds;
  size_t parts;  // of the trajectories: overhead over the memory in use, as in the paper's figure
};

struct Overhead {
  std::vector<double> kept;  // MiB
  Curve wall{"wall clock", {}}, cpu{"thread CPU time", {}};
  Curve raw{"raw arrays", {}}, managed{"managedPtr", {}};
};

void AddPart(const Setting& s, size_t index, const Part& part, Table* table, Overhead* overhead) {
  const double wall = Median(part.over_wall), cpu = Median(part.over_cpu);
  const uint64_t kept = s.kept * (index + 1) / s.parts;
  const double raw = 1e6 * Median(part.raw), managed = 1e6 * Median(part.managed);
  const double low = Quantile(part.over_wall, 0.25), high = Quantile(part.over_wall, 0.75);
  table->AddRow({{"bodies", s.bodies}, {"trajectory_bytes", kept}, {"pairs", part.raw.size()}, {"raw_step_us", raw},
                 {"managed_step_us", managed}, {"overhead_percent", wall}, {"overhead_quartiles", {low, high}},
                 {"cpu_overhead_percent", cpu}},
                {std::to_string(s.bodies), "to " + FormatBytes(kept), std::to_string(part.raw.size()), Fixed(raw, 2),
                 Fixed(managed, 2), Fixed(wall, 2), Fixed(low, 2) + " to " + Fixed(high, 2), Fixed(cpu, 2)});
  if (overhead == nullptr) return;
  overhead->kept.push_back(Mib(kept));
  overhead->wall.y.push_back(wall);
  overhead->cpu.y.push_back(cpu);
  overhead->raw.y.push_back(raw);
  overhead->managed.y.push_back(managed);
}

void Plot(const std::string& directory, const Overhead& o) {
  const char* const target =
      "set xrange [0:*]\nset yrange [-0.5:1.5]\nset arrow from graph 0, first 0.5 to graph 1, first 0.5 nohead dashtype 2\n"
      "set label 'target 0.5 %' at graph 0.98, first 0.56 right\n";
  Draw(directory, {"nbody", "n-body, 512 bodies, all trajectories in memory",
                   {{"time", "trajectories [MiB]", "time step [us]", o.kept, {}, {o.raw, o.managed}, false, false,
                     "set xrange [0:*]\nset yrange [0:*]\n"},
                    {"overhead of the library", "trajectories [MiB]", "overhead [%]", o.kept, {}, {o.wall, o.cpu}, false,
                     false, target}}});
}

}  // namespace

bool RunNbody(const BenchOptions& given) {
  BenchOptions options = given;
  options.limit = std::max<uint64_t>(2 * given.data, uint64_t{64} << 20);
  ConfigureLibrary(options);
  // Neither variant pays for fresh pages after the first round: the library keeps its frames, and now malloc its heap.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  Table table(options, "nbody: library overhead without swapping, managedPtr and raw arrays in turns",
              {"bodies", "trajectories", "pairs", "raw us/step", "managed", "overhead %", "middle half", "CPU overhead %"});
  const uint64_t most = std::min<uint64_t>(given.data / 4, uint64_t{64} << 20);
  const Setting settings[] = {{128, most / 4, options.quick ? 1 : 3, 1}, {512, most, options.quick ? 1 : 4, 8}};
  Progress progress(options, settings[0].rounds + settings[1].rounds);
  bool right = true;
  Overhead overhead;
  std::vector<double> all;
  for (const Setting& s : settings) {
    const size_t steps = s.kept / (2 * s.bodies * sizeof(Vec));
    const size_t each = std::max<size_t>(1, 2 * 512 * 512 / (s.bodies * s.bodies));  // some 2 ms
    std::vector<Part> parts(s.parts);
    for (int round = -1; round < s.rounds; ++round) {  // the first warms up: from then on frames and heap are there
      if (round >= 0) progress.Next(std::to_string(s.bodies) + " bodies");
      right &= Round(s.bodies, steps, each, round < 0 ? nullptr : &parts);
    }
    for (size_t i = 0; i < s.parts; ++i) {
      AddPart(s, i, parts[i], &table, s.bodies == 512 ? &overhead : nullptr);
      if (s.bodies == 512) all.insert(all.end(), parts[i].over_wall.begin(), parts[i].over_wall.end());
    }
  }
  progress.Clear();
  const double over = Median(all);
  table.AddTarget("overhead_percent", over, "overhead < 0.5 % (paper: 1 to 2 %)", over < 0.5,
                  Fixed(over, 2) + " %, median of " + std::to_string(all.size()) + " pairs with 512 bodies");
  if (GetStatistics().evictions > 0) table.AddNote("something was swapped: this is not the overhead without swapping");
  table.AddNote(right ? "positions of both variants are equal bit by bit" : "WRONG: positions differ");
  table.Print();
  Plot(options.plots, overhead);
  return right;
}

}  // namespace ramspan::bench
