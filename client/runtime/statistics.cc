#include "client/runtime/statistics.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "client/engine/engine.h"
#include "client/front/bundles.h"
#include "client/front/pin_registry.h"
#include "client/runtime/stats_json.h"
#include "client/swap/file_swap.h"
#include "client/swap/tiered_swap.h"
#include "common/log.h"

namespace ramspan {

Statistics RuntimeStatistics::Snapshot() const {
  const EngineCounters c = from_.engine->counters();
  const TierStats tiers = from_.swap->stats();
  Statistics s;
  s.memory_limit = c.budget_bytes;
  s.memory_used = c.resident_bytes;
  s.overhead = c.metadata_bytes;
  s.overhead_beside_limit = c.metadata_beside_limit_bytes;
  s.data = c.data_bytes;
  s.chunks = c.chunks;
  s.small_objects = from_.bundles ? from_.bundles->objects() : 0;
  s.swapped = c.swapped_bytes;
  s.swap_used = tiers.slot_bytes_used;
  s.swap_capacity = tiers.slot_bytes_capacity;
  if (from_.files != nullptr) s.swap_capacity += from_.files->limit() - from_.files->stats().slot_bytes_capacity;
  s.bytes_out = tiers.bytes_written;
  s.bytes_in = tiers.bytes_read;
  s.writes = tiers.writes;
  s.reads = tiers.reads;
  s.evictions = c.evictions;
  s.clean_evictions = c.clean_evictions;
  s.clean_bytes = c.clean_bytes;
  s.misses = c.misses;
  s.pulls = PinRegistry::Get().pulls();
  s.preemptive = c.preemptive_bytes;
  return s;
}

std::string RuntimeStatistics::Json() const {
  StatsInput in;
  in.config = from_.config;
  in.counters = from_.engine->counters();
  in.small_objects = from_.bundles ? from_.bundles->objects() : 0;
  in.rank = rank_.load(std::memory_order_relaxed);
  in.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - from_.started).count();
  for (size_t i = 0; i < from_.swap->tier_count(); ++i) {  // the program may have added several of a kind
    const SwapTier& tier = from_.swap->tier(i);
    const std::string name = tier.capabilities().name;
    const auto same = std::find_if(in.tiers.begin(), in.tiers.end(), [&](const auto& t) { return t.first == name; });
    if (same == in.tiers.end()) {
      in.tiers.push_back({name, tier.stats()});
    } else {
      same->second += tier.stats();
    }
  }
  return FormatStats(in);
}

void RuntimeStatistics::WriteFile() const {
  if (from_.config->stats.empty()) return;
  const std::string path = ExpandStatsPath(from_.config->stats, rank_.load(std::memory_order_relaxed));
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    LogWarning("cannot write statistics to %s (key stats, RAMSPAN_STATS)", path.c_str());
    return;
  }
  const bool written = std::fprintf(file, "%s\n", Json().c_str()) > 0;
  if (std::fclose(file) != 0 || !written) {
    LogWarning("statistics in %s are not complete: %s", path.c_str(), std::strerror(errno));
  }
}

}  // namespace ramspan
