// The program without a launcher: no configuration at all, a limit, statistics.
#include <signal.h>

#include "tests/app/app_fixture.h"
#include "tests/support/send_signal.h"

namespace ramspan {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// What docs/configuration.md promises in the statistics.
void ExpectDocumentedKeys(const json& stats) {
  for (const char* key : {"config", "budget_bytes", "peak_resident_bytes", "chunks", "tiers", "clean_evictions",
                          "prefetch", "waits", "program", "seconds"}) {
    EXPECT_TRUE(stats.contains(key)) << key;
  }
  ASSERT_TRUE(stats["tiers"].contains("file")) << stats;
  for (const char* key : {"bytes_out", "bytes_in", "ops_out", "ops_in"}) {
    EXPECT_TRUE(stats["tiers"]["file"].contains(key)) << key;
  }
  EXPECT_TRUE(stats["prefetch"].contains("hits") && stats["prefetch"].contains("wasted"));
  EXPECT_TRUE(stats["waits"].contains("histogram_us"));
}

TEST_F(Alone, NothingNeedsToBeConfigured) {
  const Outcome outcome = Run(Sweep());
  ExpectVerified(outcome);
  EXPECT_EQ(outcome.err, "");
}

TEST_F(Alone, TheDefaultLimitIsPartOfTheMachine) {
  ExpectVerified(Run(Sweep(), {StatsVariable()}));
  EXPECT_GE(Stats()["budget_bytes"], kMiB);
  EXPECT_EQ(Stats()["tiers"]["file"]["bytes_out"], 0);
}

TEST_F(Alone, AnotherPolicyIsChosenByName) {
  ExpectVerified(Run(Sweep(), {"RAMSPAN_MEMORY=8MiB", "RAMSPAN_MEMORY_MANAGER=second-chance", StatsVariable()}));
  EXPECT_EQ(Stats()["config"]["memoryManager"], "second-chance");
  EXPECT_GT(Stats()["evictions"], 0);
  EXPECT_EQ(Stats()["prefetch"]["issued"], 0);
}

TEST_F(Alone, ALimitSendsTheRestToFiles) {
  ExpectVerified(Run(Sweep(), {"RAMSPAN_MEMORY=8MiB", StatsVariable()}));
  const json stats = Stats();
  ExpectDocumentedKeys(stats);
  EXPECT_EQ(stats["budget_bytes"], 8 * kMiB);
  EXPECT_LE(stats["peak_resident_bytes"], 8 * kMiB);
  EXPECT_GT(stats["tiers"]["file"]["bytes_out"], 16 * kMiB);
  EXPECT_GT(stats["tiers"]["file"]["bytes_in"], 16 * kMiB);
  EXPECT_EQ(stats["peak_data_bytes"], 24 * kMiB);
}

TEST_F(Alone, DirectFilesVerifyToo) {
  ExpectVerified(Run(Sweep(), {"RAMSPAN_MEMORY=8MiB", "RAMSPAN_ENABLE_DMA=on"}));
}

TEST_F(Alone, StatisticsThatCannotBeWrittenAreAWarningThatNamesTheFile) {
  const Outcome outcome = Run(Sweep(), {"RAMSPAN_STATS=/nowhere/stats.json"});
  ExpectVerified(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("/nowhere/stats.json"));
  EXPECT_THAT(outcome.err, HasSubstr("RAMSPAN_STATS"));
}

TEST_F(Alone, Sigusr1PrintsTheStatisticsAndTheRunGoesOn) {
  const pid_t pid = StartCommand(Sweep({.sweeps = 0}), {"RAMSPAN_MEMORY=8MiB"});
  ASSERT_EQ(Ready(0), pid);
  std::string text;
  SendSignal(pid, SIGUSR1);
  EXPECT_TRUE(Becomes([&] { return (text = ReadFile(folder_ / "err")).find('\n') != std::string::npos; }));
  Stop();
  ExpectVerified(Wait(pid));
  const json stats = json::parse(text, nullptr, false);
  ASSERT_FALSE(stats.is_discarded()) << text;
  ExpectDocumentedKeys(stats);
  EXPECT_GT(stats["evictions"], 0);
}

}  // namespace
}  // namespace ramspan
