#include "bench/managed_chunk.h"

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "bench/process.h"
#include "bench/report.h"
#include "common/units.h"
#include "ramspan/managed_ptr.h"

namespace ramspan::bench {
namespace {

constexpr size_t kElements = 8192;  // doubles: 64 KiB
constexpr int kPairs = 50'000;      // of a thread in one repetition
constexpr int kWarmUp = 64;

// The compiler must not leave out what nobody uses.
void Escape(void* p) { asm volatile("" : : "g"(p) : "memory"); }

// `write`: one element is written, so the chunk gets its frame.
void MakeAndDestroy(bool raw, bool write) {
  if (raw) {
    auto* const p = new double[kElements];
    Escape(p);
    if (write) *static_cast<volatile double*>(p) = 1;
    delete[] p;
    return;
  }
  managedPtr<double> p(kElements);
  if (!write) return Escape(&p);
  adhereTo<double> glue(p);
  double* const elements = glue;
  *static_cast<volatile double*>(elements) = 1;
}

// Nanoseconds of wall-clock time a pair, of all threads together: from the first one's begin to the last one's end.
double NsPerPair(unsigned threads, bool raw, bool write) {
  double begin = 0;
  std::barrier ready(static_cast<ptrdiff_t>(threads), [&]() noexcept { begin = Now(); });
  const auto body = [&] {
    for (int i = 0; i < kWarmUp; ++i) MakeAndDestroy(raw, write);
    ready.arrive_and_wait();
    for (int i = 0; i < kPairs; ++i) MakeAndDestroy(raw, write);
  };
  std::vector<std::thread> others;
  for (unsigned t = 1; t < threads; ++t) others.emplace_back(body);
  body();
  for (std::thread& t : others) t.join();
  return (Now() - begin) * 1e9 / kPairs / threads;
}

}  // namespace

void MeasureManagedChunks(BenchOptions options) {
  options.limit = uint64_t{64} << 20;
  ConfigureLibrary(options);
  for (const unsigned threads : options.thread_counts) {
    std::vector<double> ns[2][2];
    for (int i = -1; i < options.repetitions; ++i) {  // the first one warms up
      for (const bool write : {false, true}) {
        for (const bool raw : {false, true}) {
          const double one = NsPerPair(threads, raw, write);
          if (i >= 0) ns[write][raw].push_back(one);
        }
      }
    }
    const auto row = [&](bool write, bool raw) { return Fixed(Median(ns[write][raw]), 1) + " ns"; };
    Json result = {{"managed_bytes", kElements * sizeof(double)}, {"threads", threads}, {"make_destroy_ns", Median(ns[0][0])},
                   {"new_delete_ns", Median(ns[0][1])}, {"make_write_destroy_ns", Median(ns[1][0])}, {"new_write_delete_ns", Median(ns[1][1])}};
    Report(options, std::move(result),
           "buddy: a managedPtr of 64 KiB in a warm arena, " + std::to_string(threads) + (threads == 1 ? " thread" : " threads") + ", wall-clock time a pair",
           {{"make, destroy", row(false, false), "no pull: the descriptor alone; target 200"},
            {"new, delete", row(false, true), "no element touched"},
            {"make, write one, destroy", row(true, false), "with an adhereTo, a pull and a frame out of the arena"},
            {"new, write one, delete", row(true, true), ""}});
  }
}

void MeasureSetup(const BenchOptions& options, const std::vector<std::string>& self) {
  for (const uint64_t limit : {uint64_t{64} << 20, uint64_t{64} << 30}) {
    std::vector<double> ms;
    for (int i = 0; i < options.repetitions; ++i) {
      std::vector<std::string> words = self;
      words.insert(words.end(), {"--only", "setup", "--limit", std::to_string(limit)});
      std::string output;
      if (RunForOutput(words, &output) != 0) throw std::runtime_error("setting up a limit of " + FormatBytes(limit) + " failed");
      ms.push_back(std::stod(output));
    }
    Report(options, {{"setup_limit", limit}, {"setup_ms", Median(ms)}}, "buddy: setting up a limit of " + FormatBytes(limit),
           {{"until data is written", Fixed(Median(ms), 2) + " ms", "Configure, and the first managedPtr; median of so many processes: " + std::to_string(options.repetitions) + "; target 50"}});
  }
}

int PrintSetup(const BenchOptions& options) {
  setenv("RAMSPAN_LOG", "off", 1);  // that this machine may have less than that
  const double begin = Now();
  ConfigureLibrary(options);
  MakeAndDestroy(/*raw=*/false, /*write=*/true);
  std::printf("%.4f\n", (Now() - begin) * 1e3);
  return 0;
}

}  // namespace ramspan::bench
