// `ramspan bench apps` as a user runs it, on data of some MB: whether results are looked at, never how long they took.
#include <gmock/gmock.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/support/job_fixture.h"
#include "tests/support/send_signal.h"

namespace ramspan {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string bench_path;

class Apps : public JobFixture {
 protected:
  pid_t Start(Words options, const Words& environment = {}) {
    options.insert(options.begin(), {bench_path, "apps"});
    return StartCommand(options, environment);
  }
  Outcome Run(const Words& options, const Words& environment = {}) { return Wait(Start(options, environment)); }
  // So small that a limit of 50 % has room for what two threads pin, and not for the rest.
  Outcome RunSmall(const Words& more, const Words& environment = {}) {
    Words words = {"--data", "8MiB", "--repeat", "1", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return Run(words, environment);
  }

  // The lines of out-of-core runs by application and LMR.
  static std::map<std::string, std::map<double, json>> Swapped(const Outcome& outcome) {
    std::map<std::string, std::map<double, json>> lines;
    std::istringstream out(outcome.out);
    for (std::string text; std::getline(out, text);) {
      const json line = json::parse(text, nullptr, false);
      EXPECT_FALSE(line.is_discarded()) << text;
      if (line.contains("lmr_percent")) lines[line["experiment"]][line["lmr_percent"]] = line;
      if (line.contains("written")) {
        EXPECT_TRUE(line["right"].get<bool>()) << text;  // without blocks
      }
    }
    return lines;
  }
};

TEST_F(Apps, EachGivesItsResultInCoreWhileItSwapsAndAWrongBitIsFound) {
  const Outcome outcome = RunSmall({"--lmr", "50,60", "--threads", "2"}, {"RAMSPAN_TEST_DAMAGED_LMR=60"});
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  const auto lines = Swapped(outcome);
  for (const char* name : {"mm", "stencil", "heat", "lbm", "nbody", "sort", "pagerank"}) EXPECT_EQ(lines.count(name), 1u) << name;
  for (const auto& [name, by_lmr] : lines) {
    const json& line = by_lmr.at(50);
    EXPECT_EQ(line["right"], true) << line;
    EXPECT_GT(line["bytes_in"].get<double>(), 0.2 * line["config"]["data"].get<double>()) << line;
    EXPECT_EQ(by_lmr.at(60)["right"], false) << by_lmr.at(60);
  }
}

// Those that know nothing of Ramspan, with their arrays larger than the limit. Not fft: where its columns do not fit, each of their elements takes a fault.
TEST_F(Apps, UnmodifiedProgramsGiveTheSameBitsOnPages) {
  const Outcome outcome = RunSmall({"--pages", "--lmr", "60", "--threads", "2", "--app", "mm,stencil,nbody,sort"});
  if (outcome.err.find("userfaultfd") != std::string::npos) GTEST_SKIP() << outcome.err;
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto lines = Swapped(outcome);
  for (const char* name : {"mm", "stencil", "nbody", "sort"}) EXPECT_EQ(lines.count(name), 1u) << name;
  for (const auto& [name, by_lmr] : lines) {
    const json& line = by_lmr.at(60);
    EXPECT_EQ(line["right"], true) << line;
    EXPECT_GT(line["bytes_out"].get<double>(), 0) << line;
  }
}

TEST_F(Apps, RanksComputeWhatOneProcessDoes) {
  const Words small = {"--lmr", "50", "--tier", "file", "--threads", "1", "--app", "stencil,heat,lbm"};
  const auto one = Swapped(RunSmall(small));
  Words with_ranks = small;
  with_ranks.insert(with_ranks.end(), {"--ranks", "2"});
  const Outcome outcome = RunSmall(with_ranks);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto two = Swapped(outcome);
  EXPECT_EQ(one.size(), 3u);
  EXPECT_EQ(two.size(), 3u);
  for (const auto& [name, by_lmr] : two) {
    const json& line = by_lmr.at(50);
    EXPECT_EQ(line["ranks"], 2);
    EXPECT_GT(line["bytes_in"].get<double>(), 0) << line;
    EXPECT_EQ(line["bits"], one.at(name).at(50)["bits"]) << name;
  }
}

TEST_F(Apps, WhatCannotBeIsSaidByName) {
  const auto error = [&](const Words& words) {
    const Outcome outcome = Run(words);
    EXPECT_EQ(outcome.status, 1) << words.back();
    return outcome.err;
  };
  EXPECT_THAT(error({"--app", "mm,chess"}), HasSubstr("there is no \"chess\"; there are mm, "));
  EXPECT_THAT(error({"--lmr", "25,0"}), HasSubstr("--lmr: "));
  EXPECT_THAT(error({"--tier", "tape"}), HasSubstr("--tier is shared, file or ofi"));
  const Outcome pins = Run({"--app", "mm", "--data", "8MiB", "--lmr", "10", "--threads", "2", "--repeat", "1", "--tier", "file"});
  EXPECT_EQ(pins.status, 0) << pins.err;
  EXPECT_THAT(pins.out, HasSubstr("skipped: needs 2.75 MiB"));
}

TEST_F(Apps, AnInterruptLeavesNothing) {
  const pid_t bench = Start({"--app", "mm", "--data", "64MiB", "--repeat", "1000"});
  ASSERT_TRUE(Becomes([&] { return JobProcess("ramspan-server") > 0 && JobProcesses().size() >= 3; }));  // itself, the server, a run
  SendSignal(bench, SIGINT);
  EXPECT_EQ(Wait(bench).status, 128 + SIGINT);
  ExpectNothingLeft();
}

// The kernel's swap needs root and a memory cgroup: where there are none the reason is told, and the rest is measured.
TEST_F(Apps, TheKernelsSwapRunsBesideThemOrItIsSaidWhyNot) {
  const Outcome outcome = Run({"--app", "heat", "--data", "8MiB", "--repeat", "1", "--lmr", "60", "--threads", "1", "--swap", "file"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::AnyOf(HasSubstr("kernel's swap: the program in core"), HasSubstr("kernel's swap: skipped: ")));
  if (outcome.out.find("skipped") == std::string::npos) {
    const auto lines = Swapped(RunSmall({"--app", "heat", "--lmr", "60", "--threads", "1", "--swap", "file"}));
    const json& kernel = lines.at("heat").at(60).at("kernel_swap");
    EXPECT_EQ(kernel["right"], true) << kernel;
    EXPECT_GT(kernel["time_s"].get<double>(), 0) << kernel;
  }
  EXPECT_THAT(Run({"--swap", "disk"}).err, HasSubstr("--swap is file or zram"));
  EXPECT_THAT(Run({"--swap", "file", "--ranks", "2"}).err, HasSubstr("--swap is for one process"));
}

}  // namespace
}  // namespace ramspan

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (argc != 2) return 2;
  ramspan::bench_path = argv[1];
  return RUN_ALL_TESTS();
}
