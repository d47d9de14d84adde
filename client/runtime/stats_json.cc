#include "client/runtime/stats_json.h"

#include <limits.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace ramspan {
namespace {

using Json = nlohmann::ordered_json;

// A line "Name:   123 kB" of /proc/self/status, in bytes; 0 if it is not there.
uint64_t ProcStatus(const char* name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    unsigned long long kib;
    if (line.rfind(name, 0) == 0 && std::sscanf(line.c_str() + std::strlen(name), ": %llu kB", &kib) == 1) {
      return kib * 1024;
    }
  }
  return 0;
}

Json ConfigJson(const Config& c) {
  const char* policies[] = {"fail", "interactive", "autoextendable"};
  const char* transports[] = {"auto", "mpi", "none", "ofi"};
  return {{"memory", c.memory},         {"swapMemory", c.swap_memory},
          {"memoryManager", c.memory_manager}, {"swap", c.swap},
          {"swapfiles", c.swapfiles},   {"enableDMA", c.enable_dma},
          {"policy", policies[static_cast<int>(c.policy)]},
          {"transport", transports[static_cast<int>(c.transport)]},
          {"servers", c.servers},
          {"checksum", c.checksum},     {"preemptive", c.preemptive},
          {"debug", c.debug},           {"bundles", c.bundles}};
}

Json ServersJson(const std::vector<ServerStats>& servers) {
  Json list = Json::array();
  for (const ServerStats& server : servers) {
    list.push_back({{"server", server.name},
                    {"state", server.state},
                    {"near", server.near},
                    {"leased_bytes", server.leased_bytes},
                    {"slot_bytes_used", server.slot_bytes_used},
                    {"bytes_out", server.bytes_written},
                    {"bytes_in", server.bytes_read}});
  }
  return list;
}

Json HistogramJson(const EngineCounters& c) {
  Json histogram = Json::object();
  for (size_t i = 0; i < c.wait_us_histogram.size(); ++i) {
    if (c.wait_us_histogram[i] != 0) histogram[std::to_string(uint64_t{1} << i)] = c.wait_us_histogram[i];
  }
  return histogram;
}

}  // namespace

std::string FormatStats(const StatsInput& in) {
  const EngineCounters& c = in.counters;
  Json tiers = Json::object();
  for (const auto& [name, t] : in.tiers) {
    tiers[name] = {{"bytes_out", t.bytes_written}, {"bytes_in", t.bytes_read},
                   {"ops_out", t.writes},          {"ops_in", t.reads},
                   {"errors", t.errors},           {"slot_bytes_used", t.slot_bytes_used},
                   {"slot_bytes_capacity", t.slot_bytes_capacity}};
    if (name == "remote") {
      tiers[name].update({{"in_flight_sum", t.in_flight_sum}, {"registered_buffers", t.registered_buffers}, {"registered_bytes", t.registered_bytes}});
      tiers[name]["servers"] = ServersJson(in.servers);
    }
  }
  char program[PATH_MAX] = {};
  if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) program[0] = '\0';
  Json json = {
      {"program", program},
      {"rank", in.rank},
      {"seconds", in.seconds},
      {"config", ConfigJson(*in.config)},
      {"budget_bytes", c.budget_bytes},
      {"resident_bytes", c.resident_bytes},
      {"peak_resident_bytes", c.peak_resident_bytes},
      {"metadata_bytes", c.metadata_bytes},
      {"metadata_beside_limit_bytes", c.metadata_beside_limit_bytes},
      {"peak_rss_bytes", ProcStatus("VmHWM")},
      {"rss_anon_bytes", ProcStatus("RssAnon")},
      {"rss_shared_bytes", ProcStatus("RssShmem")},
      {"chunks", c.chunks},
      {"small_objects", in.small_objects},
      {"data_bytes", c.data_bytes},
      {"peak_data_bytes", c.peak_data_bytes},
      {"tiers", tiers},
      {"misses", c.misses},
      {"evictions", c.evictions},
      {"clean_evictions", c.clean_evictions},
      {"unchanged_writes", c.unchanged_writes},
      {"unchanged_bytes", c.unchanged_bytes},
      {"write_failures", c.write_failures},
      {"read_failures", c.read_failures},
      {"prefetch", {{"issued", c.prefetch_issued}, {"hits", c.prefetch_hits}, {"wasted", c.prefetch_wasted}}},
      {"waits", {{"count", c.waits}, {"total_us", c.wait_ns_total / 1000}, {"histogram_us", HistogramJson(c)}}},
  };
  // Names of files need not be UTF-8. What JSON cannot hold of them is replaced: statistics never end a program.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string ExpandStatsPath(const std::string& path, int rank) {
  std::string out;
  bool distinct = false;
  for (size_t i = 0; i < path.size(); ++i) {
    const char next = path[i] == '%' && i + 1 < path.size() ? path[i + 1] : '\0';
    if (next == 'r' || next == 'p') {
      out += std::to_string(next == 'r' ? std::max(rank, 0) : static_cast<int>(getpid()));
      distinct = true;
      ++i;
    } else {
      out += path[i];
    }
  }
  return distinct || rank <= 0 ? out : out + "." + std::to_string(rank);
}

}  // namespace ramspan
