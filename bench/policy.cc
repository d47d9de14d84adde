// policy: who leaves and who is fetched ahead, judged by swap traffic. Replays traces against the library's own policies, and against
// LRU and MIN. No bytes move and no clock runs, so the figures are the same on each machine and at each run.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/experiment.h"
#include "bench/plot.h"
#include "bench/policy_memory.h"
#include "bench/policy_patterns.h"
#include "bench/policy_reference.h"
#include "bench/policy_trace_file.h"
#include "client/policy/policy_factory.h"

namespace ramspan::bench {
namespace {

struct Subject {
  PolicyTrace trace;
  PolicyTarget target;
};

std::vector<std::string> SplitNames(const std::string& list) {
  std::vector<std::string> words;
  for (size_t begin = 0, comma; begin <= list.size(); begin = comma + 1) {
    comma = std::min(list.find(',', begin), list.size());
    words.push_back(list.substr(begin, comma - begin));
  }
  return words;
}

// In percent of a trace's data.
std::vector<double> Limits(const std::string& list) {
  std::vector<double> limits;
  for (const std::string& word : SplitNames(list)) {
    char* end = nullptr;
    const double percent = std::strtod(word.c_str(), &end);
    if (word.empty() || *end != '\0' || !(percent > 0 && percent <= 100)) {
      throw std::runtime_error("--limits: percents of the data, above 0, at most 100, separated by commas; not \"" + word + "\"");
    }
    limits.push_back(percent);
  }
  return limits;
}

std::vector<std::string> PoliciesOf(const BenchOptions& options) {
  const std::span<const char* const> all = PolicyNames();
  if (options.policies.empty()) return {all.begin(), all.end()};
  std::vector<std::string> chosen = SplitNames(options.policies);
  Budget budget(1 << 20);
  const ChunkTable none(&budget);
  for (const std::string& name : chosen) {
    if (const auto made = MakePolicy(name, &none); !made.ok()) throw std::runtime_error("--policy: " + made.status().message());
  }
  return chosen;
}

std::string PatternNames() {
  std::string names;
  for (const PolicyPattern& pattern : PolicyPatterns()) names += (names.empty() ? "" : ", ") + std::string(pattern.name);
  return names;
}

std::vector<Subject> SubjectsOf(const BenchOptions& options) {
  std::vector<Subject> subjects;
  const std::vector<std::string> wanted = options.patterns.empty() ? std::vector<std::string>() : SplitNames(options.patterns);
  for (const std::string& name : wanted) {
    const bool there_is = std::any_of(PolicyPatterns().begin(), PolicyPatterns().end(), [&](const PolicyPattern& p) { return name == p.name; });
    if (!there_is) throw std::runtime_error("--pattern: there is no \"" + name + "\"; there are " + PatternNames());
  }
  for (const std::string& path : options.traces) {
    subjects.push_back({ReadTraceFile(path), {}});
    // As much as half of it may be missing: the file ends where it does.
    if (subjects.back().trace.bytes_cut > 0) std::cerr << path << " ends within a record: it was cut short, so what the program did afterwards is not in it\n";
  }
  for (const PolicyPattern& pattern : PolicyPatterns()) {
    if (wanted.empty() && !options.traces.empty()) break;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), pattern.name) == wanted.end()) continue;
    subjects.push_back({pattern.make(), pattern.target});
    subjects.back().trace.name = pattern.name;
  }
  return subjects;
}

// One trace at one limit.
struct Replays {
  PolicyTraffic min, lru;
  std::map<std::string, PolicyTraffic> policies;
};

double Over(uint64_t a, uint64_t b) {
  return b == 0 ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(a) / static_cast<double>(b);
}

std::string Shown(double ratio, bool missed = false) { return (std::isnan(ratio) ? "-" : Fixed(ratio, 2)) + (missed ? "!" : " "); }

// JSON knows no NaN.
Json Number(double value) { return std::isnan(value) ? Json() : Json(value); }

std::string Percent(double percent) { return Fixed(percent, percent == std::floor(percent) ? 0 : 1); }

Replays ReplayAll(const BenchOptions& options, const PolicyTrace& trace, uint64_t limit, const std::vector<std::string>& policies) {
  Replays replays;
  replays.min = ReplayReference(trace, limit, Reference::kMin, options.steady);
  replays.lru = ReplayReference(trace, limit, Reference::kLru, options.steady);
  for (const std::string& name : policies) {
    replays.policies[name] = Replay(trace, {limit, options.bare}, [&](const ChunkTable* chunks) { return MakePolicy(name, chunks).value(); }, options.steady);
  }
  return replays;
}

bool Misses(const PolicyTarget& target, const PolicyTraffic& policy, const Replays& f) {
  const auto in = static_cast<double>(policy.bytes_in);
  return (target.of_min > 0 && in > target.of_min * static_cast<double>(f.min.bytes_in)) ||
         (target.of_lru > 0 && in > target.of_lru * static_cast<double>(f.lru.bytes_in));
}

Json TrafficJson(const PolicyTraffic& t) {
  return {{"faults", t.faults}, {"misses", t.misses}, {"bytes_in", t.bytes_in}, {"bytes_out", t.bytes_out},
          {"ahead", t.ahead}, {"hits", t.hits}, {"wasted", t.wasted}, {"wasted_bytes", t.wasted_bytes}, {"evictions", t.evictions}};
}

std::vector<std::string> Columns(const std::vector<std::string>& policies) {
  std::vector<std::string> columns = {"pattern", "limit %", "MIN/data", "LRU/MIN "};
  for (const std::string& name : policies) columns.insert(columns.end(), {name + "/MIN ", "out/data", "wasted %"});
  return columns;
}

void AddReplays(const BenchOptions& options, const Subject& subject, double percent, uint64_t limit, const Replays& f, const std::vector<std::string>& policies, Table* table) {
  const uint64_t data = subject.trace.data_bytes();
  std::vector<std::string> cells = {subject.trace.name, Percent(percent), Fixed(Over(f.min.bytes_in, data), 2), Shown(Over(f.lru.bytes_in, f.min.bytes_in))};
  Json line = {{"pattern", subject.trace.name}, {"limit_percent", percent}, {"limit_bytes", limit}, {"data_bytes", data},
               {"touches", f.min.touches}, {"bare", options.bare}, {"steady", options.steady}, {"min", TrafficJson(f.min)}, {"lru", TrafficJson(f.lru)}, {"policies", Json::object()}};
  for (const std::string& name : policies) {
    const PolicyTraffic& t = f.policies.at(name);
    const bool missed = Misses(subject.target, t, f);
    const double wasted = t.ahead_bytes == 0 ? 0 : 100 * Over(t.wasted_bytes, t.ahead_bytes);
    cells.insert(cells.end(), {Shown(Over(t.bytes_in, f.min.bytes_in), missed), Fixed(Over(t.bytes_out, data), 2), Fixed(wasted, 0)});
    Json one = TrafficJson(t);
    one["in_over_min"] = Number(Over(t.bytes_in, f.min.bytes_in));
    one["target_missed"] = missed;
    line["policies"][name] = std::move(one);
  }
  table->AddRow(line, std::move(cells));
}

// What came in, beside MIN's and LRU's, over the limit.
class Pictures {
 public:
  Pictures(const BenchOptions& options, const Subject& subject, const std::vector<std::string>& policies)
      : options_(options), name_(subject.trace.name), data_(subject.trace.data_bytes()), policies_(policies) {
    panel_.curves = {{"MIN", {}}, {"LRU", {}}};
    for (const std::string& name : policies) panel_.curves.push_back({name, {}});
  }
  void Add(double percent, const Replays& f) {
    panel_.x.push_back(percent);
    panel_.curves[0].y.push_back(Over(f.min.bytes_in, data_));
    panel_.curves[1].y.push_back(Over(f.lru.bytes_in, data_));
    for (size_t i = 0; i < policies_.size(); ++i) panel_.curves[2 + i].y.push_back(Over(f.policies.at(policies_[i]).bytes_in, data_));
  }
  void Draw() const { bench::Draw(options_.plots, {"policy_" + FileName(name_), name_, {panel_}}); }

 private:
  static std::string FileName(std::string name) {
    std::replace(name.begin(), name.end(), '/', '_');
    return name;
  }

  const BenchOptions& options_;
  const std::string name_;
  const uint64_t data_;
  const std::vector<std::string>& policies_;
  Panel panel_{"read from swap", "limit [% of the data]", "bytes in / bytes of data", {}, {}, {}, false, false, "set yrange [0:*]\n"};
};

}  // namespace

int RunPolicy(const BenchOptions& options) {
  const std::vector<std::string> policies = PoliciesOf(options);
  const std::vector<double> limits = Limits(options.limits);
  const std::vector<Subject> subjects = SubjectsOf(options);
  Table table(options, std::string("policy: bytes in over MIN's") + (options.steady ? ", second half of each trace" : "") + (options.bare ? ", no read-ahead, no reserve" : ""),
              Columns(policies));
  Progress progress(options, static_cast<int>(subjects.size()));
  for (const Subject& subject : subjects) {
    progress.Next(subject.trace.name);
    Pictures pictures(options, subject, policies);
    for (const double percent : limits) {
      const auto share = static_cast<uint64_t>(percent / 100 * static_cast<double>(subject.trace.data_bytes()));
      const uint64_t limit = std::max(share, subject.trace.least_limit());
      const Replays replays = ReplayAll(options, subject.trace, limit, policies);
      progress.Clear();
      AddReplays(options, subject, percent, limit, replays, policies, &table);
      pictures.Add(percent, replays);
    }
    pictures.Draw();
  }
  progress.Clear();
  table.AddNote("MIN knows the future and reads nothing ahead (greedy where chunks differ in size); data: most bytes that there were at one time");
  table.AddNote("!: target missed: 1.10 of MIN for what repeats exactly, 1.25 where orders mix, 1.05 of LRU for random and zipf; none for the others");
  table.Print();
  return 0;
}

}  // namespace ramspan::bench
