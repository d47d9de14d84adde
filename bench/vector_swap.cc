#include "bench/vector_swap.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/experiment.h"
#include "bench/report.h"
#include "bench/roofline.h"
#include "bench/vector_loops.h"
#include "common/units.h"
#include "ramspan/runtime.h"

namespace ramspan::bench {
namespace {

constexpr uint64_t kSwapSeed = 20240301;
constexpr uint64_t kOpsPart = 128, kOpsLeast = 2048;  // of --ops: an access that misses takes that much longer than one in memory, and more
constexpr uint64_t kHotVectorPart = 64;      // of the data is the hot vector
constexpr size_t kRandomBlock = 8 << 10;  // of access::random

// What a case is, and what it cannot do without.
struct SwapCase {
  const char* loop;
  std::string way;
  uint64_t block;
  double accesses;       // of a pass
  double least_in;       // bytes of a pass that have to come
  double least_out;      // and to go
};

struct SwapFigures {
  std::vector<double> plain, managed, least;  // seconds a pass
  double bytes_in = 0, bytes_out = 0;         // a pass
  bool right = true;
};

// A std::vector of the data, and of the hot part of it, which all cases of all limits share; each makes the managedVectors that it wants.
struct SwapData {
  explicit SwapData(const BenchOptions& o) : large(o.data / sizeof(uint64_t)), hot(large.size() / kHotVectorPart) {
    for (size_t i = 0; i < large.size(); ++i) large[i] = VectorElementAt(i);
    for (size_t i = 0; i < hot.size(); ++i) hot[i] = VectorElementAt(i);
  }
  static managedVector<uint64_t> Managed(const std::vector<uint64_t>& plain, const VectorOptions& options) {
    managedVector<uint64_t> x(plain.size(), uninitialized, options);
    for (auto block : x.blocks()) std::copy_n(plain.data() + block.first_index(), block.size(), block.begin());
    return x;
  }

  std::vector<uint64_t> large, hot;
};

class SwapCases {
 public:
  SwapCases(const BenchOptions& o, double percent, SwapData* data)
      : o_(o), percent_(percent), limit_(static_cast<uint64_t>(percent / 100 * static_cast<double>(o.data))), operations_(std::max(kOpsLeast, o.operations / kOpsPart)),
        data_(data), table_(o, "vector, " + FormatBytes(o.data) + " under a limit of " + FormatBytes(limit_) + ", " + (o.servers > 0 ? "remote memory" : o.direct ? "files (O_DIRECT)" : "files (page cache)") +
                                ": ns an element or lookup, median of " + std::to_string(o.repetitions) + " passes",
                            {"loop", "way", "blocks", "managedVector", "roofline", "ratio", "moved", "of the least", "std::vector", "data"}) {
    SetMemoryLimit(limit_);
  }
  ~SwapCases() { table_.Print(); }

  bool Run() {
    {
      managedVector<uint64_t> x = SwapData::Managed(data_->large, VectorOptions{o_.chunk});
      TierRoofline roofline(o_, o_.chunk);
      Sweeps(&x, &roofline);
      Lookups(&x, &roofline, o_.chunk);
    }
    managedVector<uint64_t> x = SwapData::Managed(data_->large, VectorOptions{0, access::random});
    TierRoofline roofline(o_, kRandomBlock);
    Lookups(&x, &roofline, kRandomBlock);
    BesideAHotOne(&x, &roofline);
    return right_;
  }

 private:
  // MIN keeps as many blocks of a sweep as there is memory for, and reads the others.
  double MissingShare() const { return 1 - percent_ / 100; }

  void Sweeps(managedVector<uint64_t>* x, TierRoofline* roofline) {
    const auto bytes = static_cast<double>(o_.data), n = static_cast<double>(data_->large.size()), least = MissingShare() * bytes;
    const auto seconds = [&](const PassTimes& raw) { return MissingShare() * (raw.get + raw.put) + raw.compute; };
    const SumLoop<uint64_t>& blocks = SumLoops<uint64_t>().front();
    const VectorPart all{0, data_->large.size()};
    Add({"sum", blocks.way, o_.chunk, n, least, 0},
        Compare([&] { return blocks.plain(data_->large, all); }, [&] { return blocks.managed(*x, all); }, [&] { return seconds(roofline->InOrder(false)); }));
    SwapFigures increments =
        Compare([&] { return IncrementPlain(data_->large); }, [&] { return IncrementByBlocks(*x); }, [&] { return seconds(roofline->InOrder(true)); });
    increments.right &= IsEqual(*x);
    Add({"increment", blocks.way, o_.chunk, n, least, least}, increments);
  }

  void Lookups(managedVector<uint64_t>* x, TierRoofline* roofline, uint64_t block) {
    std::vector<uint32_t> at(operations_);
    for (const LookupLoop& loop : LookupLoops()) {
      if (loop.way == LookupLoops().front().way) continue;  // by a view for writing each lookup would be a change
      const auto n = static_cast<double>(at.size());
      Add({"lookup", loop.way, block, n, MissingShare() * n * static_cast<double>(block), 0},
          Compare([&] { return LookUpPlain(data_->large, at.data(), at.size()); }, [&] { return loop.managed(*x, at.data(), at.size()); },
                  [&] { return MissingShare() * n * roofline->ReadAnywhere(at.size()); }, [&] { Draw(&at, data_->large.size()); }));
    }
  }

  // What the hot one leaves of the memory is the large one's.
  void BesideAHotOne(managedVector<uint64_t>* large, TierRoofline* roofline) {
    managedVector<uint64_t> hot = SwapData::Managed(data_->hot, {});
    std::vector<uint32_t> at(operations_), hot_at(operations_ * kHotUses);
    const HotIndices indices{at.data(), hot_at.data(), at.size()};
    const auto bytes = static_cast<double>(o_.data);
    const double missing = 1 - (static_cast<double>(limit_) - bytes / kHotVectorPart) / bytes;
    for (const HotLoop& loop : HotLoops()) {
      const auto n = static_cast<double>(at.size());
      Add({"lookup, hot beside", loop.way, kRandomBlock, n, missing * n * kRandomBlock, 0},
          Compare([&] { return LookUpHotPlain(data_->large, data_->hot, indices); }, [&] { return loop.managed(*large, hot, indices); },
                  [&] { return missing * n * roofline->ReadAnywhere(at.size()); },
                  [&] {
                    Draw(&at, data_->large.size());
                    Draw(&hot_at, data_->hot.size());
                  }));
    }
  }

  void Draw(std::vector<uint32_t>* indices, size_t below) {
    for (uint32_t& i : *indices) i = static_cast<uint32_t>(random_() % below);
  }

  // In turns: the library's pass, the std::vector's, the transfers by hand. Two passes before bring the library to what it does in the long run.
  template <typename Plain, typename Managed, typename Least>
  SwapFigures Compare(const Plain& plain, const Managed& managed, const Least& least) {
    return Compare(plain, managed, least, [] {});
  }
  template <typename Plain, typename Managed, typename Least, typename Prepare>
  SwapFigures Compare(const Plain& plain, const Managed& managed, const Least& least, const Prepare& prepare) {
    SwapFigures figures;
    Statistics before;
    for (int i = -2; i < o_.repetitions; ++i) {
      prepare();
      Settle();
      if (i == 0) before = GetStatistics();
      const double begin = Now();
      const uint64_t sum = managed();
      const double end = Now();
      const uint64_t expected = plain();
      const double plain_end = Now();
      figures.right &= sum == expected;
      if (i < 0) continue;
      figures.managed.push_back(end - begin);
      figures.plain.push_back(plain_end - end);
      Settle();
      figures.least.push_back(least());
    }
    const Statistics after = GetStatistics();
    figures.bytes_in = static_cast<double>(after.bytes_in - before.bytes_in) / o_.repetitions;
    figures.bytes_out = static_cast<double>(after.bytes_out - before.bytes_out) / o_.repetitions;
    return figures;
  }

  bool IsEqual(const managedVector<uint64_t>& x) const {
    for (const auto block : x.blocks()) {
      if (!std::equal(block.begin(), block.end(), data_->large.data() + block.first_index())) return false;
    }
    return true;
  }

  void Add(const SwapCase& c, const SwapFigures& f) {
    const double managed = Median(f.managed), least = Median(f.least), ratio = least / managed;
    const double moved = f.bytes_in + f.bytes_out, over_least = moved / (c.least_in + c.least_out);
    const auto ns = [&](double seconds) { return seconds * 1e9 / c.accesses; };
    Json line = {{"case", "swap"}, {"loop", c.loop}, {"way", c.way}, {"block", c.block}, {"limit_percent", percent_}, {"limit", limit_},
                 {"accesses", c.accesses}, {"vector_ns", ns(managed)}, {"roofline_ns", ns(least)}, {"roofline_of", o_.servers > 0 ? "memory of this node" : "file"},
                 {"ratio", ratio}, {"passes_s", f.managed}, {"bytes_in", f.bytes_in}, {"bytes_out", f.bytes_out}, {"least_in", c.least_in}, {"least_out", c.least_out},
                 {"moved_over_least", over_least}, {"std_ns", ns(Median(f.plain))}, {"verified", f.right}, {"stats", LibraryStats()}};
    const int digits = ns(managed) < 10 ? 2 : 0;
    table_.AddRow(line, {c.loop, c.way, FormatBytes(c.block), Fixed(ns(managed), digits), Fixed(ns(least), digits), Fixed(100 * ratio, 0) + " %",
                         Fixed(moved / c.accesses, digits == 2 ? 2 : 0) + " B", Fixed(over_least, 2) + " x", Fixed(ns(Median(f.plain)), 2), f.right ? "right" : "WRONG"});
    right_ &= f.right;
  }

  const BenchOptions& o_;
  const double percent_;
  const uint64_t limit_;
  const uint64_t operations_;
  SwapData* const data_;
  Table table_;
  std::mt19937_64 random_{kSwapSeed};
  bool right_ = true;
};

}  // namespace

bool RunVectorSwapping(const BenchOptions& options) {
  SwapData data(options);
  bool right = true;
  for (const double percent : ChosenRatios(options)) right &= SwapCases(options, percent, &data).Run();
  return right;
}

}  // namespace ramspan::bench
