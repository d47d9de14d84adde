#include "bench/apps/apps.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>
#include <stdexcept>
#include <thread>

#include "bench/apps/run.h"
#include "bench/apps/runner.h"
#include "bench/experiment.h"
#include "bench/plot.h"
#include "common/units.h"

namespace ramspan::bench {
namespace {

namespace po = boost::program_options;
using Words = std::vector<std::string>;

constexpr char kAppsUsage[] =
    "usage: ramspan bench apps [options]\n\n"
    "Whole applications, each written once and run twice: on plain arrays, and on managed data whose limit is a share of it (LMR, local memory\n"
    "ratio). Relative performance is the time in core over the time; each result is compared with the one in core, bit by bit.\n"
    "With --pages the other one is the same program in core, unmodified, under `ramspan run --pages`.\n\n";

// Of the result of another order of operations, relative to the sum of absolute values.
constexpr double kTolerance = 1e-6;
// What the library needs of a limit beside what threads pin: descriptors, tables, frames under way.
constexpr uint64_t kRoomBesidePins = uint64_t{768} << 10;
constexpr uint64_t kLeastLimit = uint64_t{1} << 20, kLeastPaged = uint64_t{2} << 20;
// As the papers have it.
constexpr double kSlowerAtMost = 1.16, kLmrOfThat = 37;
constexpr double kShareOfLocalSpeed = 0.9, kLmrOfStencil = 25;

Words SplitList(const std::string& list) {
  Words words;
  for (size_t begin = 0, comma; begin <= list.size(); begin = comma + 1) {
    comma = std::min(list.find(',', begin), list.size());
    words.push_back(list.substr(begin, comma - begin));
  }
  return words;
}

std::vector<double> Numbers(const char* option, const std::string& list, double least, double most) {
  std::vector<double> numbers;
  for (const std::string& word : SplitList(list)) {
    char* end = nullptr;
    const double number = std::strtod(word.c_str(), &end);
    if (word.empty() || *end != '\0' || !(number >= least && number <= most)) {
      throw po::error(std::string("--") + option + ": " + Fixed(least, 0) + " to " + Fixed(most, 0) + ", separated by commas; not \"" + word + "\"");
    }
    numbers.push_back(number);
  }
  return numbers;
}

const AppKind* FindKind(const std::string& name) {
  std::string names;
  for (const AppKind* kind : AppKinds()) {
    if (name == kind->name) return kind;
    names += std::string(names.empty() ? "" : ", ") + kind->name;
  }
  throw po::error("--app: there is no \"" + name + "\"; there are " + names);
}

std::vector<const AppKind*> ChosenKinds(const std::string& list) {
  if (list == "all") return AppKinds();
  std::vector<const AppKind*> chosen;
  for (const std::string& name : SplitList(list)) chosen.push_back(FindKind(name));
  return chosen;
}

std::string AppsHelp() {
  std::string help = "which; all, or of";
  for (const AppKind* kind : AppKinds()) help += std::string("\n  ") + kind->name + ": " + kind->what + " (" + kind->source + ")";
#ifndef RAMSPAN_BENCH_FFTW
  help += "\n(fft is left out: this benchmark was built without FFTW, libfftw3-dev)";
#endif
  return help;
}

// ---- One application ----

AppOptions AppOptionsOf(const AppsOptions& o, int threads) {
  AppOptions options;
  if (!o.data.empty()) {
    const Result<uint64_t> bytes = ParseBytes(o.data);
    if (!bytes.ok()) throw po::error("--data: " + bytes.status().message());
    options.data = bytes.value();
  }
  options.full = o.full;
  options.threads = threads;
  options.ranks = o.ranks;
  return options;
}

class AppReport {
 public:
  AppReport(const AppsOptions& o, const AppKind& kind, AppRunner* runner)
      : o_(o), kind_(kind), runner_(runner), shape_(kind.shape(AppOptionsOf(o, 1))), bench_(Bench(o, kind, shape_)),
        lmrs_(Numbers("lmr", o.lmr, 0.1, 100)), threads_(Threads(o)), progress_(bench_, static_cast<int>(threads_.size() * (lmrs_.size() + 3))),
        table_(bench_, std::string(kind.name) + ": " + kind.what + ", " + shape_.size + " (" + FormatBytes(shape_.data) + "; " + kind.source + ")",
               Columns(o)) {
    std::sort(lmrs_.rbegin(), lmrs_.rend());
  }

  // Whether all results were right.
  bool Run() {
    for (const int threads : threads_) RunThreads(threads);
    progress_.Clear();
    table_.AddNote(std::string(o_.pages ? "in core: the same program without Ramspan" : "in core: blocks in plain arrays, or without blocks where that is faster") + "; result: all bits as in core; in, out: swap traffic of a run");
    if (!o_.swap.empty()) {
      table_.AddNote(SwapsByKernel() ? "kernel's swap: the program in core, in a memory cgroup of the same limit beside what it is made of, on " + std::string(o_.swap == "zram" ? "zram" : "a file")
                                     : "kernel's swap: skipped: " + runner_->why_no_swap());
    }
    table_.AddNote("peak: of resident memory beside what the process had before; LMR 100: data and what the library needs itself");
    table_.Print();
    Plot();
    return right_;
  }

 private:
  static BenchOptions Bench(const AppsOptions& o, const AppKind& kind, const AppShape& shape) {
    BenchOptions bench;
    bench.name = "apps";
    bench.only = kind.name;
    bench.json = o.json;
    bench.data = shape.data;
    bench.tier = o.tier;
    bench.directory = o.directory;
    bench.name += o.pages ? " --pages" : "";
    bench.repetitions = o.repetitions;
    return bench;
  }
  static Words Columns(const AppsOptions& o) {
    Words columns = {"threads", "LMR", "limit", "in core s", "time s", "time / in core", "in / data", "out / data", "peak / limit", "result"};
    if (!o.swap.empty()) columns.insert(columns.end(), {"kernel's swap s", "over time"});
    return columns;
  }
  Words Padded(Words cells) const {
    cells.resize(cells.size() + (o_.swap.empty() ? 0 : 2));
    return cells;
  }
  static std::vector<int> Threads(const AppsOptions& o) {
    std::vector<int> threads;
    if (o.threads.empty()) {
      threads.push_back(1);
      if (const int cores = static_cast<int>(std::thread::hardware_concurrency()); cores > 1) threads.push_back(cores);
    } else {
      for (const double n : Numbers("threads", o.threads, 1, 1024)) threads.push_back(static_cast<int>(n));
    }
    return threads;
  }

  // Of each rank.
  uint64_t Limit(double lmr) const {
    const uint64_t data = shape_.data / static_cast<uint64_t>(o_.ranks);
    if (lmr == 100) return data + data / 16 + (uint64_t{4} << 20);
    return static_cast<uint64_t>(static_cast<double>(data) * lmr / 100);
  }

  AppOutcome Measure(const std::string& version, int threads, uint64_t limit, const std::string& what, bool damaged = false, AppRunner::By by = AppRunner::By::kRamspan) {
    progress_.Next(std::to_string(threads) + (threads > 1 ? " threads, " : " thread, ") + what);
    return runner_->Run(kind_, version, threads, limit, damaged, by);
  }
  bool SwapsByKernel() const { return !o_.swap.empty() && runner_->why_no_swap().empty(); }
  // For tests: the LMR at which a result is wrong.
  static bool IsDamaged(double lmr) {
    const char* const text = std::getenv("RAMSPAN_TEST_DAMAGED_LMR");
    return text != nullptr && std::strtod(text, nullptr) == lmr;
  }

  struct Step {
    double lmr;
    uint64_t limit, needed;
    std::optional<AppOutcome> outcome;  // none: skipped
    std::optional<AppOutcome> by_kernel;
  };

  void RunThreads(int threads) {
    AppOutcome in_core = Measure(in_core_, threads, 0, "in core");
    std::vector<Step> steps;
    for (const double lmr : lmrs_) {
      Step step{lmr, Limit(lmr), std::max(kLeastLimit, o_.pages ? kLeastPaged : static_cast<uint64_t>(threads) * shape_.pinned + kRoomBesidePins), {}};
      if (step.limit >= step.needed) step.outcome = Measure(out_of_core_, threads, step.limit, "LMR " + Fixed(lmr, 0) + " %", IsDamaged(lmr));
      if (step.outcome && SwapsByKernel()) step.by_kernel = Measure(in_core_, threads, step.limit, "LMR " + Fixed(lmr, 0) + " %, the kernel's swap", false, AppRunner::By::kKernel);
      steps.push_back(std::move(step));
    }
    // Before and after the others, so that a machine whose speed changes makes it no better or worse than them.
    if (o_.repetitions > 1) {
      const AppOutcome again = Measure(in_core_, threads, 0, "in core, again");
      right_ &= again.digest.bits == in_core.digest.bits;
      in_core.seconds.insert(in_core.seconds.end(), again.seconds.begin(), again.seconds.end());
    }
    double base = in_core.median();
    if (kind_.straightforward != nullptr && o_.ranks == 1 && !o_.pages) base = std::min(base, Straightforward(in_core, threads));
    if (first_base_ == 0) first_base_ = base;
    Curve curve{std::to_string(threads) + (threads > 1 ? " threads" : " thread"), {}};
    for (const Step& step : steps) {
      curve.y.push_back(step.outcome ? first_base_ / step.outcome->median() : std::numeric_limits<double>::quiet_NaN());
      step.outcome ? Add(threads, step, base, in_core) : Skip(threads, step.lmr, step.limit, step.needed);
    }
    curves_.push_back(curve);
  }

  // Its time. Its result is compared by values: the order of operations is another one.
  double Straightforward(const AppOutcome& in_core, int threads) {
    const AppOutcome plain = Measure("straightforward", threads, 0, "without blocks");
    const double difference = std::abs(plain.digest.weighted - in_core.digest.weighted);
    const bool right = difference <= kTolerance * in_core.digest.magnitude;
    right_ &= right;
    if (o_.json) {
      table_.AddRow({{"written", "straightforward"}, {"threads", threads}, {"time_s", plain.median()}, {"in_core_s", in_core.median()}, {"right", right}}, Words(10));
      return plain.median();
    }
    table_.AddNote(std::to_string(threads) + (threads > 1 ? " threads" : " thread") + " in core: " + Fixed(in_core.median(), 3) + " s; without blocks " +
                   Fixed(plain.median(), 3) + " s, result " + (right ? "equal to " + std::string("1e-6") : std::string("WRONG")));
    return plain.median();
  }

  void Skip(int threads, double lmr, uint64_t limit, uint64_t needed) {
    const std::string why = "skipped: needs " + FormatBytes(needed);
    table_.AddRow({{"threads", threads}, {"lmr_percent", lmr}, {"limit", limit}, {"skipped", "the limit is below what the threads pin and the library needs"}, {"needed", needed}},
                  Padded({std::to_string(threads), Fixed(lmr, 0), FormatBytes(limit), "", "", "", "", "", "", why}));
  }

  void Add(int threads, const Step& step, double base, const AppOutcome& in_core) {
    const double lmr = step.lmr;
    const uint64_t limit = step.limit;
    const AppOutcome& out = *step.outcome;
    const bool right = out.digest.bits == in_core.digest.bits;
    right_ &= right;
    const double ratio = out.median() / base, data = static_cast<double>(shape_.data), peak = out.peak / static_cast<double>(limit);
    Json values = {{"threads", threads}, {"ranks", o_.ranks}, {"lmr_percent", lmr}, {"limit", limit}, {"in_core_s", base}, {"time_s", out.median()}, {"times_s", out.seconds},
                   {"ratio", ratio}, {"relative_performance", first_base_ / out.median()}, {"bytes_in", out.bytes_in}, {"bytes_out", out.bytes_out},
                   {"misses", out.misses}, {"peak", out.peak}, {"bits", out.digest.bits}, {"right", right}};
    Words cells = {std::to_string(threads), Fixed(lmr, 0), FormatBytes(limit), Fixed(base, 3), Fixed(out.median(), 3), Fixed(ratio, 2), Fixed(out.bytes_in / data, 2),
                   Fixed(out.bytes_out / data, 2), Fixed(peak, 2), right ? "equal" : "WRONG"};
    cells = Padded(cells);
    if (step.by_kernel) {
      const AppOutcome& kernel = *step.by_kernel;
      right_ &= kernel.digest.bits == in_core.digest.bits;
      values["kernel_swap"] = {{"on", o_.swap}, {"time_s", kernel.median()}, {"times_s", kernel.seconds}, {"over_ramspan", kernel.median() / out.median()}, {"right", kernel.digest.bits == in_core.digest.bits}};
      cells[cells.size() - 2] = Fixed(kernel.median(), 3);
      cells.back() = Fixed(kernel.median() / out.median(), 2);
    }
    table_.AddRow(values, cells);
    const std::string name = kind_.name, with = std::to_string(threads) + (threads > 1 ? " threads" : " thread");
    if (lmr == kLmrOfThat && (name == "mm" || name == "fft" || name == "stencil")) {
      table_.AddTarget("ratio", ratio, "LMR 37 %, " + with + ": at most 16 % slower than in core", ratio <= kSlowerAtMost, Fixed(100 * (ratio - 1), 1) + " %");
    }
    if (lmr == kLmrOfStencil && name == "stencil") {
      table_.AddTarget("share_of_local_speed", 1 / ratio, "LMR 25 %, " + with + ": at least 90 % of local speed (DLM: 78 %)", 1 / ratio >= kShareOfLocalSpeed,
                       Fixed(100 / ratio, 1) + " %");
    }
  }

  void Plot() const {
    Draw(o_.plots, {std::string("apps-") + kind_.name, std::string(kind_.what) + ", " + FormatBytes(shape_.data) + ", " + o_.tier,
                    {{"relative performance", "LMR [%]", "time in core, " + std::to_string(threads_[0]) + (threads_[0] > 1 ? " threads" : " thread") + ", over time", lmrs_, {}, curves_,
                      false, false, "set xrange [0:105]\nset yrange [0:*]\n"}}});
  }

  const AppsOptions& o_;
  const AppKind& kind_;
  AppRunner* const runner_;
  const AppShape shape_;
  // With pages the program is what somebody wrote who thinks of memory only.
  const std::string in_core_ = o_.pages && kind_.straightforward != nullptr && o_.ranks == 1 ? "straightforward" : "in-core";
  const std::string out_of_core_ = o_.pages ? in_core_ : "out-of-core";
  const BenchOptions bench_;
  std::vector<double> lmrs_;
  const std::vector<int> threads_;
  Progress progress_;
  Table table_;
  std::vector<Curve> curves_;
  double first_base_ = 0;  // seconds in core with the first number of threads, as in DLM's figures
  bool right_ = true;
};

// ---- The command line ----

po::options_description DescribeApps(AppsOptions* o) {
  po::options_description some("options");
  auto add = some.add_options();
  add("help,h", "this text");
  add("app", po::value(&o->apps)->value_name("NAME,..."), AppsHelp().c_str());
  add("lmr", po::value(&o->lmr)->value_name("N,..."), "limits, in percent of the data (5,10,25,37,50,75,100)");
  add("threads", po::value(&o->threads)->value_name("N,..."), "OpenMP threads (1 and the number of cores)");
  add("ranks", po::value(&o->ranks)->value_name("N"), "MPI processes that share the data (1); those applications that can, the others are skipped");
  add("tier", po::value(&o->tier)->value_name("shared|file|ofi"),
      "where chunks go. shared: a memory server of this host, by load and store (the default); ofi: the same server by libfabric over tcp; file: swap files");
  add("data", po::value(&o->data)->value_name("SIZE"), "bytes of data of each, about (some seconds an application)");
  add("pages", po::bool_switch(&o->pages), "the programs in core, unmodified, under `ramspan run --pages`: what is on a page moves, and nothing is pinned");
  add("swap", po::value(&o->swap)->value_name("file|zram"), "beside it the program in core with the same limit (memory cgroup) and the kernel's swap, which is switched on for that time; root");
  add("full", po::bool_switch(&o->full), "the papers' sizes");
  add("repeat", po::value(&o->repetitions)->value_name("N"), "runs of which the median is shown (3)");
  add("dir", po::value(&o->directory)->value_name("DIR"), "directory of swap files ($TMPDIR, else /tmp)");
  add("json", po::bool_switch(&o->json), "JSON, one object a line");
  add("plots", po::value(&o->plots)->value_name("DIR"), "data, gnuplot scripts and SVG figures go there");
  return some;
}

po::options_description DescribeRun(AppsOptions* o) {
  po::options_description some;
  some.add_options()("run", po::value(&o->run))("version", po::value(&o->version))("limit", po::value(&o->limit))("run-threads", po::value(&o->run_threads))(
      "damaged", po::bool_switch(&o->damaged))("in-cgroup", po::value(&o->in_cgroup))("paged", po::bool_switch(&o->paged));
  return some;
}

void RunOne(const AppsOptions& o) {
  AppRun run;
  run.kind = FindKind(o.run);
  run.version = o.version == "in-core" ? AppVersion::kInCore : o.version == "out-of-core" ? AppVersion::kOutOfCore : AppVersion::kStraightforward;
  run.options = AppOptionsOf(o, o.run_threads);
  run.limit = o.limit;
  run.files = o.tier == "file";
  run.directory = o.directory;
  run.repetitions = o.repetitions;
  run.several_ranks = o.ranks > 1;
  run.damaged = o.damaged;
  run.paged = o.paged;
  run.cgroup = o.in_cgroup;
  RunHere(run);
}

int RunAll(const AppsOptions& o) {
  const std::vector<const AppKind*> kinds = ChosenKinds(o.apps);
  uint64_t most = 0;
  for (const AppKind* kind : kinds) most = std::max(most, kind->shape(AppOptionsOf(o, 1)).data);
  bool right = true;
  try {
    AppRunner runner(o, most);
    for (const AppKind* kind : kinds) {
      if (o.ranks > 1 && !kind->has_ranks) {
        std::fprintf(stderr, "%s: skipped: it is one process, --ranks is for others\n", kind->name);
        continue;
      }
      right &= AppReport(o, *kind, &runner).Run();
    }
  } catch (const Interrupted&) {  // all is taken down by now
    signal(AppsEndedBy(), SIG_DFL);
    raise(AppsEndedBy());
  }
  return right ? 0 : 1;
}

}  // namespace

int RunApps(int argc, char** argv) {
  AppsOptions o;
  po::options_description described = DescribeApps(&o), all;
  all.add(described).add(DescribeRun(&o));
  po::variables_map given;
  po::store(po::command_line_parser(argc - 1, argv + 1).options(all).run(), given);
  if (given.count("help") != 0) {
    std::cout << kAppsUsage << described;
    return 0;
  }
  po::notify(given);
  if (o.tier != "shared" && o.tier != "file" && o.tier != "ofi") throw po::error("--tier is shared, file or ofi");
  if (!o.swap.empty() && o.swap != "file" && o.swap != "zram") throw po::error("--swap is file or zram");
  if (!o.swap.empty() && o.ranks > 1) throw po::error("--swap is for one process, not --ranks");
  if (o.ranks < 1 || o.ranks > 64) throw po::error("--ranks: 1 to 64");
  if (o.repetitions < 1 || o.repetitions > 1000) throw po::error("--repeat: 1 to 1000");
  if (!o.run.empty()) {
    RunOne(o);
    return 0;
  }
  return RunAll(o);
}

}  // namespace ramspan::bench
