// What the experiments share: tables with verdicts, a line of progress, lists of options, statistics of repeated measurements.
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/report.h"

namespace ramspan::bench {

// Collects rows and prints them as one table; with --json each row is a line as soon as it is there.
class Table {
 public:
  Table(const BenchOptions& options, std::string title, std::vector<std::string> columns);

  void AddRow(const Json& values, std::vector<std::string> cells);
  // `name` is the JSON key of what was measured, `measured` how people read it.
  void AddTarget(const std::string& name, double value, const std::string& target, bool held, const std::string& measured);
  void AddNote(const std::string& note);
  void Print() const;  // nothing with --json

 private:
  const BenchOptions& options_;
  const std::string title_;
  std::vector<std::vector<std::string>> lines_;  // the columns' names first
  std::vector<std::string> notes_;
};

// One line on stderr, rewritten in place; nothing when that is no terminal.
class Progress {
 public:
  Progress(const BenchOptions& options, int steps);
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void Next(const std::string& what);
  void Clear();  // before something else is printed

 private:
  const std::string name_;
  const int steps_;
  const bool terminal_;
  int step_ = 0;
};

// What stands between the commas; as many words as there are commas, and one.
std::vector<std::string> WordsOf(const std::string& list);
// --lmr, in percent. Throws std::runtime_error.
std::vector<double> ChosenRatios(const BenchOptions& options);

// The least and the largest of repeated measurements: "0.12 to 0.31".
std::string Range(const std::vector<double>& values, int digits);
double Quantile(std::vector<double> values, double share);
inline double Mib(uint64_t bytes) { return static_cast<double>(bytes) / 1048576; }

}  // namespace ramspan::bench
