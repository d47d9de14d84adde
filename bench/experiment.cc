#include "bench/experiment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace ramspan::bench {

Table::Table(const BenchOptions& options, std::string title, std::vector<std::string> columns)
    : options_(options), title_(std::move(title)), lines_{std::move(columns)} {}

void Table::AddRow(const Json& values, std::vector<std::string> cells) {
  if (options_.json) {
    Json line = options_.only.empty() ? Json::object() : Json{{"experiment", options_.only}};
    line.update(values);
    PrintJson(options_, std::move(line));
  }
  lines_.push_back(std::move(cells));
}

void Table::AddTarget(const std::string& name, double value, const std::string& target, bool held,
                      const std::string& measured) {
  if (options_.json) {
    PrintJson(options_, {{"experiment", options_.only}, {"target", target}, {name, value}, {"held", held}});
  }
  AddNote("target " + target + ": " + (held ? "held" : "MISSED") + " (" + measured + ")");
}

void Table::AddNote(const std::string& note) { notes_.push_back(note); }

void Table::Print() const {
  if (options_.json) return;
  std::vector<size_t> widths(lines_[0].size());
  for (const std::vector<std::string>& line : lines_) {
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::printf("%s\n", title_.c_str());
  for (const std::vector<std::string>& line : lines_) {
    for (size_t i = 0; i < widths.size(); ++i) {
      std::printf(i == 0 ? "  %-*s" : "   %*s", static_cast<int>(widths[i]), line[i].c_str());
    }
    std::printf("\n");
  }
  for (const std::string& note : notes_) std::printf("  %s\n", note.c_str());
  std::printf("\n");
  std::fflush(stdout);
}

Progress::Progress(const BenchOptions& options, int steps)
    : name_(options.only.empty() ? options.name : options.only), steps_(steps), terminal_(isatty(STDERR_FILENO) != 0) {}

void Progress::Clear() {
  if (terminal_) std::fprintf(stderr, "\r\033[K");
}

void Progress::Next(const std::string& what) {
  ++step_;
  if (terminal_) std::fprintf(stderr, "\r\033[K%s %d of %d: %s", name_.c_str(), step_, steps_, what.c_str());
}

std::vector<std::string> WordsOf(const std::string& list) {
  std::vector<std::string> words;
  for (size_t begin = 0, comma; begin <= list.size(); begin = comma + 1) {
    comma = std::min(list.find(',', begin), list.size());
    words.push_back(list.substr(begin, comma - begin));
  }
  return words;
}

std::vector<double> ChosenRatios(const BenchOptions& options) {
  std::vector<double> ratios;
  for (const std::string& word : WordsOf(options.lmr)) {
    char* end = nullptr;
    const double percent = std::strtod(word.c_str(), &end);
    if (word.empty() || *end != '\0' || !(percent >= 1 && percent <= 100)) {
      throw std::runtime_error("--lmr: percents of the data, 1 to 100, separated by commas; not \"" + word + "\"");
    }
    ratios.push_back(percent);
  }
  return ratios;
}

std::string Range(const std::vector<double>& values, int digits) {
  if (values.empty()) return "-";
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return Fixed(*least, digits) + " to " + Fixed(*most, digits);
}

double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

}  // namespace ramspan::bench
