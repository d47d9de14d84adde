// The statistics as one JSON object (docs/configuration.md, Statistics: what RAMSPAN_STATS promises). Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "client/engine/counters.h"
#include "client/front/pin_registry.h"
#include "client/swap/swap_tier.h"
#include "common/config.h"
#include "ramspan/pages.h"

namespace ramspan {

struct StatsInput {
  const Config* config = nullptr;
  EngineCounters counters;
  std::vector<std::pair<std::string, TierStats>> tiers;
  std::vector<ServerStats> servers;  // of the tier "remote"
  uint64_t small_objects = 0;
  PinRegistry::ElementUses element_uses;
  PageStatistics pages;
  uint64_t pages_cramped = 0;  // units that came where pages were wanted, for whose descriptors there was no room
  uint64_t pages_above = 0;  // bytes: larger allocations are swapped, of a program that knows nothing of it
  int rank = -1;
  double seconds = 0;
  bool ended = false;  // else the program went on
};

std::string FormatStats(const StatsInput& in);

// %r becomes the world rank (0 outside a job), %p the process id; a path without either gets ".RANK" in a job of several.
std::string ExpandStatsPath(const std::string& path, int rank);

}  // namespace ramspan
