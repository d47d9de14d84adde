// A 15 x 15 mask over a square field of floats, step after step (DLM, figure 5: 8192 x 8192). Saved in bands of 16 rows; a thread holds the
// band that it computes and three of the step before. What is outside of the field is zero. A step before the last one is dropped as a whole.
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

constexpr size_t kMask = 15, kReach = kMask / 2;
constexpr size_t kBandRows = 16;
constexpr size_t kPad = 8;          // zeros at both ends of a row, so that columns need no exception
constexpr size_t kFloatsAtOnce = 64;
constexpr int kStencilSteps = 2;

struct FieldShape {
  size_t n;       // rows and columns
  size_t stride;  // floats from row to row
  size_t bands() const { return n / kBandRows; }
};

FieldShape FieldOf(const AppOptions& o) {
  size_t n = 8192;
  if (!o.full) {
    const double floats = static_cast<double>(o.data != 0 ? o.data : uint64_t{128} << 20) / (2 * sizeof(float));
    n = std::max<size_t>(2, static_cast<size_t>(std::sqrt(floats)) / kFloatsAtOnce) * kFloatsAtOnce;
  }
  return {n, n + 2 * kPad};
}

using MaskRows = std::array<const float*, kMask>;

// One row of the next step. `rows`: those of the step before that the mask covers, at the first column of the field.
__attribute__((always_inline)) inline void MaskRowBody(const float* mask, const MaskRows& rows, float* out, size_t n) {
  constexpr size_t kPack = 16, kPacks = kFloatsAtOnce / kPack;
  for (size_t x = 0; x < n; x += kFloatsAtOnce) {
    Floats sum[kPacks] = {};
    for (size_t dy = 0; dy < kMask; ++dy) {
      const float* from = rows[dy] + x - kReach;
      for (size_t dx = 0; dx < kMask; ++dx) {
        const float weight = mask[dy * kMask + dx];
#pragma GCC unroll 4
        for (size_t p = 0; p < kPacks; ++p) sum[p] += weight * *reinterpret_cast<const Floats*>(from + dx + p * kPack);
      }
    }
    for (size_t p = 0; p < kPacks; ++p) *reinterpret_cast<Floats*>(out + x + p * kPack) = sum[p];
  }
}

RAMSPAN_BENCH_VECTORS(MaskRow, MaskRowBody, (const float* mask, const MaskRows& rows, float* out, size_t n), (mask, rows, out, n))

// Plain loops that the compiler turns into vectors by itself, over the whole field.
__attribute__((always_inline)) inline void MaskRowPlainBody(const float* mask, const MaskRows& rows, float* out, size_t n) {
  std::fill(out, out + n, 0.0f);
  for (size_t dy = 0; dy < kMask; ++dy) {
    for (size_t dx = 0; dx < kMask; ++dx) {
      const float weight = mask[dy * kMask + dx];
      const float* from = rows[dy] + dx - kReach;
      for (size_t x = 0; x < n; ++x) out[x] += weight * from[x];
    }
  }
}

RAMSPAN_BENCH_VECTORS(MaskRowPlain, MaskRowPlainBody, (const float* mask, const MaskRows& rows, float* out, size_t n), (mask, rows, out, n))

// A blur whose weights add up to one, none like its neighbour.
std::vector<float> Mask() {
  std::vector<float> mask(kMask * kMask);
  double sum = 0;
  for (size_t i = 0; i < mask.size(); ++i) sum += Uniform(i) + 0.1;
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = static_cast<float>((Uniform(i) + 0.1) / sum);
  return mask;
}

void FillRow(const FieldShape& shape, size_t y, float* row) {
  std::fill(row, row + shape.stride, 0.0f);
  for (size_t x = 0; x < shape.n; ++x) row[kPad + x] = static_cast<float>(Uniform(y * shape.n + x));
}

template <typename Storage>
class Stencil : public Application {
  using Field = typename Storage::template Blocks<float>;

 public:
  explicit Stencil(const AppOptions& o)
      : threads_(o.threads), shape_(FieldOf(o)), slab_(shape_.bands(), o), mask_(Mask()), zeros_(shape_.stride), now_(slab_.count() + 2, kBandRows * shape_.stride),
        next_(slab_.count() + 2, kBandRows * shape_.stride) {
    ForAll(threads_, slab_.count(), [this](size_t i) {
      const auto band = now_.write(i + 1);
      for (size_t r = 0; r < kBandRows; ++r) FillRow(shape_, (slab_.first + i) * kBandRows + r, band.data() + r * shape_.stride);
    });
  }

  void Run() override {
    for (int step = 0; step < kStencilSteps; ++step) {
      ExchangeGhosts(slab_, &now_);
      ForAll(threads_, slab_.count(), [this](size_t i) { ComputeBand(i + 1); });
      std::swap(now_, next_);
      DropAll(&next_);
    }
  }

  Digest Result() override {
    return DigestOf(threads_, slab_.count(), [this](size_t i, Digest* digest) {
      const auto band = now_.read(i + 1);
      digest->AddBlock(slab_.first + i, band.data(), kBandRows * shape_.stride * sizeof(float));
      for (size_t r = 0; r < kBandRows; ++r) {
        digest->AddValues<float>(((slab_.first + i) * kBandRows + r) * shape_.n, {band.data() + r * shape_.stride + kPad, shape_.n});
      }
    });
  }

 private:
  void ComputeBand(size_t block) {
    const bool has_below = slab_.has_below(block), has_above = slab_.has_above(block);
    const auto& now = std::as_const(now_);
    const auto here = now.read(block), below = now.read(has_below ? block - 1 : block), above = now.read(has_above ? block + 1 : block);
    const auto out = next_.fresh(block);
    for (size_t r = 0; r < kBandRows; ++r) {
      MaskRows rows;
      for (size_t dy = 0; dy < kMask; ++dy) {
        const size_t at = kBandRows + r + dy - kReach;  // counted from the first row of the band below
        const bool outside = (at < kBandRows && !has_below) || (at >= 2 * kBandRows && !has_above);
        const float* const band = at < kBandRows ? below.data() : at < 2 * kBandRows ? here.data() : above.data();
        rows[dy] = (outside ? zeros_.data() : band + at % kBandRows * shape_.stride) + kPad;
      }
      float* const row = out.data() + r * shape_.stride;
      std::fill_n(row, kPad, 0.0f);
      MaskRow(mask_.data(), rows, row + kPad, shape_.n);
      std::fill_n(row + kPad + shape_.n, kPad, 0.0f);
    }
  }

  const int threads_;
  const FieldShape shape_;
  const Slab slab_;
  const std::vector<float> mask_, zeros_;
  Field now_, next_;
};

class StencilByLoops : public Application {
 public:
  explicit StencilByLoops(const AppOptions& o)
      : threads_(o.threads), shape_(FieldOf(o)), mask_(Mask()), now_((shape_.n + 2 * kReach) * shape_.stride), next_(now_.size()) {
    ForAll(threads_, shape_.n, [this](size_t y) { FillRow(shape_, y, &now_[(y + kReach) * shape_.stride]); });
  }
  void Run() override {
    for (int step = 0; step < kStencilSteps; ++step) {
      ForAll(threads_, shape_.n, [this](size_t y) {
        MaskRows rows;
        for (size_t dy = 0; dy < kMask; ++dy) rows[dy] = &now_[(y + dy) * shape_.stride + kPad];
        MaskRowPlain(mask_.data(), rows, &next_[(y + kReach) * shape_.stride + kPad], shape_.n);
      });
      now_.swap(next_);
    }
  }
  Digest Result() override {
    Digest digest;
    for (size_t y = 0; y < shape_.n; ++y) digest.AddValues<float>(y * shape_.n, {&now_[(y + kReach) * shape_.stride + kPad], shape_.n});
    return digest;
  }

 private:
  const int threads_;
  const FieldShape shape_;
  const std::vector<float> mask_;
  std::vector<float> now_, next_;
};

AppShape StencilShape(const AppOptions& o) {
  const FieldShape shape = FieldOf(o);
  const uint64_t band = kBandRows * shape.stride * sizeof(float);
  return {std::to_string(shape.n) + " x " + std::to_string(shape.n) + " floats, bands of 16 rows, " + std::to_string(kStencilSteps) + " steps",
          2 * shape.bands() * band, 4 * band};
}

}  // namespace

const AppKind kStencil = {"stencil", "15 x 15 mask over a square field", "DLM, figure 5: 8192 x 8192", true, StencilShape,
                          MakeApp<Stencil, InCore>, MakeApp<Stencil, OutOfCore>,
                          [](const AppOptions& o) -> std::unique_ptr<Application> { return std::make_unique<StencilByLoops>(o); }};

}  // namespace ramspan::bench
