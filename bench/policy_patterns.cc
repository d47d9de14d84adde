#include "bench/policy_patterns.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

namespace ramspan::bench {
namespace {

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;

// The numbers that std::mt19937_64 gives are the same everywhere; those of the distributions of <random> are not.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  double Share() { return static_cast<double>(random_() >> 11) * 0x1p-53; }  // 0 to 1

 private:
  std::mt19937_64 random_;
};

// The program's data, filled once by its first thread.
PolicyTrace Filled(uint32_t chunks, uint32_t threads = 1) {
  PolicyTrace trace;
  trace.threads = threads;
  for (uint32_t i = 0; i < chunks; ++i) trace.Touch(trace.Create(kChunkBytes), true);
  return trace;
}

// An iterative solver on one large array: each iteration changes all of it, from the beginning to the end.
PolicyTrace Sweep() {
  constexpr uint32_t kChunks = 1000, kSweeps = 20;
  PolicyTrace trace = Filled(kChunks);
  for (uint32_t sweep = 0; sweep < kSweeps; ++sweep) {
    for (uint32_t i = 0; i < kChunks; ++i) trace.Touch(i, true);
  }
  return trace;
}

// The same with boundary conditions: one access in fifty goes somewhere else first, one chunk in fifty is skipped.
PolicyTrace SweepDisturbed() {
  constexpr uint32_t kChunks = 1000, kSweeps = 20, kOneIn = 50;
  Dice dice(7);
  PolicyTrace trace = Filled(kChunks);
  for (uint32_t sweep = 0; sweep < kSweeps; ++sweep) {
    for (uint32_t i = 0; i < kChunks; ++i) {
      if (dice.Below(kOneIn) == 0) trace.Touch(dice.Below(kChunks));
      if (dice.Below(kOneIn) != 0) trace.Touch(i, true);
    }
  }
  return trace;
}

// Elimination and back substitution, or a time step and its adjoint: the array forwards, then backwards.
PolicyTrace ForwardBackward() {
  constexpr uint32_t kChunks = 1000, kSweeps = 20;
  PolicyTrace trace = Filled(kChunks);
  for (uint32_t sweep = 0; sweep < kSweeps; ++sweep) {
    for (uint32_t i = 0; i < kChunks; ++i) trace.Touch(sweep % 2 == 0 ? i : kChunks - 1 - i, true);
  }
  return trace;
}

// Three square matrices of blocks, a chunk each: C = A B.
struct Matrices {
  uint32_t side;
  uint32_t A(uint32_t i, uint32_t k) const { return i * side + k; }
  uint32_t B(uint32_t k, uint32_t j) const { return side * side + k * side + j; }
  uint32_t C(uint32_t i, uint32_t j) const { return 2 * side * side + i * side + j; }
  uint32_t blocks() const { return 3 * side * side; }
};

void MultiplyBlock(PolicyTrace* trace, const Matrices& m, uint32_t i, uint32_t j, uint32_t k, uint16_t thread = 0) {
  trace->Touch(m.A(i, k), false, thread);
  trace->Touch(m.B(k, j), false, thread);
  trace->Touch(m.C(i, j), true, thread);
}

// A matrix product by blocks, one block of C after the other: B column by column, a row of A again and again.
PolicyTrace MatMul() {
  constexpr Matrices kM{16};
  PolicyTrace trace = Filled(kM.blocks());
  for (uint32_t i = 0; i < kM.side; ++i) {
    for (uint32_t j = 0; j < kM.side; ++j) {
      for (uint32_t k = 0; k < kM.side; ++k) MultiplyBlock(&trace, kM, i, j, k);
    }
  }
  return trace;
}

// The same with the inner loops exchanged: B as it lies in memory, a row of C again and again.
PolicyTrace MatMulIkj() {
  constexpr Matrices kM{16};
  PolicyTrace trace = Filled(kM.blocks());
  for (uint32_t i = 0; i < kM.side; ++i) {
    for (uint32_t k = 0; k < kM.side; ++k) {
      for (uint32_t j = 0; j < kM.side; ++j) MultiplyBlock(&trace, kM, i, j, k);
    }
  }
  return trace;
}

// A square matrix in tiles, a chunk each, transposed in place by exchanging tile (i, j) with tile (j, i); eight times.
PolicyTrace TransposeTiles() {
  constexpr uint32_t kSide = 24, kTimes = 8;
  PolicyTrace trace = Filled(kSide * kSide);
  for (uint32_t time = 0; time < kTimes; ++time) {
    for (uint32_t i = 0; i < kSide; ++i) {
      for (uint32_t j = 0; j <= i; ++j) {
        trace.Touch(i * kSide + j, true);
        trace.Touch(j * kSide + i, true);
      }
    }
  }
  return trace;
}

// A square matrix in rows, a chunk each, transposed in place by the double loop of a textbook: a[i][j] with a[j][i].
PolicyTrace TransposeNaive() {
  constexpr uint32_t kRows = 300;
  PolicyTrace trace = Filled(kRows);
  for (uint32_t i = 0; i < kRows; ++i) {
    for (uint32_t j = 0; j < i; ++j) {
      trace.Touch(i, true);
      trace.Touch(j, true);
    }
  }
  return trace;
}

// A stencil on two grids in slabs (Jacobi): the new slab from the old one and its neighbours; then the grids change places.
PolicyTrace Stencil() {
  constexpr uint32_t kSlabs = 500, kSteps = 16;
  PolicyTrace trace = Filled(2 * kSlabs);
  for (uint32_t step = 0; step < kSteps; ++step) {
    const uint32_t from = step % 2 == 0 ? 0 : kSlabs, to = kSlabs - from;
    for (uint32_t i = 0; i < kSlabs; ++i) {
      if (i > 0) trace.Touch(from + i - 1);
      trace.Touch(from + i);
      if (i + 1 < kSlabs) trace.Touch(from + i + 1);
      trace.Touch(to + i, true);
    }
  }
  return trace;
}

// A three-dimensional FFT on pencils (z, y), a chunk each: along x and y in the order of memory, along z with a stride.
PolicyTrace Fft3d() {
  constexpr uint32_t kSide = 32, kTransforms = 8, kPasses = 2;
  PolicyTrace trace = Filled(kSide * kSide);
  for (uint32_t transform = 0; transform < kTransforms; ++transform) {
    for (uint32_t pass = 0; pass < kPasses; ++pass) {
      for (uint32_t i = 0; i < kSide * kSide; ++i) trace.Touch(i, true);
    }
    for (uint32_t y = 0; y < kSide; ++y) {
      for (uint32_t pass = 0; pass < kPasses; ++pass) {
        for (uint32_t z = 0; z < kSide; ++z) trace.Touch(z * kSide + y, true);
      }
    }
  }
  return trace;
}

// All pairs of particles in blocks: the forces on block i by all blocks j; then positions are moved by forces.
PolicyTrace NBody() {
  constexpr uint32_t kBlocks = 96, kSteps = 6;
  PolicyTrace trace = Filled(2 * kBlocks);  // positions, forces
  for (uint32_t step = 0; step < kSteps; ++step) {
    for (uint32_t i = 0; i < kBlocks; ++i) {
      for (uint32_t j = 0; j < kBlocks; ++j) {
        trace.Touch(kBlocks + i, true);
        trace.Touch(j);
      }
    }
    for (uint32_t i = 0; i < kBlocks; ++i) {
      trace.Touch(kBlocks + i);
      trace.Touch(i, true);
    }
  }
  return trace;
}

// A sum over the edges of a graph (page rank): the edges as a stream, which names vertices, some far more often than others, in the
// same order in each iteration; the results as a second, slower stream.
PolicyTrace Graph() {
  constexpr uint32_t kVertices = 200, kEdges = 600, kNamed = 12, kIterations = 16, kLikelyPercent = 35;
  Dice dice(11);
  std::vector<uint32_t> named;
  for (uint32_t i = 0; i < kEdges * kNamed; ++i) {
    uint32_t vertex = 0;  // each bit is more often 0: R-MAT's skew
    for (uint32_t bit = 128; bit > 0; bit /= 2) vertex += dice.Below(100) < kLikelyPercent ? bit : 0;
    named.push_back(vertex % kVertices);
  }
  PolicyTrace trace = Filled(2 * kVertices + kEdges);
  for (uint32_t iteration = 0; iteration < kIterations; ++iteration) {
    for (uint32_t edge = 0; edge < kEdges; ++edge) {
      trace.Touch(kVertices + edge);
      for (uint32_t i = 0; i < kNamed; ++i) trace.Touch(named[edge * kNamed + i]);
      trace.Touch(kVertices + kEdges + edge * kVertices / kEdges, true);
    }
  }
  return trace;
}

// A hash table, or a Monte Carlo method: any chunk, each as likely as all others.
PolicyTrace Random() {
  constexpr uint32_t kChunks = 1000, kTouches = 30'000;
  Dice dice(13);
  PolicyTrace trace = Filled(kChunks);
  for (uint32_t i = 0; i < kTouches; ++i) trace.Touch(dice.Below(kChunks), true);
  return trace;
}

// A store of keys, some of which are wanted far more often: the n-th with a probability in proportion to 1/n.
PolicyTrace Zipf() {
  constexpr uint32_t kChunks = 1000, kTouches = 30'000;
  Dice dice(17);
  std::vector<double> sums;
  for (uint32_t n = 1; n <= kChunks; ++n) sums.push_back((sums.empty() ? 0 : sums.back()) + 1.0 / n);
  std::vector<uint32_t> place(kChunks);
  std::iota(place.begin(), place.end(), 0u);
  for (uint32_t i = kChunks; i > 1; --i) std::swap(place[i - 1], place[dice.Below(i)]);
  PolicyTrace trace = Filled(kChunks);
  for (uint32_t i = 0; i < kTouches; ++i) {
    const auto n = std::upper_bound(sums.begin(), sums.end(), dice.Share() * sums.back()) - sums.begin();
    trace.Touch(place[static_cast<size_t>(std::min<ptrdiff_t>(n, kChunks - 1))], true);
  }
  return trace;
}

// An index that is walked at each access, and the data that it leads to: 150 chunks in turns, then any of 850.
PolicyTrace HotRandom() {
  constexpr uint32_t kHot = 150, kCold = 850, kTouches = 20'000;
  Dice dice(19);
  PolicyTrace trace = Filled(kHot + kCold);
  for (uint32_t i = 0; i < kTouches; ++i) {
    trace.Touch(i * 7 % kHot);
    trace.Touch(kHot + dice.Below(kCold), true);
  }
  return trace;
}

// A small table that is looked up at random beside a sweep over the data: equations of state, cross-sections.
PolicyTrace HotSweep() {
  constexpr uint32_t kHot = 100, kCold = 900, kTouches = 20'000;
  Dice dice(23);
  PolicyTrace trace = Filled(kHot + kCold);
  for (uint32_t i = 0; i < kTouches; ++i) {
    trace.Touch(dice.Below(kHot));
    trace.Touch(kHot + i % kCold, true);
  }
  return trace;
}

// A program of several parts: sweeps over one half of the data, then over the other one, then backwards over the first, then random access.
PolicyTrace Phases() {
  constexpr uint32_t kHalf = 600, kSweeps = 8, kRandom = 3000;
  Dice dice(29);
  PolicyTrace trace = Filled(2 * kHalf);
  for (uint32_t i = 0; i < kSweeps * kHalf; ++i) trace.Touch(i % kHalf, true);
  for (uint32_t i = 0; i < kSweeps * kHalf; ++i) trace.Touch(kHalf + i % kHalf, true);
  for (uint32_t i = 0; i < kSweeps * kHalf; ++i) trace.Touch(kHalf - 1 - i % kHalf, true);
  for (uint32_t i = 0; i < kRandom; ++i) trace.Touch(dice.Below(2 * kHalf), true);
  return trace;
}

// Gives the threads their turns: some of them are faster than others for a while. `step(thread)` does one piece of work of a thread;
// false: it had none left. All are done when this returns, as behind a barrier.
template <typename Step>
void Interleave(uint16_t threads, Dice* dice, const Step& step) {
  std::vector<uint16_t> running(threads);
  std::iota(running.begin(), running.end(), uint16_t{0});
  while (!running.empty()) {
    const uint32_t turn = dice->Below(static_cast<uint32_t>(running.size()));
    if (!step(running[turn])) running.erase(running.begin() + turn);
  }
}

// `#pragma omp parallel for` over one array: four threads sweep at the same time, each over its own part.
PolicyTrace OmpSweep() {
  constexpr uint32_t kPart = 250, kSweeps = 20;
  constexpr uint16_t kThreads = 4;
  Dice dice(31);
  PolicyTrace trace = Filled(kThreads * kPart, kThreads);
  for (uint32_t sweep = 0; sweep < kSweeps; ++sweep) {
    uint32_t done[kThreads] = {};
    Interleave(kThreads, &dice, [&](uint16_t thread) {
      if (done[thread] == kPart) return false;
      trace.Touch(thread * kPart + done[thread]++, true, thread);
      return true;
    });
  }
  return trace;
}

// The product of matrices with four threads, each of which has its own rows of C.
PolicyTrace OmpMatMul() {
  constexpr Matrices kM{16};
  constexpr uint16_t kThreads = 4;
  constexpr uint32_t kWork = kM.side / kThreads * kM.side * kM.side;
  Dice dice(37);
  PolicyTrace trace = Filled(kM.blocks(), kThreads);
  uint32_t done[kThreads] = {};
  Interleave(kThreads, &dice, [&](uint16_t thread) {
    if (done[thread] == kWork) return false;
    const uint32_t n = thread * kWork + done[thread]++;
    MultiplyBlock(&trace, kM, n / (kM.side * kM.side), n / kM.side % kM.side, n % kM.side, thread);
    return true;
  });
  return trace;
}

// How near to MIN: a tenth for what repeats exactly, a quarter where several orders mix; LRU is what nothing beats without knowledge.
constexpr PolicyTarget kExact{.of_min = 1.10}, kMixed{.of_min = 1.25}, kUnknowable{.of_lru = 1.05}, kNone{};

constexpr PolicyPattern kPatterns[] = {
    {"sweep", "20 sweeps over an array", kExact, Sweep},
    {"sweep-disturbed", "the same, one access in 50 elsewhere", kNone, SweepDisturbed},
    {"forward-backward", "sweeps forwards and backwards in turns", kExact, ForwardBackward},
    {"matmul", "matrix product by blocks, loops ijk", kExact, MatMul},
    {"matmul-ikj", "matrix product by blocks, loops ikj", kExact, MatMulIkj},
    {"transpose-tiles", "transposition in place by tiles", kExact, TransposeTiles},
    {"transpose-naive", "transposition in place, a chunk a row", kExact, TransposeNaive},
    {"stencil", "Jacobi steps between two grids", kMixed, Stencil},
    {"fft3d", "passes along x, y and, with a stride, z", kMixed, Fft3d},
    {"nbody", "all pairs of blocks of particles", kMixed, NBody},
    {"graph", "edges as a stream, vertices by a skewed choice", kMixed, Graph},
    {"random", "any chunk", kUnknowable, Random},
    {"zipf", "any chunk, the n-th with 1/n", kUnknowable, Zipf},
    {"hot-random", "150 chunks in turns, 850 at random", kNone, HotRandom},
    {"hot-sweep", "100 chunks at random, a sweep over 900", kNone, HotSweep},
    {"phases", "sweeps of three parts, then random access", kNone, Phases},
    {"omp-sweep", "four threads sweep over a part each", kNone, OmpSweep},
    {"omp-matmul", "matrix product, four threads with rows each", kNone, OmpMatMul},
};

}  // namespace

std::span<const PolicyPattern> PolicyPatterns() { return kPatterns; }

}  // namespace ramspan::bench
