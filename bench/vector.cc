// vector: what a managedVector costs beside a std::vector. In memory the std::vector is the roofline: both run the same loop in turns, and what is
// compared is thread CPU time, because wall-clock time on a shared machine measures its other users. Beyond memory: bench/vector_swap.cc.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/experiment.h"
#include "bench/report.h"
#include "bench/vector_loops.h"
#include "bench/vector_swap.h"
#include "common/units.h"
#include "ramspan/runtime.h"

namespace ramspan::bench {
namespace {

constexpr uint64_t kLookupSeed = 20240229;
// What a loop whose target is the std::vector's own time may take more: pairs of one and the same loop differ by as much here.
constexpr double kLoopNoise = 0.05;
constexpr double kByElementTarget = 1.3;
constexpr double kByAccessTargetNs = 3;

struct LoopRun {
  double seconds = 0;  // of thread CPU time, the mean of the threads
  uint64_t sum = 0;
};

// The body of each thread, which gives back a sum, begins when all threads are there. Throws what one of them has thrown.
template <typename Body>
LoopRun InLoopThreads(int threads, const Body& body) {
  std::vector<LoopRun> runs(static_cast<size_t>(threads));
  std::vector<std::exception_ptr> errors(runs.size());
  std::atomic<int> ready{0};
  const auto run = [&](size_t t) {
    ready.fetch_add(1);
    while (ready.load() < threads) std::this_thread::yield();
    try {
      const double begin = ThreadCpuSeconds();
      runs[t].sum = body(t);
      runs[t].seconds = ThreadCpuSeconds() - begin;
    } catch (...) {
      errors[t] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (size_t t = 1; t < runs.size(); ++t) others.emplace_back(run, t);
  run(0);
  for (std::thread& other : others) other.join();
  LoopRun all;
  for (size_t t = 0; t < runs.size(); ++t) {
    if (errors[t]) std::rethrow_exception(errors[t]);
    all.seconds += runs[t].seconds / threads;
    all.sum += runs[t].sum;
  }
  return all;
}

// Of one loop: ns an element.
struct LoopFigures {
  std::vector<double> plain, managed, ratios, more;
  bool right = true;
};

// Both in turns; the first of each warms up, and is checked as the others.
template <typename Plain, typename Managed>
LoopFigures CompareLoops(int repetitions, double elements, const Plain& plain, const Managed& managed) {
  LoopFigures figures;
  for (int i = -1; i < repetitions; ++i) {
    const LoopRun std_run = plain(), run = managed();
    figures.right &= std_run.sum == run.sum;
    if (i < 0) continue;
    figures.plain.push_back(std_run.seconds * 1e9 / elements);
    figures.managed.push_back(run.seconds * 1e9 / elements);
    figures.ratios.push_back(figures.managed.back() / figures.plain.back());
    figures.more.push_back(figures.managed.back() - figures.plain.back());
  }
  return figures;
}

template <typename T>
struct VectorPair {
  VectorPair(size_t n, const BenchOptions& o) : managed(n, uninitialized, VectorOptions{o.chunk}) {
    plain.reserve(n);
    for (size_t i = 0; i < n; ++i) plain.push_back(static_cast<T>(VectorElementAt(i)));
    for (auto block : managed.blocks()) std::copy_n(plain.data() + block.first_index(), block.size(), block.begin());
  }
  size_t size() const { return plain.size(); }
  // Of thread t: whole blocks.
  VectorPart Part(size_t t, int threads) const {
    const auto bound = [&](size_t i) { return std::min(size(), managed.block_count() * i / static_cast<size_t>(threads) * managed.block_elements()); };
    return {bound(t), t + 1 == static_cast<size_t>(threads) ? size() : bound(t + 1)};
  }

  std::vector<T> plain;
  managedVector<T> managed;
};

template <typename T>
constexpr const char* kElementName = "double";
template <>
constexpr const char* kElementName<uint64_t> = "uint64";

// One table: a set of data and a number of threads.
class VectorTable {
 public:
  VectorTable(const BenchOptions& o, std::string set, uint64_t bytes, int threads)
      : o_(o), set_(std::move(set)), threads_(threads),
        table_(o, "vector, in memory: " + FormatBytes(bytes) + ", " + set_ + (set_ == "tight" ? " limit (" + FormatBytes(MemoryLimit()) + ")" : "") + ", " +
                      std::to_string(threads) + (threads == 1 ? " thread" : " threads, each its own part") + ": ns of thread CPU time an element, median of " + std::to_string(o.repetitions) + " pairs",
               {"loop", "elements", "way", "std::vector", "managedVector", "ratio", "ns more", "target", "", "sums"}) {}
  ~VectorTable() { table_.Print(); }

  bool right() const { return right_; }

  template <typename T>
  void Sums(VectorPair<T>* data) {
    const size_t rounds = Rounds(data->size());
    const auto run = [&](const auto& loop) {
      return InLoopThreads(threads_, [&](size_t t) {
        uint64_t sum = 0;
        for (size_t round = 0; round < rounds; ++round) {
          sum += static_cast<uint64_t>(loop(data->Part(t, threads_)));
          asm volatile("" : : : "memory");  // each round reads anew
        }
        return sum;
      });
    };
    for (const SumLoop<T>& loop : SumLoops<T>()) {
      Add("sum", kElementName<T>, loop.way, loop.target, data->size(),
          CompareLoops(o_.repetitions, static_cast<double>(data->size() * rounds) * loop.passes / threads_,
                       [&] { return run([&](VectorPart part) { return loop.plain(data->plain, part); }); },
                       [&] { return run([&](VectorPart part) { return loop.managed(data->managed, part); }); }));
    }
  }

  void Lookups(VectorPair<uint64_t>* data) {
    // Of the smaller set no more than stay in its cache beside it.
    const size_t count = std::min<size_t>(o_.operations, data->size() / 4), rounds = std::max<size_t>(1, o_.operations / count);
    std::vector<std::vector<uint32_t>> indices(static_cast<size_t>(threads_));
    std::mt19937_64 random(kLookupSeed);
    for (size_t t = 0; t < indices.size(); ++t) {
      const VectorPart part = data->Part(t, threads_);
      for (size_t k = 0; k < count; ++k) indices[t].push_back(static_cast<uint32_t>(part.first + random() % part.size()));
    }
    const auto run = [&](const auto& loop) {
      return InLoopThreads(threads_, [&](size_t t) {
        uint64_t sum = 0;
        for (size_t round = 0; round < rounds; ++round) {
          sum += loop(indices[t]);
          asm volatile("" : : : "memory");
        }
        return sum;
      });
    };
    for (const LookupLoop& loop : LookupLoops()) {
      Add("lookup", kElementName<uint64_t>, loop.way, LoopTarget::by_access, data->size(),
          CompareLoops(o_.repetitions, static_cast<double>(count * rounds),
                       [&] { return run([&](const std::vector<uint32_t>& at) { return LookUpPlain(data->plain, at.data(), count); }); },
                       [&] { return run([&](const std::vector<uint32_t>& at) { return loop.managed(data->managed, at.data(), count); }); }));
    }
  }

  // From none, in each round anew; the sum is of what there is at the end.
  void PushBacks(size_t n) {
    const size_t rounds = Rounds(n);
    const auto run = [&](const auto& empty, const auto& push) {
      LoopRun all;
      for (size_t round = 0; round < rounds; ++round) {
        auto x = empty;
        const double begin = ThreadCpuSeconds();
        push(x, n);
        all.seconds += ThreadCpuSeconds() - begin;
        if (round == 0) all.sum = x.size() + SumOf(x);
      }
      return all;
    };
    const std::vector<uint64_t> none;
    const managedVector<uint64_t> managed_none(VectorOptions{o_.chunk});
    Add("push_back", kElementName<uint64_t>, "push_back()", LoopTarget::none, n,
        CompareLoops(o_.repetitions, static_cast<double>(n * rounds), [&] { return run(none, PushBackPlain); },
                     [&] { return run(managed_none, PushBackManaged); }));
  }

  void Sorts(size_t n) {
    std::vector<uint64_t> elements(n);
    std::mt19937_64 random(kLookupSeed);
    for (uint64_t& element : elements) element = random();
    managedVector<uint64_t> managed(elements.begin(), elements.end(), VectorOptions{o_.chunk});
    std::vector<uint64_t> plain, sorted = elements;
    std::sort(sorted.begin(), sorted.end());
    const auto timed = [&](const auto& sort) {
      const double begin = ThreadCpuSeconds();
      sort();
      return ThreadCpuSeconds() - begin;
    };
    for (const SortLoop& loop : SortLoops()) {
      Add("sort", kElementName<uint64_t>, loop.way, LoopTarget::none, n,
          CompareLoops(o_.repetitions, static_cast<double>(n),
                       [&] {
                         plain = elements;
                         const double seconds = timed([&] { SortPlain(plain); });
                         return LoopRun{seconds, std::equal(sorted.begin(), sorted.end(), plain.begin())};
                       },
                       [&] {
                         for (auto block : managed.blocks()) std::copy_n(elements.data() + block.first_index(), block.size(), block.begin());
                         const double seconds = timed([&] { loop.managed(managed); });
                         return LoopRun{seconds, std::equal(sorted.begin(), sorted.end(), managed.cview().begin())};
                       }));
    }
  }

 private:
  // Enough elements that one look at the clock, 0.3 us, is nothing beside them.
  size_t Rounds(size_t n) const { return std::max<size_t>(1, (o_.quick ? 500'000 : 4'000'000) / n); }
  template <typename V>
  static uint64_t SumOf(const V& x) {
    uint64_t sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += x[i] * (i + 1);
    return sum;
  }

  void Add(const char* loop, const char* element, const char* way, LoopTarget target, size_t n, const LoopFigures& f) {
    const double ratio = Median(f.ratios), more = Median(f.more);
    Json line = {{"case", "memory"}, {"loop", loop}, {"element", element}, {"way", way}, {"set", set_}, {"elements", n}, {"loop_threads", threads_},
                 {"std_ns", Median(f.plain)}, {"vector_ns", Median(f.managed)}, {"ratio", ratio}, {"more_ns", more},
                 {"ratio_min", *std::min_element(f.ratios.begin(), f.ratios.end())}, {"verified", f.right}};
    const char* text = "";
    bool held = true;
    if (target == LoopTarget::as_std) held = ratio <= 1 + kLoopNoise, text = "target 1.0 x";
    if (target == LoopTarget::by_element) held = ratio <= kByElementTarget, text = "target 1.3 x";
    if (target == LoopTarget::by_access) held = more <= kByAccessTargetNs, text = "target 3 ns more";
    if (target != LoopTarget::none) line.update({{"target", text}, {"held", held}});
    table_.AddRow(line, {loop, element, way, Fixed(Median(f.plain), 2), Fixed(Median(f.managed), 2), Fixed(ratio, 2) + " x", Fixed(more, 2), text,
                         target == LoopTarget::none ? "" : held ? "held" : "MISSED", f.right ? "equal" : "WRONG"});
    right_ &= f.right;
  }

  const BenchOptions& o_;
  const std::string set_;
  const int threads_;
  Table table_;
  bool right_ = true;
};

// Half of each thread's L2 cache: the other half is for indices, blocks' tables and who else runs on the core.
uint64_t SmallSetBytes(const BenchOptions& o, int threads) {
  const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);  // 0 where the system does not say
  return std::max(o.chunk, l2 > 0 ? static_cast<uint64_t>(l2) / 2 : uint64_t{512} << 10) * static_cast<uint64_t>(threads);
}

bool RunSet(const BenchOptions& o, bool small, int threads) {
  const uint64_t bytes = small ? SmallSetBytes(o, threads) : o.data;
  const size_t n = bytes / sizeof(uint64_t);
  VectorTable table(o, small ? "within L2" : "beyond L2", bytes, threads);
  {
    VectorPair<double> data(n, o);
    table.Sums(&data);
  }
  VectorPair<uint64_t> data(n, o);
  table.Sums(&data);
  table.Lookups(&data);
  if (threads == 1) table.PushBacks(std::min<size_t>(n, 4 << 20));
  if (threads == 1 && small) table.Sorts(n / 2);
  return table.right();
}

// The views of a thread hold a quarter of the limit. Where the limit is just above the data, that is not all of it.
bool RunTightSet(const BenchOptions& o) {
  SetMemoryLimit(o.data + o.data / 4 + (uint64_t{8} << 20));
  VectorTable table(o, "tight", o.data, 1);
  VectorPair<uint64_t> data(o.data / sizeof(uint64_t), o);
  table.Lookups(&data);
  return table.right();
}

// Before anything is measured: what is wrong with --lmr.
void CheckLimits(const BenchOptions& o) {
  constexpr double kLeast = 2 << 20;
  for (const double percent : ChosenRatios(o)) {
    if (percent / 100 * static_cast<double>(o.data) < kLeast) throw std::runtime_error("--lmr: limits of at least 2 MiB, and --data is " + FormatBytes(o.data));
  }
}

}  // namespace

int RunVector(const BenchOptions& options) {
  CheckLimits(options);
  ConfigureLibrary(options);
  bool right = RunSet(options, true, 1);
  right &= RunSet(options, false, 1);
  right &= RunTightSet(options);
  right &= RunVectorSwapping(options);
  SetMemoryLimit(options.limit);
  // Behind the others: a thread that was there might take its share of what views hold.
  if (options.threads > 1) {
    right &= RunSet(options, true, options.threads);
    right &= RunSet(options, false, options.threads);
  }
  return right ? 0 : 1;
}

}  // namespace ramspan::bench
