// What `ramspan report` says after runs of a real program that is used wrongly, and that it says nothing after it has done as it was told.
#include <gmock/gmock.h>

#include <regex>

#include "tests/support/job_fixture.h"

namespace ramspan {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kLarge[] = "The chunks are large for data that is used in no order.";
constexpr char kConst[] = "Data that is not changed is taken for changed";
constexpr char kLimit[] = "The memory limit is just under what would hold everything.";
constexpr char kPins[] = "AdhereTos hold so much at a time";

class AdviceOf : public JobFixture {
 protected:
  // The report of one run, its words parted by one blank.
  std::string Report(const std::string& memory, const Words& use) {
    const std::string stats = (folder_ / "stats.json").string();
    Words program = {ADVICE_PROGRAM};
    program.insert(program.end(), use.begin(), use.end());
    const Outcome run = Wait(StartCommand(program, {"RAMSPAN_MEMORY=" + memory, "RAMSPAN_STATS=" + stats}));
    EXPECT_EQ(run.status, 0) << run.err;
    const Outcome report = Wait(StartCommand({LAUNCHER, "report", stats}));
    EXPECT_EQ(report.status, 0) << report.err;
    return std::regex_replace(report.out, std::regex("\\s+"), " ");
  }
};

TEST_F(AdviceOf, RandomReadsOfLargeBlocksIsToTakeSmallOnes) {
  const std::string report = Report("8MiB", {"random", "64", "32"});
  EXPECT_THAT(report, HasSubstr(kLarge));
  EXPECT_THAT(report, HasSubstr("in pieces of 64 KiB"));
  EXPECT_THAT(report, HasSubstr("ramspan::access::random"));
  EXPECT_THAT(report, Not(HasSubstr(kConst)));
  EXPECT_THAT(Report("8MiB", {"random", "8", "32"}), HasSubstr("What to change Nothing"));
}

TEST_F(AdviceOf, SweepsThatOnlyReadIsToPullConst) {
  const std::string report = Report("8MiB", {"written", "64", "32"});
  EXPECT_THAT(report, HasSubstr(kConst));
  EXPECT_THAT(report, HasSubstr("data.read()"));
  EXPECT_THAT(report, Not(HasSubstr(kLarge)));
  EXPECT_THAT(report, Not(HasSubstr(kLimit)));
  EXPECT_THAT(Report("8MiB", {"read", "64", "32"}), HasSubstr("What to change Nothing"));
}

TEST_F(AdviceOf, ALimitJustUnderTheDataNamesTheOneThatHoldsIt) {
  const std::string report = Report("8MiB", {"read", "64", "9"});
  EXPECT_THAT(report, HasSubstr(kLimit));
  EXPECT_THAT(report, Not(HasSubstr(kConst)));
  std::smatch limit;
  ASSERT_TRUE(std::regex_search(report, limit, std::regex("--memory ([0-9]+MiB)"))) << report;
  EXPECT_THAT(Report(limit[1], {"read", "64", "9"}), HasSubstr("What to change Nothing: all of the data had room in memory."));
}

TEST_F(AdviceOf, ThreadsThatHoldAllMemoryIsToHoldLess) {
  EXPECT_THAT(Report("8MiB", {"pins", "4096", "32"}), HasSubstr(kPins));
  EXPECT_THAT(Report("8MiB", {"pins", "256", "16"}), Not(HasSubstr(kPins)));
}

}  // namespace
}  // namespace ramspan
