#include "launch/report.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/units.h"

namespace ramspan {
namespace {

using Json = nlohmann::json;

struct Tier {
  uint64_t bytes_out = 0, bytes_in = 0, ops_out = 0, ops_in = 0, errors = 0;
};

// The sum over the processes of one column; times are the longest.
struct Totals {
  int processes = 0;
  uint64_t data = 0, budget = 0, peak_resident = 0, peak_rss = 0;
  uint64_t evictions = 0, clean_evictions = 0, unchanged_writes = 0, misses = 0;
  uint64_t prefetch_issued = 0, prefetch_hits = 0, prefetch_wasted = 0, waits = 0, waits_us = 0;
  std::map<std::string, Tier> tiers;
  double seconds = 0;
};

uint64_t Number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<uint64_t>() : 0;
}

const Json& Child(const Json& object, const char* key) {
  static const Json kNone = Json::object();
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : kNone;
}

void Add(const Json& process, Totals& totals) {
  ++totals.processes;
  totals.data += Number(process, "peak_data_bytes");
  totals.budget += Number(process, "budget_bytes");
  totals.peak_resident += Number(process, "peak_resident_bytes");
  totals.peak_rss += Number(process, "peak_rss_bytes");
  totals.evictions += Number(process, "evictions");
  totals.misses += Number(process, "misses");
  totals.clean_evictions += Number(process, "clean_evictions");
  totals.unchanged_writes += Number(process, "unchanged_writes");
  const Json& prefetch = Child(process, "prefetch");
  totals.prefetch_issued += Number(prefetch, "issued");
  totals.prefetch_hits += Number(prefetch, "hits");
  totals.prefetch_wasted += Number(prefetch, "wasted");
  const Json& waits = Child(process, "waits");
  totals.waits += Number(waits, "count");
  totals.waits_us += Number(waits, "total_us");
  for (const auto& [name, values] : Child(process, "tiers").items()) {
    if (!values.is_object()) continue;
    Tier& tier = totals.tiers[name];
    tier.bytes_out += Number(values, "bytes_out");
    tier.bytes_in += Number(values, "bytes_in");
    tier.ops_out += Number(values, "ops_out");
    tier.ops_in += Number(values, "ops_in");
    tier.errors += Number(values, "errors");
  }
  const auto seconds = process.find("seconds");
  if (seconds != process.end() && seconds->is_number()) totals.seconds = std::max(totals.seconds, seconds->get<double>());
}

Status AddFile(const std::string& path, Totals& totals) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return InvalidArgument(path + " is a folder; name the files in it: " + path + "/*.json");
  std::ifstream file(path);
  if (!file) return InvalidArgument(path + ": cannot be read");
  const Json process = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!process.is_object()) return InvalidArgument(path + " is not a statistics file (one JSON object)");
  Add(process, totals);
  return {};
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
    const auto row = [&](const std::string& what, uint64_t Tier::*field) {
      AddRow(table, name + what, columns, [&](const Totals& column) {
        const auto found = column.tiers.find(name);
        return found == column.tiers.end() ? "-" : FormatBytes(found->second.*field);
      });
    };
    row(": out", &Tier::bytes_out);
    row(": in", &Tier::bytes_in);
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
      columns.push_back({arguments[++i], {}});
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
  for (const ReportColumn& column : columns) total.files.push_back(column.files[0]);
  columns.push_back(std::move(total));
  return columns;
}

Result<std::string> ReportTable(const std::vector<ReportColumn>& columns) {
  Table table;
  std::vector<std::string> head = {""};
  std::vector<Totals> totals;
  for (const ReportColumn& column : columns) {
    head.push_back(column.name);
    totals.emplace_back();
    for (const std::string& file : column.files) {
      if (Status status = AddFile(file, totals.back()); !status.ok()) return status;
    }
  }
  table.Row(std::move(head));
  AddRow(table, "processes", totals, [](const Totals& one) { return std::to_string(one.processes); });
  AddBytesRow(table, "data", totals, &Totals::data);
  AddBytesRow(table, "memory limit", totals, &Totals::budget);
  AddBytesRow(table, "peak resident", totals, &Totals::peak_resident);
  AddBytesRow(table, "peak of process (RSS)", totals, &Totals::peak_rss);
  AddTierRows(table, totals);
  AddRow(table, "chunks evicted / without a write", totals, [](const Totals& one) {
    return std::to_string(one.evictions) + " / " + std::to_string(one.clean_evictions);
  });
  AddRow(table, "writes that changed nothing", totals, [](const Totals& one) { return std::to_string(one.unchanged_writes); });
  AddRow(table, "misses", totals, [](const Totals& one) { return std::to_string(one.misses); });
  AddRow(table, "read ahead: used / wasted", totals, [](const Totals& one) {
    return std::to_string(one.prefetch_hits) + " / " + std::to_string(one.prefetch_wasted);
  });
  AddRow(table, "waits", totals, [](const Totals& one) {
    return std::to_string(one.waits) + " (" + Seconds(static_cast<double>(one.waits_us) / 1e6) + ")";
  });
  AddRow(table, "time", totals, [](const Totals& one) { return Seconds(one.seconds); });
  return table.Text();
}

}  // namespace ramspan
