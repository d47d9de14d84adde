// pages: what a page fault costs, with one size of blocks: beside the raw transfer of as many bytes, and a managedPtr's miss; sweeps; a program
// that fits its limit, beside plain memory; and how exactly the limit is kept.
#include "bench/pages.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/experiment.h"
#include "bench/parallel.h"
#include "bench/passes.h"
#include "bench/random_access.h"
#include "bench/report.h"
#include "bench/roofline.h"
#include "common/units.h"
#include "ramspan/pages.h"
#include "ramspan/runtime.h"

namespace ramspan::bench {
namespace {

constexpr uint64_t kSweepMost = 3;  // element i is i times it, and what passes have added
constexpr double kFaultsUsOf4K = 5, kFaultsUs = 10, kSweepShare = 0.85, kReadOverLeast = 1.10, kFittingRatio = 1.01, kBesideLimitMib = 4;
constexpr double kFaulted = 1.5e-6;  // no access to memory takes as long, and no fault is as short
constexpr uint64_t kLargePiece = 2 << 20;
constexpr int kPassesToAdapt = 4;  // each area has to see some dozens of faults

double AnonymousBytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("RssAnon:", 0) == 0) return 1024 * std::strtod(line.c_str() + 8, nullptr);
  }
  return 0;
}

// The most memory of its own that the process has while this lives, looked at 500 times a second.
class AnonymousWatch {
 public:
  AnonymousWatch() : thread_([this] {
    while (!end_.load(std::memory_order_relaxed)) {
      most_ = std::max(most_, AnonymousBytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }) {}
  ~AnonymousWatch() { End(); }
  double End() {
    end_.store(true, std::memory_order_relaxed);  // publishes nothing: join does
    if (thread_.joinable()) thread_.join();
    return most_;
  }

 private:
  double most_ = 0;
  std::atomic<bool> end_{false};
  std::thread thread_;  // last: it uses the others
};

class PagedWords {
 public:
  explicit PagedWords(uint64_t bytes) : count_(bytes / sizeof(uint64_t)), words_(static_cast<uint64_t*>(AllocatePages(bytes))) {
    for (size_t i = 0; i < count_; ++i) words_[i] = i * kSweepMost;
  }
  ~PagedWords() { FreePages(words_); }
  PagedWords(const PagedWords&) = delete;
  PagedWords& operator=(const PagedWords&) = delete;

  uint64_t* data() { return words_; }
  // Seconds of a pass over all, in order; each thread has a part of its own.
  double Sweep(bool write, size_t threads) {
    struct Part {
      uint64_t sum = 0;
    };
    const double begin = Now();
    uint64_t sum = 0;
    for (const Part& part : InParallel<Part>(static_cast<int>(threads), threads, [&](size_t t, Part* one) {
           uint64_t* const from = words_ + count_ * t / threads;
           const size_t n = count_ * (t + 1) / threads - count_ * t / threads;
           if (write) {
             AddOne(from, n);
           } else {
             one->sum = ramspan::bench::Sum(from, n);
           }
         })) {
      sum += part.sum;
    }
    const double seconds = Now() - begin;
    added_ += write ? 1 : 0;
    if (!write) right_ &= sum == count_ * (count_ - 1) / 2 * kSweepMost + added_ * count_;
    return seconds;
  }
  // Of accesses to one word anywhere, those that took a fault: seconds of each.
  std::vector<double> Faults(uint64_t accesses, bool write, uint64_t block) {
    std::vector<double> seconds;
    const size_t in_block = block / sizeof(uint64_t);
    for (uint64_t k = 0; k < accesses; ++k) {
      const size_t i = random_() % (count_ / in_block) * in_block + random_() % in_block;
      const double begin = Now();
      const uint64_t word = *static_cast<volatile uint64_t*>(words_ + i);
      const double took = Now() - begin;
      right_ &= word == i * kSweepMost + added_;
      if (write) *static_cast<volatile uint64_t*>(words_ + i) = word;
      if (took > kFaulted) seconds.push_back(took);
    }
    return seconds;
  }
  bool IsRight() {
    for (size_t i = 0; i < count_; ++i) right_ &= words_[i] == i * kSweepMost + added_;
    return right_;
  }

 private:
  const size_t count_;
  uint64_t* const words_;
  uint64_t added_ = 0;
  bool right_ = true;
  std::mt19937_64 random_{RandomAccess::kSeed};
};

// A program's passes over data that fit the limit: pages over plain memory, in CPU time of their thread, by turns.
double FittingRatio(const BenchOptions& o) {
  const uint64_t bytes = o.limit / 2;
  PagedWords pages(bytes);
  const auto plain = std::make_unique<uint64_t[]>(bytes / sizeof(uint64_t));
  std::vector<double> ratios;
  for (int i = 0; i < 2 * o.repetitions + 1; ++i) {
    double seconds[2];
    for (int k = 0; k < 2; ++k) {
      const int which = (k + i) % 2;
      const double begin = ThreadCpuSeconds();
      for (int pass = 0; pass < 4; ++pass) AddOne(which == 0 ? pages.data() : plain.get(), bytes / sizeof(uint64_t));
      seconds[which] = ThreadCpuSeconds() - begin;
    }
    if (i > 0) ratios.push_back(seconds[0] / seconds[1]);
  }
  return Median(ratios);
}

struct SweepFigures {
  double gb_s = 0, share = 0, brought = 0;  // brought: in, of the data
};

SweepFigures MeasureSweeps(const BenchOptions& o, PagedWords* pages, TierRoofline* roofline, bool write) {
  std::vector<double> rates, shares, brought;
  for (int i = 0; i <= o.repetitions; ++i) {
    const double bytes_before = static_cast<double>(TierBytes(LibraryStats(), "bytes_in")), out_before = static_cast<double>(TierBytes(LibraryStats(), "bytes_out"));
    const double seconds = pages->Sweep(write, 1);
    Settle();
    const Json stats = LibraryStats();
    const double in = static_cast<double>(TierBytes(stats, "bytes_in")) - bytes_before, out = static_cast<double>(TierBytes(stats, "bytes_out")) - out_before;
    const PassTimes raw = roofline->InOrder(write);
    const double data = static_cast<double>(o.data);
    if (i == 0) continue;
    rates.push_back(GbPerSecond(data, seconds));
    brought.push_back(in / data);
    shares.push_back((raw.get * in / data + (write ? raw.put * out / data : 0) + raw.compute) / seconds);
  }
  return {Median(rates), Median(shares), Median(brought)};
}

}  // namespace

int RunPages(const BenchOptions& options) {
  setenv("RAMSPAN_PAGE_BLOCK", options.adapts ? "adaptive" : std::to_string(options.chunk).c_str(), 1);
  ConfigureLibrary(options);
  EffectiveOptions();  // starts the library
  const double before = AnonymousBytes();
  const uint64_t accesses = options.operations;
  const double fitting = FittingRatio(options);  // first: frames that have been used lie scattered
  std::vector<double> managed;
  {
    RandomAccess access(options.data, options.chunk);
    access.MissSeconds(accesses);
    for (int i = 0; i < options.repetitions; ++i) managed.push_back(Median(access.MissSeconds(accesses)));
  }
  PagedWords pages(options.data);
  std::vector<double> beside;  // MiB of the process's own memory above the limit and what it had before, by threads
  for (const size_t threads : {size_t{1}, size_t{8}}) {
    AnonymousWatch watch;
    for (int i = 0; i < options.repetitions; ++i) pages.Sweep(true, threads);
    beside.push_back((watch.End() - before - static_cast<double>(options.limit)) / 1048576);
  }
  // Of what suits either: sweeps by hand are fastest by large pieces.
  TierRoofline roofline(options, options.chunk);
  std::optional<TierRoofline> of_large;
  if (options.adapts) of_large.emplace(options, kLargePiece);
  TierRoofline* const of_sweeps = of_large ? &*of_large : &roofline;
  const SweepFigures read = MeasureSweeps(options, &pages, of_sweeps, false), write = MeasureSweeps(options, &pages, of_sweeps, true);
  of_large.reset();
  std::vector<double> faults, late, writing, raws;
  for (int i = 0; i < (options.adapts ? kPassesToAdapt : 1); ++i) pages.Faults(accesses, false, options.chunk);  // what leaves is clean after a while
  for (int i = 0; i < options.repetitions; ++i) {
    raws.push_back(roofline.ReadAnywhere(accesses));
    const std::vector<double> seconds = pages.Faults(accesses, false, options.chunk);
    faults.push_back(Median(seconds));
    late.push_back(Quantile(seconds, 0.99));
    writing.push_back(Median(pages.Faults(accesses, true, options.chunk)));
  }
  const bool right = pages.IsRight();
  const double fault_us = 1e6 * Median(faults), raw_us = 1e6 * Median(raws), beyond_us = fault_us - raw_us, miss_us = 1e6 * Median(managed);
  const double target_us = options.chunk <= 4096 ? kFaultsUsOf4K : kFaultsUs;
  const double least = options.limit < options.data ? 1 - static_cast<double>(options.limit) / static_cast<double>(options.data) : 0;  // by a policy that knows the future
  const PageStatistics statistics = GetPageStatistics();
  const Json stats = LibraryStats();
  Json result = {{"fault_us", fault_us}, {"fault_us_p99", 1e6 * Median(late)}, {"fault_us_writing", 1e6 * Median(writing)}, {"raw_us", raw_us}, {"beyond_us", beyond_us},
                 {"managed_miss_us", miss_us}, {"read_gb_s", read.gb_s}, {"read_share", read.share}, {"read_brought", read.brought}, {"least_brought", least}, {"write_gb_s", write.gb_s}, {"write_share", write.share},
                 {"fitting_ratio", fitting}, {"beside_limit_mib_1", beside[0]}, {"beside_limit_mib_8", beside[1]}, {"stuck", statistics.stuck},
                 {"serves_system_calls", statistics.serves_system_calls}, {"verified", right}, {"stats", stats}};
  const auto verdict = [](bool held) { return std::string(held ? "held" : "MISSED"); };
  Report(options, std::move(result),
         "pages: " + FormatBytes(options.data) + " in blocks " + (options.adapts ? "as large as suits their use" : "of " + FormatBytes(options.chunk)) + ", limit " + FormatBytes(options.limit) + ", " + PlacesUsed(stats) + ", " +
             (statistics.serves_system_calls ? "faults served by a thread" : "faults served by a signal"),
         {{"a fault", Fixed(fault_us, 1) + " us", "median; 99 % below " + Fixed(1e6 * Median(late), 1) + " us; where what leaves was written " + Fixed(1e6 * Median(writing), 1) + " us"},
          {"raw transfer", Fixed(raw_us, 1) + " us", "as many bytes, by hand"},
          {"beyond it", Fixed(beyond_us, 1) + " us", "target " + Fixed(target_us, 0) + " us: " + verdict(beyond_us <= target_us)},
          {"managedPtr's miss", Fixed(miss_us, 1) + " us", options.adapts ? "chunks of 4 KiB" : "chunks of the same size"},
          {"sweep, reading", Fixed(read.gb_s, 2) + " GB/s", Fixed(100 * read.share, 0) + " % of its transfers and its loop by hand; target 85 %: " + verdict(read.share >= kSweepShare)},
          {"brought by it", Fixed(read.brought, 3), "of the data; what does not fit is " + Fixed(least, 3) + "; target 1.10 of that: " + verdict(read.brought <= kReadOverLeast * least)},
          {"sweep, writing", Fixed(write.gb_s, 2) + " GB/s", Fixed(100 * write.share, 0) + " % of it; target 85 %: " + verdict(write.share >= kSweepShare)},
          {"all in memory", Fixed(fitting, 3), "time over that of plain memory; target 1.01: " + verdict(fitting <= kFittingRatio)},
          {"memory", Fixed(beside[0], 1) + " MiB", "of the process's own above the limit and what it had at its start, at most; 8 threads " + Fixed(beside[1], 1) + " MiB; target 4: " +
                                                      verdict(std::max(beside[0], beside[1]) <= kBesideLimitMib)},
          {"data", right ? "right" : "WRONG", "every word compared at the end"}});
  return right ? 0 : 1;
}

}  // namespace ramspan::bench
