// Explicit steps of the heat equation with a 7-point stencil in a cube of doubles, whose faces keep their values. Saved in planes; a thread
// holds the plane that it computes and three of the step before. A step before the last one is dropped as a whole.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "bench/apps/application.h"
#include "bench/apps/slab.h"
#include "bench/apps/storage.h"
#include "bench/apps/vectors.h"

namespace ramspan::bench {
namespace {

constexpr int kHeatSteps = 4;

size_t CubeEdge(const AppOptions& o) {
  if (o.full) return 512;
  const double doubles = static_cast<double>(o.data != 0 ? o.data : uint64_t{128} << 20) / (2 * sizeof(double));
  return std::max<size_t>(16, static_cast<size_t>(std::cbrt(doubles)) / 8 * 8);
}

// The inner part of a plane; its border is the one of `here`.
__attribute__((always_inline)) inline void HeatPlaneBody(size_t n, const double* below, const double* here, const double* above, double* out) {
  std::copy_n(here, n, out);
  std::copy_n(here + (n - 1) * n, n, out + (n - 1) * n);
  for (size_t y = 1; y + 1 < n; ++y) {
    out[y * n] = here[y * n];
    out[y * n + n - 1] = here[y * n + n - 1];
#pragma omp simd
    for (size_t i = y * n + 1; i < y * n + n - 1; ++i) {
      out[i] = here[i] + 0.1 * (below[i] + above[i] + here[i - 1] + here[i + 1] + here[i - n] + here[i + n] - 6 * here[i]);
    }
  }
}

RAMSPAN_BENCH_VECTORS(HeatPlane, HeatPlaneBody, (size_t n, const double* below, const double* here, const double* above, double* out), (n, below, here, above, out))

void FillPlane(size_t n, size_t z, double* plane) {
  for (size_t i = 0; i < n * n; ++i) plane[i] = Uniform(z * n * n + i);
}

template <typename Storage>
class Heat : public Application {
  using Field = typename Storage::template Blocks<double>;

 public:
  explicit Heat(const AppOptions& o) : threads_(o.threads), n_(CubeEdge(o)), slab_(n_, o), now_(slab_.count() + 2, n_ * n_), next_(slab_.count() + 2, n_ * n_) {
    ForAll(threads_, slab_.count(), [this](size_t i) { FillPlane(n_, slab_.first + i, now_.write(i + 1).data()); });
  }

  void Run() override {
    for (int step = 0; step < kHeatSteps; ++step) {
      ExchangeGhosts(slab_, &now_);
      ForAll(threads_, slab_.count(), [this](size_t i) { ComputePlane(i + 1); });
      std::swap(now_, next_);
      DropAll(&next_);
    }
  }

  Digest Result() override {
    return DigestOf(threads_, slab_.count(), [this](size_t i, Digest* digest) {
      const auto plane = std::as_const(now_).read(i + 1);
      digest->AddBlock(slab_.first + i, plane.data(), n_ * n_ * sizeof(double));
      digest->AddValues<double>((slab_.first + i) * n_ * n_, {plane.data(), n_ * n_});
    });
  }

 private:
  void ComputePlane(size_t block) {
    const auto& now = std::as_const(now_);
    const auto here = now.read(block);
    if (!slab_.has_below(block) || !slab_.has_above(block)) {  // a face
      const auto out = next_.fresh(block);
      std::copy_n(here.data(), n_ * n_, out.data());
      return;
    }
    const auto below = now.read(block - 1), above = now.read(block + 1);
    const auto out = next_.fresh(block);
    HeatPlane(n_, below.data(), here.data(), above.data(), out.data());
  }

  const int threads_;
  const size_t n_;
  const Slab slab_;
  Field now_, next_;
};

// Two whole cubes.
class HeatByLoops : public Application {
 public:
  explicit HeatByLoops(const AppOptions& o) : threads_(o.threads), n_(CubeEdge(o)), now_(n_ * n_ * n_), next_(now_.size()) {
    ForAll(threads_, n_, [this](size_t z) { FillPlane(n_, z, &now_[z * n_ * n_]); });
    next_ = now_;
  }
  void Run() override {
    for (int step = 0; step < kHeatSteps; ++step) {
      ForAll(threads_, n_ - 2, [this](size_t i) {
        const size_t n = n_, plane = n * n, z = i + 1;
        for (size_t y = 1; y + 1 < n; ++y) {
          for (size_t x = 1; x + 1 < n; ++x) {
            const size_t at = z * plane + y * n + x;
            next_[at] = now_[at] + 0.1 * (now_[at - plane] + now_[at + plane] + now_[at - 1] + now_[at + 1] + now_[at - n] + now_[at + n] - 6 * now_[at]);
          }
        }
      });
      now_.swap(next_);
    }
  }
  Digest Result() override {
    Digest digest;
    digest.AddValues<double>(0, now_);
    return digest;
  }

 private:
  const int threads_;
  const size_t n_;
  std::vector<double> now_, next_;
};

AppShape HeatShape(const AppOptions& o) {
  const size_t n = CubeEdge(o);
  return {std::to_string(n) + " x " + std::to_string(n) + " x " + std::to_string(n) + " doubles, planes, " + std::to_string(kHeatSteps) + " steps", 2 * n * n * n * sizeof(double),
          4 * n * n * sizeof(double)};
}

}  // namespace

const AppKind kHeat = {"heat", "7-point stencil in a cube", "512 x 512 x 512 with --full", true, HeatShape, MakeApp<Heat, InCore>, MakeApp<Heat, OutOfCore>,
                       [](const AppOptions& o) -> std::unique_ptr<Application> { return std::make_unique<HeatByLoops>(o); }};

}  // namespace ramspan::bench
