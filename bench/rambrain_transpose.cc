// transpose: three ways (arXiv 1510.06358, section 4.4, figures 8 and 9), one thread, over the limit and over the size.
//   simple  saved by rows, element (i, j) exchanged with (j, i)
//   clever  saved by rows, exchanged in square tiles, with as many rows pinned as fit
//   block   saved in tiles: two are pinned, transposed, exchanged
#include <algorithm>
#include <cmath>
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

constexpr size_t kTile = 128;  // elements: tiles of 128 KiB

double Element(size_t n, size_t i, size_t j) { return static_cast<double>(i * n + j); }

// n rows. Also what `clever` works on.
class Rows {
 public:
  explicit Rows(size_t n) : n_(n), rows_(n, n) {
    for (size_t i = 0; i < n; ++i) {
      adhereTo<double> glue(rows_[i]);
      double* const row = glue;
      for (size_t j = 0; j < n; ++j) row[j] = Element(n, i, j);
    }
  }

  void Simple() {
    for (size_t i = 0; i < n_; ++i) {
      adhereTo<double> glue_a(rows_[i]);
      double* const a = glue_a;
      for (size_t j = i + 1; j < n_; ++j) {
        adhereTo<double> glue_b(rows_[j]);
        double* const b = glue_b;
        std::swap(a[j], b[i]);
      }
    }
  }

  void Clever(size_t tile) {
    for (size_t i = 0; i < n_; i += tile) {
      const Stripe above(rows_, i, std::min(n_, i + tile));
      for (size_t j = i; j < n_; j += tile) {
        const Stripe below(rows_, j, std::min(n_, j + tile));
        for (size_t a = i; a < std::min(n_, i + tile); ++a) {
          for (size_t b = i == j ? a + 1 : j; b < std::min(n_, j + tile); ++b) {
            std::swap(above.row[a - i][b], below.row[b - j][a]);
          }
        }
      }
    }
  }

  bool IsTransposed() const {
    bool right = true;
    for (size_t i = 0; i < n_; ++i) {
      const adhereTo<double> glue(rows_[i]);
      const double* const row = glue;
      for (size_t j = 0; j < n_; ++j) right &= row[j] == Element(n_, j, i);
    }
    return right;
  }

 private:
  struct Stripe {
    Stripe(rambrain::managedPtr<double, 2>& rows, size_t first, size_t end) {
      glue.reserve(end - first);
      for (size_t i = first; i < end; ++i) {
        glue.emplace_back(rows[i]);
        row.push_back(glue.back());
      }
    }
    std::vector<adhereTo<double>> glue;
    std::vector<double*> row;
  };

  const size_t n_;
  rambrain::managedPtr<double, 2> rows_;
};

class Blocks {
 public:
  explicit Blocks(size_t n) : tiles_(n / kTile), blocks_(tiles_ * tiles_, kTile * kTile) {
    for (size_t k = 0; k < tiles_ * tiles_; ++k) {
      adhereTo<double> glue(blocks_[k]);
      double* const block = glue;
      for (size_t e = 0; e < kTile * kTile; ++e) block[e] = Place(k / tiles_, k % tiles_, e / kTile, e % kTile);
    }
  }

  void Transpose() {
    for (size_t i = 0; i < tiles_; ++i) {
      for (size_t j = i; j < tiles_; ++j) {
        adhereTo<double> glue_a(blocks_[i * tiles_ + j]), glue_b(blocks_[j * tiles_ + i]);
        double *const a = glue_a, *const b = glue_b;
        for (size_t r = 0; r < kTile; ++r) {
          for (size_t c = i == j ? r + 1 : 0; c < kTile; ++c) std::swap(a[r * kTile + c], b[c * kTile + r]);
        }
      }
    }
  }

  bool IsTransposed() const {
    bool right = true;
    for (size_t k = 0; k < tiles_ * tiles_; ++k) {
      const adhereTo<double> glue(blocks_[k]);
      const double* const block = glue;
      for (size_t e = 0; e < kTile * kTile; ++e) right &= block[e] == Place(k % tiles_, k / tiles_, e % kTile, e / kTile);
    }
    return right;
  }

 private:
  double Place(size_t i, size_t j, size_t r, size_t c) const {
    return Element(tiles_ * kTile, i * kTile + r, j * kTile + c);
  }

  const size_t tiles_;
  rambrain::managedPtr<double, 2> blocks_;
};

struct Cost {
  double seconds = 0, moved = 0;  // moved: bytes out and in over the bytes of the matrix
  bool right = true;
};

template <typename Matrix, typename F>
Cost Measure(size_t n, uint64_t limit, F&& transpose) {
  SetMemoryLimit(limit);
  Matrix matrix(n);
  Settle();
  const Statistics before = GetStatistics();
  const double begin = Now();
  transpose(matrix);
  Cost cost{.seconds = Now() - begin};
  const Statistics after = GetStatistics();
  const auto bytes = static_cast<double>(after.bytes_out + after.bytes_in - before.bytes_out - before.bytes_in);
  cost.moved = bytes / static_cast<double>(n * n * sizeof(double));
  cost.right = matrix.IsTransposed();
  return cost;
}

const char* const kWays[] = {"simple", "clever", "block"};

Cost MeasureWay(int way, size_t n, uint64_t limit) {
  if (way == 0) return Measure<Rows>(n, limit, [](Rows& rows) { rows.Simple(); });
  // A fifth of the limit for each of two stripes, in whole pages.
  const uint64_t row = (n * sizeof(double) + 4095) / 4096 * 4096;
  const size_t fitting = std::clamp<size_t>(limit / 5 / row, 1, kTile);
  if (way == 1) return Measure<Rows>(n, limit, [&](Rows& rows) { rows.Clever(fitting); });
  return Measure<Blocks>(n, limit, [](Blocks& blocks) { blocks.Transpose(); });
}

class Experiment {
 public:
  Experiment(const BenchOptions& options, int steps)
      : progress_(options, steps),
        table_(options, "transpose: in place, one thread",
               {"way", "matrix", "limit", "limit/data", "s", "GB/s", "moved/data"}) {}

  // All ways in one setting.
  std::vector<double> Run(size_t n, uint64_t limit) {
    const uint64_t data = n * n * sizeof(double);
    std::vector<double> seconds;
    for (int way = 0; way < 3; ++way) {
      progress_.Next(std::string(kWays[way]) + ", " + FormatBytes(data) + ", limit " + FormatBytes(limit));
      std::vector<double> times;
      Cost cost;
      for (int i = 0; i < (way == 0 ? 1 : 3); ++i) {
        cost = MeasureWay(way, n, limit);
        times.push_back(cost.seconds);
        right_ &= cost.right;
      }
      seconds.push_back(Median(times));
      const double rate = GbPerSecond(static_cast<double>(data), seconds.back());
      table_.AddRow({{"way", kWays[way]}, {"n", n}, {"matrix_bytes", data}, {"limit_bytes", limit},
                     {"seconds", seconds.back()}, {"gb_s", rate}, {"moved_per_byte", cost.moved}, {"verified", cost.right}},
                    {kWays[way], std::to_string(n) + "^2", FormatBytes(limit),
                     Fixed(static_cast<double>(limit) / static_cast<double>(data), 2), Fixed(seconds.back(), 3),
                     Fixed(rate, 3), Fixed(cost.moved, 2)});
    }
    return seconds;
  }

  bool Finish() {
    progress_.Clear();
    table_.AddNote("moved/data: bytes to and from swap over the matrix's; limit/data 1.5: all in memory, the roofline");
    table_.AddNote(right_ ? "every element compared" : "WRONG: elements are not where they should be");
    table_.Print();
    return right_;
  }

 private:
  Progress progress_;
  Table table_;
  bool right_ = true;
};

void AddTo(Panel* panel, double x, const std::vector<double>& seconds) {
  panel->x.push_back(x);
  for (size_t way = 0; way < seconds.size(); ++way) panel->curves[way].y.push_back(seconds[way]);
}

}  // namespace

bool RunTranspose(const BenchOptions& options) {
  ConfigureLibrary(options);
  // n from an eighth of --data (256 MiB: 1536 at most), for `simple` moves n^3 elements.
  const auto side = static_cast<size_t>(std::sqrt(static_cast<double>(options.data / 8) / sizeof(double)));
  const size_t n = std::max<size_t>(2, std::min<size_t>(1536, side) / kTile) * kTile;
  const uint64_t data = n * n * sizeof(double);
  const std::vector<double> shares =
      options.quick ? std::vector<double>{0.25, 1.5} : std::vector<double>{0.125, 0.25, 0.5, 0.75, 1.5};
  const std::vector<double> sizes = options.quick ? std::vector<double>{0.5} : std::vector<double>{0.25, 0.5, 0.75};
  std::vector<Curve> curves;
  for (const char* way : kWays) curves.push_back({way, {}});
  const uint64_t fixed = std::max<uint64_t>(data / 4, uint64_t{2} << 20);
  Panel over_limit{std::to_string(n) + " x " + std::to_string(n), "memory limit / size of the matrix", "time [s]", {}, {},
                   curves, true, true};
  Panel over_size{"limit " + FormatBytes(fixed), "rows and columns of the matrix", "time [s]", {}, {}, curves, true, true};
  Experiment experiment(options, static_cast<int>(3 * (shares.size() + sizes.size())));
  for (const double share : sizes) {
    const size_t less = std::max<size_t>(1, static_cast<size_t>(share * static_cast<double>(n)) / kTile) * kTile;
    AddTo(&over_size, static_cast<double>(less), experiment.Run(less, fixed));
  }
  for (const double share : shares) {
    const auto limit = std::max<uint64_t>(uint64_t{1} << 20, static_cast<uint64_t>(share * static_cast<double>(data)));
    const std::vector<double> seconds = experiment.Run(n, limit);
    AddTo(&over_limit, share, seconds);
    if (limit == fixed) AddTo(&over_size, static_cast<double>(n), seconds);
  }
  const bool right = experiment.Finish();
  Draw(options.plots, {"transpose", "Transposing a matrix in place", {over_limit, over_size}});
  return right;
}

}  // namespace ramspan::bench
