// Cache policies by name: the one place that knows which there are. Whoever needs a policy (the composition root,
// tests, benchmarks) asks here and sees only the port.
// Thread-safety: no state; any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "client/chunk/chunk_table.h"
#include "client/policy/policy.h"
#include "common/status.h"

namespace ramspan {

// A new policy over the table's chunks, which must outlive it. `name` is one of PolicyNames(), the values of the key
// memoryManager. kInvalidArgument: there is no policy of that name; the message lists those that there are.
Result<std::unique_ptr<CachePolicy>> MakePolicy(std::string_view name, const ChunkTable* chunks);

// All names; the first one is the default.
std::span<const char* const> PolicyNames();

}  // namespace ramspan
