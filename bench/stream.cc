// stream: sweeps over data larger than the limit, chunk by chunk, after a fill. What most out-of-core programs do.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "bench/load.h"
#include "bench/network_roofline.h"
#include "bench/parallel.h"
#include "bench/report.h"
#include "bench/roofline.h"
#include "bench/together.h"
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

  // Each thread sweeps over its own part, in order.
  double Sweep() {
    const double begin = Now();
    const auto visit = [this](size_t c, Part* part) { part->sum += Visit(chunks_[c], &part->waits); };
    for (const Part& part : InParallel<Part>(options_.threads, chunks_.size(), visit)) {
      sink_ += part.sum;
      waits_.insert(waits_.end(), part.waits.begin(), part.waits.end());
    }
    ++sweeps_;
    return Now() - begin;
  }

  uint64_t sweeps() const { return sweeps_; }

  // Seconds of each pull that had to wait since this was asked last.
  std::vector<double> TakeWaits() { return std::exchange(waits_, {}); }

  bool IsRight() const {
    for (size_t c = 0; c < chunks_.size(); ++c) {
      const adhereTo<uint64_t> glue(chunks_[c]);
      const uint64_t* const elements = glue;
      for (size_t i = 0; i < count_; ++i) {
        if (elements[i] != c * count_ + i + (write_ ? sweeps_ : 0)) return false;
      }
    }
    return true;
  }

 private:
  // No pull of a chunk in memory takes as long, and no transfer is as short.
  static constexpr double kWaited = 2e-6;
  static constexpr size_t kWorkAtOnce = 256;

  // Of one thread's sweep.
  struct Part {
    uint64_t sum = 0;
    std::vector<double> waits;
  };

  uint64_t Visit(const managedPtr<uint64_t>& chunk, std::vector<double>* waits) {
    const double begin = Now();
    const adhereTo<uint64_t> reader(chunk);
    adhereTo<uint64_t> writer(chunk);
    uint64_t* const elements = write_ ? static_cast<uint64_t*>(writer) : nullptr;
    const uint64_t* const read = write_ ? elements : static_cast<const uint64_t*>(reader);
    const double there = Now();
    if (there - begin >= kWaited) waits->push_back(there - begin);
    uint64_t sum = 0;
    if (write_) {
      AddOne(elements, count_);
    } else {
      sum = Sum(read, count_);
    }
    while (Now() - there < 1e-6 * options_.work_us) {
      for (size_t i = 0; i < kWorkAtOnce; ++i) sum ^= read[i];
    }
    return sum;
  }

  const BenchOptions& options_;
  const bool write_;
  const size_t count_;
  std::vector<managedPtr<uint64_t>> chunks_;
  uint64_t sweeps_ = 0;
  uint64_t sink_ = 0;
  std::vector<double> waits_;
};

// The one that fits where the bytes went: memory of this node, a file, or the raw network.
class StreamRoofline {
 public:
  StreamRoofline(const BenchOptions& o, bool files) : write_(o.mode == "rmw"), data_(o.data) {
    if (NetworkRoofline::IsThere()) {
      network_ = std::make_unique<NetworkRoofline>();
      local_ = std::make_unique<Pages>(std::min<uint64_t>(o.limit, uint64_t{128} << 20), false);
      return;
    }
    const size_t bytes = std::min<uint64_t>(o.data, uint64_t{512} << 20);
    if (files) {
      file_ = std::make_unique<FileRoofline>(o.directory, o.direct, o.chunk, o.data);
    } else {
      shared_ = std::make_unique<SharedRoofline>(o.chunk, bytes, std::min<uint64_t>(o.limit, uint64_t{128} << 20));
    }
  }
  PassTimes Sweep() { return network_ ? NetworkSweep() : file_ ? file_->Sweep(write_) : shared_->Sweep(write_); }
  const NetworkRoofline* network() const { return network_.get(); }

 private:
  // Put and get as the raw network would do all of the data, one after the other; the compute pass over memory of this process.
  PassTimes NetworkSweep() {
    network_->Measure();
    const RawRates rates = network_->Medians();
    PassTimes times;
    times.bytes = data_;
    const auto bytes = static_cast<double>(data_);
    times.get = NetworkRoofline::Seconds(rates, bytes, 0);
    if (write_) times.put = NetworkRoofline::Seconds(rates, 0, bytes);
    auto* const elements = reinterpret_cast<uint64_t*>(local_->data());
    const double begin = Now();
    if (write_) {
      AddOne(elements, local_->bytes() / sizeof(uint64_t));
    } else {
      sink_ += Sum(elements, local_->bytes() / sizeof(uint64_t));
    }
    times.compute = (Now() - begin) * bytes / static_cast<double>(local_->bytes());
    return times;
  }

  const bool write_;
  const uint64_t data_;
  std::unique_ptr<NetworkRoofline> network_;
  std::unique_ptr<Pages> local_;
  uint64_t sink_ = 0;
  std::unique_ptr<FileRoofline> file_;
  std::unique_ptr<SharedRoofline> shared_;
};

// Sweeps of one kind: with nothing beside them, or with a load.
struct Swept {
  std::vector<double> gb_s;
  std::vector<double> waits;                    // seconds
  std::vector<double> cpu_client, cpu_servers;  // seconds of CPU time a sweep, what it leaves for the mover included
  double cpu() const { return Median(cpu_client) + Median(cpu_servers); }
};

struct Figures {
  Swept alone, beside_load;
  std::vector<double> rooflines, put, get, compute;  // GB/s
};

void MeasureSweep(Stream* stream, Swept* sweeps) {
  Together& together = Together::Get();
  together.Wait();
  const double client = ProcessCpuSeconds(), servers = ServerCpuSeconds();
  sweeps->gb_s.push_back(together.Sum(GbPerSecond(stream->bytes(), stream->Sweep())));
  Settle();  // what the mover still does belongs to the sweep
  sweeps->cpu_client.push_back(ProcessCpuSeconds() - client);
  sweeps->cpu_servers.push_back(ServerCpuSeconds() - servers);
  const std::vector<double> waits = stream->TakeWaits();
  sweeps->waits.insert(sweeps->waits.end(), waits.begin(), waits.end());
}

Figures Measure(const BenchOptions& options, Stream* stream, StreamRoofline* roofline, Load* load) {
  Figures figures;
  Settle();
  for (int i = 0; i < options.repetitions; ++i) {
    if (roofline->network() != nullptr) stream->Sweep();  // warms up, as the raw loops do (network_roofline.h)
    stream->TakeWaits();
    MeasureSweep(stream, &figures.alone);
    if (load->processes() > 0) {
      load->Run();
      MeasureSweep(stream, &figures.beside_load);
      load->Rest();
    }
    const PassTimes times = roofline->Sweep();
    const auto bytes = static_cast<double>(times.bytes);
    figures.rooflines.push_back(GbPerSecond(bytes, times.total()));
    if (times.put > 0) figures.put.push_back(GbPerSecond(bytes, times.put));
    figures.get.push_back(GbPerSecond(bytes, times.get));
    figures.compute.push_back(GbPerSecond(bytes, times.compute));
    Settle();
  }
  return figures;
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

// Whether servers work for each transfer. A server on this node lends memory that the waiting thread copies by itself, and
// sleeps meanwhile; one that is reached over a network uses about as much CPU time as its clients.
bool ServersTakePart(const Swept& alone) { return 10 * Median(alone.cpu_servers) > Median(alone.cpu_client); }

// What a wait may take when others run, too: five times what it takes alone, and a slice for each of two others that are before
// it whenever somebody has to get a core for it. That is the waiting thread itself. Where servers take part it is two
// transfers, one out to make room and one in, and for each of them the server and the thread that waits for its answer.
struct Explained {
  int slices;
  double seconds;
};
Explained LongestExplained(const Swept& alone) {
  constexpr int kOthersBefore = 2, kTransfers = 2, kSidesOfATransfer = 2;
  const int slices = kOthersBefore * (ServersTakePart(alone) ? kTransfers * kSidesOfATransfer : 1);
  return {slices, 5 * Median(alone.waits) + slices * TimeSliceSeconds()};
}

void AddLoadFigures(const BenchOptions& o, const Figures& f, Json* result, std::vector<Row>* rows) {
  (*result)["cpu_client_s"] = Median(f.alone.cpu_client);
  (*result)["cpu_servers_s"] = Median(f.alone.cpu_servers);
  rows->push_back({"CPU time a sweep", Fixed(f.alone.cpu(), 3) + " s",
                   "this process " + Fixed(Median(f.alone.cpu_client), 3) + ", servers " +
                       Fixed(Median(f.alone.cpu_servers), 3) + " s"});
  if (o.busy == 0) return;
  const Swept& loaded = f.beside_load;
  const Explained bound = LongestExplained(f.alone);
  const auto late = static_cast<uint64_t>(
      std::count_if(loaded.waits.begin(), loaded.waits.end(), [&](double wait) { return wait > bound.seconds; }));
  const double cpu_ratio = loaded.cpu() / f.alone.cpu();
  result->update({{"busy_sweep_gb_s", Median(loaded.gb_s)}, {"busy_cpu_client_s", Median(loaded.cpu_client)},
                  {"busy_cpu_servers_s", Median(loaded.cpu_servers)}, {"busy_cpu_ratio", cpu_ratio},
                  {"wait_median_s", Median(f.alone.waits)}, {"wait_max_s", Quantile(f.alone.waits, 1)},
                  {"busy_wait_median_s", Median(loaded.waits)}, {"busy_wait_p99_s", Quantile(loaded.waits, 0.99)},
                  {"busy_wait_max_s", Quantile(loaded.waits, 1)}, {"busy_wait_bound_s", bound.seconds},
                  {"busy_wait_bound_slices", bound.slices}, {"busy_waits", loaded.waits.size()}, {"busy_waits_beyond_bound", late}});
  rows->push_back({"beside " + std::to_string(o.busy) + " busy processes", Fixed(Median(loaded.gb_s), 2) + " GB/s",
                   Fixed(100 * Median(loaded.gb_s) / Median(f.alone.gb_s), 0) + " % of the sweep alone"});
  rows->push_back({"  CPU time a sweep", Fixed(loaded.cpu(), 3) + " s",
                   "x " + Fixed(cpu_ratio, 2) + " (target 1.25): this process " + Fixed(Median(loaded.cpu_client), 3) +
                       ", servers " + Fixed(Median(loaded.cpu_servers), 3) + " s"});
  rows->push_back({"  waits of pulls, alone", Fixed(1e6 * Median(f.alone.waits), 0) + " us",
                   "median of " + std::to_string(f.alone.waits.size()) + "; longest " +
                       Fixed(1e6 * Quantile(f.alone.waits, 1), 0) + " us"});
  rows->push_back({"  waits beside the load", Fixed(1e6 * Median(loaded.waits), 0) + " us",
                   "median of " + std::to_string(loaded.waits.size()) + "; 99 % " +
                       Fixed(1e6 * Quantile(loaded.waits, 0.99), 0) + ", longest " +
                       Fixed(1e6 * Quantile(loaded.waits, 1), 0) + " us; " + std::to_string(late) +
                       " beyond what the load explains (" + Fixed(1e6 * bound.seconds, 0) + " us: " +
                       std::to_string(bound.slices) + " time slices and 5 x the median alone)"});
}

// Chunks that were there when their pull came. What takes less than half of a transfer is no wait for it, nor what it takes to wake the mover,
// 10 to 25 us on virtual machines.
void AddWorkFigures(const BenchOptions& o, const Figures& f, Json* result, std::vector<Row>* rows) {
  if (o.work_us == 0) return;
  const double transfer = static_cast<double>(o.chunk) / (1e9 * Median(f.get));
  constexpr double kWake = 30e-6;
  const auto late = static_cast<double>(std::count_if(f.alone.waits.begin(), f.alone.waits.end(), [&](double wait) { return wait > std::max(transfer / 2, kWake); }));
  const double pulls = static_cast<double>(o.data / o.chunk) * o.repetitions, ready = 1 - late / pulls;
  const bool hides = 1e-6 * o.work_us > transfer;
  const double work = 1e-6 * o.work_us * static_cast<double>(o.data / o.chunk) / o.threads;
  const double over_work = static_cast<double>(o.data) / (1e9 * Median(f.alone.gb_s)) / work;
  result->update({{"ready_share", ready}, {"transfer_s", transfer}, {"sweep_over_work", over_work}});
  rows->push_back({"ready when pulled", Fixed(100 * ready, 1) + " %",
                   "of " + Fixed(pulls, 0) + (hides ? "; target 98 %: " : "; ") + Fixed(o.work_us, 0) + " us of work a chunk, " + Fixed(1e6 * transfer, 0) + " us its transfer"});
  rows->push_back({"  sweep over its work", Fixed(over_work, 3) + " x", Fixed(work, 3) + " s of work a sweep"});
}

std::string Target(const BenchOptions& o, bool files, bool network) {
  if (o.work_us > 0) return "";
  if (network) return "target 85 %";
  if (files) return o.direct ? "target 80 %" : "";
  return o.mode == "rmw" ? "target 60 %" : "target 70 %";
}

}  // namespace

int RunStream(const BenchOptions& options) {
  Load load(options.busy);
  ConfigureLibrary(options);
  Stream stream(options);
  const double fill = GbPerSecond(stream.bytes(), stream.Fill());
  const Json before = LibraryStats();
  const bool files = before["tiers"].size() < 2;
  StreamRoofline roofline(options, files);
  const Figures figures = Measure(options, &stream, &roofline, &load);
  const Json after = LibraryStats();
  const bool right = stream.IsRight();

  const double per_sweep = 1.0 / (static_cast<double>(stream.sweeps()) * stream.bytes());
  const auto moved = [&](const char* key) {
    return static_cast<double>(TierBytes(after, key) - TierBytes(before, key)) * per_sweep;
  };
  const NetworkRoofline* const network = roofline.network();
  const double sweep = Median(figures.alone.gb_s);
  // A network's roofline moves what the library moved, which is less than the data; memory's and a file's move all.
  const double all_bytes = stream.bytes() * Together::Get().clients();
  const double moved_s = network ? NetworkRoofline::Seconds(network->Medians(), moved("bytes_in") * all_bytes, moved("bytes_out") * all_bytes) : 0;
  const double best = network ? GbPerSecond(all_bytes, moved_s) : Median(figures.rooflines);
  Json result = {{"fill_gb_s", fill}, {"sweep_gb_s", sweep}, {"sweeps_gb_s", figures.alone.gb_s},
                 {"roofline_gb_s", best}, {"roofline_of", files ? "file" : network ? "network" : "memory of this node"},
                 {"ratio", sweep / best}, {"put_gb_s", Median(figures.put)},
                 {"get_gb_s", Median(figures.get)}, {"compute_gb_s", Median(figures.compute)},
                 {"moved_out_per_sweep", moved("bytes_out")}, {"moved_in_per_sweep", moved("bytes_in")},
                 {"verified", right}, {"stats", after}};
  const std::string threads = options.threads > 1 ? std::to_string(options.threads) + " threads, " : "";
  const std::string title = "stream " + options.mode + ": " + FormatBytes(options.data) + " in chunks of " +
                            FormatBytes(options.chunk) + ", limit " + FormatBytes(options.limit) + ", " + threads +
                            (network ? NetworkText(options) + ", " : "") + PlacesUsed(after) + (files ? options.direct ? " (O_DIRECT)" : " (page cache)" : "");
  const std::string parts = (figures.put.empty() ? "" : "put " + Fixed(Median(figures.put), 1) + ", ") + "get " +
                            Fixed(Median(figures.get), 1) + ", compute " + Fixed(Median(figures.compute), 1) + " GB/s";
  std::vector<Row> rows = {
      {"fill", Fixed(fill, 2) + " GB/s", ""},
      {"sweep", Fixed(sweep, 2) + " GB/s", "median of " + std::to_string(options.repetitions)},
      {"roofline", Fixed(best, 2) + " GB/s", (files ? "this file system: " : network ? "the raw network moving as much; " : "this node's memory: ") + parts},
      {"ratio", Fixed(100 * sweep / best, 0) + " %", Target(options, files, network != nullptr)},
      {"moved a sweep", Fixed(100 * moved("bytes_out"), 0) + " % out",
       Fixed(100 * moved("bytes_in"), 0) + " % in (of the data)"},
      {"data", right ? "right" : "WRONG", "every element compared at the end"}};
  if (network) {
    AddRawRates(network->Medians(), network->depth(), &result, &rows);
    RawRates working = network->Medians();
    working.read_gb_s = working.read_and_work_gb_s;
    working.both_gb_s = working.both_and_work_gb_s;
    const double best_working = GbPerSecond(all_bytes, NetworkRoofline::Seconds(working, moved("bytes_in") * all_bytes, moved("bytes_out") * all_bytes));
    result["ratio_to_raw_with_work"] = sweep / best_working;
    rows.push_back({"ratio, with work", Fixed(100 * sweep / best_working, 0) + " %",
                    "to " + Fixed(best_working, 2) + " GB/s: the raw loop when its thread makes the program's pass and checksums, too"});
  }
  AddWorkFigures(options, figures, &result, &rows);
  AddLoadFigures(options, figures, &result, &rows);
  Report(options, std::move(result), title, rows);
  return right ? 0 : 1;
}

}  // namespace ramspan::bench
