#include "bench/report.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <thread>

#include "common/units.h"
#include "ramspan/options.h"
#include "ramspan/runtime.h"

namespace ramspan::bench {
namespace {

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Json ConfigJson(const BenchOptions& o) {
  return {{"data", o.data},         {"chunk", o.chunk},           {"limit", o.limit},
          {"mode", o.mode},         {"tier", o.tier},             {"directory", o.directory},
          {"direct", o.direct},     {"checksum", o.checksum},     {"preemptive", o.preemptive},
          {"repetitions", o.repetitions}, {"operations", o.operations}, {"chunks", o.chunks},
          {"threads", o.threads},   {"busy", o.busy}, {"work_us", o.work_us},
          {"servers", o.servers},   {"clients", o.clients}, {"server_memory", o.server_memory},
          {"transport", o.transport}, {"hosts", o.hosts}, {"wire_gbit_s", o.wire_gbit_s}, {"server_threads", o.server_threads}};
}

}  // namespace

void PrintJson(const BenchOptions& options, Json result) {
  Json all = {{"bench", options.name}, {"version", RAMSPAN_VERSION}, {"date", Today()}, {"cpu", CpuModel()},
              {"cores", std::thread::hardware_concurrency()}, {"config", ConfigJson(options)}};
  all.update(result);
  std::printf("%s\n", all.dump().c_str());
  std::fflush(stdout);
}

void Report(const BenchOptions& options, Json result, const std::string& title, const std::vector<Row>& rows) {
  if (options.json) return PrintJson(options, std::move(result));
  std::printf("%s\n", title.c_str());
  for (const Row& row : rows) {
    std::printf("  %-26s %14s   %s\n", row.what.c_str(), row.figure.c_str(), row.note.c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

void ConfigureLibrary(const BenchOptions& o) {
  Options options;
  options.memory = o.limit;
  options.enableDMA = o.direct;
  options.checksum = o.checksum;
  options.preemptive = o.preemptive;
  options.swap = o.tier;
  options.swapMemory = std::max<uint64_t>(2 * o.data, uint64_t{1} << 30);
  if (!o.directory.empty()) options.swapfiles = o.directory + "/ramspan-%d-%d.swap";
  Configure(options);
}

Json LibraryStats() { return Json::parse(ramspan::StatsJson()); }

uint64_t TierBytes(const Json& stats, const char* key) {
  uint64_t sum = 0;
  for (const auto& [name, tier] : stats["tiers"].items()) sum += tier[key].get<uint64_t>();
  return sum;
}

std::string PlacesUsed(const Json& stats) {
  std::string places;
  for (const auto& [name, tier] : stats["tiers"].items()) {
    if (tier["bytes_out"].get<uint64_t>() == 0) continue;
    places += (places.empty() ? "" : " and ") + std::string(name == "remote" ? "remote memory" : "files");
  }
  return places.empty() ? "no swap" : places;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string Fixed(double value, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double ThreadCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void Settle() { std::this_thread::sleep_for(std::chrono::milliseconds(40)); }

}  // namespace ramspan::bench
