// pin: what an adhereTo on a chunk in memory costs over the raw pointer: construct, pull, use, destroy.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/pins_held.h"
#include "bench/report.h"
#include "ramspan/managed_ptr.h"

namespace ramspan::bench {
namespace {

constexpr size_t kChunksPerThread = 16;
constexpr size_t kElements = 512;
constexpr size_t kLine = 32;  // elements between two threads' in one chunk: four cache lines apart

struct Setting {
  unsigned threads;
  bool same_chunk;
  bool write;
};

class PinCase {
 public:
  PinCase(const Setting& setting, uint64_t operations) : setting_(setting), operations_(operations) {
    const size_t chunks = setting.same_chunk ? 1 : kChunksPerThread * setting.threads;
    for (size_t i = 0; i < chunks; ++i) {
      managed_.emplace_back(kElements, 0.0);
      // On a page of its own, as a frame is: else the caches' sets, of which first elements of pages share one, are
      // what is measured.
      raw_.emplace_back(static_cast<double*>(std::aligned_alloc(4096, kElements * sizeof(double))), &std::free);
      std::fill_n(raw_.back().get(), kElements, 0.0);
    }
  }

  // Nanoseconds of CPU time an operation, the mean of the threads, which all start together. Not wall-clock time: where more
  // threads want to run than there are cores, that measures the scheduler.
  double Run(bool raw) {
    std::vector<double> ns(setting_.threads);
    std::atomic<unsigned> ready{0};
    const auto body = [&](unsigned thread) {
      ready.fetch_add(1);
      while (ready.load() < setting_.threads) __builtin_ia32_pause();
      const double begin = ThreadCpuSeconds();
      raw ? Loop<true>(thread) : Loop<false>(thread);
      ns[thread] = (ThreadCpuSeconds() - begin) * 1e9 / static_cast<double>(operations_);
    };
    std::vector<std::thread> others;
    for (unsigned t = 1; t < setting_.threads; ++t) others.emplace_back(body, t);
    body(0);
    for (std::thread& t : others) t.join();
    double sum = 0;
    for (const double one : ns) sum += one;
    return sum / setting_.threads;
  }

 private:
  template <bool kRaw>
  void Loop(unsigned thread) {
    const size_t first = setting_.same_chunk ? 0 : thread * kChunksPerThread;
    const size_t mask = setting_.same_chunk ? 0 : kChunksPerThread - 1;
    const size_t element = setting_.same_chunk ? thread * kLine : 0;
    setting_.write ? Writes<kRaw>(first, mask, element) : Reads<kRaw>(first, mask, element);
  }

  template <bool kRaw>
  void Writes(size_t first, size_t mask, size_t element) {
    for (uint64_t i = 0; i < operations_; ++i) {
      if constexpr (kRaw) {
        Touch(raw_[first + (i & mask)].get() + element);
      } else {
        adhereTo<double> glue(managed_[first + (i & mask)]);
        double* const elements = glue;
        Touch(elements + element);
      }
    }
  }

  template <bool kRaw>
  void Reads(size_t first, size_t mask, size_t element) {
    for (uint64_t i = 0; i < operations_; ++i) {
      if constexpr (kRaw) {
        Look(raw_[first + (i & mask)].get() + element);
      } else {
        const adhereTo<double> glue(managed_[first + (i & mask)]);
        const double* const elements = glue;
        Look(elements + element);
      }
    }
  }

  // The barriers keep the compiler from hoisting one access over many operations.
  static void Touch(double* p) {
    asm volatile("" : "+r"(p) : : "memory");
    *p += 1.0;
    asm volatile("" : : : "memory");
  }
  // No sum: it would live in memory on one side only, because a pin's slow path is a call.
  static void Look(const double* p) {
    asm volatile("" : "+r"(p) : : "memory");
    asm volatile("" : : "x"(*p));
  }

  const Setting setting_;
  const uint64_t operations_;
  std::vector<managedPtr<double>> managed_;
  std::vector<std::unique_ptr<double, decltype(&std::free)>> raw_;
};

}  // namespace

int RunPin(const BenchOptions& options) {
  ConfigureLibrary(options);
  for (const unsigned threads : {1u, 2u}) {
    for (const bool same : {false, true}) {
      for (const bool write : {false, true}) {
        PinCase one({threads, same, write}, options.operations);
        std::vector<double> raw, pinned, over;
        one.Run(true);
        one.Run(false);
        for (int i = 0; i < options.repetitions; ++i) {
          raw.push_back(one.Run(true));
          pinned.push_back(one.Run(false));
          over.push_back(pinned.back() - raw.back());
        }
        const std::string what = std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") +
                                 (same ? "one chunk" : "distinct chunks") + (write ? ", mutable" : ", const");
        Json result = {{"threads", threads}, {"same_chunk", same}, {"write", write}, {"raw_ns", Median(raw)},
                       {"pin_ns", Median(pinned)}, {"over_ns", Median(over)}};
        Report(options, std::move(result), "pin: " + what,
               {{"raw pointer", Fixed(Median(raw), 2) + " ns", ""},
                {"adhere, pull, release", Fixed(Median(pinned), 2) + " ns", ""},
                {"more", Fixed(Median(over), 2) + " ns",
                 "median of " + std::to_string(options.repetitions) + " pairs; target 2"}});
      }
    }
  }
  RunPinsHeld(options);
  return 0;
}

}  // namespace ramspan::bench
