// small: objects of a few bytes, each a managedPtr of its own: what making and destroying one costs, what it takes beside
// its data, and how fast many of them go to swap and back.
#include <algorithm>
#include <memory>
#include <vector>

#include "bench/report.h"
#include "common/units.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/runtime.h"

namespace ramspan::bench {
namespace {

constexpr size_t kChunk = 64 << 10;  // of the same bytes as one array: what a bundle is at most

class Objects {
 public:
  Objects(size_t count, size_t elements) : elements_(elements) { objects_.reserve(count); }

  // Nanoseconds an object.
  double Make(size_t count) {
    const double begin = Now();
    for (size_t i = 0; i < count; ++i) objects_.emplace_back(elements_);
    return (Now() - begin) * 1e9 / static_cast<double>(count);
  }
  double Destroy() {
    const double begin = Now();
    const auto count = static_cast<double>(objects_.size());
    objects_.clear();
    return (Now() - begin) * 1e9 / count;
  }
  void Fill() {
    for (size_t i = 0; i < objects_.size(); ++i) {
      adhereTo<uint64_t> glue(objects_[i]);
      std::fill_n(static_cast<uint64_t*>(glue), elements_, i);
    }
  }
  double Sweep() {
    const double begin = Now();
    for (const managedPtr<uint64_t>& object : objects_) {
      adhereTo<uint64_t> glue(object);
      uint64_t* const p = glue;
      for (size_t i = 0; i < elements_; ++i) ++p[i];
    }
    ++sweeps_;
    return Now() - begin;
  }
  bool IsRight() const {
    for (size_t i = 0; i < objects_.size(); ++i) {
      const adhereTo<uint64_t> glue(objects_[i]);
      const uint64_t* const p = glue;
      if (!std::all_of(p, p + elements_, [&](uint64_t x) { return x == i + sweeps_; })) return false;
    }
    return true;
  }

 private:
  const size_t elements_;
  std::vector<managedPtr<uint64_t>> objects_;
  uint64_t sweeps_ = 0;
};

// The same bytes in chunks that the program cut itself.
class Chunks {
 public:
  explicit Chunks(size_t bytes) {
    for (size_t done = 0; done < bytes; done += kChunk) chunks_.emplace_back(kChunk / sizeof(uint64_t), uint64_t{0});
  }
  double Sweep() {
    const double begin = Now();
    for (const managedPtr<uint64_t>& chunk : chunks_) {
      adhereTo<uint64_t> glue(chunk);
      uint64_t* const p = glue;
      for (size_t i = 0; i < chunk.size(); ++i) ++p[i];
    }
    return Now() - begin;
  }

 private:
  std::vector<managedPtr<uint64_t>> chunks_;
};

struct Sweeps {
  double resident_s = 0, swapping_s = 0;
  double bytes_moved = 0, transfers = 0;  // of one swapping sweep, in and out
  double moved_gb_s() const { return GbPerSecond(bytes_moved, swapping_s - resident_s); }
};

// In memory, then with frames for a quarter of the data. `metadata` is what the limit holds besides.
template <typename Data>
Sweeps Measure(const BenchOptions& options, Data* data, uint64_t bytes) {
  // 256 KiB: the part of a small limit that is kept for metadata to grow, and slots' bitmaps.
  const auto limit = [](uint64_t frames) { return frames + LibraryStats()["metadata_bytes"].get<uint64_t>() + (256 << 10); };
  std::vector<double> resident, swapping;
  Sweeps result;
  SetMemoryLimit(limit(2 * bytes));
  data->Sweep();
  for (int i = 0; i < options.repetitions; ++i) resident.push_back(data->Sweep());
  SetMemoryLimit(limit(bytes / 4));
  data->Sweep();
  const Statistics before = GetStatistics();
  for (int i = 0; i < options.repetitions; ++i) {
    Settle();
    swapping.push_back(data->Sweep());
  }
  const Statistics after = GetStatistics();
  result.resident_s = Median(resident);
  result.swapping_s = Median(swapping);
  const auto each = [&](uint64_t a, uint64_t b) { return static_cast<double>(b - a) / options.repetitions; };
  result.bytes_moved = each(before.bytes_in + before.bytes_out, after.bytes_in + after.bytes_out);
  result.transfers = each(before.reads + before.writes, after.reads + after.writes);
  return result;
}

}  // namespace

int RunSmall(const BenchOptions& options) {
  ConfigureLibrary(options);
  const size_t elements = options.chunk / sizeof(uint64_t);
  const auto count = static_cast<size_t>(options.chunks);
  const uint64_t bytes = options.chunk * options.chunks;
  const auto n = static_cast<double>(count);
  auto objects = std::make_unique<Objects>(count, elements);
  std::vector<double> make, destroy;
  const double empty = LibraryStats()["metadata_bytes"].get<double>();
  for (int i = 0; i < options.repetitions; ++i) {
    make.push_back(objects->Make(count));
    destroy.push_back(objects->Destroy());
  }
  objects->Make(count);
  const double metadata = (LibraryStats()["metadata_bytes"].get<double>() - empty) / n;
  objects->Fill();
  const Sweeps small = Measure(options, objects.get(), bytes);
  const bool right = objects->IsRight();
  objects.reset();
  Chunks chunks(bytes);
  const Sweeps large = Measure(options, &chunks, bytes);

  const double handle = sizeof(managedPtr<uint64_t>);
  Json result = {{"objects", count}, {"object_bytes", options.chunk}, {"make_ns", Median(make)},
                 {"destroy_ns", Median(destroy)}, {"metadata_bytes_per_object", metadata}, {"handle_bytes", handle},
                 {"resident_ns", small.resident_s * 1e9 / n}, {"swapping_ns", small.swapping_s * 1e9 / n},
                 {"transfers_per_sweep", small.transfers}, {"moved_gb_s", small.moved_gb_s()},
                 {"chunks_moved_gb_s", large.moved_gb_s()}, {"sweep_gb_s", GbPerSecond(static_cast<double>(bytes), small.swapping_s)},
                 {"verified", right}, {"stats", LibraryStats()}};
  const std::string pairs = "median of " + std::to_string(options.repetitions);
  Report(options, std::move(result),
         "small: " + std::to_string(count) + " objects of " + FormatBytes(options.chunk) + ", " + PlacesUsed(LibraryStats()),
         {{"make one", Fixed(Median(make), 1) + " ns", pairs + "; target 40"},
          {"destroy one", Fixed(Median(destroy), 1) + " ns", pairs + "; target 40"},
          {"beside its data", Fixed(metadata + handle, 1) + " bytes",
           Fixed(metadata, 1) + " in the library, 8 the managedPtr; target 24"},
          {"sweep in memory", Fixed(small.resident_s * 1e9 / n, 2) + " ns", "adhere, pull, change, release: one object"},
          {"sweep that swaps", Fixed(small.swapping_s * 1e9 / n, 2) + " ns", "frames for a quarter of the data"},
          {"swap traffic", Fixed(small.moved_gb_s(), 2) + " GB/s",
           Fixed(small.transfers, 0) + " transfers a sweep; of the time that swapping adds"},
          {"the same as chunks", Fixed(large.moved_gb_s(), 2) + " GB/s", "of " + FormatBytes(kChunk) + ", one managedPtr each"},
          {"data", right ? "right" : "WRONG", "every element compared at the end"}});
  return right ? 0 : 1;
}

}  // namespace ramspan::bench
