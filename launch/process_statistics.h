// ProcessStatistics: what one process has left in its file of RAMSPAN_STATS (docs/configuration.md, Statistics), as far as `ramspan report`
// uses it. Files of older versions lack some keys: what they do not tell is 0, or empty where 0 would say something. Value type, pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace ramspan {

struct TierFigures {
  uint64_t bytes_out = 0, bytes_in = 0, ops_out = 0, ops_in = 0, errors = 0;
  uint64_t servers = 0, servers_alive = 0;  // of the tier "remote"
  TierFigures& operator+=(const TierFigures& other);
};

struct ProcessStatistics {
  int64_t rank = -1;
  double seconds = 0;
  bool ended = true;  // else it is what was so when it was written, of a process that ran then
  uint64_t budget = 0, peak_resident = 0, peak_rss = 0;
  uint64_t anonymous_rss = 0;  // at the end
  uint64_t page_block = 0;     // bytes; 0: no memory was swapped by pages
  uint64_t page_faults = 0, pages_cramped = 0;  // those that came as units where pages were wanted, for whose descriptors there was no room
  bool pages_adapt = false;    // blocks of other sizes, too
  uint64_t pages_above = 0;    // bytes; of a program that was not made for Ramspan; else 0
  uint64_t metadata = 0, metadata_beside_limit = 0;
  uint64_t data = 0;         // at most, in bytes of the program
  uint64_t data_frames = 0;  // at most, in whole pages; `data` where the file does not tell
  uint64_t evictions = 0, clean_evictions = 0, unchanged_writes = 0, unchanged_bytes = 0, unchanged_skipped = 0;
  uint64_t misses = 0;
  std::optional<uint64_t> misses_in_order;
  uint64_t prefetch_issued = 0, prefetch_hits = 0, prefetch_wasted = 0;
  uint64_t waits = 0, waits_us = 0;
  uint64_t pin_waits = 0, pin_waits_us = 0, pin_refusals = 0;
  uint64_t element_accesses = 0, element_accesses_most = 0;  // by x[i]; of all threads, of one
  std::map<std::string, TierFigures> tiers;

  // Of all tiers.
  TierFigures Moved() const;
};

// Empty: the text is not one JSON object.
std::optional<ProcessStatistics> ParseProcessStatistics(std::string_view text);

}  // namespace ramspan
