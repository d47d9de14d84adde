// One step of n gravitating bodies by Barnes and Hut's method (URSL, figure 12): who is far away is taken together. Bodies are made in the
// order of a space-filling curve (Morton's), and the tree is laid over that order: a leaf has 16 bodies, a node of each further level eight
// of the one below, so a level is an array and siblings are in one block. 32 neighbours walk the tree together: they collect what pulls at
// them, and then sum it up in vectors.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "bench/apps/application.h"
#include "bench/apps/storage.h"
#include "bench/apps/vectors.h"

namespace ramspan::bench {
namespace {

constexpr size_t kLeaf = 16;        // bodies
constexpr size_t kChildren = 8;     // nodes
constexpr size_t kTogether = 32;    // bodies that walk together
constexpr size_t kBodyBlock = 1024;  // bodies: 64 KiB; leaves do not cross blocks
constexpr size_t kNodeBlock = 1024;  // nodes: 64 KiB
constexpr double kOpening = 1;       // a node is taken as one from size / opening on; as Barnes has it
constexpr double kSoftening = 1e-6, kStep = 1e-6;

struct Body {
  double x[3], mass, v[3], unused;
};
struct Node {
  double centre[3], mass;  // of mass
  double low[3], high_x, high_y, high_z;
  double size() const { return std::max({high_x - low[0], high_y - low[1], high_z - low[2]}); }
};
struct Pull {
  double a[3];
};

// What pulls at some bodies, side by side by coordinates.
struct Pulls {
  std::vector<double> x, y, z, mass;
  void Clear() {
    for (std::vector<double>* values : {&x, &y, &z, &mass}) values->clear();
  }
  void Add(const double* at, double m) {
    x.push_back(at[0]);
    y.push_back(at[1]);
    z.push_back(at[2]);
    mass.push_back(m);
  }
};

__attribute__((always_inline)) inline void SumPullsBody(const Pulls& pulls, const Body& body, Pull* sum) {
  const double *const x = pulls.x.data(), *const y = pulls.y.data(), *const z = pulls.z.data(), *const mass = pulls.mass.data();
  double ax = 0, ay = 0, az = 0;
#pragma omp simd reduction(+ : ax, ay, az)
  for (size_t i = 0; i < pulls.x.size(); ++i) {
    const double dx = x[i] - body.x[0], dy = y[i] - body.x[1], dz = z[i] - body.x[2];
    const double square = dx * dx + dy * dy + dz * dz + kSoftening;
    const double factor = mass[i] / (square * std::sqrt(square));
    ax += factor * dx;
    ay += factor * dy;
    az += factor * dz;
  }
  *sum = {{ax, ay, az}};
}

RAMSPAN_BENCH_VECTORS(SumPulls, SumPullsBody, (const Pulls& pulls, const Body& body, Pull* sum), (pulls, body, sum))

size_t BodyCount(const AppOptions& o) {
  // As many as the cells of a cube of 2^k along each edge, with kLeaf bodies each, let there be.
  const uint64_t data = o.full ? (sizeof(Body) + sizeof(Pull) + 6) << 22 : o.data != 0 ? o.data : uint64_t{24} << 20;
  return std::max<size_t>(8, data / (sizeof(Body) + sizeof(Pull) + 6) / kBodyBlock) * kBodyBlock;
}

// The i-th of n: in the cell of the curve that is its leaf's, closer together near one corner.
Body BodyAt(size_t i, size_t n) {
  Body body{};
  const size_t leaves = n / kLeaf;
  int levels = 1;
  while ((size_t{1} << 3 * levels) < leaves) ++levels;
  const size_t cell = static_cast<size_t>(static_cast<double>(i / kLeaf) / static_cast<double>(leaves) * static_cast<double>(size_t{1} << 3 * levels));
  for (int d = 0; d < 3; ++d) {
    size_t place = 0;
    for (int level = 0; level < levels; ++level) place |= (cell >> (3 * level + d) & 1) << level;
    const double at = (static_cast<double>(place) + Uniform(3 * i + static_cast<size_t>(d))) / static_cast<double>(size_t{1} << levels);
    body.x[d] = at * std::sqrt(at);
    body.v[d] = Uniform(3 * (n + i) + static_cast<size_t>(d)) - 0.5;
  }
  body.mass = 1 / static_cast<double>(n);
  return body;
}

template <typename Storage>
class BarnesHut : public Application {
  template <typename T>
  using Blocks = typename Storage::template Blocks<T>;
  template <typename T>
  using View = typename Storage::template View<T>;

 public:
  explicit BarnesHut(const AppOptions& o) : threads_(o.threads), n_(BodyCount(o)), bodies_(n_ / kBodyBlock, kBodyBlock), pulls_(n_ / kBodyBlock, kBodyBlock) {
    for (size_t nodes = n_ / kLeaf;; nodes = (nodes + kChildren - 1) / kChildren) {
      counts_.push_back(nodes);
      levels_.emplace_back((nodes + kNodeBlock - 1) / kNodeBlock, std::min(kNodeBlock, nodes));
      if (nodes == 1) break;
    }
    ForAll(threads_, bodies_.count(), [this](size_t b) {
      const auto bodies = bodies_.write(b);
      for (size_t i = 0; i < kBodyBlock; ++i) bodies.data()[i] = BodyAt(b * kBodyBlock + i, n_);
    });
  }

  void Run() override {
    BuildLeaves();
    for (size_t level = 1; level < levels_.size(); ++level) BuildLevel(level);
    ForAll(threads_, bodies_.count(), [this](size_t b) {
      Walk walk;
      const auto pulls = pulls_.fresh(b);
      const auto bodies = std::as_const(bodies_).read(b);
      for (size_t i = 0; i < kBodyBlock; i += kTogether) PullAt(bodies.data() + i, pulls.data() + i, &walk);
    });
    ForAll(threads_, bodies_.count(), [this](size_t b) {
      const auto bodies = bodies_.write(b);
      const auto pulls = std::as_const(pulls_).read(b);
      for (size_t i = 0; i < kBodyBlock; ++i) {
        Body& body = bodies.data()[i];
        for (int d = 0; d < 3; ++d) {
          body.v[d] += kStep * pulls.data()[i].a[d];
          body.x[d] += kStep * body.v[d];
        }
      }
    });
  }

  Digest Result() override {
    return DigestOf(threads_, bodies_.count(), [this](size_t b, Digest* digest) {
      const auto pulls = std::as_const(pulls_).read(b);
      const auto bodies = std::as_const(bodies_).read(b);
      digest->AddBlock(2 * b, bodies.data(), kBodyBlock * sizeof(Body));
      digest->AddBlock(2 * b + 1, pulls.data(), kBodyBlock * sizeof(Pull));
    });
  }

 private:
  // A box around some bodies or nodes, and their common centre.
  class Sum {
   public:
    void Add(const double* centre, double mass, const double* low, const double* high) {
      for (int d = 0; d < 3; ++d) {
        moment_[d] += mass * centre[d];
        low_[d] = std::min(low_[d], low[d]);
        high_[d] = std::max(high_[d], high[d]);
      }
      mass_ += mass;
    }
    Node Get() const {
      return {{moment_[0] / mass_, moment_[1] / mass_, moment_[2] / mass_}, mass_, {low_[0], low_[1], low_[2]}, high_[0], high_[1], high_[2]};
    }
    const double* low() const { return low_; }
    const double* high() const { return high_; }

   private:
    double moment_[3] = {}, mass_ = 0, low_[3] = {HUGE_VAL, HUGE_VAL, HUGE_VAL}, high_[3] = {-HUGE_VAL, -HUGE_VAL, -HUGE_VAL};
  };
  static Sum SumOf(const Body* bodies, size_t count) {
    Sum sum;
    for (size_t i = 0; i < count; ++i) sum.Add(bodies[i].x, bodies[i].mass, bodies[i].x, bodies[i].x);
    return sum;
  }

  void BuildLeaves() {
    ForAll(threads_, levels_[0].count(), [this](size_t b) {
      const auto nodes = levels_[0].fresh(b);
      const size_t first = b * kNodeBlock, end = std::min(first + kNodeBlock, counts_[0]);
      constexpr size_t kLeavesOfBlock = kBodyBlock / kLeaf;
      for (size_t leaf = first; leaf < end; leaf += kLeavesOfBlock) {
        const auto bodies = std::as_const(bodies_).read(leaf / kLeavesOfBlock);
        for (size_t i = 0; i < kLeavesOfBlock; ++i) nodes.data()[leaf - first + i] = SumOf(bodies.data() + i * kLeaf, kLeaf).Get();
      }
    });
  }

  void BuildLevel(size_t level) {
    ForAll(threads_, levels_[level].count(), [&](size_t b) {
      const auto nodes = levels_[level].fresh(b);
      const size_t first = b * kNodeBlock, end = std::min(first + kNodeBlock, counts_[level]);
      for (size_t i = first; i < end; ++i) {
        const size_t child = i * kChildren, children = std::min(kChildren, counts_[level - 1] - child);
        const auto below = std::as_const(levels_[level - 1]).read(child / kNodeBlock);
        Sum sum;
        for (size_t c = 0; c < children; ++c) {
          const Node& node = below.data()[child % kNodeBlock + c];
          const double high[3] = {node.high_x, node.high_y, node.high_z};
          sum.Add(node.centre, node.mass, node.low, high);
        }
        nodes.data()[i - first] = sum.Get();
      }
    });
  }

  struct Walk {
    Pulls pulls;
    std::vector<std::pair<size_t, size_t>> open;  // level, first of some siblings
  };

  void PullAt(const Body* bodies, Pull* sums, Walk* walk) {
    const Sum box = SumOf(bodies, kTogether);
    walk->pulls.Clear();
    walk->open.assign({{levels_.size() - 1, 0}});
    while (!walk->open.empty()) {
      const auto [level, first] = walk->open.back();
      walk->open.pop_back();
      const auto nodes = std::as_const(levels_[level]).read(first / kNodeBlock);
      const size_t count = std::min(kChildren, counts_[level] - first);
      for (size_t i = 0; i < count; ++i) {
        const Node& node = nodes.data()[first % kNodeBlock + i];
        if (IsFar(box, node)) {
          walk->pulls.Add(node.centre, node.mass);
        } else if (level > 0) {
          walk->open.emplace_back(level - 1, (first + i) * kChildren);
        } else {
          AddLeaf(first + i, &walk->pulls);
        }
      }
    }
    for (size_t i = 0; i < kTogether; ++i) SumPulls(walk->pulls, bodies[i], &sums[i]);
  }

  // From each place in the box.
  static bool IsFar(const Sum& box, const Node& node) {
    double square = 0;
    for (int d = 0; d < 3; ++d) {
      const double away = std::max({box.low()[d] - node.centre[d], node.centre[d] - box.high()[d], 0.0});
      square += away * away;
    }
    return node.size() * node.size() < kOpening * kOpening * square;
  }

  void AddLeaf(size_t leaf, Pulls* pulls) {
    const auto bodies = std::as_const(bodies_).read(leaf * kLeaf / kBodyBlock);
    for (size_t i = 0; i < kLeaf; ++i) {
      const Body& body = bodies.data()[leaf * kLeaf % kBodyBlock + i];
      pulls->Add(body.x, body.mass);
    }
  }

  const int threads_;
  const size_t n_;
  Blocks<Body> bodies_;
  Blocks<Pull> pulls_;
  std::vector<Blocks<Node>> levels_;  // leaves first
  std::vector<size_t> counts_;        // nodes of each
};

AppShape BodiesShape(const AppOptions& o) {
  const size_t n = BodyCount(o);
  uint64_t nodes = 0;
  for (size_t level = n / kLeaf; level > 1; level = (level + kChildren - 1) / kChildren) nodes += level;
  // While its children are looked at a node's block is held, and a leaf's bodies.
  return {std::to_string(n) + " bodies, opening angle 1, one step", n * (sizeof(Body) + sizeof(Pull)) + (nodes + 1) * sizeof(Node),
          2 * kBodyBlock * sizeof(Body) + kBodyBlock * sizeof(Pull) + kNodeBlock * sizeof(Node)};
}

}  // namespace

const AppKind kBarnesHut = {"nbody", "Barnes-Hut n-body", "URSL, figure 12: 4194304 bodies", false, BodiesShape, MakeApp<BarnesHut, InCore>, MakeApp<BarnesHut, OutOfCore>, nullptr};

}  // namespace ramspan::bench
