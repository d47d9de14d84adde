#include "bench/swap_targets_table.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <stdexcept>

#include "bench/experiment.h"
#include "bench/plot.h"
#include "bench/swap_targets_accesses.h"
#include "bench/swap_targets_contestants.h"
#include "common/units.h"

namespace ramspan::bench {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
// Up to where the targets count: with nearly all data in memory nobody swaps, and there is nothing to win.
constexpr double kTargetRatiosBelow = 75;

using TargetRows = std::vector<TargetRow>;

bool IsInMemory(const TargetRow& row) { return FindTargetContestant(row.contestant).in_memory(); }

const TargetRow* FindRow(const TargetRows& rows, const std::string& contestant, const std::string& access, double lmr, int threads) {
  for (const TargetRow& row : rows) {
    if (row.skipped.empty() && row.contestant == contestant && row.access == access && row.threads == threads && (row.lmr == lmr || IsInMemory(row))) return &row;
  }
  return nullptr;
}

double MovedOverLeast(const TargetRow& row) { return row.least == 0 ? kNothing : static_cast<double>(row.moved) / row.least; }

std::string OrDash(double value, int digits) { return std::isnan(value) ? "-" : Fixed(value, digits); }
std::string MibOrDash(bool there, uint64_t bytes) { return there ? Fixed(Mib(bytes), 0) : "-"; }

template <typename T, typename Of>
std::vector<T> Distinct(const TargetRows& rows, const Of& of) {
  std::vector<T> values;
  for (const TargetRow& row : rows) {
    if (const T value = of(row); std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return values;
}

std::vector<std::string> CellsOfRow(const TargetRow& row, const TargetRow* memory) {
  const bool in_memory = IsInMemory(row);
  const double data = static_cast<double>(row.data);
  return {in_memory ? "-" : Fixed(row.lmr, 0),
          std::to_string(row.threads),
          row.contestant,
          (row.is_cut() ? "~" : "") + Fixed(row.seconds(), 3),
          Fixed(GbPerSecond(data, row.seconds()), 2),
          memory == nullptr ? "-" : Fixed(row.seconds() / memory->seconds(), 1),
          Fixed(static_cast<double>(row.moved) / row.passes / data, 2),
          OrDash(MovedOverLeast(row), 2),
          Fixed(row.own_cpu_s, 3),
          Fixed(row.all_cpu_s, 3),
          MibOrDash(row.counted, row.anonymous),
          MibOrDash(row.counted, row.page_cache),
          Fixed(Mib(row.elsewhere), 0)};
}

void PrintAccess(const BenchOptions& options, const TargetRows& rows, const std::string& access) {
  TargetRows chosen;
  for (const TargetRow& row : rows) {
    if (row.access == access && row.skipped.empty()) chosen.push_back(row);
  }
  if (chosen.empty()) return;
  std::stable_sort(chosen.begin(), chosen.end(), [](const TargetRow& a, const TargetRow& b) {
    return std::pair(a.threads, IsInMemory(a) ? -1 : a.lmr) < std::pair(b.threads, IsInMemory(b) ? -1 : b.lmr);
  });
  Table table(options, access + ": passes over " + FormatBytes(chosen[0].data),
              {"LMR %", "threads", "contestant", "s a pass", "GB/s", "x memory", "moved/data", "over MIN", "own CPU s", "all CPU s", "anon MiB", "cache MiB", "elsewhere MiB"});
  for (const TargetRow& row : chosen) table.AddRow(Json::object(), CellsOfRow(row, FindRow(rows, "memory", access, row.lmr, row.threads)));
  table.Print();
}

// ---- Targets ----

struct SwapTarget {
  const char* rival;
  const char* access;  // null: each
  double wanted;       // times as fast as the rival, at least
  const char* text;
};
constexpr SwapTarget kSwapTargets[] = {
    {"kernel-file", "sequential", 5, "stream 5 x the kernel's swap on a file"}, {"kernel-file", "random", 5, "random 5 x the kernel's swap on a file"},
    {"kernel-zram", "sequential", 1.5, "stream 1.5 x zram"},                    {"kernel-zram", "random", 1.5, "random 1.5 x zram"},
    {"stxxl", nullptr, 1, "faster than STXXL, each access"},                    {"mmap", nullptr, 1, "faster than mmap, each access"},
};

struct Worst {
  double ratio = std::numeric_limits<double>::infinity();
  std::string where;
};

// The least speed over the rival's.
Worst WorstRatio(const TargetRows& rows, const std::string& ours, const SwapTarget& target) {
  Worst worst;
  for (const TargetRow& row : rows) {
    if (row.contestant != ours || !row.skipped.empty() || row.lmr >= kTargetRatiosBelow || (target.access != nullptr && row.access != target.access)) continue;
    const TargetRow* const rival = FindRow(rows, target.rival, row.access, row.lmr, row.threads);
    if (rival == nullptr || rival->seconds() / row.seconds() >= worst.ratio) continue;
    worst = {rival->seconds() / row.seconds(), row.access + ", LMR " + Fixed(row.lmr, 0) + " %, " + std::to_string(row.threads) + (row.threads == 1 ? " thread" : " threads")};
  }
  return worst;
}

void PrintTargets(const BenchOptions& options, const TargetRows& rows) {
  Table table(options, "targets, at each LMR below " + Fixed(kTargetRatiosBelow, 0) + " %: the least ratio of speeds, and where", {"target", "contestant", "measured", "", "where"});
  const auto add = [&](const std::string& text, const std::string& ours, double value, bool held, const std::string& where) {
    if (options.json) return PrintJson(options, {{"target", text}, {"contestant", ours}, {"value", value}, {"hit", held}, {"where", where}});
    table.AddRow(Json::object(), {text, ours, Fixed(value, 2), held ? "hit" : "MISSED", where});
  };
  bool any = false;
  for (const SwapTarget& target : kSwapTargets) {
    for (const TargetContestant& one : TargetContestants()) {
      const Worst worst = one.ours() ? WorstRatio(rows, one.name, target) : Worst{};
      if (std::isinf(worst.ratio)) continue;
      add(target.text, one.name, worst.ratio, worst.ratio >= target.wanted, worst.where);
      any = true;
    }
  }
  for (const TargetRow& row : rows) {
    if (row.contestant != "shared" || row.access != "sequential" || row.lmr != 90 || !row.skipped.empty()) continue;
    const TargetRow* const memory = FindRow(rows, "memory", row.access, row.lmr, row.threads);
    if (memory == nullptr) continue;
    const double ratio = row.seconds() / memory->seconds();
    add("an iterated sweep at LMR 90 % at most 1.3 x in memory", "shared", ratio, ratio <= 1.3, std::to_string(row.threads) + (row.threads == 1 ? " thread" : " threads"));
    any = true;
  }
  if (any && !options.json) table.Print();
}

void PrintNotes(const BenchOptions& options, const TargetRows& rows) {
  std::set<std::string> skipped;
  double least = 0, most = 0;
  for (const TargetRow& row : rows) {
    if (!row.skipped.empty()) skipped.insert(row.contestant + ": skipped: " + row.skipped);
    if (row.compression <= 0) continue;
    least = least == 0 ? row.compression : std::min(least, row.compression);
    most = std::max(most, row.compression);
  }
  Table notes(options, "contestants", {"how each is held to its limit: what has a limit of its own by that, else by its memory cgroup"});
  for (const TargetContestant& one : TargetContestants()) {
    if (std::any_of(rows.begin(), rows.end(), [&](const TargetRow& row) { return row.contestant == one.name; })) notes.AddNote(one.name + std::string(": ") + one.what);
  }
  notes.AddNote("a pass is as many uses of chunks as there are chunks. moved/data: bytes in and out of a pass; over MIN: of what Belady's MIN moves");
  if (std::any_of(rows.begin(), rows.end(), [](const TargetRow& row) { return row.is_cut(); })) notes.AddNote("~: the pass was cut, and its figures are what all of it would take");
  notes.AddNote("CPU: own of the program's threads, with their faults and copies; all with the library's threads and its servers; not the kernel's own threads");
  notes.AddNote("memory: most at one time, by the cgroup of the process: anonymous, and page cache of files");
  notes.AddNote("elsewhere: memory that holds what was swapped, beside the limit: in servers, or zram's store");
  if (most > 0) notes.AddNote("zram: its data (doubles, half of them in full precision, half once single precision) took " + Fixed(least, 2) + " to " + Fixed(most, 2) + " of their size");
  for (const std::string& one : skipped) notes.AddNote(one);
  notes.Print();
}

// gnuplot's lines for the contestants from the `first` one on: Ramspan's are whole, those of the others broken, memory is grey.
std::string LinesFrom(size_t first) {
  constexpr const char* kColours[] = {"#999999", "#0072b2", "#009e73", "#56b4e9", "#d55e00", "#e69f00", "#cc79a7", "#000000", "#a01020", "#6a3d9a", "#7f6000"};
  std::string lines = "set key outside bottom center horizontal maxrows 4\n";
  const std::span<const TargetContestant> all = TargetContestants();
  for (size_t i = first; i < all.size(); ++i) {
    lines += "set linetype " + std::to_string(i - first + 1) + " linecolor rgb '" + kColours[i % std::size(kColours)] + "' pointtype " + std::to_string(i + 1) +
             (all[i].ours() ? " dashtype solid\n" : " dashtype 2\n");
  }
  return lines;
}

}  // namespace

Json ToJson(const TargetRow& r) {
  Json line = {{"contestant", r.contestant}, {"access", r.access}, {"lmr_percent", r.lmr}, {"threads", r.threads}};
  if (!r.skipped.empty()) {
    line["skipped"] = r.skipped;
    return line;
  }
  line.update({{"data_bytes", r.data}, {"pass_s", r.pass_s}, {"passes", r.passes}, {"gb_s", GbPerSecond(static_cast<double>(r.data), r.seconds())}, {"bytes_moved", r.moved}, {"bytes_min", r.least},
               {"own_cpu_s", r.own_cpu_s}, {"all_cpu_s", r.all_cpu_s}, {"counted", r.counted}, {"peak_anonymous", r.anonymous}, {"peak_page_cache", r.page_cache},
               {"peak_shared", r.shared}, {"peak_elsewhere", r.elsewhere}, {"compression", r.compression}, {"verified", r.right}});
  return line;
}

TargetRow RowFromJson(const Json& line) {
  TargetRow r;
  line.at("contestant").get_to(r.contestant);
  line.at("access").get_to(r.access);
  line.at("lmr_percent").get_to(r.lmr);
  line.at("threads").get_to(r.threads);
  FindTargetContestant(r.contestant);
  if (line.contains("skipped")) {
    line["skipped"].get_to(r.skipped);
    return r;
  }
  line.at("data_bytes").get_to(r.data);
  line.at("pass_s").get_to(r.pass_s);
  if (r.pass_s.empty()) throw std::runtime_error("a result without a pass");
  line.at("passes").get_to(r.passes);
  line.at("bytes_moved").get_to(r.moved);
  line.at("bytes_min").get_to(r.least);
  line.at("own_cpu_s").get_to(r.own_cpu_s);
  line.at("all_cpu_s").get_to(r.all_cpu_s);
  line.at("counted").get_to(r.counted);
  line.at("peak_anonymous").get_to(r.anonymous);
  line.at("peak_page_cache").get_to(r.page_cache);
  line.at("peak_shared").get_to(r.shared);
  line.at("peak_elsewhere").get_to(r.elsewhere);
  line.at("compression").get_to(r.compression);
  line.at("verified").get_to(r.right);
  return r;
}

std::vector<TargetRow> RowsFrom(const std::vector<std::string>& files) {
  TargetRows rows;
  for (const std::string& file : files) {
    std::ifstream in(file);
    if (!in) throw std::runtime_error("cannot read " + file);
    int number = 0;
    for (std::string text; std::getline(in, text);) {
      ++number;
      try {
        const Json line = Json::parse(text);
        if (line.contains("access")) rows.push_back(RowFromJson(line));  // others tell of targets
      } catch (const std::exception& e) {
        throw std::runtime_error(file + ":" + std::to_string(number) + ": no result of `swap-targets --json`: " + e.what());
      }
    }
  }
  if (rows.empty()) throw std::runtime_error("there are no results of `swap-targets --json` in the files of --from");
  return rows;
}

void PrintTargetTables(const BenchOptions& options, const TargetRows& rows) {
  if (!options.json) {
    for (const TargetAccess& access : TargetAccesses()) PrintAccess(options, rows, access.name);
    PrintNotes(options, rows);
  }
  PrintTargets(options, rows);
}

// Time over the LMR, with memory as the line below all; and what was moved.
void DrawTargets(const BenchOptions& options, const TargetRows& rows) {
  const std::vector<double> ratios = [&] {
    std::set<double> all;
    for (const TargetRow& row : rows) {
      if (row.skipped.empty() && !IsInMemory(row)) all.insert(row.lmr);
    }
    return std::vector<double>(all.begin(), all.end());
  }();
  if (options.plots.empty() || ratios.empty()) return;
  for (const int threads : Distinct<int>(rows, [](const TargetRow& r) { return r.threads; })) {
    for (const TargetAccess& access : TargetAccesses()) {
      Panel time{"time of a pass", "local memory ratio [%]", "[s]", ratios, {}, {}, false, true, LinesFrom(0)};
      Panel moved{"bytes moved over MIN", "local memory ratio [%]", "", ratios, {}, {}, false, true, LinesFrom(1)};
      bool seen = false;
      for (const TargetContestant& one : TargetContestants()) {
        Curve seconds{one.name, {}}, bytes{one.name, {}};
        bool any = false;
        for (const double lmr : ratios) {
          const TargetRow* const row = FindRow(rows, one.name, access.name, lmr, threads);
          any |= row != nullptr;
          const double over = row == nullptr ? kNothing : MovedOverLeast(*row);
          seconds.y.push_back(row == nullptr ? kNothing : row->seconds());
          bytes.y.push_back(over > 0 ? over : kNothing);
        }
        // Also those that did not run, so that each has the same line in all figures.
        seen |= any && !one.in_memory();
        time.curves.push_back(std::move(seconds));
        if (!one.in_memory()) moved.curves.push_back(std::move(bytes));
      }
      if (!seen) continue;
      const std::string by = threads == 1 ? "" : "_" + std::to_string(threads) + "_threads";
      Draw(options.plots, {"swap_targets_" + std::string(access.name) + by, std::string(access.name) + (threads == 1 ? "" : ", " + std::to_string(threads) + " threads"), {time, moved}});
    }
  }
}

}  // namespace ramspan::bench
