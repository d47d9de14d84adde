// swap-targets: the results. A row is one contestant with one access at one LMR; the table, the pictures and the targets are made of rows,
// which --json prints and --from reads again.
// Thread-safety: values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/report.h"

namespace ramspan::bench {

struct TargetRow {
  std::string contestant, access;
  double lmr = 0;   // percent
  int threads = 1;
  std::string skipped;  // why there is nothing below
  uint64_t data = 0;    // bytes that a pass goes through
  std::vector<double> pass_s;
  double passes = 0;    // as many as pass_s has, but that the last one may have been cut; its time is what all of it would take
  uint64_t moved = 0;                       // bytes in and out, of all passes
  double least = 0;                         // what MIN moves in as many
  double own_cpu_s = 0, all_cpu_s = 0;      // of a pass: the program's threads; with all other threads and servers
  bool counted = false;                     // by a cgroup, what follows
  uint64_t anonymous = 0, page_cache = 0, shared = 0;  // most at one time, bytes of memory: the process, its files', shared with others
  uint64_t elsewhere = 0;                   // memory that holds what was swapped: servers', zram's
  double compression = 0;                   // zram: of what was given to it
  bool right = false;

  double seconds() const { return Median(pass_s); }
  bool is_cut() const { return passes < static_cast<double>(pass_s.size()); }
};

Json ToJson(const TargetRow& row);
// Throws nlohmann::json::exception where a line is none.
TargetRow RowFromJson(const Json& line);
// The rows of files that --json wrote. Throws std::runtime_error.
std::vector<TargetRow> RowsFrom(const std::vector<std::string>& files);

void PrintTargetTables(const BenchOptions& options, const std::vector<TargetRow>& rows);
void DrawTargets(const BenchOptions& options, const std::vector<TargetRow>& rows);

}  // namespace ramspan::bench
