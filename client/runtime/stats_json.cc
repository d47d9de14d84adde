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

// Names of files need not be UTF-8. What JSON cannot hold of them is replaced: statistics never end a program.
template <typename T>
std::string Leaf(const T& value) {
  return Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A JSON object, written member after member. Of the JSON library's own objects and arrays the destructors allocate, so without heap they
// would end the program; its leaves do not.
class Members {
 public:
  template <typename T>
  Members& Add(const std::string& key, const T& value) {
    return AddText(key, Leaf(value));
  }
  Members& Add(const std::string& key, const Members& object) { return AddText(key, object.text()); }
  Members& AddText(const std::string& key, const std::string& json) {
    if (!text_.empty()) text_ += ',';
    text_ += Leaf(key) + ':' + json;
    return *this;
  }
  std::string text() const { return '{' + text_ + '}'; }

 private:
  std::string text_;
};

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

Members ConfigJson(const Config& c) {
  const char* policies[] = {"fail", "interactive", "autoextendable"};
  const char* transports[] = {"auto", "mpi", "none", "ofi"};
  return Members()
      .Add("memory", c.memory)
      .Add("swapMemory", c.swap_memory)
      .Add("memoryManager", c.memory_manager)
      .Add("swap", c.swap)
      .Add("swapfiles", c.swapfiles)
      .Add("enableDMA", c.enable_dma)
      .Add("policy", policies[static_cast<int>(c.policy)])
      .Add("transport", transports[static_cast<int>(c.transport)])
      .Add("servers", c.servers)
      .Add("checksum", c.checksum)
      .Add("preemptive", c.preemptive)
      .Add("debug", c.debug)
      .Add("bundles", c.bundles);
}

// Chunks for which each advice was given, and how often one stayed because of it.
Members AdviceJson(const EngineCounters& c) {
  const char* names[kAdviceKinds] = {"normal", "keep", "once", "sequential", "random", "will_need", "done"};
  Members all;
  for (size_t i = 0; i < c.advised.size(); ++i) all.Add(names[i], c.advised[i]);
  return all.Add("kept", c.kept);
}

// Memory that is swapped by pages (docs/pages.md); its chunks are in all other counts, too.
Members PagesJson(const PageStatistics& p, uint64_t above, uint64_t cramped) {
  return Members()
      .Add("block_bytes", p.block_bytes)
      .Add("above_bytes", above)
      .Add("faults", p.faults)
      .Add("blocks_in", p.blocks_in)
      .Add("blocks_out", p.blocks_out)
      .Add("zero_blocks", p.zero_blocks)
      .Add("stuck", p.stuck)
      .Add("adapts", p.adapts)
      .Add("merges", p.merges)
      .Add("splits", p.splits)
      .Add("cramped", cramped);
}

std::string ServersJson(const std::vector<ServerStats>& servers) {
  std::string list;
  for (const ServerStats& server : servers) {
    if (!list.empty()) list += ',';
    list += Members()
                .Add("server", server.name)
                .Add("state", server.state)
                .Add("near", server.near)
                .Add("leased_bytes", server.leased_bytes)
                .Add("slot_bytes_used", server.slot_bytes_used)
                .Add("bytes_out", server.bytes_written)
                .Add("bytes_in", server.bytes_read)
                .text();
  }
  return '[' + list + ']';
}

Members TiersJson(const StatsInput& in) {
  Members tiers;
  for (const auto& [name, t] : in.tiers) {
    Members one;
    one.Add("bytes_out", t.bytes_written).Add("bytes_in", t.bytes_read).Add("ops_out", t.writes).Add("ops_in", t.reads);
    one.Add("errors", t.errors).Add("slot_bytes_used", t.slot_bytes_used).Add("slot_bytes_capacity", t.slot_bytes_capacity);
    if (name == "remote") {
      one.Add("in_flight_sum", t.in_flight_sum).Add("registered_buffers", t.registered_buffers).Add("registered_bytes", t.registered_bytes);
      one.AddText("servers", ServersJson(in.servers));
    }
    tiers.Add(name, one);
  }
  return tiers;
}

Members HistogramJson(const EngineCounters& c) {
  Members histogram;
  for (size_t i = 0; i < c.wait_us_histogram.size(); ++i) {
    if (c.wait_us_histogram[i] != 0) histogram.Add(std::to_string(uint64_t{1} << i), c.wait_us_histogram[i]);
  }
  return histogram;
}

}  // namespace

std::string FormatStats(const StatsInput& in) {
  const EngineCounters& c = in.counters;
  char program[PATH_MAX] = {};
  if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) program[0] = '\0';
  return Members()
      .Add("program", static_cast<const char*>(program))
      .Add("rank", in.rank)
      .Add("seconds", in.seconds)
      .Add("ended", in.ended)
      .Add("config", ConfigJson(*in.config))
      .Add("budget_bytes", c.budget_bytes)
      .Add("resident_bytes", c.resident_bytes)
      .Add("peak_resident_bytes", c.peak_resident_bytes)
      .Add("metadata_bytes", c.metadata_bytes)
      .Add("metadata_beside_limit_bytes", c.metadata_beside_limit_bytes)
      .Add("peak_rss_bytes", ProcStatus("VmHWM"))
      .Add("rss_anon_bytes", ProcStatus("RssAnon"))
      .Add("rss_shared_bytes", ProcStatus("RssShmem"))
      .Add("chunks", c.chunks)
      .Add("small_objects", in.small_objects)
      .Add("data_bytes", c.data_bytes)
      .Add("peak_data_bytes", c.peak_data_bytes)
      .Add("peak_data_frame_bytes", c.peak_data_frame_bytes)
      .Add("tiers", TiersJson(in))
      .Add("misses", c.misses)
      .Add("misses_in_order", c.misses_in_order)
      .Add("evictions", c.evictions)
      .Add("clean_evictions", c.clean_evictions)
      .Add("unchanged_writes", c.unchanged_writes)
      .Add("unchanged_bytes", c.unchanged_bytes)
      .Add("unchanged_skipped", c.unchanged_skipped)
      .Add("write_failures", c.write_failures)
      .Add("read_failures", c.read_failures)
      .Add("advice", AdviceJson(c))
      .Add("prefetch", Members().Add("issued", c.prefetch_issued).Add("hits", c.prefetch_hits).Add("wasted", c.prefetch_wasted))
      .Add("waits", Members().Add("count", c.waits).Add("total_us", c.wait_ns_total / 1000).Add("histogram_us", HistogramJson(c)))
      .Add("element_accesses", Members().Add("count", in.element_uses.all).Add("most_of_a_thread", in.element_uses.most))
      .Add("pages", PagesJson(in.pages, in.pages_above, in.pages_cramped))
      .Add("pins", Members().Add("waits", c.pin_waits).Add("total_us", c.pin_wait_ns / 1000).Add("refused", c.pin_refusals))
      .text();
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
