// Blocked matrix multiplication, C = A B, doubles (DLM, figure 3: 4096 x 4096). The matrices are saved in tiles; a thread holds four
// of C's, two rows and two columns of them, and goes through those rows of A's and columns of B's.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "bench/apps/application.h"
#include "bench/apps/storage.h"
#include "bench/apps/vectors.h"

namespace ramspan::bench {
namespace {

// 128 KiB: three of them are in a core's second-level cache. Each tile of A and B that is fetched is used for two of C's: 4 * 128^3 operations.
constexpr size_t kTile = 128;
constexpr size_t kTileElements = kTile * kTile;

size_t MatrixEdge(const AppOptions& o) {
  if (o.full) return 4096;
  const double elements = static_cast<double>(o.data != 0 ? o.data : uint64_t{96} << 20) / (3 * sizeof(double));
  return std::max<size_t>(1, static_cast<size_t>(std::sqrt(elements)) / (2 * kTile)) * 2 * kTile;
}

double MatrixElement(int matrix, size_t n, size_t row, size_t column) {
  return Uniform(static_cast<uint64_t>(matrix) * n * n + row * n + column) - 0.5;
}

// c (+)= a b. Sixteen columns of b are copied, because its rows lie so that few of them fit the first-level cache together.
__attribute__((always_inline)) inline void MultiplyTile(const double* a, const double* b, double* c, bool first) {
  constexpr size_t kRows = 4, kPack = 8, kColumns = 2 * kPack;
  alignas(64) double strip[kTile * kColumns];
  for (size_t j = 0; j < kTile; j += kColumns) {
    for (size_t k = 0; k < kTile; ++k) std::memcpy(strip + k * kColumns, b + k * kTile + j, kColumns * sizeof(double));
    for (size_t i = 0; i < kTile; i += kRows) {
      Doubles sum[kRows][2] = {};
      for (size_t k = 0; k < kTile; ++k) {
        const Doubles left = *reinterpret_cast<const Doubles*>(strip + k * kColumns);
        const Doubles right = *reinterpret_cast<const Doubles*>(strip + k * kColumns + kPack);
#pragma GCC unroll 4
        for (size_t r = 0; r < kRows; ++r) {
          const double factor = a[(i + r) * kTile + k];
          sum[r][0] += factor * left;
          sum[r][1] += factor * right;
        }
      }
#pragma GCC unroll 4
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t half = 0; half < 2; ++half) {
          auto* to = reinterpret_cast<Doubles*>(c + (i + r) * kTile + j + half * kPack);
          *to = first ? sum[r][half] : *to + sum[r][half];
        }
      }
    }
  }
}

RAMSPAN_BENCH_VECTORS(Multiply, MultiplyTile, (const double* a, const double* b, double* c, bool first), (a, b, c, first))

template <typename Storage>
class MatrixMultiply : public Application {
  using Matrix = typename Storage::template Blocks<double>;

 public:
  explicit MatrixMultiply(const AppOptions& o)
      : threads_(o.threads), n_(MatrixEdge(o)), tiles_(n_ / kTile), a_(tiles_ * tiles_, kTileElements), b_(tiles_ * tiles_, kTileElements),
        c_(tiles_ * tiles_, kTileElements) {
    Fill(1, &a_);
    Fill(2, &b_);
  }

  // Pairs of rows of C's tiles after each other. Every other one from right to left: then what of B is in memory is used first.
  void Run() override {
    const size_t pairs = tiles_ / 2;
    ForAll(threads_, pairs * pairs, [&](size_t at) {
      const size_t i = at / pairs * 2, j = (i % 4 == 0 ? at % pairs : pairs - 1 - at % pairs) * 2;
      const auto c00 = c_.fresh(i * tiles_ + j), c01 = c_.fresh(i * tiles_ + j + 1);
      const auto c10 = c_.fresh((i + 1) * tiles_ + j), c11 = c_.fresh((i + 1) * tiles_ + j + 1);
      for (size_t k = 0; k < tiles_; ++k) {
        const auto& a = std::as_const(a_);
        const auto& b = std::as_const(b_);
        const auto a0 = a.read(i * tiles_ + k), a1 = a.read((i + 1) * tiles_ + k);
        const auto b0 = b.read(k * tiles_ + j), b1 = b.read(k * tiles_ + j + 1);
        Multiply(a0.data(), b0.data(), c00.data(), k == 0);
        Multiply(a0.data(), b1.data(), c01.data(), k == 0);
        Multiply(a1.data(), b0.data(), c10.data(), k == 0);
        Multiply(a1.data(), b1.data(), c11.data(), k == 0);
      }
    });
  }

  Digest Result() override {
    return DigestOf(threads_, tiles_ * tiles_, [this](size_t at, Digest* digest) {
      const auto c = c_.read(at);
      digest->AddBlock(at, c.data(), kTileElements * sizeof(double));
      for (size_t r = 0; r < kTile; ++r) {
        digest->AddValues<double>((at / tiles_ * kTile + r) * n_ + at % tiles_ * kTile, {c.data() + r * kTile, kTile});
      }
    });
  }

 private:
  void Fill(int number, Matrix* matrix) {
    ForAll(threads_, matrix->count(), [&](size_t at) {
      const auto tile = matrix->write(at);
      for (size_t e = 0; e < kTileElements; ++e) {
        tile.data()[e] = MatrixElement(number, n_, at / tiles_ * kTile + e / kTile, at % tiles_ * kTile + e % kTile);
      }
    });
  }

  const int threads_;
  const size_t n_, tiles_;
  Matrix a_, b_, c_;
};

// Rows [i, end) of C, saved by rows: 64 rows of B at a time, 256 columns of them, so that what is used again is in a cache.
__attribute__((always_inline)) inline void MultiplyRowsBody(const double* a, const double* b, double* c, size_t n, size_t i, size_t end) {
  constexpr size_t kRowsOfB = 64, kColumns = 256;
  std::fill(c + i * n, c + end * n, 0.0);
  for (size_t j0 = 0; j0 < n; j0 += kColumns) {
    const size_t j_end = std::min(n, j0 + kColumns);
    for (size_t k0 = 0; k0 < n; k0 += kRowsOfB) {
      for (size_t row = i; row < end; ++row) {
        for (size_t k = k0; k < k0 + kRowsOfB; ++k) {
          const double factor = a[row * n + k];
          for (size_t j = j0; j < j_end; ++j) c[row * n + j] += factor * b[k * n + j];
        }
      }
    }
  }
}

RAMSPAN_BENCH_VECTORS(MultiplyRows, MultiplyRowsBody, (const double* a, const double* b, double* c, size_t n, size_t i, size_t end), (a, b, c, n, i, end))

class MatrixMultiplyByLoops : public Application {
 public:
  explicit MatrixMultiplyByLoops(const AppOptions& o) : threads_(o.threads), n_(MatrixEdge(o)), a_(n_ * n_), b_(n_ * n_), c_(n_ * n_) {
    ForAll(threads_, n_ * n_, [this](size_t e) {
      a_[e] = MatrixElement(1, n_, e / n_, e % n_);
      b_[e] = MatrixElement(2, n_, e / n_, e % n_);
    });
  }
  void Run() override {
    ForAll(threads_, n_ / 64, [this](size_t i) { MultiplyRows(a_.data(), b_.data(), c_.data(), n_, i * 64, i * 64 + 64); });
  }
  Digest Result() override {
    Digest digest;
    digest.AddValues<double>(0, c_);
    return digest;
  }

 private:
  const int threads_;
  const size_t n_;
  std::vector<double> a_, b_, c_;
};

AppShape MatrixShape(const AppOptions& o) {
  const size_t n = MatrixEdge(o);
  return {std::to_string(n) + " x " + std::to_string(n) + " doubles, tiles of " + std::to_string(kTile) + " x " + std::to_string(kTile), 3 * n * n * sizeof(double),
          8 * kTileElements * sizeof(double)};
}

}  // namespace

const AppKind kMatrixMultiply = {"mm", "blocked matrix multiplication", "DLM, figure 3: 4096 x 4096", false, MatrixShape,
                                 MakeApp<MatrixMultiply, InCore>, MakeApp<MatrixMultiply, OutOfCore>,
                                 [](const AppOptions& o) -> std::unique_ptr<Application> { return std::make_unique<MatrixMultiplyByLoops>(o); }};

}  // namespace ramspan::bench
