// `ramspan bench swap-targets`: who runs here is right, who cannot is named, and nothing stays behind.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "bench/swap_targets_accesses.h"
#include "tests/support/job_fixture.h"
#include "tests/support/send_signal.h"

namespace ramspan {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string bench_path;

class SwapTargets : public JobFixture {
 protected:
  Outcome Run(Words options) { return Wait(Start(std::move(options))); }
  pid_t Start(Words options) {
    options.insert(options.begin(), {bench_path, "swap-targets"});
    return StartCommand(options);
  }

  static std::vector<json> Lines(const std::string& text) {
    std::vector<json> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }

  static bool IsSwapOn(const std::string& what) { return ReadFile("/proc/swaps").find(what) != std::string::npos; }
  static bool IsSwapUsed(const std::string& what) {
    std::istringstream lines(ReadFile("/proc/swaps"));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string path, type;
      uint64_t size = 0, used = 0;
      words >> path >> type >> size >> used;
      if (path.find(what) != std::string::npos && used > 0) return true;
    }
    return false;
  }
  static bool HasCgroupOf(pid_t pid) {
    const std::string name = "/ramspan-bench-" + std::to_string(pid);
    std::ifstream mounts("/proc/mounts");
    for (std::string device, path, line; mounts >> device >> path && std::getline(mounts, line);) {
      if (line.rfind(" cgroup", 0) == 0 && std::filesystem::exists(path + name)) return true;
    }
    return false;
  }
  static bool HasEnded(pid_t pid) {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
  }
  std::string OwnSwap() const { return (folder_ / "tmp").string() + "/ramspan-targets-"; }
  // So much that it is still at it when the signal comes.
  static Words Long(const std::string& contestant) { return {"--contestants", contestant, "--data", "512MiB", "--lmr", "20"}; }
};

// Not with less data: of 16 MiB the page cache of a contestant that is held gets 3, which may all be under way at once on busy cores, and
// the kernel killed it in 17 of 82 such runs (0 of 165 with 64 MiB).
TEST_F(SwapTargets, EachContestantIsRightOrSaysWhatItNeeds) {
  const Words words = {"--quick", "--data", "64MiB", "--lmr", "75", "--access", "sequential", "--json", "--plots", (folder_ / "plots").string()};
  Outcome outcome = Run(words);
  // Who makes pages of files dirty faster than a busy disk takes them is killed in a cgroup as small.
  for (int again = 0; again < 2 && outcome.out.find("killed, out of memory") != std::string::npos; ++again) outcome = Run(words);
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  std::map<std::string, json> rows;
  std::set<std::string> targets;
  for (const json& line : Lines(outcome.out)) {
    if (line.contains("target")) targets.insert(line["target"]);
    if (line.contains("access")) rows[line["contestant"]] = line;
  }
  for (const char* name : {"memory", "shared", "mpi", "ofi", "files-direct", "files-buffered", "tiers", "pages-shared", "pages-direct", "kernel-file", "kernel-zram", "mmap", "stxxl"}) {
    SCOPED_TRACE(name);
    ASSERT_EQ(rows.count(name), 1u);
    const json& row = rows[name];
    if (row.contains("skipped")) {
      EXPECT_THAT(row["skipped"].get<std::string>(),
                  testing::AnyOf(HasSubstr("root"), HasSubstr("cgroup"), HasSubstr("modprobe zram"), HasSubstr("userfaultfd"), HasSubstr("--dir"), HasSubstr("libstxxl-dev"), HasSubstr("in PATH")));
      continue;
    }
    EXPECT_TRUE(row["verified"].get<bool>());
    EXPECT_GT(row["own_cpu_s"].get<double>(), 0);
    EXPECT_GE(row["all_cpu_s"].get<double>(), row["own_cpu_s"].get<double>());
    // A sweep cannot move less than MIN, but by a byte count at the pages' borders; in memory nothing moves.
    if (std::string(name) == "memory") continue;
    EXPECT_GE(row["bytes_moved"].get<double>(), 0.9 * row["bytes_min"].get<double>());
    // 48 MiB of 64 and bookkeeping. Who is told its limit has other memory, too (libfabric's buffers).
    if (row["counted"].get<bool>() && std::string(name) != "ofi") {
      EXPECT_LT(row["peak_anonymous"].get<double>() + row["peak_page_cache"].get<double>(), 60 << 20);
    }
  }
  EXPECT_FALSE(rows["memory"].contains("skipped"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "plots" / "swap_targets_sequential.dat"));
}

TEST_F(SwapTargets, AnInterruptedRunLeavesNoSwapAndNoCgroup) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  for (const char* contestant : {"kernel-file", "kernel-zram"}) {
    SCOPED_TRACE(contestant);
    const std::string area = std::string(contestant) == "kernel-file" ? OwnSwap() : "zram";
    if (area == "zram" && !std::filesystem::exists("/sys/class/zram-control")) continue;
    const pid_t pid = Start(Long(contestant));
    const bool runs = Becomes([&] { return IsSwapUsed(area) || HasEnded(pid); }) && IsSwapOn(area);
    SendSignal(pid, SIGINT);
    const Outcome outcome = Wait(pid);
    if (!runs) GTEST_SKIP() << outcome.out;  // a container: said in the table
    EXPECT_EQ(outcome.status, 128 + SIGINT) << outcome.err;
    EXPECT_FALSE(IsSwapOn(area)) << ReadFile("/proc/swaps");
    EXPECT_FALSE(HasCgroupOf(pid));
    EXPECT_TRUE(std::filesystem::is_empty(folder_ / "tmp"));
  }
}

// Nobody can switch swap off for a process that was killed, so the next run does, and says so.
TEST_F(SwapTargets, WhatAKilledRunHasLeftTheNextOneRemoves) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const pid_t pid = Start(Long("kernel-file"));
  const bool runs = Becomes([&] { return IsSwapUsed(OwnSwap()) || HasEnded(pid); }) && IsSwapOn(OwnSwap());
  SendSignal(pid, SIGKILL);
  const Outcome killed = Wait(pid);
  if (!runs) GTEST_SKIP() << killed.out;
  EXPECT_TRUE(Becomes([&] { return JobProcesses().empty(); })) << "the contestant ends with its maker";
  const Outcome next = Run({"--quick", "--data", "16MiB", "--lmr", "75", "--contestants", "memory", "--access", "random"});
  EXPECT_EQ(next.status, 0);
  EXPECT_THAT(next.err, HasSubstr("of a run that was killed is switched off and removed"));
  EXPECT_FALSE(IsSwapOn(OwnSwap()));
  EXPECT_FALSE(HasCgroupOf(pid));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "tmp"));
}

// Numbers that are made up, so that the table can be known.
TEST_F(SwapTargets, ResultsOfFilesAreTheTableAndTheirTargetsHitOrMissed) {
  const auto row = [](const char* contestant, const char* access, double lmr, double seconds) {
    return json{{"contestant", contestant}, {"access", access}, {"lmr_percent", lmr}, {"threads", 1}, {"data_bytes", 1 << 30}, {"pass_s", {seconds}}, {"passes", 1},
                {"bytes_moved", 3 << 29}, {"bytes_min", 1 << 30}, {"own_cpu_s", 1}, {"all_cpu_s", 2}, {"counted", true}, {"peak_anonymous", 5 << 20}, {"peak_page_cache", 7 << 20},
                {"peak_shared", 0}, {"peak_elsewhere", 0}, {"compression", 0}, {"verified", true}}
        .dump();
  };
  const std::string file = (folder_ / "results").string();
  std::ofstream(file) << row("memory", "sequential", 100, 0.1) << "\n"
                      << row("shared", "sequential", 25, 1) << "\n" << row("kernel-file", "sequential", 25, 8) << "\n"
                      << row("shared", "sequential", 50, 1) << "\n" << row("kernel-file", "sequential", 50, 4) << "\n"
                      << row("shared", "sequential", 90, 0.12) << "\n" << row("kernel-file", "sequential", 90, 0.12) << "\n"
                      << row("ofi", "sequential", 25, 1.5) << "\n" << row("ofi", "sequential", 90, 0.12) << "\n"
                      << R"({"contestant": "stxxl", "access": "sequential", "lmr_percent": 25, "threads": 1, "skipped": "a reason"})" << "\n";
  const Outcome outcome = Run({"--from", file});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::ContainsRegex("25 +1 +shared +1.000 +1.07 +10.0 +1.50 +1.50 +1.000 +2.000 +5 +7 "));
  EXPECT_THAT(outcome.out, HasSubstr("stxxl: skipped: a reason"));
  EXPECT_THAT(outcome.out, testing::ContainsRegex("stream 5 x the kernel's swap on a file +shared +4.00 +MISSED +sequential, LMR 50 %"));
  EXPECT_THAT(outcome.out, testing::ContainsRegex("stream 5 x the kernel's swap on a file +ofi +5.33 +hit +sequential, LMR 25 %"));
  EXPECT_THAT(outcome.out, testing::ContainsRegex("an iterated sweep at LMR 90 % at most 1.3 x in memory +shared +1.20 +hit"));
  std::ofstream(file) << row("memory", "sequential", 100, 0.1) << "\n{\"access\": \"random\"}\n";
  EXPECT_THAT(Run({"--from", file}).err, HasSubstr("results:2: no result of `swap-targets --json`"));
}

TEST_F(SwapTargets, WrongNamesAreAnsweredByTheRightOnes) {
  EXPECT_THAT(Run({"--contestants", "disk"}).err, HasSubstr("there is no \"disk\"; there are memory, shared, mpi"));
  EXPECT_THAT(Run({"--access", "all"}).err, HasSubstr("there is no \"all\"; there are sequential, random, read-mostly, mixed"));
  EXPECT_THAT(Run({"--lmr", "0"}).err, HasSubstr("1 to 100"));
  EXPECT_THAT(Run({"--from", "/nowhere"}).err, HasSubstr("cannot read /nowhere"));
}

TEST(SwapTargetAccesses, OfThreadsAreAPassOverAllOfTheirOwnParts) {
  const bench::TargetLayout layout{.chunks = 1000, .chunk_bytes = 4096, .threads = 3};
  for (const bench::TargetAccess& access : bench::TargetAccesses()) {
    SCOPED_TRACE(access.name);
    size_t steps = 0, writes = 0;
    for (int t = 0; t < layout.threads; ++t) {
      for (const bench::TargetStep& step : bench::StepsOfPass(access.name, layout, t, 1)) {
        EXPECT_GE(step.chunk, layout.PartBegin(t));
        EXPECT_LT(step.chunk, layout.PartBegin(t + 1));
        ++steps;
        writes += step.write;
      }
    }
    EXPECT_EQ(steps, 1000u);
    const std::string name = access.name;
    EXPECT_NEAR(static_cast<double>(writes), name == "mixed" ? 500 : name == "read-mostly" ? 1000 / 16.0 : 1000, 4);
  }
}

TEST(SwapTargetAccesses, MinMovesWhatIsKnownOfASweep) {
  const bench::TargetLayout layout{.chunks = 1000, .chunk_bytes = 4096, .threads = 1};
  for (const double lmr : {0.25, 0.5, 0.9}) {
    // What does not fit goes out and comes in once a sweep.
    EXPECT_NEAR(bench::LeastBytesMoved("sequential", layout, static_cast<uint64_t>(lmr * 4096 * 1000)), 2 * (1 - lmr) * 4096 * 1000, 0.02 * 4096 * 1000) << lmr;
  }
  EXPECT_EQ(bench::LeastBytesMoved("random", layout, 4096 * 1000), 0);
}

TEST(SwapTargetAccesses, TheFieldIsHalfInSinglePrecision) {
  std::vector<double> even(512), odd(512);
  bench::FillField(8, even.data(), even.size());
  bench::FillField(9, odd.data(), odd.size());
  size_t single = 0;
  for (size_t i = 0; i < even.size(); ++i) {
    EXPECT_EQ(odd[i], static_cast<double>(static_cast<float>(odd[i])));
    single += even[i] == static_cast<double>(static_cast<float>(even[i]));
    EXPECT_GE(even[i], 1);
    EXPECT_LT(even[i], 2);
  }
  EXPECT_LT(single, 5u);
}

}  // namespace
}  // namespace ramspan

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) {
    std::cerr << "usage: swap_targets_test RAMSPAN_BENCH\n";
    return 2;
  }
  ramspan::bench_path = argv[1];
  return RUN_ALL_TESTS();
}
