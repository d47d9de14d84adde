// Lattice Boltzmann, D2Q9 with a single relaxation time: a flow between two walls that a force drives (URSL, figure 9: OpenLB's
// forcedPoiseuille2d, 2048 x 2048). Periodic along x; at the walls populations return the way they came. Saved in bands of four rows, in
// each row the nine populations one after the other; a thread holds the band that it computes and three of the step before.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "bench/apps/application.h"
#include "bench/apps/slab.h"
#include "bench/apps/storage.h"
#include "bench/apps/vectors.h"

namespace ramspan::bench {
namespace {

constexpr size_t kQ = 9;
constexpr int kAlongX[kQ] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, kAlongY[kQ] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
constexpr size_t kOpposite[kQ] = {0, 3, 4, 1, 2, 7, 8, 5, 6};
constexpr double kWeight[kQ] = {4.0 / 9, 1.0 / 9, 1.0 / 9, 1.0 / 9, 1.0 / 9, 1.0 / 36, 1.0 / 36, 1.0 / 36, 1.0 / 36};
constexpr double kOmega = 1.2, kForce = 1e-5;
constexpr size_t kLatticeRows = 4;  // of a band
constexpr int kLatticeSteps = 4;

// A row has, for each population, copies of its last and its first column in front of and behind it.
struct Lattice {
  size_t n;  // rows and columns
  size_t line() const { return n + 2; }
  size_t row() const { return kQ * line(); }
  size_t bands() const { return n / kLatticeRows; }
};

Lattice LatticeOf(const AppOptions& o) {
  if (o.full) return {2048};
  const double sites = static_cast<double>(o.data != 0 ? o.data : uint64_t{128} << 20) / (2 * kQ * sizeof(double));
  return {std::max<size_t>(16, static_cast<size_t>(std::sqrt(sites)) / 8 * 8)};
}

// Where the populations of a row come from, and go to, each at column 0.
struct RowOfSites {
  std::array<const double*, kQ> in;
  std::array<double*, kQ> out;
};

// One site: from populations before the collision to those after it.
__attribute__((always_inline)) inline void Collide(const double* f, double* after) {
  const double rho = f[0] + f[1] + f[2] + f[3] + f[4] + f[5] + f[6] + f[7] + f[8];
  const double ux = (f[1] + f[5] + f[8] - f[3] - f[6] - f[7]) / rho, uy = (f[2] + f[5] + f[6] - f[4] - f[7] - f[8]) / rho;
  const double base = 1 - 1.5 * (ux * ux + uy * uy);
#pragma GCC unroll 9
  for (size_t q = 0; q < kQ; ++q) {
    const double along = kAlongX[q] * ux + kAlongY[q] * uy;
    const double equilibrium = kWeight[q] * rho * (base + 3 * along + 4.5 * along * along);
    after[q] = f[q] + kOmega * (equilibrium - f[q]) + 3 * kWeight[q] * kAlongX[q] * kForce;
  }
}

__attribute__((always_inline)) inline void CollideRowBody(const RowOfSites& sites, size_t n) {
#pragma omp simd
  for (size_t x = 0; x < n; ++x) {
    double f[kQ], after[kQ];
#pragma GCC unroll 9
    for (size_t q = 0; q < kQ; ++q) f[q] = sites.in[q][x];
    Collide(f, after);
#pragma GCC unroll 9
    for (size_t q = 0; q < kQ; ++q) sites.out[q][x] = after[q];
  }
}

RAMSPAN_BENCH_VECTORS(CollideRow, CollideRowBody, (const RowOfSites& sites, size_t n), (sites, n))

// Fluid at rest, of a density that differs from site to site.
double AtStart(const Lattice& lattice, size_t x, size_t y, size_t q) { return kWeight[q] * (1 + 0.01 * Uniform(y * lattice.n + x)); }

template <typename Storage>
class LatticeBoltzmann : public Application {
  using Field = typename Storage::template Blocks<double>;

 public:
  explicit LatticeBoltzmann(const AppOptions& o)
      : threads_(o.threads), lattice_(LatticeOf(o)), slab_(lattice_.bands(), o), now_(slab_.count() + 2, kLatticeRows * lattice_.row()),
        next_(slab_.count() + 2, kLatticeRows * lattice_.row()) {
    ForAll(threads_, slab_.count(), [this](size_t i) {
      const auto band = now_.write(i + 1);
      for (size_t r = 0; r < kLatticeRows; ++r) {
        for (size_t q = 0; q < kQ; ++q) {
          double* const line = band.data() + r * lattice_.row() + q * lattice_.line();
          for (size_t x = 0; x < lattice_.n; ++x) line[x + 1] = AtStart(lattice_, x, (slab_.first + i) * kLatticeRows + r, q);
          Close(line);
        }
      }
    });
  }

  void Run() override {
    for (int step = 0; step < kLatticeSteps; ++step) {
      ExchangeGhosts(slab_, &now_);
      ForAll(threads_, slab_.count(), [this](size_t i) { ComputeBand(i + 1); });
      std::swap(now_, next_);
      DropAll(&next_);
    }
  }

  Digest Result() override {
    return DigestOf(threads_, slab_.count(), [this](size_t i, Digest* digest) {
      const auto band = std::as_const(now_).read(i + 1);
      digest->AddBlock(slab_.first + i, band.data(), kLatticeRows * lattice_.row() * sizeof(double));
      for (size_t line = 0; line < kLatticeRows * kQ; ++line) {
        digest->AddValues<double>(((slab_.first + i) * kLatticeRows * kQ + line) * lattice_.n, {band.data() + line * lattice_.line() + 1, lattice_.n});
      }
    });
  }

 private:
  void Close(double* line) const {
    line[0] = line[lattice_.n];
    line[lattice_.n + 1] = line[1];
  }

  void ComputeBand(size_t block) {
    const bool has_below = slab_.has_below(block), has_above = slab_.has_above(block);
    const auto& now = std::as_const(now_);
    const auto here = now.read(block), below = now.read(has_below ? block - 1 : block), above = now.read(has_above ? block + 1 : block);
    const auto out = next_.fresh(block);
    for (size_t r = 0; r < kLatticeRows; ++r) {
      RowOfSites sites;
      for (size_t q = 0; q < kQ; ++q) {
        const size_t at = kLatticeRows + r - static_cast<size_t>(kAlongY[q]);  // counted from the first row of the band below
        const bool wall = (at < kLatticeRows && !has_below) || (at >= 2 * kLatticeRows && !has_above);
        const double* const band = at < kLatticeRows ? below.data() : at < 2 * kLatticeRows ? here.data() : above.data();
        sites.in[q] = wall ? here.data() + r * lattice_.row() + kOpposite[q] * lattice_.line() + 1
                           : band + at % kLatticeRows * lattice_.row() + q * lattice_.line() + 1 - kAlongX[q];
        sites.out[q] = out.data() + r * lattice_.row() + q * lattice_.line() + 1;
      }
      CollideRow(sites, lattice_.n);
      for (size_t q = 0; q < kQ; ++q) Close(sites.out[q] - 1);
    }
  }

  const int threads_;
  const Lattice lattice_;
  const Slab slab_;
  Field now_, next_;
};

// Site by site, the populations of a site side by side.
class LatticeBoltzmannByLoops : public Application {
 public:
  explicit LatticeBoltzmannByLoops(const AppOptions& o) : threads_(o.threads), lattice_(LatticeOf(o)), now_(lattice_.n * lattice_.n * kQ), next_(now_.size()) {
    ForAll(threads_, lattice_.n, [this](size_t y) {
      for (size_t x = 0; x < lattice_.n; ++x) {
        for (size_t q = 0; q < kQ; ++q) now_[(y * lattice_.n + x) * kQ + q] = AtStart(lattice_, x, y, q);
      }
    });
  }
  void Run() override {
    const size_t n = lattice_.n;
    for (int step = 0; step < kLatticeSteps; ++step) {
      ForAll(threads_, n, [&](size_t y) {
        for (size_t x = 0; x < n; ++x) {
          double f[kQ];
          for (size_t q = 0; q < kQ; ++q) {
            const size_t from_x = (x + n - static_cast<size_t>(kAlongX[q])) % n, from_y = y - static_cast<size_t>(kAlongY[q]);
            f[q] = from_y < n ? now_[(from_y * n + from_x) * kQ + q] : now_[(y * n + x) * kQ + kOpposite[q]];
          }
          Collide(f, &next_[(y * n + x) * kQ]);
        }
      });
      now_.swap(next_);
    }
  }
  Digest Result() override {
    Digest digest;
    const size_t n = lattice_.n;
    std::vector<double> line(n);
    for (size_t y = 0; y < n; ++y) {
      for (size_t q = 0; q < kQ; ++q) {
        for (size_t x = 0; x < n; ++x) line[x] = now_[(y * n + x) * kQ + q];
        digest.AddValues<double>((y * kQ + q) * n, line);
      }
    }
    return digest;
  }

 private:
  const int threads_;
  const Lattice lattice_;
  std::vector<double> now_, next_;
};

AppShape LatticeShape(const AppOptions& o) {
  const Lattice lattice = LatticeOf(o);
  const uint64_t band = kLatticeRows * lattice.row() * sizeof(double);
  return {std::to_string(lattice.n) + " x " + std::to_string(lattice.n) + " sites, bands of 4 rows, " + std::to_string(kLatticeSteps) + " steps", 2 * lattice.bands() * band, 4 * band};
}

}  // namespace

const AppKind kLatticeBoltzmann = {"lbm", "lattice Boltzmann, D2Q9", "URSL, figure 9: 2048 x 2048", true, LatticeShape, MakeApp<LatticeBoltzmann, InCore>,
                                   MakeApp<LatticeBoltzmann, OutOfCore>,
                                   [](const AppOptions& o) -> std::unique_ptr<Application> { return std::make_unique<LatticeBoltzmannByLoops>(o); }};

}  // namespace ramspan::bench
