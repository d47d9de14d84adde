#include "launch/process_statistics.h"

#include <nlohmann/json.hpp>

namespace ramspan {
namespace {

using Json = nlohmann::json;

uint64_t Number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() && *found >= 0 ? found->get<uint64_t>() : 0;
}

const Json& Child(const Json& object, const char* key) {
  static const Json kNone = Json::object();
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : kNone;
}

TierFigures ParseTier(const Json& values) {
  TierFigures tier;
  tier.bytes_out = Number(values, "bytes_out");
  tier.bytes_in = Number(values, "bytes_in");
  tier.ops_out = Number(values, "ops_out");
  tier.ops_in = Number(values, "ops_in");
  tier.errors = Number(values, "errors");
  const auto servers = values.find("servers");
  if (servers == values.end() || !servers->is_array()) return tier;
  for (const Json& server : *servers) {
    ++tier.servers;
    const auto state = server.is_object() ? server.find("state") : server.end();
    tier.servers_alive += state != server.end() && *state == "alive" ? 1 : 0;
  }
  return tier;
}

void ParseTraffic(const Json& process, ProcessStatistics* s) {
  s->evictions = Number(process, "evictions");
  s->clean_evictions = Number(process, "clean_evictions");
  s->unchanged_writes = Number(process, "unchanged_writes");
  s->unchanged_bytes = Number(process, "unchanged_bytes");
  s->unchanged_skipped = Number(process, "unchanged_skipped");
  s->misses = Number(process, "misses");
  if (process.contains("misses_in_order")) s->misses_in_order = Number(process, "misses_in_order");
  const Json& prefetch = Child(process, "prefetch");
  s->prefetch_issued = Number(prefetch, "issued");
  s->prefetch_hits = Number(prefetch, "hits");
  s->prefetch_wasted = Number(prefetch, "wasted");
  const Json& waits = Child(process, "waits");
  s->waits = Number(waits, "count");
  s->waits_us = Number(waits, "total_us");
  const Json& pins = Child(process, "pins");
  s->pin_waits = Number(pins, "waits");
  s->pin_waits_us = Number(pins, "total_us");
  s->pin_refusals = Number(pins, "refused");
  const Json& elements = Child(process, "element_accesses");
  s->element_accesses = Number(elements, "count");
  s->element_accesses_most = Number(elements, "most_of_a_thread");
  for (const auto& [name, values] : Child(process, "tiers").items()) {
    if (values.is_object()) s->tiers[name] = ParseTier(values);
  }
}

}  // namespace

TierFigures& TierFigures::operator+=(const TierFigures& other) {
  bytes_out += other.bytes_out;
  bytes_in += other.bytes_in;
  ops_out += other.ops_out;
  ops_in += other.ops_in;
  errors += other.errors;
  servers += other.servers;
  servers_alive += other.servers_alive;
  return *this;
}

TierFigures ProcessStatistics::Moved() const {
  TierFigures sum;
  for (const auto& [name, tier] : tiers) sum += tier;
  return sum;
}

std::optional<ProcessStatistics> ParseProcessStatistics(std::string_view text) {
  const Json process = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!process.is_object() || !process.contains("budget_bytes")) return std::nullopt;
  ProcessStatistics s;
  const auto rank = process.find("rank"), seconds = process.find("seconds");
  if (rank != process.end() && rank->is_number_integer()) s.rank = rank->get<int64_t>();
  if (seconds != process.end() && seconds->is_number() && *seconds >= 0) s.seconds = seconds->get<double>();
  const auto ended = process.find("ended");
  s.ended = ended == process.end() || !ended->is_boolean() || ended->get<bool>();
  s.budget = Number(process, "budget_bytes");
  s.metadata = Number(process, "metadata_bytes");
  s.metadata_beside_limit = Number(process, "metadata_beside_limit_bytes");
  s.peak_resident = Number(process, "peak_resident_bytes");
  s.peak_rss = Number(process, "peak_rss_bytes");
  s.anonymous_rss = Number(process, "rss_anon_bytes");
  s.page_block = Number(Child(process, "pages"), "block_bytes");
  const Json pages = Child(process, "pages");
  s.page_faults = Number(pages, "faults");
  s.pages_cramped = Number(pages, "cramped");
  const auto adapts = pages.find("adapts");
  s.pages_adapt = adapts != pages.end() && adapts->is_boolean() && adapts->get<bool>();
  s.pages_above = Number(Child(process, "pages"), "above_bytes");
  s.data = Number(process, "peak_data_bytes");
  s.data_frames = process.contains("peak_data_frame_bytes") ? Number(process, "peak_data_frame_bytes") : s.data;
  ParseTraffic(process, &s);
  return s;
}

}  // namespace ramspan
