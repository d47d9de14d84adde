// Three-dimensional FFT of complex doubles with FFTW (DLM, figure 4, and URSL, figure 11): forward, a filter of the frequencies along z,
// backward. The field is saved in bricks: all x of 4 y and 4 z. Each thread takes four planes: the bricks of one z for the transforms along
// x (rows within a brick) and y, those of one y for those along z; lines that go through several bricks are gathered sixteen at a time.
#include <fftw3.h>

#include <algorithm>
#include <complex>
#include <memory>
#include <stdexcept>
#include <vector>

#include "bench/apps/application.h"
#include "bench/apps/storage.h"

namespace ramspan::bench {
namespace {

using Complex = std::complex<double>;

constexpr size_t kBrick = 4;   // y and z of a brick
constexpr size_t kLines = 16;  // gathered at a time: 256 bytes of each row

struct GridShape {
  size_t nx, ny, nz;
  size_t elements() const { return nx * ny * nz; }
  size_t brick() const { return kBrick * kBrick * nx; }
};

// Powers of two. The direction that is longest in a brick is the shortest of the grid: four planes of bricks are pinned at a time.
GridShape GridOf(const AppOptions& o) {
  if (o.full) return {512, 512, 512};
  const uint64_t data = o.data != 0 ? o.data : uint64_t{128} << 20;
  GridShape shape{kLines, kLines, kLines};
  for (size_t* edge = &shape.nz; 2 * shape.elements() * sizeof(Complex) <= data;) {
    *edge *= 2;
    edge = edge == &shape.nz ? &shape.ny : edge == &shape.ny ? &shape.nx : &shape.nz;
  }
  return shape;
}

fftw_complex* ForFftw(Complex* data) { return reinterpret_cast<fftw_complex*>(data); }

class Plan {
 public:
  explicit Plan(fftw_plan plan) : plan_(plan, &fftw_destroy_plan) {
    if (plan == nullptr) throw std::runtime_error("FFTW has no plan");
  }
  // On any data with the alignment of those that it was made with. Any thread.
  void Run(Complex* data) const { fftw_execute_dft(plan_.get(), ForFftw(data), ForFftw(data)); }

 private:
  std::unique_ptr<fftw_plan_s, decltype(&fftw_destroy_plan)> plan_;
};

// FFTW_ESTIMATE everywhere: what FFTW_MEASURE chooses, and so the last bits of the result, depends on how busy the machine is.
Plan RowsPlan(size_t n, size_t rows, Complex* in, int sign) {
  const int length = static_cast<int>(n);
  return Plan(fftw_plan_many_dft(1, &length, static_cast<int>(rows), ForFftw(in), nullptr, 1, length, ForFftw(in), nullptr, 1, length, sign, FFTW_ESTIMATE));
}
Plan LinesPlan(size_t n, Complex* in, int sign) {
  const int length = static_cast<int>(n);
  return Plan(fftw_plan_many_dft(1, &length, kLines, ForFftw(in), nullptr, kLines, 1, ForFftw(in), nullptr, kLines, 1, sign, FFTW_ESTIMATE));
}

struct FreeFftw {
  void operator()(Complex* memory) const { fftw_free(memory); }
};
using Buffer = std::unique_ptr<Complex, FreeFftw>;
Buffer MakeBuffer(size_t n) { return Buffer(reinterpret_cast<Complex*>(fftw_alloc_complex(n))); }

// By z, of the spectrum: high frequencies are damped (so that forward and backward is not the identity), and all is divided by the elements.
std::vector<double> Filter(const GridShape& shape) {
  std::vector<double> filter(shape.nz);
  for (size_t z = 0; z < shape.nz; ++z) filter[z] = 1 / (static_cast<double>(shape.elements()) * static_cast<double>(1 + std::min(z, shape.nz - z)));
  return filter;
}

Complex Signal(size_t i) { return {Uniform(2 * i) - 0.5, Uniform(2 * i + 1) - 0.5}; }

template <typename Storage>
class Fft : public Application {
 public:
  explicit Fft(const AppOptions& o)
      : threads_(o.threads), shape_(GridOf(o)), bricks_y_(shape_.ny / kBrick), bricks_z_(shape_.nz / kBrick), filter_(Filter(shape_)), field_(bricks_y_ * bricks_z_, shape_.brick()) {
    const Buffer rows = MakeBuffer(shape_.brick()), lines = MakeBuffer(std::max(shape_.ny, shape_.nz) * kLines);
    for (const int sign : {FFTW_FORWARD, FFTW_BACKWARD}) {
      along_x_.push_back(RowsPlan(shape_.nx, kBrick * kBrick, rows.get(), sign));
      along_y_.push_back(LinesPlan(shape_.ny, lines.get(), sign));
      along_z_.push_back(LinesPlan(shape_.nz, lines.get(), sign));
    }
  }

  void Prepare() override {
    ForAll(threads_, field_.count(), [this](size_t at) {
      const auto brick = field_.write(at);
      ForRows(at, [&](size_t row, size_t first) {
        for (size_t x = 0; x < shape_.nx; ++x) brick.data()[row * shape_.nx + x] = Signal(first + x);
      });
    });
  }

  void Run() override {
    Planes(0);
    ForAll(threads_, bricks_y_, [this](size_t by) {
      const std::vector<View> bricks = Bricks(bricks_z_, [&](size_t bz) { return At(by, bz); });
      for (size_t y = 0; y < kBrick; ++y) Lines(bricks, y, kBrick, along_z_[0], filter_.data());
      for (size_t y = 0; y < kBrick; ++y) Lines(bricks, y, kBrick, along_z_[1]);
    });
    Planes(1);
  }

  Digest Result() override {
    return DigestOf(threads_, field_.count(), [this](size_t at, Digest* digest) {
      const auto brick = field_.read(at);
      digest->AddBlock(at, brick.data(), shape_.brick() * sizeof(Complex));
      ForRows(at, [&](size_t row, size_t first) {
        digest->AddValues<double>(2 * first, {reinterpret_cast<const double*>(brick.data() + row * shape_.nx), 2 * shape_.nx});
      });
    });
  }

 private:
  using View = typename Storage::template View<Complex>;

  size_t At(size_t brick_y, size_t brick_z) const { return brick_z * bricks_y_ + brick_y; }

  // visit(row of the brick, index of its first element in the field)
  template <typename Visit>
  void ForRows(size_t at, const Visit& visit) const {
    for (size_t row = 0; row < kBrick * kBrick; ++row) {
      const size_t z = at / bricks_y_ * kBrick + row / kBrick, y = at % bricks_y_ * kBrick + row % kBrick;
      visit(row, (z * shape_.ny + y) * shape_.nx);
    }
  }

  // Along x and y. Backward in the opposite order of planes, so that those begin that are still in memory.
  void Planes(size_t direction) {
    ForAll(threads_, bricks_z_, [&](size_t i) {
      const size_t bz = direction == 0 ? i : bricks_z_ - 1 - i;
      const std::vector<View> bricks = Bricks(bricks_y_, [&](size_t by) { return At(by, bz); });
      for (const View& brick : bricks) along_x_[direction].Run(brick.data());
      for (size_t z = 0; z < kBrick; ++z) Lines(bricks, z * kBrick, 1, along_y_[direction]);
    });
  }

  // All of them are on their way before the first one is waited for.
  template <typename Index>
  std::vector<View> Bricks(size_t count, const Index& index) {
    std::vector<View> bricks;
    bricks.reserve(count);
    for (size_t i = 0; i < count; ++i) field_.soon(index(i));
    for (size_t i = 0; i < count; ++i) bricks.push_back(field_.write(index(i)));
    return bricks;
  }

  // Transforms the lines that go through all `bricks`, each of which has the rows first, first + step, ... of them.
  void Lines(const std::vector<View>& bricks, size_t first, size_t step, const Plan& plan, const double* factors = nullptr) {
    const size_t n = bricks.size() * kBrick;
    const Buffer buffer = MakeBuffer(n * kLines);
    for (size_t x = 0; x < shape_.nx; x += kLines) {
      const auto place = [&](size_t i) { return bricks[i / kBrick].data() + (first + i % kBrick * step) * shape_.nx + x; };
      for (size_t i = 0; i < n; ++i) std::copy_n(place(i), kLines, buffer.get() + i * kLines);
      plan.Run(buffer.get());
      for (size_t i = 0; i < n; ++i) {
        const Complex* const from = buffer.get() + i * kLines;
        Complex* const to = place(i);
        const double factor = factors == nullptr ? 1 : factors[i];
        for (size_t k = 0; k < kLines; ++k) to[k] = from[k] * factor;
      }
    }
  }

  const int threads_;
  const GridShape shape_;
  const size_t bricks_y_, bricks_z_;
  const std::vector<double> filter_;
  std::vector<Plan> along_x_, along_y_, along_z_;  // forward, backward
  typename Storage::template Blocks<Complex> field_;
};

// FFTW's own three-dimensional transform, with its threads.
class FftByFftw : public Application {
 public:
  explicit FftByFftw(const AppOptions& o) : threads_(o.threads), shape_(GridOf(o)), field_(MakeBuffer(shape_.elements())) {
    fftw_init_threads();
    fftw_plan_with_nthreads(threads_);
    for (const int sign : {FFTW_FORWARD, FFTW_BACKWARD}) {
      plans_.emplace_back(fftw_plan_dft_3d(static_cast<int>(shape_.nz), static_cast<int>(shape_.ny), static_cast<int>(shape_.nx), ForFftw(field_.get()),
                                           ForFftw(field_.get()), sign, FFTW_ESTIMATE));
    }
  }
  void Prepare() override {
    ForAll(threads_, shape_.elements(), [this](size_t i) { field_.get()[i] = Signal(i); });
  }
  void Run() override {
    plans_[0].Run(field_.get());
    const std::vector<double> filter = Filter(shape_);
    ForAll(threads_, shape_.nz, [&](size_t z) {
      const size_t plane = shape_.nx * shape_.ny;
      for (size_t i = z * plane; i < (z + 1) * plane; ++i) field_.get()[i] *= filter[z];
    });
    plans_[1].Run(field_.get());
  }
  Digest Result() override {
    Digest digest;
    digest.AddValues<double>(0, {reinterpret_cast<const double*>(field_.get()), 2 * shape_.elements()});
    return digest;
  }

 private:
  const int threads_;
  const GridShape shape_;
  const Buffer field_;
  std::vector<Plan> plans_;
};

AppShape FftShape(const AppOptions& o) {
  const GridShape shape = GridOf(o);
  return {std::to_string(shape.nx) + " x " + std::to_string(shape.ny) + " x " + std::to_string(shape.nz) + " complex doubles, forward, filter, backward",
          shape.elements() * sizeof(Complex), std::max(shape.ny, shape.nz) / kBrick * shape.brick() * sizeof(Complex)};
}

}  // namespace

const AppKind kFft = {"fft", "3-D FFT with FFTW", "DLM, figure 4; URSL, figure 11", false, FftShape, MakeApp<Fft, InCore>, MakeApp<Fft, OutOfCore>,
                      [](const AppOptions& o) -> std::unique_ptr<Application> { return std::make_unique<FftByFftw>(o); }};

}  // namespace ramspan::bench
