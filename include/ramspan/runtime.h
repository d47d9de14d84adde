// Control of a running Ramspan. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "ramspan/options.h"

namespace ramspan {

// The memory limit in bytes. Setting it below what is in use swaps out until it holds (blocks); throws OutOfMemory when
// more is pinned than the new limit allows, or descriptors of objects take most of it (the old limit stays). An object
// that the new limit has no room for keeps its contents, and each pull of it throws OutOfMemory until the limit is raised.
__attribute__((visibility("default"))) uint64_t MemoryLimit();
__attribute__((visibility("default"))) void SetMemoryLimit(uint64_t bytes);

// Whether the first use has started Ramspan (from then on Configure throws).
__attribute__((visibility("default"))) bool Started();

// Before the start: Configure. Later: reads environment and configuration files again (options.customConfig first, if
// it is set) and applies memory, swapMemory, policy, preemptive and, where servers outside of the job are used, which ones (what is
// on those that are not named any more moves away in the background); all objects stay. What `options` does not set and is configured
// as when it was last read stays as it is now: as a setter below has set it, or as far as swap files have grown. Throws ConfigError, with nothing applied, when what cannot change in a running program has
// changed (swap, swapfiles, enableDMA, transport, checksum, debug, bundles) or a value is wrong; OutOfMemory and Error as the setters.
__attribute__((visibility("default"))) void Reconfigure(const Options& options);

// The options in effect, every field but customConfig set. Starts Ramspan.
__attribute__((visibility("default"))) Options EffectiveOptions();

// The limit of the local swap files together, in bytes, and what happens when it is reached. All objects stay. Setting
// the limit throws Error when more than that is in use now (the old limit stays), ConfigError where no local files are
// used (swap = remote). Files that are larger already are not cut but filled no further than the limit.
__attribute__((visibility("default"))) uint64_t SwapLimit();
__attribute__((visibility("default"))) void SetSwapLimit(uint64_t bytes);
__attribute__((visibility("default"))) void SetSwapPolicy(SwapPolicy policy);

// Whether data is fetched ahead of need (loading) and written back ahead of need (unloading).
__attribute__((visibility("default"))) void SetPreemptive(bool loading, bool unloading);

// Whether a thread that finds all memory pinned waits for other threads' adhereTos to go (the default), or gets
// OutOfMemory at once. A wait that cannot end is OutOfMemory in both cases.
__attribute__((visibility("default"))) void SetWaitForPins(bool wait);

// Counts since the start and sizes now, in bytes where nothing else is said. Not a consistent cut.
struct Statistics {
  uint64_t memory_limit = 0;
  uint64_t memory_used = 0;      // objects in memory
  uint64_t overhead = 0;         // what Ramspan takes for itself: descriptors, tables
  uint64_t overhead_beside_limit = 0;  // as much of it is not in the limit: 0 but for programs written for Rambrain
  uint64_t data = 0;             // all objects
  uint64_t chunks = 0;           // that are swapped as one: objects, and bundles of small ones
  uint64_t small_objects = 0;    // in bundles
  uint64_t swapped = 0;          // objects that are only in swap
  uint64_t swap_used = 0;        // of swap, by swapped objects and by clean copies of those in memory
  uint64_t swap_capacity = 0;    // the local files' limit and what servers have granted
  uint64_t bytes_out = 0, bytes_in = 0;
  uint64_t writes = 0, reads = 0;                      // transfers
  uint64_t evictions = 0, clean_evictions = 0;         // objects; clean: without a write
  uint64_t clean_bytes = 0;                            // of those
  uint64_t misses = 0;                                 // objects that had to be fetched for somebody
  uint64_t pulls = 0;                                  // pointers pulled through the headers of include/rambrain/
  uint64_t preemptive = 0;                             // fetched ahead, not yet touched
};
__attribute__((visibility("default"))) Statistics GetStatistics();

// For people: the eviction policy's order, a line an object. For tests: whether that order's structure is sound.
__attribute__((visibility("default"))) std::string DescribePolicy();
__attribute__((visibility("default"))) bool CheckPolicy();

// Instead of the statistics as JSON on stderr, `signal` (SIGUSR1, SIGUSR2) calls `report`, on a thread of Ramspan's, where
// the program has no handler of its own. Works from Ramspan's start on; null takes the report back. ConfigError for other signals.
__attribute__((visibility("default"))) void SetSignalReport(int signal, void (*report)());

// One JSON object: configuration, budget, peak, traffic per tier (the contract of RAMSPAN_STATS).
__attribute__((visibility("default"))) std::string StatsJson();

}  // namespace ramspan
