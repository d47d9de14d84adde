#include "launch/report.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace ramspan {
namespace {

class ReportTest : public testing::Test {
 protected:
  ~ReportTest() override {
    for (const std::string& path : made_) std::remove(path.c_str());
  }
  std::string File(const std::string& name, const std::string& text) {
    const std::string path = testing::TempDir() + std::to_string(getpid()) + name;
    std::ofstream(path) << text;
    made_.push_back(path);
    return path;
  }
  std::vector<std::string> made_;
};

constexpr char kProcess[] = R"({"budget_bytes": 67108864, "peak_resident_bytes": 66060288, "chunks": 10,
  "peak_data_bytes": 536870912, "tiers": {"remote": {"bytes_out": 1048576, "bytes_in": 2097152},
  "file": {"bytes_out": 1024, "bytes_in": 0, "errors": 2}}, "waits": {"count": 3, "total_us": 1500000},
  "seconds": 2.5, "rank": 0, "program": "app"})";

TEST_F(ReportTest, TotalsAreSumsAndTheLongestTime) {
  const std::string a = File("a.json", kProcess), b = File("b.json", kProcess);
  const Result<std::string> table = ReportText({{"job", {a, b}}});
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_NE(table.value().find("1 GiB"), std::string::npos);
  EXPECT_NE(table.value().find("128 MiB"), std::string::npos);
  EXPECT_NE(table.value().find("remote: out"), std::string::npos);
  EXPECT_NE(table.value().find("file: errors"), std::string::npos);
  EXPECT_NE(table.value().find("6 (3.00 s)"), std::string::npos);
  EXPECT_NE(table.value().find("2.50 s"), std::string::npos);
  EXPECT_LT(table.value().find("remote: out"), table.value().find("file: out"));
}

// Files without names are one job, of which their total tells all; named ones are runs to be compared.
TEST_F(ReportTest, AdviceIsGivenOnceForAJobAndOnceForEachName) {
  const std::string a = File("a.json", kProcess), b = File("b.json", kProcess);
  const auto count = [](const std::string& text) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find("What to change", at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(count(ReportText(ParseReportArguments({a}).value()).value()), 1u);
  EXPECT_EQ(count(ReportText(ParseReportArguments({a, b}).value()).value()), 1u);
  const std::string named = ReportText(ParseReportArguments({"--name", "one", a, "--name", "two", b}).value()).value();
  EXPECT_EQ(count(named), 2u);
  EXPECT_NE(named.find("What to change (one)"), std::string::npos);
  EXPECT_NE(named.find("What to change (two)"), std::string::npos);
}

TEST_F(ReportTest, ProcessesThatHadNotEndedAreNamed) {
  std::string going_on = kProcess;
  going_on.insert(1, R"("ended": false, )");
  const std::string a = File("a.json", kProcess), b = File("b.json", going_on);
  const std::string files = ReportText(ParseReportArguments({a, b}).value()).value(), name = std::to_string(getpid()) + "b.json";
  EXPECT_NE(files.find("\n" + name + ": had not ended when this was written, after 2.50 s"), std::string::npos) << files;
  EXPECT_EQ(files.find("had not ended"), files.rfind("had not ended")) << files;
  EXPECT_NE(ReportText(ParseReportArguments({"--name", "run", a, b}).value()).value().find("\nrun: had not ended"), std::string::npos);
}

TEST_F(ReportTest, MissingKeysCountAsZero) {
  const Result<std::string> table = ReportText({{"job", {File("c.json", "{\"budget_bytes\": 1}")}}});
  EXPECT_TRUE(table.ok());
}

// It was a report of nothing.
TEST_F(ReportTest, AnyOtherObjectIsNoStatistics) {
  const std::string other = File("e.json", "{}");
  EXPECT_NE(ReportText({{"job", {other}}}).status().message().find(other + " is not a statistics file"), std::string::npos);
}

TEST_F(ReportTest, NegativeNumbersCountAsZero) {
  const Result<std::string> table = ReportText({{"job", {File("f.json", "{\"budget_bytes\": -1, \"peak_data_bytes\": -1, \"seconds\": -1.23}")}}});
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table.value().find("PiB"), std::string::npos) << table.value();
  EXPECT_EQ(table.value().find("-1"), std::string::npos) << table.value();
}

TEST_F(ReportTest, BrokenAndMissingFilesAreNamed) {
  const std::string broken = File("d.json", "{\"chunks\": ");
  EXPECT_NE(ReportText({{"job", {broken}}}).status().message().find(broken), std::string::npos);
  EXPECT_NE(ReportText({{"job", {"/tmp"}}}).status().message().find("is a folder"), std::string::npos);
  EXPECT_NE(ReportText({{"job", {"/nowhere.json"}}}).status().message().find("/nowhere.json"), std::string::npos);
}

TEST(ReportArguments, FilesGetAColumnEachAndATotal) {
  const auto columns = ParseReportArguments({"x/a.json", "x/b.json"});
  ASSERT_TRUE(columns.ok());
  ASSERT_EQ(columns.value().size(), 3u);
  EXPECT_EQ(columns.value()[0].name, "a.json");
  EXPECT_EQ(columns.value()[2].name, "total");
  EXPECT_EQ(columns.value()[2].files.size(), 2u);
}

TEST(ReportArguments, NamesGroupFiles) {
  const auto columns = ParseReportArguments({"--name", "A", "a0", "a1", "--name", "B", "b0"});
  ASSERT_TRUE(columns.ok());
  ASSERT_EQ(columns.value().size(), 2u);
  EXPECT_EQ(columns.value()[0].files, (std::vector<std::string>{"a0", "a1"}));
}

TEST(ReportArguments, NothingToReportIsAnError) {
  EXPECT_FALSE(ParseReportArguments({}).ok());
  EXPECT_FALSE(ParseReportArguments({"--name", "A"}).ok());
  EXPECT_FALSE(ParseReportArguments({"a", "--name", "A", "b"}).ok());
  EXPECT_FALSE(ParseReportArguments({"--nam", "A", "b"}).ok());
}

}  // namespace
}  // namespace ramspan
