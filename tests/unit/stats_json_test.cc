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

}  // namespace
}  // namespace ramspan
