// compute: the program's own loops beside swapping. The library may cost what it does itself, but a loop between two pulls
// has to run as fast as over a plain array: nothing that the library does to the thread (vector registers, floating-point
// environment) may reach it. On data three quarters of which are swapped, against a plain array of the same size.
//
// What is compared is the loop alone, in thread CPU time. So that caches and address translation are equal, each chunk is
// read once, unmeasured, before its loop on either side: it is then in the L2 cache (64 KiB). What is left of their
// effects is the mover's and the servers' use of the shared cache meanwhile.
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/compute_loops.h"
#include "bench/parallel.h"
#include "bench/report.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/runtime.h"

namespace ramspan::bench {
namespace {

// The plain array's thread has called the library before, so a register state that the library left would slow both sides
// down. Not the library's own function: it is what is measured here.
void ClearVectorState() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx")) __asm__ volatile("vzeroupper" ::: "memory");
#endif
}

template <typename T>
struct Loop {
  const char* name;
  std::string how;
  void (*run)(T*, size_t);
  int rounds;  // of the loop over a chunk, so that one measurement takes 50 us and more, a hundred times reading the clock
  int threads;
};

// Of one sweep, the threads' sum.
struct CpuSeconds {
  double loops = 0;
  double pulls = 0;  // adhere, pull, release: the library's share, misses included
};

template <typename T>
class ComputeCase {
 public:
  ComputeCase(const BenchOptions& options, const Loop<T>& loop)
      : loop_(loop), count_(options.chunk / sizeof(T)), chunks_(options.data / options.chunk),
        plain_(static_cast<T*>(std::aligned_alloc(4096, chunks_ * options.chunk)), &std::free) {
    for (size_t c = 0; c < chunks_; ++c) {
      managed_.emplace_back(count_);
      adhereTo<T> glue(managed_[c]);
      T* const elements = glue;
      for (size_t i = 0; i < count_; ++i) elements[i] = static_cast<T>(c + i);
      std::copy_n(elements, count_, plain_.get() + c * count_);
    }
  }

  double elements() const { return static_cast<double>(chunks_ * count_) * loop_.rounds; }

  CpuSeconds SweepPlain() {
    return Sweep([this](size_t c, CpuSeconds* cpu) {
      ClearVectorState();
      cpu->loops += Measure(plain_.get() + c * count_);
    });
  }

  CpuSeconds SweepManaged() {
    return Sweep([this](size_t c, CpuSeconds* cpu) {
      const double before = ThreadCpuSeconds();
      double loops = 0, begin = 0, end = 0;
      {
        adhereTo<T> glue(managed_[c]);
        T* const elements = glue;
        begin = ThreadCpuSeconds();
        loops = Measure(elements);
        end = ThreadCpuSeconds();
      }
      cpu->loops += loops;
      cpu->pulls += (begin - before) + (ThreadCpuSeconds() - end);
    });
  }

  // The same calculations on the same numbers, so not a bit may differ.
  bool IsRight() const {
    for (size_t c = 0; c < chunks_; ++c) {
      const adhereTo<T> glue(managed_[c]);
      const T* const elements = glue;
      if (!std::equal(elements, elements + count_, plain_.get() + c * count_)) return false;
    }
    return true;
  }

 private:
  template <typename Visit>
  CpuSeconds Sweep(const Visit& visit) {
    CpuSeconds all;
    for (const CpuSeconds& part : InParallel<CpuSeconds>(loop_.threads, chunks_, visit)) {
      all.loops += part.loops;
      all.pulls += part.pulls;
    }
    return all;
  }

  double Measure(T* elements) const {
    T sum{};
    for (size_t i = 0; i < count_; ++i) sum += elements[i];
    asm volatile("" : : "r"(&sum) : "memory");  // the sum is wanted
    const double begin = ThreadCpuSeconds();
    for (int round = 0; round < loop_.rounds; ++round) loop_.run(elements, count_);
    return ThreadCpuSeconds() - begin;
  }

  const Loop<T> loop_;
  const size_t count_, chunks_;
  const std::unique_ptr<T, decltype(&std::free)> plain_;
  std::vector<managedPtr<T>> managed_;
};

template <typename T>
bool RunLoop(const BenchOptions& options, const Loop<T>& loop) {
  ComputeCase<T> one(options, loop);
  std::vector<double> plain, managed, pulls, ratios;
  const Statistics before = GetStatistics();
  one.SweepPlain();
  one.SweepManaged();
  for (int i = 0; i < options.repetitions; ++i) {
    plain.push_back(one.SweepPlain().loops * 1e9 / one.elements());
    const CpuSeconds cpu = one.SweepManaged();
    managed.push_back(cpu.loops * 1e9 / one.elements());
    pulls.push_back(cpu.pulls * 1e9 / one.elements() * loop.rounds);
    ratios.push_back(managed.back() / plain.back());
    Settle();
  }
  const Statistics after = GetStatistics();
  const bool right = one.IsRight();
  const double swapped_in = static_cast<double>(after.bytes_in - before.bytes_in) /
                            (static_cast<double>(options.data) * (options.repetitions + 1));
  Json result = {{"loop", loop.name}, {"how", loop.how}, {"loop_threads", loop.threads}, {"plain_ns", Median(plain)},
                 {"swapping_ns", Median(managed)}, {"ratio", Median(ratios)},
                 {"ratio_min", *std::min_element(ratios.begin(), ratios.end())}, {"pull_ns", Median(pulls)},
                 {"swapped_in", swapped_in}, {"verified", right}, {"stats", LibraryStats()}};
  Report(options, std::move(result), std::string("compute: ") + loop.name + " (" + loop.how + "), " + PlacesUsed(LibraryStats()),
         {{"plain array", Fixed(Median(plain), 2) + " ns", "thread CPU time an element, the loop alone"},
          {"beside swapping", Fixed(Median(managed), 2) + " ns", "the same; " + Fixed(100 * swapped_in, 0) + " % of the data came from swap a sweep"},
          {"ratio", Fixed(Median(ratios), 3), "median of " + std::to_string(options.repetitions) + " pairs; target 1.05"},
          {"adhere, pull, release", Fixed(Median(pulls), 2) + " ns", "thread CPU time an element and sweep: what swapping itself costs"},
          {"data", right ? "right" : "WRONG", "every element compared with the plain array's at the end"}});
  return right;
}

}  // namespace

int RunCompute(const BenchOptions& options) {
  ConfigureLibrary(options);
  const int threads = options.threads > 1 ? options.threads : std::max(2, omp_get_num_procs());
  bool right = RunLoop<double>(options, {"sine", "SSE2, -O2, libm", SineLoop, 1, 1});
  right &= RunLoop<uint64_t>(options, {"integer", "-O2", IntegerLoop, 4, 1});
  right &= RunLoop<double>(options, {"wide", std::string(WideLoopVectors()) + ", -O3", WideLoop, 8, 1});
  right &= RunLoop<double>(options, {"sine, OpenMP", "SSE2, -O2, libm, " + std::to_string(threads) + " threads", SineLoop, 1, threads});
  return right ? 0 : 1;
}

}  // namespace ramspan::bench
