// stream: sweeps over data larger than the limit, chunk by chunk, after a fill. What most out-of-core programs do.
#include <cstdlib>
#include <memory>
#include <vector>

#include "bench/report.h"
#include "bench/roofline.h"
#include "common/units.h"
#include "ramspan/managed_ptr.h"

namespace ramspan::bench {
namespace {

class Stream {
 public:
  explicit Stream(const BenchOptions& options)
      : options_(options), write_(options.mode == "rmw"), count_(options.chunk / sizeof(uint64_t)) {
    for (uint64_t i = 0; i < options.data / options.chunk; ++i) chunks_.emplace_back(count_);
  }

  double bytes() const { return static_cast<double>(chunks_.size() * options_.chunk); }

  double Fill() {
    const double begin = Now();
    for (size_t c = 0; c < chunks_.size(); ++c) {
      adhereTo<uint64_t> glue(chunks_[c]);
      uint64_t* const elements = glue;
      for (size_t i = 0; i < count_; ++i) elements[i] = c * count_ + i;
    }
    return Now() - begin;
  }

  double Sweep() {
    const double begin = Now();
    for (const managedPtr<uint64_t>& chunk : chunks_) {
      const adhereTo<uint64_t> reader(chunk);
      if (write_) {
        adhereTo<uint64_t> glue(chunk);
        AddOne(glue, count_);
      } else {
        sink_ += Sum(reader, count_);
      }
    }
    sweeps_ += write_ ? 1 : 0;
    return Now() - begin;
  }

  bool IsRight() const {
    for (size_t c = 0; c < chunks_.size(); ++c) {
      const adhereTo<uint64_t> glue(chunks_[c]);
      const uint64_t* const elements = glue;
      for (size_t i = 0; i < count_; ++i) {
        if (elements[i] != c * count_ + i + sweeps_) return false;
      }
    }
    return true;
  }

 private:
  const BenchOptions& options_;
  const bool write_;
  const size_t count_;
  std::vector<managedPtr<uint64_t>> chunks_;
  uint64_t sweeps_ = 0;
  uint64_t sink_ = 0;
};

// The one that fits where the bytes went: memory or a file.
class StreamRoofline {
 public:
  StreamRoofline(const BenchOptions& o, bool files) : write_(o.mode == "rmw") {
    const size_t bytes = std::min<uint64_t>(o.data, uint64_t{512} << 20);
    const char* tmpdir = std::getenv("TMPDIR");
    const std::string fallback = tmpdir != nullptr && *tmpdir != '\0' ? tmpdir : "/tmp";
    if (files) {
      file_ = std::make_unique<FileRoofline>(o.directory.empty() ? fallback : o.directory, o.direct, o.chunk, o.data);
    } else {
      shared_ = std::make_unique<SharedRoofline>(o.chunk, bytes, std::min<uint64_t>(o.limit, uint64_t{128} << 20));
    }
  }
  PassTimes Sweep() { return file_ ? file_->Sweep(write_) : shared_->Sweep(write_); }

 private:
  const bool write_;
  std::unique_ptr<FileRoofline> file_;
  std::unique_ptr<SharedRoofline> shared_;
};

struct Figures {
  std::vector<double> sweeps, rooflines, put, get, compute;  // GB/s
};

Figures Measure(const BenchOptions& options, Stream* stream, StreamRoofline* roofline) {
  Figures figures;
  for (int i = 0; i < options.repetitions; ++i) {
    Settle();
    figures.sweeps.push_back(GbPerSecond(stream->bytes(), stream->Sweep()));
    Settle();
    const PassTimes times = roofline->Sweep();
    const auto bytes = static_cast<double>(times.bytes);
    figures.rooflines.push_back(GbPerSecond(bytes, times.total()));
    if (times.put > 0) figures.put.push_back(GbPerSecond(bytes, times.put));
    figures.get.push_back(GbPerSecond(bytes, times.get));
    figures.compute.push_back(GbPerSecond(bytes, times.compute));
  }
  return figures;
}

std::string Target(const BenchOptions& o, bool files) {
  if (files) return o.direct ? "target 80 %" : "";
  return o.mode == "rmw" ? "target 60 %" : "target 70 %";
}

}  // namespace

int RunStream(const BenchOptions& options) {
  ConfigureLibrary(options);
  Stream stream(options);
  const double fill = GbPerSecond(stream.bytes(), stream.Fill());
  const Json before = LibraryStats();
  const bool files = before["tiers"].size() < 2;
  StreamRoofline roofline(options, files);
  const Figures figures = Measure(options, &stream, &roofline);
  const Json after = LibraryStats();
  const bool right = stream.IsRight();

  const double sweep = Median(figures.sweeps), best = Median(figures.rooflines);
  const double per_sweep = 1.0 / (options.repetitions * stream.bytes());
  const auto moved = [&](const char* key) {
    return static_cast<double>(TierBytes(after, key) - TierBytes(before, key)) * per_sweep;
  };
  Json result = {{"fill_gb_s", fill}, {"sweep_gb_s", sweep}, {"sweeps_gb_s", figures.sweeps},
                 {"roofline_gb_s", best}, {"ratio", sweep / best}, {"put_gb_s", Median(figures.put)},
                 {"get_gb_s", Median(figures.get)}, {"compute_gb_s", Median(figures.compute)},
                 {"moved_out_per_sweep", moved("bytes_out")}, {"moved_in_per_sweep", moved("bytes_in")},
                 {"verified", right}, {"stats", after}};
  const std::string title = "stream " + options.mode + ": " + FormatBytes(options.data) + " in chunks of " +
                            FormatBytes(options.chunk) + ", limit " + FormatBytes(options.limit) + ", " +
                            PlacesUsed(after) + (files ? options.direct ? " (O_DIRECT)" : " (page cache)" : "");
  const std::string parts = (figures.put.empty() ? "" : "put " + Fixed(Median(figures.put), 1) + ", ") + "get " +
                            Fixed(Median(figures.get), 1) + ", compute " + Fixed(Median(figures.compute), 1) + " GB/s";
  Report(options, std::move(result), title,
         {{"fill", Fixed(fill, 2) + " GB/s", ""},
          {"sweep", Fixed(sweep, 2) + " GB/s", "median of " + std::to_string(options.repetitions)},
          {"roofline", Fixed(best, 2) + " GB/s", parts},
          {"ratio", Fixed(100 * sweep / best, 0) + " %", Target(options, files)},
          {"moved a sweep", Fixed(100 * moved("bytes_out"), 0) + " % out",
           Fixed(100 * moved("bytes_in"), 0) + " % in (of the data)"},
          {"data", right ? "right" : "WRONG", "every element compared at the end"}});
  return right ? 0 : 1;
}

}  // namespace ramspan::bench
