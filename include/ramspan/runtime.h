// Control of a running Ramspan. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace ramspan {

// The memory limit in bytes. Setting it below what is in use swaps out until it holds (blocks); throws OutOfMemory when
// more is pinned than the new limit allows (the old limit stays).
__attribute__((visibility("default"))) uint64_t MemoryLimit();
__attribute__((visibility("default"))) void SetMemoryLimit(uint64_t bytes);

// One JSON object: configuration, budget, peak, traffic per tier (the contract of RAMSPAN_STATS).
__attribute__((visibility("default"))) std::string StatsJson();

}  // namespace ramspan
