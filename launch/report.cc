#include "launch/report.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "common/units.h"
#include "launch/adviser.h"
#include "launch/process_statistics.h"

namespace ramspan {
namespace {

// The sum over the processes of one column; times are the longest.
struct Totals {
  int processes = 0;
  uint64_t data = 0, budget = 0, peak_resident = 0, peak_rss = 0;
  uint64_t evictions = 0, clean_evictions = 0, unchanged_writes = 0, misses = 0;
  uint64_t prefetch_hits = 0, prefetch_wasted = 0, waits = 0, waits_us = 0;
  std::map<std::string, TierFigures> tiers;
  double seconds = 0;
};

void Add(const ProcessStatistics& process, Totals& totals) {
  ++totals.processes;
  totals.data += process.data;
  totals.budget += process.budget;
  totals.peak_resident += process.peak_resident;
  totals.peak_rss += process.peak_rss;
  totals.evictions += process.evictions;
  totals.misses += process.misses;
  totals.clean_evictions += process.clean_evictions;
  totals.unchanged_writes += process.unchanged_writes;
  totals.prefetch_hits += process.prefetch_hits;
  totals.prefetch_wasted += process.prefetch_wasted;
  totals.waits += process.waits;
  totals.waits_us += process.waits_us;
  for (const auto& [name, values] : process.tiers) totals.tiers[name] += values;
  totals.seconds = std::max(totals.seconds, process.seconds);
}

Result<ProcessStatistics> ReadStatistics(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return InvalidArgument(path + " is a folder; name the files in it: " + path + "/*.json");
  std::ifstream file(path);
  if (!file) return InvalidArgument(path + ": cannot be read: " + strerror(errno) + (errno == ENOENT ? " (a program writes its statistics when it exits and now and then from its fifth second on, so one that is killed before leaves none; one that is not linked with Ramspan, or has allocated nothing that --pages takes, writes none)" : ""));
  constexpr std::streamsize kTextMost = 16 << 20;  // of a device there is no end
  std::string text(kTextMost, '\0');
  file.read(text.data(), kTextMost);
  text.resize(static_cast<size_t>(file.gcount()));
  std::optional<ProcessStatistics> process = ParseProcessStatistics(text);
  if (!process) return InvalidArgument(path + " is not a statistics file (one JSON object, as RAMSPAN_STATS=FILE or --stats FILE writes it)");
  return std::move(*process);
}

// Rows of cells, printed with the first column left- and all others right-aligned.
class Table {
 public:
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  std::string Text() const {
    std::vector<size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()));
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows_) {
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string blanks(widths[i] - row[i].size(), ' ');
        text += i == 0 ? row[i] + blanks : "   " + blanks + row[i];
      }
      text += '\n';
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string Seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", seconds);
  return text;
}

template <typename Cell>
void AddRow(Table& table, const std::string& name, const std::vector<Totals>& columns, Cell cell) {
  std::vector<std::string> cells = {name};
  for (const Totals& column : columns) cells.push_back(cell(column));
  table.Row(std::move(cells));
}

void AddBytesRow(Table& table, const std::string& name, const std::vector<Totals>& columns, uint64_t Totals::*field) {
  AddRow(table, name, columns, [&](const Totals& column) { return FormatBytes(column.*field); });
}

void AddTierRows(Table& table, const std::vector<Totals>& columns) {
  std::set<std::string> names;
  for (const Totals& column : columns) {
    for (const auto& [name, tier] : column.tiers) names.insert(name);
  }
  // Remote memory before files, as chunks travel.
  std::vector<std::string> ordered(names.rbegin(), names.rend());
  for (const std::string& name : ordered) {
    const auto row = [&](const std::string& what, uint64_t TierFigures::*field) {
      AddRow(table, name + what, columns, [&](const Totals& column) {
        const auto found = column.tiers.find(name);
        return found == column.tiers.end() ? "-" : FormatBytes(found->second.*field);
      });
    };
    row(": out", &TierFigures::bytes_out);
    row(": in", &TierFigures::bytes_in);
    const bool errors = std::any_of(columns.begin(), columns.end(), [&](const Totals& column) {
      const auto found = column.tiers.find(name);
      return found != column.tiers.end() && found->second.errors > 0;
    });
    if (!errors) continue;
    AddRow(table, name + ": errors", columns, [&](const Totals& column) {
      const auto found = column.tiers.find(name);
      return std::to_string(found == column.tiers.end() ? 0 : found->second.errors);
    });
  }
}

void AddRows(Table& table, const std::vector<Totals>& totals) {
  AddRow(table, "processes", totals, [](const Totals& one) { return std::to_string(one.processes); });
  AddBytesRow(table, "data", totals, &Totals::data);
  AddBytesRow(table, "memory limit", totals, &Totals::budget);
  AddBytesRow(table, "peak resident", totals, &Totals::peak_resident);
  const bool maps_servers = std::any_of(totals.begin(), totals.end(), [](const Totals& one) {
    const auto remote = one.tiers.find("remote");
    return remote != one.tiers.end() && remote->second.servers > 0;
  });
  AddBytesRow(table, maps_servers ? "peak of process (RSS; with servers' memory)" : "peak of process (RSS)", totals, &Totals::peak_rss);
  AddTierRows(table, totals);
  AddRow(table, "chunks evicted / without a write", totals, [](const Totals& one) {
    return std::to_string(one.evictions) + " / " + std::to_string(one.clean_evictions);
  });
  AddRow(table, "found unchanged by checksum", totals, [](const Totals& one) { return std::to_string(one.unchanged_writes); });
  AddRow(table, "misses", totals, [](const Totals& one) { return std::to_string(one.misses); });
  AddRow(table, "read ahead: used / wasted", totals, [](const Totals& one) {
    return std::to_string(one.prefetch_hits) + " / " + std::to_string(one.prefetch_wasted);
  });
  AddRow(table, "waits", totals, [](const Totals& one) {
    return std::to_string(one.waits) + " (" + Seconds(static_cast<double>(one.waits_us) / 1e6) + ")";
  });
  AddRow(table, "time", totals, [](const Totals& one) { return Seconds(one.seconds); });
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

Result<std::vector<ReportColumn>> ParseReportArguments(const std::vector<std::string>& arguments) {
  std::vector<ReportColumn> columns;
  bool named = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--name") {
      if (i + 1 == arguments.size()) return InvalidArgument("--name needs a name and files after it");
      if (!named && !columns.empty()) return InvalidArgument("files before the first --name");
      named = true;
      columns.push_back({arguments[++i], {}, /*named=*/true});
    } else if (arguments[i].rfind("--", 0) == 0) {
      return InvalidArgument("unknown option " + arguments[i] + " (see ramspan report --help)");
    } else if (named) {
      columns.back().files.push_back(arguments[i]);
    } else {
      columns.push_back({BaseName(arguments[i]), {arguments[i]}});
    }
  }
  if (columns.empty()) return InvalidArgument("no statistics files given (see ramspan report --help)");
  for (const ReportColumn& column : columns) {
    if (column.files.empty()) return InvalidArgument("--name " + column.name + " has no files after it");
  }
  if (named || columns.size() == 1) return columns;
  ReportColumn total{"total", {}};
  for (ReportColumn& column : columns) {
    total.files.push_back(column.files[0]);
    column.advised = false;
  }
  columns.push_back(std::move(total));
  return columns;
}

Result<std::string> ReportText(const std::vector<ReportColumn>& columns) {
  Table table;
  std::vector<std::string> head = {""};
  std::vector<Totals> totals;
  std::string cut, advice;
  for (const ReportColumn& column : columns) {
    head.push_back(column.name);
    totals.emplace_back();
    std::vector<ProcessStatistics> job;
    double unended = 0;
    for (const std::string& path : column.files) {
      Result<ProcessStatistics> process = ReadStatistics(path);
      if (!process.ok()) return process.status();
      Add(process.value(), totals.back());
      if (!process.value().ended) unended = std::max(unended, process.value().seconds);
      job.push_back(std::move(process.value()));
    }
    if (unended > 0 && (column.named || column.files.size() == 1)) cut += "\n" + column.name + ": had not ended when this was written, after " + Seconds(unended) + " (what is killed leaves the numbers of at most a minute before)\n";
    if (column.advised) advice += "\n" + AdviceText(job, column.named ? column.name : "");
  }
  table.Row(std::move(head));
  AddRows(table, totals);
  return table.Text() + cut + advice;
}

}  // namespace ramspan
