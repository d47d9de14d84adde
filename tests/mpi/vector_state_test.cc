// As tests/guest/vector_state_test.cc, with data in the memory of servers: near ones (load/store) and far ones (RMA).
#include "tests/support/vector_registers.h"

#include <gtest/gtest.h>
#include <ramspan/runtime.h>

#include <nlohmann/json.hpp>

#include "tests/guest/every_call.h"

namespace ramspan {
namespace {

TEST(VectorState, NoCallLeavesUpperHalvesInUseWhereDataLivesOnServers) {
  RAMSPAN_NEEDS_TO_SEE_UPPER_HALVES();
  // One size: a transfer to a far server takes a time slice of a busy machine.
  guest::EveryCall([](const char* name, auto&& call) { ExpectUpperHalvesClearAfter(name, call); }, {60001});
  const nlohmann::json tiers = nlohmann::json::parse(StatsJson())["tiers"];
  EXPECT_GT(tiers["remote"]["ops_in"].get<uint64_t>(), 100u) << tiers;
  EXPECT_GT(GetStatistics().misses, 100u);
}

}  // namespace
}  // namespace ramspan
