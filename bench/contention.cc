// ramspan-bench-contention: many threads in one engine. A program of its own, because it looks inside the library, which it has as an archive,
// and stands between that and pthread's mutexes (contention_locks.h). `ramspan bench contention` runs it.
//   ramspan-bench-contention PART|all quick|full json|table CHUNKS
#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/contention_bed.h"
#include "bench/experiment.h"
#include "common/topology.h"
#include "common/units.h"

namespace ramspan::bench {
namespace {

constexpr uint64_t kKiB = 1024, kMiB = kKiB * kKiB;
constexpr double kLocksTargetUs = 0.5, kTailTarget = 20, kScaleTarget = 1.3;
// Machines have their noise: what is "as fast" may be so much slower.
constexpr double kAsFast = 0.95;

double Seconds(const BenchOptions& options) { return options.quick ? 0.02 : 0.5; }
// A quarter of the data is in memory.
BedOptions Quarter(uint64_t chunk_bytes, uint64_t frames, uint32_t servers) {
  return {.chunk_bytes = chunk_bytes, .chunks = 4 * frames, .frames_bytes = frames * chunk_bytes, .servers = servers};
}
uint64_t FramesOf(const BenchOptions& options, uint64_t chunk_bytes) { return (chunk_bytes < 16 * kKiB ? 4096 : 1024) / (options.quick ? 4 : 1); }

std::string Verdict(const Bed& bed) { return bed.right() ? "right" : "WRONG"; }

// A row: the rate without the meter, and what the meter says of a second run.
struct Measured {
  Bed::Misses free, metered;
  double PerMiss(double ns) const { return metered.misses == 0 ? 0 : ns / 1e3 / static_cast<double>(metered.misses); }
  double locked_us() const { return PerMiss(metered.locks.any.held_ns - metered.locks.preempted_ns); }
};
Measured Measure(Bed* bed, int threads, double seconds) {
  Measured one;
  one.free = bed->MissAtRandom(threads, seconds, false);
  if (LockMeter::Works()) one.metered = bed->MissAtRandom(threads, seconds, true);
  return one;
}

int RunMisses(BenchOptions options) {
  options.only = "misses";
  Table table(options, "misses: threads that miss at once, chunks at random, a quarter of the data in memory",
              {"chunk", "swap", "threads", "misses/s", "CPU us a miss", "locked us a miss", "of it the engine", "locks a miss", "waited us a miss", "holds without a core", "data"});
  bool right = true;
  double worst = 0, sixteen_over_two = 1e9;
  for (const uint64_t chunk : {4 * kKiB, 64 * kKiB}) {
    for (const uint32_t servers : {0u, 1u}) {
      Bed bed(Quarter(chunk, FramesOf(options, chunk), servers));
      double two = 0;
      for (const int threads : {1, 2, 8, 16, 64}) {
        const Measured m = Measure(&bed, threads, Seconds(options));
        const LockMeter::Times& locks = m.metered.locks;
        const double cpu_us = m.free.cpu_seconds * 1e6 / static_cast<double>(std::max<uint64_t>(1, m.free.misses));
        const double engine_us = m.PerMiss(locks.watched.held_ns - locks.preempted_ns);
        if (threads >= 8) worst = std::max(worst, m.locked_us());
        if (threads == 2) two = m.free.per_second();
        if (threads == 16) sixteen_over_two = std::min(sixteen_over_two, m.free.per_second() / two);
        right = right && bed.right();
        const char* const swap = servers == 0 ? "nothing" : "server";
        table.AddRow({{"chunk_bytes", chunk}, {"swap", swap}, {"threads", threads}, {"misses_per_s", m.free.per_second()}, {"cpu_us", cpu_us}, {"locked_us", m.locked_us()},
                      {"engine_locked_us", engine_us}, {"locks", m.PerMiss(static_cast<double>(locks.any.times)) * 1e3}, {"waited_us", m.PerMiss(locks.wait_ns)},
                      {"holds_without_core", locks.preempted}, {"holds_without_core_us", m.PerMiss(locks.preempted_ns)}, {"locks_counted", LockMeter::Works()}, {"verified", bed.right()}},
                     {FormatBytes(chunk), swap, std::to_string(threads), Fixed(m.free.per_second(), 0), Fixed(cpu_us, 2), Fixed(m.locked_us(), 2), Fixed(engine_us, 2),
                      Fixed(m.PerMiss(static_cast<double>(locks.any.times)) * 1e3, 1), Fixed(m.PerMiss(locks.wait_ns), 2),
                      std::to_string(locks.preempted) + ", " + Fixed(m.PerMiss(locks.preempted_ns), 2) + " us a miss", Verdict(bed)});
      }
    }
  }
  if (LockMeter::Works()) {
    table.AddTarget("locked_us", worst, "under 0.5 us of shared locks a miss, 8 threads and more", worst < kLocksTargetUs, Fixed(worst, 2) + " us at worst");
  } else {
    table.AddNote("locks are not counted in a build with a sanitizer");
  }
  table.AddTarget("sixteen_over_two", sixteen_over_two, "16 threads not slower than 2", sixteen_over_two >= kAsFast, Fixed(sixteen_over_two, 2) + " x at worst, of " + std::to_string(std::thread::hardware_concurrency()) + " cores");
  table.AddNote("locked: from taking the first mutex to letting go of the last, of any thread, mover included; holds of more than " + Fixed(LockMeter::kPreemptedUs, 0) +
                " us are counted apart: their thread had no core");
  table.Print();
  return right ? 0 : 1;
}

int RunPins(BenchOptions options) {
  options.only = "pins";
  Table table(options, "pins: a chunk that stays in memory is pinned, each pin timed, while others miss",
              {"chunk", "swap", "missing threads", "a pin, ns", "p99.9 ns", "ratio", "largest us", "pins", "evictions"});
  double worst = 0;
  bool right = true;
  for (const uint64_t chunk : {4 * kKiB, 64 * kKiB}) {
    const uint32_t servers = chunk < 16 * kKiB ? 0 : 1;
    Bed bed(Quarter(chunk, FramesOf(options, chunk), servers));
    for (const int threads : {1, 8}) {
      const Bed::Pins pins = bed.PinWhileOthersMiss(threads, 2 * Seconds(options));
      const double ratio = pins.p999_ns / pins.usual_ns;
      worst = std::max(worst, ratio);
      const char* const swap = servers == 0 ? "nothing" : "server";
      table.AddRow({{"chunk_bytes", chunk}, {"swap", swap}, {"threads", threads}, {"pin_ns", pins.usual_ns}, {"p999_ns", pins.p999_ns}, {"max_ns", pins.max_ns}, {"ratio", ratio}, {"pins", pins.pins}, {"evictions", pins.evictions}},
                   {FormatBytes(chunk), swap, std::to_string(threads), Fixed(pins.usual_ns, 2), Fixed(pins.p999_ns, 1), Fixed(ratio, 1), Fixed(pins.max_ns / 1e3, 0), std::to_string(pins.pins), std::to_string(pins.evictions)});
    }
    right = right && bed.right();
  }
  table.AddTarget("p999_over_pin", worst, "p99.9 at most 20 times a pin", worst <= kTailTarget, Fixed(worst, 1) + " at worst");
  table.AddNote("a pin: the mean of a million that nobody times or disturbs, for one is shorter than a look at the clock; p99.9 is without the clock's own time");
  table.Print();
  return right ? 0 : 1;
}

struct Scale {
  double create_ns = 0, miss_ns = 0, destroy_ns = 0;
};
// Median of several engines, each as fresh as the one with many chunks.
Scale MeasureScale(uint64_t chunks, int rounds, double seconds, bool* right) {
  std::vector<double> create, miss, destroy;
  for (int i = 0; i < rounds; ++i) {
    Bed bed({.chunk_bytes = 64, .chunks = chunks, .frames_bytes = 2048 * kSwapGranule});
    create.push_back(bed.create_ns());
    const Bed::Misses misses = bed.MissAtRandom(1, seconds, false);
    miss.push_back(1e9 / misses.per_second());
    *right = *right && bed.right();
    destroy.push_back(bed.DestroyAll());
  }
  return {Median(create), Median(miss), Median(destroy)};
}

int RunScale(BenchOptions options) {
  options.only = "scale";
  Table table(options, "scale: an operation of one thread, with few chunks and with many, frames for 2048 of them, swap that costs nothing", {"operation", "10000 chunks", std::to_string(options.chunks) + " chunks", "ratio"});
  bool right = true;
  const Scale few = MeasureScale(10'000, options.quick ? 1 : 5, Seconds(options) / 2, &right), many = MeasureScale(options.chunks, 1, 2 * Seconds(options), &right);
  double worst = 0;
  const auto row = [&](const char* what, double a, double b) {
    worst = std::max(worst, b / a);
    table.AddRow({{"operation", what}, {"few", 10'000}, {"many", options.chunks}, {"few_ns", a}, {"many_ns", b}, {"ratio", b / a}}, {what, Fixed(a, 0) + " ns", Fixed(b, 0) + " ns", Fixed(b / a, 2)});
  };
  row("create", few.create_ns, many.create_ns);
  row("miss", few.miss_ns, many.miss_ns);
  row("destroy", few.destroy_ns, many.destroy_ns);
  table.AddTarget("scale_ratio", worst, "an operation at most 1.3 times as long with as many chunks", worst <= kScaleTarget, Fixed(worst, 2) + " at worst");
  table.Print();
  return right ? 0 : 1;
}

int RunServers(BenchOptions options) {
  options.only = "servers";
  Table table(options, "servers: two threads that miss chunks of 64 KiB, memory servers within this process, reached by load and store", {"servers", "that hold data", "misses/s", "locked us a miss"});
  std::vector<double> rates[2];
  bool right = true;
  const uint64_t frames = 2 * FramesOf(options, 64 * kKiB);
  Bed one(Quarter(64 * kKiB, frames, 1)), sixteen(Quarter(64 * kKiB, frames, 16));
  Bed* const beds[] = {&one, &sixteen};
  Measured last[2];
  for (int round = 0; round < (options.quick ? 1 : 5); ++round) {  // in turn, so that both see the same machine
    for (int i = 0; i < 2; ++i) {
      last[i] = Measure(beds[i], 2, Seconds(options));
      rates[i].push_back(last[i].free.per_second());
    }
  }
  for (int i = 0; i < 2; ++i) {
    const int servers = i == 0 ? 1 : 16;
    right = right && beds[i]->right();
    table.AddRow({{"servers", servers}, {"servers_used", beds[i]->servers_used()}, {"misses_per_s", Median(rates[i])}, {"locked_us", last[i].locked_us()}},
                 {std::to_string(servers), std::to_string(beds[i]->servers_used()), Fixed(Median(rates[i]), 0) + " (" + Range(rates[i], 0) + ")", Fixed(last[i].locked_us(), 2)});
  }
  const double ratio = Median(rates[1]) / Median(rates[0]);
  table.AddTarget("sixteen_servers_over_one", ratio, "16 servers as fast as one", ratio >= kAsFast, Fixed(ratio, 2) + " x");
  table.Print();
  return right ? 0 : 1;
}

int RunLarge(BenchOptions options) {
  options.only = "large";
  constexpr uint64_t kLarge = 8 * kMiB;
  Table table(options, "large: one thread misses chunks of 8 MiB while others miss chunks of 4 KiB; 32 MiB of memory, swap that costs nothing", {"small missing threads", "large misses", "p50 us", "largest us", "frames of others, at most"});
  bool right = true, bounded = true;
  uint64_t most = 0;
  for (const int threads : {0, 1, 8, 16}) {
    Bed bed(Quarter(4 * kKiB, 8192, 0));
    const Bed::Large large = bed.MissLarge(threads, kLarge, 2 * Seconds(options));
    right = right && bed.right();
    most = std::max(most, large.past);
    bounded = bounded && large.past <= 64 + static_cast<uint64_t>(threads);
    table.AddRow({{"threads", threads}, {"misses", large.misses}, {"p50_us", large.p50_us}, {"max_us", large.max_us}, {"past", large.past}},
                 {std::to_string(threads), std::to_string(large.misses), Fixed(large.p50_us, 0), Fixed(large.max_us, 0), std::to_string(large.past)});
  }
  table.AddTarget("past", static_cast<double>(most), "at most 64 frames, and one for each thread before it, go to others while a large chunk waits", bounded, std::to_string(most));
  table.Print();
  return right ? 0 : 1;
}

int Main(int argc, char** argv) {
  if (argc != 5) throw std::runtime_error("`ramspan bench contention` runs it");
  BenchOptions options;
  options.name = "contention";
  const std::string part = argv[1];
  options.quick = argv[2] == std::string("quick");
  options.json = argv[3] == std::string("json");
  options.chunks = std::stoull(argv[4]);
  int worst = 0;
  const std::vector<std::string> parts = {"all", "scale", "servers", "pins", "large", "misses"};
  if (std::find(parts.begin(), parts.end(), part) == parts.end()) throw std::runtime_error("--experiment is all, scale, servers, pins, large or misses");
  // Descriptors, what the benchmark notes of each chunk, and some hundred MiB of data.
  const uint64_t needed = options.chunks * 128 + (uint64_t{1} << 30);
  if (needed > AvailableMemory()) {
    throw std::runtime_error("--chunks " + std::to_string(options.chunks) + " takes " + FormatBytes(needed) + " of memory, and " + FormatBytes(AvailableMemory()) + " are free: take fewer");
  }
  // `misses` comes last: tables of pins are made for its 64 threads, and are looked through by evictions from then on.
  const auto run = [&](const char* name, int (*one)(BenchOptions)) {
    if (part == "all" || part == name) worst = std::max(worst, one(options));
  };
  run("scale", RunScale);
  run("servers", RunServers);
  run("pins", RunPins);
  run("large", RunLarge);
  run("misses", RunMisses);
  return worst;
}

}  // namespace
}  // namespace ramspan::bench

int main(int argc, char** argv) {
  try {
    return ramspan::bench::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ramspan-bench contention: %s\n", e.what());
    return 1;
  }
}
