#include "bench/apps/run.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "bench/apps/ranks.h"
#include "bench/apps/storage.h"
#include "bench/memory_cgroup.h"
#include "bench/report.h"
#include "ramspan/options.h"
#include "ramspan/runtime.h"

namespace ramspan::bench {
namespace {

// A line of /proc/self/status, in bytes.
double StatusBytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key + ":", 0) == 0) return 1024 * std::strtod(line.c_str() + key.size() + 1, nullptr);
  }
  return 0;
}

void ConfigureFor(const AppRun& run) {
  Options options;
  options.memory = run.limit;
  options.swap = run.files ? "file" : "remote";  // not some of both, where a server is full
  if (!run.directory.empty()) options.swapfiles = run.directory + "/ramspan-%d-%d.swap";
  Configure(options);
}

std::unique_ptr<Application> MakeVersion(const AppRun& run) {
  switch (run.version) {
    case AppVersion::kInCore: return run.kind->in_core(run.options);
    case AppVersion::kOutOfCore: return run.kind->out_of_core(run.options);
    case AppVersion::kStraightforward: return run.kind->straightforward(run.options);
  }
  return nullptr;
}

}  // namespace

double AppOutcome::median() const { return Median(seconds); }

void RunHere(const AppRun& asked) {
  const Ranks ranks(asked.several_ranks);
  AppRun run = asked;
  run.options.rank = ranks.rank();
  run.options.ranks = ranks.count();
  const bool swaps = run.version == AppVersion::kOutOfCore || run.paged;
  if (run.version == AppVersion::kOutOfCore) ConfigureFor(run);
  if (swaps) EffectiveOptions();  // starts the library: what it loads is no data
  if (!run.cgroup.empty()) {
    MemoryCgroup::Enter(run.cgroup);
    MemoryCgroup::HoldTo(run.cgroup, run.limit);
  }
  const double before = StatusBytes("RssAnon");
  const std::unique_ptr<Application> app = MakeVersion(run);
  AppOutcome out;
  for (int i = 0; i < run.repetitions; ++i) {
    app->Prepare();
    if (run.damaged && i + 1 == run.repetitions) OutOfCore::DamageNextWrite();
    const Statistics at_first = swaps ? GetStatistics() : Statistics();
    ranks.Wait();
    const double begin = Now();
    app->Run();
    out.seconds.push_back(ranks.Most(Now() - begin));
    const Statistics now = swaps ? GetStatistics() : Statistics();
    out.bytes_in += static_cast<double>(now.bytes_in - at_first.bytes_in) / run.repetitions;
    out.bytes_out += static_cast<double>(now.bytes_out - at_first.bytes_out) / run.repetitions;
    out.misses += static_cast<double>(now.misses - at_first.misses) / run.repetitions;
  }
  // Without code, and without the pages of a server of this host that is reached by load and store: they are the server's.
  out.peak = ranks.Most(StatusBytes("VmHWM") - StatusBytes("RssFile") - StatusBytes("RssShmem") - before);
  out.digest = ranks.Sum(app->Result());
  const Json line = {{"seconds", out.seconds}, {"bytes_in", ranks.Sum(out.bytes_in)}, {"bytes_out", ranks.Sum(out.bytes_out)}, {"misses", ranks.Sum(out.misses)},
                     {"peak", out.peak}, {"bits", out.digest.bits}, {"weighted", out.digest.weighted}, {"magnitude", out.digest.magnitude}};
  if (ranks.rank() == 0) std::printf("%s\n", line.dump().c_str());
}

AppOutcome ParseOutcome(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) throw std::runtime_error("a run ended without a result" + (line.empty() ? std::string() : ": " + line));
  AppOutcome out;
  json.at("seconds").get_to(out.seconds);
  json.at("bytes_in").get_to(out.bytes_in);
  json.at("bytes_out").get_to(out.bytes_out);
  json.at("misses").get_to(out.misses);
  json.at("peak").get_to(out.peak);
  json.at("bits").get_to(out.digest.bits);
  json.at("weighted").get_to(out.digest.weighted);
  json.at("magnitude").get_to(out.digest.magnitude);
  return out;
}

}  // namespace ramspan::bench
