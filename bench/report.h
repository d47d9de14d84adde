// Results, for people (a block of lines) or for programs (one JSON object a line), and the little that all cases share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/options.h"

namespace ramspan::bench {

using Json = nlohmann::ordered_json;

struct Row {
  std::string what;
  std::string figure;
  std::string note;
};

// `result` is completed with the case, the date, the machine and the whole configuration.
void Report(const BenchOptions& options, Json result, const std::string& title, const std::vector<Row>& rows);

// The JSON line alone.
void PrintJson(const BenchOptions& options, Json result);

// Hands `options` to ramspan::Configure.
void ConfigureLibrary(const BenchOptions& options);
// ramspan::StatsJson, parsed.
Json LibraryStats();
// Bytes that all tiers took ("bytes_out") or gave back ("bytes_in") up to now.
uint64_t TierBytes(const Json& stats, const char* key);
// "remote memory", "files", or both: where the bytes really went.
std::string PlacesUsed(const Json& stats);

double Median(std::vector<double> values);
std::string Fixed(double value, int digits);
inline double GbPerSecond(double bytes, double seconds) { return bytes / seconds / 1e9; }
double Now();               // seconds, monotonic
double ThreadCpuSeconds();  // of the calling thread: other processes on its core do not count
// Lets the mover finish what the last pass left it, so that the next one does not share the cores with it.
void Settle();

}  // namespace ramspan::bench
