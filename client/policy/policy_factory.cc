#include "client/policy/policy_factory.h"

#include <iterator>
#include <utility>

#include "client/policy/cyclic.h"
#include "client/policy/replay.h"
#include "client/policy/second_chance.h"
#include "common/config.h"

namespace ramspan {
namespace {

using Maker = std::unique_ptr<CachePolicy> (*)(const ChunkTable*);

template <typename Policy>
std::unique_ptr<CachePolicy> Make(const ChunkTable* chunks) {
  return std::make_unique<Policy>(chunks);
}

// In the order of kMemoryManagers, which is where the configuration (common/, which sees no policy) has its names from.
constexpr Maker kMakers[] = {Make<ReplayPolicy>, Make<CyclicPolicy>, Make<SecondChancePolicy>};
static_assert(std::size(kMakers) == std::size(kMemoryManagers), "each value of the key memoryManager is a policy");

}  // namespace

Result<std::unique_ptr<CachePolicy>> MakePolicy(std::string_view name, const ChunkTable* chunks) {
  std::string names;
  for (size_t i = 0; i < std::size(kMakers); ++i) {
    if (name == kMemoryManagers[i]) return kMakers[i](chunks);
    names += (i == 0 ? "" : ", ") + std::string(kMemoryManagers[i]);
  }
  return InvalidArgument("there is no cache policy \"" + std::string(name) + "\"; the choices are " + names);
}

std::span<const char* const> PolicyNames() { return kMemoryManagers; }

}  // namespace ramspan
