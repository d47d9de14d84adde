// kernel: ordered and random sweeps with malloc and the kernel's swap, and with Ramspan and its files, each in a memory
// cgroup of the same limit (SoftwareX 2017, section 5.5). Never switches swap on: that is the administrator's business.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <vector>

#include "bench/experiment.h"
#include "bench/memory_cgroup.h"
#include "bench/plot.h"
#include "bench/process.h"
#include "bench/rambrain.h"
#include "bench/roofline.h"
#include "common/units.h"
#include "ramspan/managed_ptr.h"

namespace ramspan::bench {
namespace {

constexpr uint64_t kSeed = 20170101;

// What swap has free, in bytes.
uint64_t FreeSwap() {
  std::ifstream file("/proc/swaps");
  std::string line;
  std::getline(file, line);  // the columns' names
  uint64_t free = 0;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name, type;
    uint64_t size = 0, used = 0;
    if (words >> name >> type >> size >> used && size > used) free += (size - used) * 1024;
  }
  return free;
}

class InKernel {
 public:
  explicit InKernel(const BenchOptions& o) : count_(o.chunk / sizeof(uint64_t)) {
    for (uint64_t i = 0; i < o.data / o.chunk; ++i) {
      chunks_.emplace_back(static_cast<uint64_t*>(std::malloc(o.chunk)), &std::free);
      std::fill_n(chunks_.back().get(), count_, 0);
    }
  }
  size_t size() const { return chunks_.size(); }
  void Add(size_t c) { AddOne(chunks_[c].get(), count_); }
  bool Holds(size_t c, uint64_t value) const { return Sum(chunks_[c].get(), count_) == value * count_; }

 private:
  const size_t count_;
  std::vector<std::unique_ptr<uint64_t, decltype(&std::free)>> chunks_;
};

class InRamspan {
 public:
  explicit InRamspan(const BenchOptions& o) : count_(o.chunk / sizeof(uint64_t)) {
    for (uint64_t i = 0; i < o.data / o.chunk; ++i) chunks_.emplace_back(count_, uint64_t{0});
  }
  size_t size() const { return chunks_.size(); }
  void Add(size_t c) {
    adhereTo<uint64_t> glue(chunks_[c]);
    AddOne(glue, count_);
  }
  bool Holds(size_t c, uint64_t value) const {
    const adhereTo<uint64_t> glue(chunks_[c]);
    return Sum(glue, count_) == value * count_;
  }

 private:
  const size_t count_;
  std::vector<managedPtr<uint64_t>> chunks_;
};

// In the cgroup: prints one JSON line for the process that made it.
template <typename Chunks>
bool Sweeps(const BenchOptions& options) {
  Chunks chunks(options);
  std::vector<uint64_t> visits(chunks.size());
  std::mt19937_64 random(kSeed);
  const auto timed = [&](bool ordered) {
    const double begin = Now();
    for (size_t k = 0; k < chunks.size(); ++k) {
      const size_t c = ordered ? k : random() % chunks.size();
      chunks.Add(c);
      ++visits[c];
    }
    return Now() - begin;
  };
  std::vector<double> in_order, anywhere;
  timed(true);  // the first comes after the fill, when nothing was swapped in yet
  for (int i = 0; i < (options.quick ? 1 : 3); ++i) in_order.push_back(timed(true));
  for (int i = 0; i < (options.quick ? 1 : 3); ++i) anywhere.push_back(timed(false));
  bool right = true;
  for (size_t c = 0; c < visits.size(); ++c) right &= chunks.Holds(c, visits[c]);
  const Json result = {{"ordered_s", in_order}, {"random_s", anywhere}, {"verified", right}};
  std::printf("%s\n", result.dump().c_str());
  return right;
}

// The library leaves a quarter of the cgroup's memory to the program and to the page cache of its files.
bool RunInside(BenchOptions options) {
  if (options.in_cgroup == "kernel") return Sweeps<InKernel>(options);
  options.limit = options.limit / 4 * 3;
  ConfigureLibrary(options);
  return Sweeps<InRamspan>(options);
}

std::vector<std::string> Command(const BenchOptions& o, const std::string& who) {
  std::vector<std::string> words = {SelfPath(), "rambrain", "--only", "kernel", "--in-cgroup", who,
                                    "--data", std::to_string(o.data), "--limit", std::to_string(o.limit),
                                    "--chunk", std::to_string(o.chunk), "--tier", "file"};
  if (o.direct) words.push_back("--direct");
  if (o.quick) words.push_back("--quick");
  if (!o.directory.empty()) words.insert(words.end(), {"--dir", o.directory});
  return words;
}

// What is missing, each with what the user can do.
std::vector<std::string> Missing(const BenchOptions& options) {
  std::vector<std::string> missing;
  const uint64_t wanted = options.data + options.data / 4;  // less brings the out-of-memory killer, says the paper
  if (geteuid() != 0) missing.push_back("not root: run it with sudo");
  if (const uint64_t free = FreeSwap(); free < wanted) {
    missing.push_back((free == 0 ? std::string("swap is off") : "only " + FormatBytes(free) + " of swap are free") +
                      ": as root, fallocate -l " + std::to_string((wanted >> 20) + 1) +
                      "M /swapfile; chmod 600 /swapfile; mkswap /swapfile; swapon /swapfile");
  }
  std::string why_not;
  if (!MemoryCgroup::Make(options.limit, &why_not)) missing.push_back(why_not);
  return missing;
}

struct Times {
  double ordered = 0, random = 0;  // seconds a sweep
  bool right = false;
  std::string failure;
};

Times Measure(const BenchOptions& options, const std::string& who) {
  std::string why_not;
  std::optional<MemoryCgroup> group = MemoryCgroup::Make(options.limit, &why_not);
  if (!group) return {.failure = why_not};
  const MemoryCgroup::Outcome outcome = group->RunChild(Command(options, who));
  if (WIFSIGNALED(outcome.status) && WTERMSIG(outcome.status) == SIGKILL) {
    return {.failure = "the kernel killed the program that swapped by " + who + ": out of memory in its cgroup"};
  }
  const Json result = Json::parse(outcome.output, nullptr, false);
  if (result.is_discarded()) return {.failure = "the program that swapped by " + who + " ended without a result"};
  return {Median(result["ordered_s"].get<std::vector<double>>()), Median(result["random_s"].get<std::vector<double>>()),
          result["verified"].get<bool>(), ""};
}

bool Skip(const BenchOptions& options, const std::vector<std::string>& missing) {
  if (options.json) PrintJson(options, {{"experiment", "kernel"}, {"skipped", missing}});
  if (!options.json) std::printf("kernel: skipped. The comparison with the kernel's swap needs:\n");
  for (const std::string& one : missing) std::fprintf(options.json ? stderr : stdout, "  %s\n", one.c_str());
  std::fflush(stdout);
  return true;
}

}  // namespace

bool RunKernelSwap(const BenchOptions& options) {
  if (!options.in_cgroup.empty()) return RunInside(options);
  if (const std::vector<std::string> missing = Missing(options); !missing.empty()) return Skip(options, missing);
  const auto bytes = static_cast<double>(options.data);
  Table table(options, "kernel: read-modify-write of " + FormatBytes(options.data) + " in chunks of " +
                           FormatBytes(options.chunk) + ", memory cgroup of " + FormatBytes(options.limit),
              {"swapped by", "ordered GB/s", "random GB/s"});
  Progress progress(options, 2);
  Panel panel{"", "", "data processed [GB/s]", {}, {"ordered", "random"}, {}};
  std::vector<Times> all;
  bool right = true;
  for (const char* who : {"kernel", "ramspan"}) {
    progress.Next(std::string("swapped by ") + who);
    const Times times = Measure(options, who);
    if (!times.failure.empty()) return Skip(options, {times.failure});
    right &= times.right;
    all.push_back(times);
    const double ordered = GbPerSecond(bytes, times.ordered), random = GbPerSecond(bytes, times.random);
    table.AddRow({{"swapped_by", who}, {"ordered_gb_s", ordered}, {"random_gb_s", random}, {"verified", times.right}},
                 {who, Fixed(ordered, 3), Fixed(random, 3)});
    panel.curves.push_back({who, {ordered, random}});
  }
  progress.Clear();
  const double ordered = all[0].ordered / all[1].ordered, random = all[0].random / all[1].random;
  table.AddTarget("speed_up_random", random, "faster than the kernel's swap (paper: 1.1 and 1.02)", ordered > 1 && random > 1,
                  "ordered " + Fixed(ordered, 1) + ", random " + Fixed(random, 1) + " times as fast");
  table.AddNote(right ? "every element summed" : "WRONG: sums differ");
  table.Print();
  Draw(options.plots, {"kernel", "The kernel's swap and Ramspan, limit " + FormatBytes(options.limit), {panel}});
  return right;
}

}  // namespace ramspan::bench
