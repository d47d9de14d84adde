// PageRank on a random graph (R-MAT: a few vertices have most of the edges). Vertices are in blocks; edges in tiles, a tile having those
// from one block of vertices to another, so that a thread that goes through one needs the ranks of two blocks only. It holds the sums of a
// block of vertices, the contributions of another one and a part of the tile between them.
#include <algorithm>
#include <utility>
#include <vector>

#include "bench/apps/application.h"
#include "bench/apps/storage.h"

namespace ramspan::bench {
namespace {

constexpr size_t kTilePart = 65536;                                        // edges: 256 KiB
constexpr size_t kEdgesOfVertex = 16;
constexpr int kIterations = 5;
constexpr double kDamping = 0.85;

// Within a tile.
struct Edge {
  uint16_t from, to;
};

// Vertices of a block: 128 KiB of ranks; of large graphs 512 KiB, as many as Edge has numbers for, so that tiles do not become too small.
size_t VerticesOfBlock(int bits) { return size_t{1} << (bits <= 20 ? 14 : 16); }

// Three doubles and sixteen edges a vertex.
int GraphBits(const AppOptions& o) {
  if (o.full) return 24;
  const uint64_t data = o.data != 0 ? o.data : uint64_t{64} << 20;
  int bits = 15;
  while ((kEdgesOfVertex * sizeof(Edge) + 3 * sizeof(double)) << (bits + 1) <= data) ++bits;
  return bits;
}

// Edge number i, its vertices' numbers mixed, so that those with many edges are anywhere.
std::pair<uint32_t, uint32_t> EdgeOf(int bits, uint64_t i) {
  uint64_t random = Digest::Mixed(i);
  uint32_t from = 0, to = 0;
  for (int bit = 0; bit < bits; ++bit) {
    if (bit % 4 == 0 && bit > 0) random = Digest::Mixed(random);
    const uint64_t part = random >> 16 * (bit % 4) & 0xffff;  // probabilities 0.57, 0.19, 0.19, 0.05
    from = 2 * from + (part >= 49807);
    to = 2 * to + ((part >= 37356 && part < 49807) || part >= 62259);
  }
  const uint32_t mask = (uint32_t{1} << bits) - 1;
  const auto mixed = [&](uint32_t v) {
    v = v * 0x9e3779b1u & mask;
    return (v ^ v >> bits / 2) * 0x85ebca6bu & mask;
  };
  return {mixed(from), mixed(to)};
}

template <typename Storage>
class PageRank : public Application {
  template <typename T>
  using Blocks = typename Storage::template Blocks<T>;

 public:
  explicit PageRank(const AppOptions& o)
      : threads_(o.threads), bits_(GraphBits(o)), edges_count_(kEdgesOfVertex << bits_), vertices_(VerticesOfBlock(bits_)), blocks_((size_t{1} << bits_) / vertices_),
        rank_(blocks_, vertices_), contribution_(blocks_, vertices_), degree_(blocks_, vertices_) {
    CountTiles();
    FillTiles();
    CountDegrees();
  }

  void Prepare() override {
    ForAll(threads_, blocks_, [this](size_t b) {
      const auto rank = rank_.fresh(b);
      std::fill_n(rank.data(), vertices_, 1 / static_cast<double>(blocks_ * vertices_));
    });
  }

  void Run() override {
    for (int i = 0; i < kIterations; ++i) {
      const double dangling = Contribute();
      ForAll(threads_, blocks_, [&](size_t to) { Collect(to, dangling); });
    }
  }

  Digest Result() override {
    return DigestOf(threads_, blocks_, [this](size_t b, Digest* digest) {
      const auto rank = std::as_const(rank_).read(b);
      digest->AddBlock(b, rank.data(), vertices_ * sizeof(double));
      digest->template AddValues<double>(b * vertices_, {rank.data(), vertices_});
    });
  }

 private:
  size_t TileOf(uint32_t from, uint32_t to) const { return to / vertices_ * blocks_ + from / vertices_; }

  void CountTiles() {
    std::vector<size_t> counts(blocks_ * blocks_);
    for (size_t i = 0; i < edges_count_; ++i) {
      const auto [from, to] = EdgeOf(bits_, i);
      ++counts[TileOf(from, to)];
    }
    std::vector<size_t> lengths;
    for (size_t& count : counts) {
      first_part_.push_back(lengths.size());
      for (; count > 0; count -= lengths.back()) lengths.push_back(std::min(count, kTilePart));
    }
    first_part_.push_back(lengths.size());
    edges_ = Blocks<Edge>(lengths);
  }

  // Edges are kept until there are some for a tile, and in their order, so that sums have one.
  void FillTiles() {
    constexpr size_t kKept = 64;
    std::vector<std::vector<Edge>> kept(blocks_ * blocks_);
    std::vector<size_t> filled(blocks_ * blocks_);
    const auto flush = [&](size_t tile) {
      for (size_t done = 0; done < kept[tile].size();) {
        const size_t part = first_part_[tile] + filled[tile] / kTilePart, at = filled[tile] % kTilePart;
        const size_t count = std::min(kept[tile].size() - done, kTilePart - at);
        const auto edges = edges_.write(part);
        std::copy_n(kept[tile].begin() + static_cast<std::ptrdiff_t>(done), count, edges.data() + at);
        filled[tile] += count;
        done += count;
      }
      kept[tile].clear();
    };
    for (size_t i = 0; i < edges_count_; ++i) {
      const auto [from, to] = EdgeOf(bits_, i);
      const size_t tile = TileOf(from, to);
      kept[tile].push_back({static_cast<uint16_t>(from % vertices_), static_cast<uint16_t>(to % vertices_)});
      if (kept[tile].size() == kKept) flush(tile);
    }
    for (size_t tile = 0; tile < kept.size(); ++tile) flush(tile);
  }

  void CountDegrees() {
    ForAll(threads_, blocks_, [this](size_t from) {
      const auto degree = degree_.fresh(from);
      std::fill_n(degree.data(), vertices_, 0.0);
      for (size_t to = 0; to < blocks_; ++to) {
        const size_t tile = to * blocks_ + from;
        for (size_t part = first_part_[tile]; part < first_part_[tile + 1]; ++part) {
          const auto edges = std::as_const(edges_).read(part);
          for (size_t e = 0; e < edges_.length(part); ++e) ++degree.data()[edges.data()[e].from];
        }
      }
    });
  }

  // What each vertex gives to each of its edges. Returns what those without edges have.
  double Contribute() {
    std::vector<double> dangling(blocks_);  // added up in their order
    ForAll(threads_, blocks_, [&](size_t b) {
      const auto rank = std::as_const(rank_).read(b), degree = std::as_const(degree_).read(b);
      const auto contribution = contribution_.fresh(b);
      double none = 0;
      for (size_t v = 0; v < vertices_; ++v) {
        const double d = degree.data()[v];
        contribution.data()[v] = d > 0 ? rank.data()[v] / d : 0;
        if (d == 0) none += rank.data()[v];
      }
      dangling[b] = none;
    });
    double all = 0;
    for (const double one : dangling) all += one;
    return all;
  }

  void Collect(size_t to, double dangling) {
    const auto sums = rank_.fresh(to);
    double* const sum = sums.data();
    std::fill_n(sum, vertices_, 0.0);
    for (size_t from = 0; from < blocks_; ++from) {
      const auto contributions = std::as_const(contribution_).read(from);
      const double* const contribution = contributions.data();
      const size_t tile = to * blocks_ + from;
      for (size_t part = first_part_[tile]; part < first_part_[tile + 1]; ++part) {
        if (part + 1 < first_part_[tile + 1]) edges_.soon(part + 1);
        const auto edges = std::as_const(edges_).read(part);
        const Edge *edge = edges.data(), *const end = edge + edges_.length(part);
        for (; edge != end; ++edge) sum[edge->to] += contribution[edge->from];
      }
    }
    const auto all = static_cast<double>(blocks_ * vertices_);
    for (size_t v = 0; v < vertices_; ++v) sum[v] = (1 - kDamping) / all + kDamping * (sum[v] + dangling / all);
  }

  const int threads_;
  const int bits_;
  const size_t edges_count_, vertices_, blocks_;
  Blocks<double> rank_, contribution_, degree_;
  std::vector<size_t> first_part_;  // by tile
  Blocks<Edge> edges_;
};

// The edges into a vertex side by side, saved by vertices.
class PageRankByRows : public Application {
 public:
  explicit PageRankByRows(const AppOptions& o)
      : threads_(o.threads), bits_(GraphBits(o)), n_(size_t{1} << bits_), begin_(n_ + 1), from_(kEdgesOfVertex * n_), degree_(n_), rank_(n_), contribution_(n_) {
    for (size_t i = 0; i < from_.size(); ++i) {
      const auto [from, to] = EdgeOf(bits_, i);
      ++degree_[from];
      ++begin_[to + 1];
    }
    for (size_t v = 0; v < n_; ++v) begin_[v + 1] += begin_[v];
    std::vector<size_t> at(begin_.begin(), begin_.end() - 1);
    for (size_t i = 0; i < from_.size(); ++i) {
      const auto [from, to] = EdgeOf(bits_, i);
      from_[at[to]++] = from;
    }
  }
  void Prepare() override { std::fill(rank_.begin(), rank_.end(), 1 / static_cast<double>(n_)); }
  void Run() override {
    const auto n = static_cast<double>(n_);
    const size_t parts = 64;
    for (int i = 0; i < kIterations; ++i) {
      double dangling = 0;
      for (size_t v = 0; v < n_; ++v) {
        contribution_[v] = degree_[v] > 0 ? rank_[v] / degree_[v] : 0;
        if (degree_[v] == 0) dangling += rank_[v];
      }
      ForAll(threads_, parts, [&](size_t part) {
        for (size_t v = n_ * part / parts; v < n_ * (part + 1) / parts; ++v) {
          double sum = 0;
          for (size_t e = begin_[v]; e < begin_[v + 1]; ++e) sum += contribution_[from_[e]];
          rank_[v] = (1 - kDamping) / n + kDamping * (sum + dangling / n);
        }
      });
    }
  }
  Digest Result() override {
    Digest digest;
    digest.AddValues<double>(0, rank_);
    return digest;
  }

 private:
  const int threads_;
  const int bits_;
  const size_t n_;
  std::vector<size_t> begin_;
  std::vector<uint32_t> from_;
  std::vector<double> degree_, rank_, contribution_;
};

AppShape GraphShape(const AppOptions& o) {
  const int bits = GraphBits(o);
  return {"2^" + std::to_string(bits) + " vertices, " + std::to_string(kEdgesOfVertex) + " edges each, " + std::to_string(kIterations) + " iterations",
          (kEdgesOfVertex * sizeof(Edge) + 3 * sizeof(double)) << bits,
          std::max(2 * VerticesOfBlock(bits) * sizeof(double) + kTilePart * sizeof(Edge), 3 * VerticesOfBlock(bits) * sizeof(double))};
}

}  // namespace

const AppKind kPageRank = {"pagerank", "PageRank on an R-MAT graph", "2^24 vertices with --full", false, GraphShape, MakeApp<PageRank, InCore>, MakeApp<PageRank, OutOfCore>,
                           [](const AppOptions& o) -> std::unique_ptr<Application> { return std::make_unique<PageRankByRows>(o); }};

}  // namespace ramspan::bench
