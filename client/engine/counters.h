// What the engine counts. A snapshot is a plain value.
#pragma once

#include <array>
#include <cstdint>

#include "ramspan/advice.h"

namespace ramspan {

struct EngineCounters {
  uint64_t budget_bytes = 0;         // the limit
  uint64_t resident_bytes = 0;       // frames in use now
  uint64_t peak_resident_bytes = 0;  // frames, cached ones too, and metadata, at their highest: I1 says <= budget
  uint64_t metadata_bytes = 0;
  uint64_t metadata_beside_limit_bytes = 0;  // what metadata may take beyond the budget: 0 but for Rambrain programs
  uint64_t chunks = 0;
  uint64_t data_bytes = 0;           // of all chunks now
  uint64_t peak_data_bytes = 0;
  uint64_t peak_data_frame_bytes = 0;  // the same in frames, which are whole pages
  uint64_t swapped_bytes = 0;        // of chunks that are only in swap
  uint64_t preemptive_bytes = 0;     // fetched ahead, not yet touched
  uint64_t misses = 0;               // pins that had to fetch
  uint64_t misses_in_order = 0;      // as their thread's misses before had led to expect (MissOrder)
  uint64_t evictions = 0;
  uint64_t clean_evictions = 0;      // without a write
  uint64_t clean_bytes = 0;          // of those
  uint64_t unchanged_writes = 0;     // dirty evictions of what was in swap already: const was forgotten
  uint64_t unchanged_bytes = 0;
  uint64_t unchanged_skipped = 0;    // those of them that were found to be so before they were written, and were not
  uint64_t write_failures = 0, read_failures = 0;
  uint64_t rereads = 0;              // of chunks that came back with a wrong checksum: some were right the second time
  uint64_t heap_failures = 0;        // std::bad_alloc in a transfer, an eviction or the mover's turn
  uint64_t losses = 0;               // chunks of which no right copy is left
  uint64_t prefetch_issued = 0, prefetch_hits = 0, prefetch_wasted = 0;
  std::array<uint64_t, kAdviceKinds> advised{};  // by advice: chunks for which it was given
  uint64_t kept = 0;                 // times that a chunk stayed, because of advice, that the policy would have let go
  uint64_t pin_waits = 0;            // pulls that waited until other threads' pins made way, and for how long
  uint64_t pin_wait_ns = 0;
  uint64_t pin_refusals = 0;         // times that somebody was told that pins hold all of the limit
  uint64_t takes_past_a_waiter_max = 0;  // frames that others took while one thread waited for one, at most
  uint64_t touches_dropped = 0;      // first touches that a policy wanted and did not hear
  uint64_t waits = 0;                // pulls that waited for data or memory
  uint64_t wait_ns_total = 0;        // of the program: these, and the submissions of its hints
  std::array<uint64_t, 24> wait_us_histogram{};  // [i]: waits of [2^(i-1), 2^i) us; [0]: under 1 us
};

}  // namespace ramspan
