#include "client/runtime/stats_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ramspan {
namespace {

// Names of files are bytes. The exception of the JSON library went through the exit handler and ended the program.
TEST(StatsJson, OfAPathThatIsNotUtf8IsStillJson) {
  Config config;
  config.swapfiles = "/tmp/caf\xe9-%d-%d";
  StatsInput in;
  in.config = &config;
  std::string text;
  ASSERT_NO_THROW(text = FormatStats(in));
  EXPECT_FALSE(nlohmann::json::parse(text, nullptr, false).is_discarded()) << text;
}

// What the advice of `ramspan report` needs (launch/process_statistics.cc reads it by these names).
TEST(StatsJson, TellsOfPinsOfTheOrderOfMissesAndOfTheDataInPages) {
  const Config config;
  StatsInput in;
  in.config = &config;
  in.counters.misses_in_order = 5;
  in.counters.peak_data_frame_bytes = 8192;
  in.counters.pin_waits = 2;
  in.counters.pin_wait_ns = 3'000'000;
  in.counters.pin_refusals = 1;
  in.element_uses = {.all = 7, .most = 4};
  const nlohmann::json json = nlohmann::json::parse(FormatStats(in));
  EXPECT_EQ(json["misses_in_order"], 5);
  EXPECT_EQ(json["peak_data_frame_bytes"], 8192);
  EXPECT_EQ(json["pins"], nlohmann::json({{"waits", 2}, {"total_us", 3000}, {"refused", 1}}));
  EXPECT_EQ(json["element_accesses"], nlohmann::json({{"count", 7}, {"most_of_a_thread", 4}}));
}

}  // namespace
}  // namespace ramspan
