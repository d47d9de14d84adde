#include "launch/options.h"

#include <gtest/gtest.h>

namespace ramspan {
namespace {

using Words = std::vector<std::string>;

TEST(Options, TheIssuesLineIsUnderstood) {
  const Result<RunOptions> options =
      ParseRunOptions({"-n", "2", "-s", "1", "--memory", "64MiB", "--server-memory", "512MiB", "--", "./app", "-n", "9"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options.value().ranks, 2);
  EXPECT_EQ(options.value().servers, 1);
  EXPECT_EQ(options.value().memory, "64MiB");
  EXPECT_EQ(options.value().server_memory, "512MiB");
  EXPECT_EQ(options.value().app, (Words{"./app", "-n", "9"}));
}

TEST(Options, RanksStayOpenWhenNotGiven) {
  const Result<RunOptions> options = ParseRunOptions({"--", "./app"});
  ASSERT_TRUE(options.ok());
  EXPECT_FALSE(options.value().ranks.has_value());
}

TEST(Options, RepeatedOptionsCollect) {
  const Result<RunOptions> options = ParseRunOptions({"-x", "A=1", "-x", "B=2 3", "--mpi-arg=-bind-to", "--mpi-arg=core"});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options.value().env, (Words{"A=1", "B=2 3"}));
  EXPECT_EQ(options.value().mpi_args, (Words{"-bind-to", "core"}));
}

TEST(Options, AProgramWithoutDashesIsExplained) {
  const Result<RunOptions> options = ParseRunOptions({"-n", "2", "./app"});
  ASSERT_FALSE(options.ok());
  EXPECT_NE(options.status().message().find("write -- before the program"), std::string::npos);
}

// mpirun's and mpiexec's word for it.
TEST(Options, NpIsTheNumberOfRanks) {
  const Result<RunOptions> options = ParseRunOptions({"-np", "2", "-s", "1", "--", "./app", "-np", "9"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options.value().ranks, 2);
  EXPECT_EQ(options.value().app, (Words{"./app", "-np", "9"}));
  EXPECT_FALSE(ParseRunOptions({"-np", "--", "./app"}).ok());
  EXPECT_NE(ParseRunOptions({"-np", "two", "--", "./app"}).status().message().find("two"), std::string::npos);
}

TEST(Options, UnknownAndAbbreviatedOptionsAndBadNumbersAreErrors) {
  EXPECT_FALSE(ParseRunOptions({"--memry", "1GiB", "--", "a"}).ok());
  EXPECT_FALSE(ParseRunOptions({"--mem", "1GiB", "--", "a"}).ok());
  EXPECT_FALSE(ParseRunOptions({"-n", "two", "--", "a"}).ok());
  EXPECT_FALSE(ParseRunOptions({"-n", "2", "-n", "3", "--", "a"}).ok());
}

TEST(Options, HelpNamesEveryOption) {
  const std::string help = RunHelp();
  for (const char* option : {"--ranks", "--servers", "--memory", "--server-memory", "--transport", "--stats", "--hostfile",
                             "--env", "--mpiexec", "--mpi-arg", "--dry-run"}) {
    EXPECT_NE(help.find(option), std::string::npos) << option;
  }
}

}  // namespace
}  // namespace ramspan
