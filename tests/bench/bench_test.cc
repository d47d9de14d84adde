// ramspan-bench as a user runs it. Ratios are compared with generous bounds, and the best or the median of a few runs
// counts: this machine may be busy with something else.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "bench/child.h"
#include "bench/contention_locks.h"
#include "bench/parallel.h"
#include "bench/together.h"
#include "tests/support/job_fixture.h"
#include "tests/support/send_signal.h"

namespace ramspan {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using testing::Each;
using testing::ElementsAre;
using testing::Gt;
using testing::HasSubstr;

std::string bench_path;

class BenchFixture : public JobFixture {
 protected:
  Outcome Run(Words options, const Words& environment = {}) {
    options.insert(options.begin(), bench_path);
    return Wait(StartCommand(options, environment), seconds(120));
  }

  static std::vector<json> Lines(const Outcome& outcome) {
    std::vector<json> lines;
    std::istringstream out(outcome.out);
    for (std::string line; std::getline(out, line);) {
      lines.push_back(json::parse(line, nullptr, false));
      EXPECT_FALSE(lines.back().is_discarded()) << line;
    }
    return lines;
  }

  // The values of a key, of all lines that have it.
  static std::vector<double> Values(const std::vector<json>& lines, const std::string& key) {
    std::vector<double> values;
    for (const json& line : lines) {
      if (line.contains(key)) values.push_back(line[key].get<double>());
    }
    return values;
  }

  std::string Plots() const { return (folder_ / "plots").string(); }
  bool IsDrawn(const std::string& file) const { return std::filesystem::exists(folder_ / "plots" / file); }
};

bool HasGnuplot() { return system("command -v gnuplot >/dev/null") == 0; }

// At most; what is too slow is so each time, and a busy machine hardly five times in a row.
constexpr int kRuns = 5;

class Rambrain : public BenchFixture {};
class Ratios : public BenchFixture {};
class Policies : public BenchFixture {};
class Allocators : public BenchFixture {};

class Networks : public BenchFixture {
 protected:
  // Small: about whether it works.
  static Words Small(const std::string& name, Words more) {
    Words words = {name, "--data", "32MiB", "--sweeps", "1", "--ops", "256", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(Networks, AStreamOverEachOfThemIsRightAndStandsBesideTheRawNetwork) {
  for (const Words& way : {Words{"--transport", "ofi", "--servers", "2", "--server-threads", "2"}, Words{"--transport", "mpi"}}) {
    const Outcome outcome = Run(Small("stream", way));
    ASSERT_EQ(outcome.status, 0) << way[1] << ": " << outcome.err;
    const json line = Lines(outcome).at(0);
    EXPECT_TRUE(line["verified"].get<bool>()) << line;
    EXPECT_EQ(line["config"]["transport"], way[1]);
    EXPECT_EQ(line["roofline_of"], "network");
    EXPECT_GT(line["stats"]["tiers"]["remote"]["bytes_in"].get<double>(), 16e6) << line;
    EXPECT_GT(line["cpu_servers_s"].get<double>(), 0) << line;
    EXPECT_GE(line["raw_depth"].get<int>(), 2);
    for (const char* key : {"raw_read_gb_s", "raw_write_gb_s", "raw_both_gb_s", "raw_read_us", "ratio", "ratio_to_raw_with_work"}) EXPECT_GT(line[key].get<double>(), 0) << key << line;
  }
}

TEST_F(Networks, RandomAccessTellsWhatAMissAddsToARawRead) {
  const Outcome outcome = Run(Small("random", {"--transport", "ofi", "--preemptive", "off"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json line = Lines(outcome).at(0);
  EXPECT_TRUE(line["verified"].get<bool>()) << line;
  EXPECT_GT(line["miss_us"].get<double>(), 0);
  EXPECT_NEAR(line["miss_added_us"].get<double>(), line["miss_us"].get<double>() - line["raw_read_us"].get<double>(), 1e-6);
}

// The exception left the parallel region of a sweep: the program was aborted without a word of why.
TEST_F(Networks, AServerThatDiesIsToldInWords) {
  const std::string programs = std::filesystem::path(bench_path).parent_path(), servers = "dir:" + (folder_ / "servers").string();
  const auto start = [&](const std::string& name, Words words, const Words& environment = {}) {  // its output apart from others'
    const std::string file = (folder_ / name).string();
    words.insert(words.begin(), {"sh", "-c", "exec \"$@\" > " + file + " 2> " + file + ".err", "sh"});
    return StartCommand(words, environment);
  };
  for (const char* name : {"stream", "compute"}) {
    SCOPED_TRACE(name);
    const pid_t server = start("server", {programs + "/ramspan-server", "--memory", "64MiB", "--listen", "127.0.0.1:0", "--rendezvous", (folder_ / "servers").string()});
    const auto list = [&] { return Wait(StartCommand({programs + "/ramspan-ctl", "list", servers})).out; };
    ASSERT_TRUE(Becomes([&] { return list().find(" lends ") != std::string::npos; }));
    const pid_t bench = start("bench", {bench_path, name, "--servers", "0", "--data", "16MiB", "--sweeps", "100000"},
                              {"RAMSPAN_SERVERS=" + servers, "RAMSPAN_TRANSPORT=ofi", "RAMSPAN_TEST_FAR=1"});
    const std::regex reads(", reads [1-9]");  // what fills writes only, so it sweeps, and will until the server is gone
    ASSERT_TRUE(Becomes([&] { return std::regex_search(list(), reads); })) << ReadFile(folder_ / "bench.err");
    SendSignal(server, SIGKILL);
    Wait(server);
    EXPECT_EQ(Wait(bench).status, 1);
    EXPECT_THAT(ReadFile(folder_ / "bench.err"), HasSubstr("which has died"));
  }
}

TEST_F(Allocators, AreFilledToTheLastUnitAndMergeAgain) {
  const Outcome outcome = Run({"buddy", "--sizes", "1MiB", "--threads", "1,3", "--sweeps", "1", "--json", "--plots", Plots()});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::map<std::string, int> seen;
  for (const json& line : Lines(outcome)) {
    if (!line.contains("allocator")) continue;
    ++seen[line["allocator"]];
    EXPECT_TRUE(line["right"]) << line;
    const bool ours = line["allocator"] == "Ramspan's arena";
    if (!line.contains("external")) continue;
    EXPECT_TRUE(line["mixed"] || line["external"] == 0) << line;
    EXPECT_EQ(line["internal"] > 0, line["mixed"] && !ours) << line;
  }
  for (const char* name : {"mutex a level", "spinlock a level", "Ramspan's arena", "new"}) EXPECT_EQ(seen[name], 4) << name;
  for (const char* name : {"mimalloc", "jemalloc"}) {
    EXPECT_TRUE(seen[name] == 4 || outcome.err.find(std::string(name) + " is not compared") != std::string::npos) << outcome.err;
  }
  EXPECT_EQ(Values(Lines(outcome), "setup_ms").size(), 2u);
  EXPECT_EQ(Values(Lines(outcome), "make_destroy_ns").size(), 2u);
  for (const char* figure : {"buddy_speed.svg", "buddy_normalized.svg", "buddy_waiting.svg"}) EXPECT_EQ(IsDrawn(figure), HasGnuplot()) << figure;
}

TEST(Parts, OfALoopAreSeenByTheCaller) {
  const std::vector<std::vector<size_t>> parts =
      bench::InParallel<std::vector<size_t>>(3, 100, [](size_t i, std::vector<size_t>* part) { part->push_back(i); });
  std::vector<size_t> seen;
  for (const std::vector<size_t>& part : parts) seen.insert(seen.end(), part.begin(), part.end());
  ASSERT_EQ(seen.size(), 100u);
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i) << "each has a range, in order";
}

// All other chunks were tried, too, and each may wait for a server that is silent.
TEST(Parts, OfALoopAreNotBegunAfterTheFirstException) {
  std::atomic<int> begun{0};
  const auto visit = [&](size_t i, int*) {
    ++begun;
    if (i < 10) throw std::runtime_error("broken " + std::to_string(i));
    while (begun < 2) std::this_thread::yield();  // both threads have begun
  };
  try {
    bench::InParallel<int>(2, 20, visit);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "broken 0");
  }
  EXPECT_LE(begun, 1 + 10) << "the thread that has thrown began another one";
}

// They waited for three minutes.
TEST(Parts, OfSeveralClientsEndWhenOneHasFailed) {
  const std::string path = testing::TempDir() + "ramspan-together-" + std::to_string(getpid());
  bench::Together::Make(path, 2);
  const pid_t other = fork();
  if (other == 0) {
    setenv(bench::Together::kVariable, bench::Together::Environment(path, 1).c_str(), 1);
    bench::Together::Get().Leave();
    _exit(0);
  }
  setenv(bench::Together::kVariable, bench::Together::Environment(path, 0).c_str(), 1);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(bench::Together::Get().Wait(), std::runtime_error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(100));
  waitpid(other, nullptr, 0);
  unsetenv(bench::Together::kVariable);
  std::filesystem::remove(path);
}

// A benchmark that is interrupted ends its child at once, and waits for it: `ramspan-bench apps` hung for as long as the child ran.
TEST(Children, OfAParentWithHandlersEndByASignalBeforeTheirExec) {
  struct sigaction noting {}, before {};
  noting.sa_handler = [](int) {};
  sigaction(SIGTERM, &noting, &before);
  for (int i = 0; i < 100; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    bench::Child child = bench::Child::Server({"/bin/sleep", "5"});
    EXPECT_EQ(SendSignal(child.pid(), SIGTERM), 0);
    EXPECT_EQ(child.Wait(), 128 + SIGTERM);
    ASSERT_LT(std::chrono::steady_clock::now() - begin, seconds(4)) << "child " << i << " did not hear of it";
  }
  sigaction(SIGTERM, &before, nullptr);
}

TEST_F(Networks, SeveralClientsMeasureAtTheSameTime) {
  for (const Words& way : {Words{"stream", "ofi", "4", "1"}, Words{"random", "ofi", "4", "4"}, Words{"stream", "mpi", "4", "1"}, Words{"random", "mpi", "4", "1"},
                           Words{"stream", "mpi", "4", "4"}, Words{"stream", "mpi", "1", "4"}}) {
    SCOPED_TRACE(way[0] + " " + way[1] + " " + way[2] + " clients, servers: " + way[3]);
    const Outcome outcome = Run(Small(way[0], {"--transport", way[1], "--clients", way[2], "--servers", way[3], "--preemptive", "on"}));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    ASSERT_EQ(Lines(outcome).size(), 1u) << "one line for all";
    const json line = Lines(outcome).at(0);
    EXPECT_TRUE(line["verified"].get<bool>()) << line;
    EXPECT_EQ(line["config"]["clients"], std::stoi(way[2]));
    EXPECT_EQ(line["stats"]["tiers"]["remote"]["servers"].size(), std::stoul(way[3])) << line;
    EXPECT_GT(line["ratio"].get<double>(), 0);
    EXPECT_GT(line["raw_both_gb_s"].get<double>(), 0);
  }
}

TEST_F(Networks, TwoHostsAreMadeAndGoneOrItIsSaidWhyNot) {
  for (const char* transport : {"ofi", "mpi"}) {
    const Outcome outcome = Run(Small("stream", {"--transport", transport, "--hosts", "2"}));
    ASSERT_EQ(outcome.status, 0) << transport << ": " << outcome.err;
    const json line = Lines(outcome).at(0);
    if (line.contains("skipped")) {
      EXPECT_THAT(line["skipped"].get<std::string>(), testing::AnyOf(HasSubstr("root"), HasSubstr("not installed")));
      GTEST_SKIP() << line["skipped"];
    }
    EXPECT_TRUE(line["verified"].get<bool>()) << line;
    EXPECT_GT(line["raw_read_gb_s"].get<double>(), 0);
  }
}

TEST_F(Networks, AWireLetsThroughWhatItIsToldOrItIsSaidWhyNot) {
  const Outcome outcome = Run(Small("stream", {"--transport", "ofi", "--hosts", "2", "--wire", "1"}));
  if (outcome.err.find("sch_tbf") != std::string::npos) GTEST_SKIP() << outcome.err;
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json line = Lines(outcome).at(0);
  if (line.contains("skipped")) GTEST_SKIP() << line["skipped"];
  EXPECT_TRUE(line["verified"].get<bool>()) << line;
  EXPECT_LT(line["raw_read_gb_s"].get<double>(), 0.13);
  EXPECT_THAT(Run({"stream", "--transport", "ofi", "--wire", "1"}).err, HasSubstr("with --hosts 2"));
}

// The fixture looks for processes that are left: servers, raw peers, and those that hold the hosts.
TEST_F(Networks, AnEndedRunLeavesNoServerAndNoHostBehind) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    const pid_t pid = StartCommand({bench_path, "stream", "--transport", "ofi", "--hosts", "2", "--data", "64MiB", "--sweeps", "50"});
    EXPECT_TRUE(Becomes([&] { return JobProcess("ramspan-server") > 0; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    SendSignal(pid, signal);
    EXPECT_EQ(Wait(pid).status, 128 + signal);
    EXPECT_TRUE(Becomes([&] { return JobProcesses().empty(); })) << signal;
    // A killed process cannot remove its folder.
    if (signal == SIGKILL) std::filesystem::remove_all(folder_ / "tmp"), std::filesystem::create_directory(folder_ / "tmp");
  }
}

TEST_F(Networks, WhatDoesNotGoTogetherIsSaid) {
  EXPECT_THAT(Run({"stream", "--hosts", "2"}).err, HasSubstr("--hosts is 1, or 2 with --transport mpi or ofi"));
  EXPECT_THAT(Run({"pin", "--transport", "ofi"}).err, HasSubstr("--transport is for stream and random"));
  EXPECT_THAT(Run({"stream", "--clients", "2"}).err, HasSubstr("more than one with --transport mpi or ofi"));
  EXPECT_THAT(Run({"stream", "--transport", "tcp"}).err, HasSubstr("--transport is shared, mpi or ofi"));
}

TEST_F(Rambrain, EachExperimentGivesItsLinesAndItsFigure) {
  const Outcome outcome = Run({"rambrain", "--quick", "--data", "32MiB", "--json", "--plots", Plots()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const std::vector<json> lines = Lines(outcome);
  std::set<std::string> seen;
  for (const json& line : lines) {
    seen.insert(line["experiment"].get<std::string>());
    if (line.contains("verified")) {
      EXPECT_TRUE(line["verified"].get<bool>()) << line;
    }
    EXPECT_TRUE(line.contains("config")) << line;
  }
  EXPECT_THAT(seen, testing::UnorderedElementsAre("nbody", "transpose", "preemptive", "const", "decay", "random", "kernel"));
  for (const char* key : {"overhead_percent", "moved_per_byte", "wait_hidden_percent", "const_bytes_out",
                          "recovered_after_one_sweep", "cost_percent"}) {
    EXPECT_FALSE(Values(lines, key).empty()) << key;
  }
  EXPECT_THAT(Values(lines, "const_bytes_out"), testing::Each(0.0));
  for (const char* name : {"nbody", "transpose", "preemptive_load", "preemptive_size", "const", "decay", "random"}) {
    EXPECT_TRUE(IsDrawn(std::string(name) + ".dat") && IsDrawn(std::string(name) + ".gp")) << name;
    if (HasGnuplot()) {
      EXPECT_THAT(ReadFile(folder_ / "plots" / (std::string(name) + ".svg")), HasSubstr("</svg>")) << name;
    }
  }
}

// Nothing of how fast it is: whether each size of blocks is measured, and the data right.
TEST_F(Rambrain, PagesAreMeasuredWithEachSizeOfBlocks) {
  const Outcome outcome = Run({"pages", "--quick", "--data", "16MiB", "--tier", "file", "--sweeps", "1", "--ops", "500", "--json"});
  if (outcome.status != 0 && outcome.err.find("userfaultfd") != std::string::npos) GTEST_SKIP() << outcome.err;
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const std::vector<json> lines = Lines(outcome);
  ASSERT_EQ(lines.size(), 6u) << outcome.out;
  EXPECT_TRUE(lines[0]["stats"]["pages"]["adapts"].get<bool>());
  for (const json& line : lines) {
    const bool is_huge = line["config"]["chunk"].get<int>() == 2 << 20;  // eight blocks, of which two are in memory
    EXPECT_TRUE(line["verified"].get<bool>()) << line;
    EXPECT_GT(line["fault_us"].get<double>(), 0) << line;
    EXPECT_GT(line["stats"]["pages"]["faults"].get<int>(), is_huge ? 20 : 500) << line;
  }
  EXPECT_THAT(Run({"pages", "--chunk", "12KiB"}).err, HasSubstr("a power of two"));
}

TEST_F(Rambrain, WithoutGnuplotTheDataStaysAndTheRemedyIsNamed) {
  const Outcome outcome = Run({"rambrain", "--experiment", "const", "--quick", "--plots", Plots()}, {"PATH=/nowhere"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("apt-get install gnuplot-nox"));
  EXPECT_TRUE(IsDrawn("const.dat") && IsDrawn("const.gp"));
  EXPECT_FALSE(IsDrawn("const.svg"));
}

TEST_F(Rambrain, TheKernelsSwapIsComparedOrWhatIsMissingIsSaid) {
  const Outcome outcome = Run({"rambrain", "--experiment", "kernel", "--quick"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::AnyOf(HasSubstr("ordered GB/s"), HasSubstr("swap is off: as root"),
                                          HasSubstr("of swap are free"), HasSubstr("not root"), HasSubstr("cgroup")));
}

TEST_F(Rambrain, ConstSweepsWriteNothingToServersEither) {
  const Outcome outcome = Run({"rambrain", "--experiment", "const", "--quick", "--json", "--servers", "1"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const std::vector<json> lines = Lines(outcome);
  EXPECT_FALSE(lines.empty());
  EXPECT_THAT(Values(lines, "const_bytes_out"), testing::Each(0.0));
}

TEST_F(Rambrain, AWrongNameIsAnsweredByTheRightOnes) {
  const Outcome outcome = Run({"rambrain", "--experiment", "nbodies"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("all, nbody, transpose"));
}

// Sixty lines of usage, in which the mistake was not to be found.
TEST_F(Rambrain, AnUnknownCaseIsAnsweredByOneLine) {
  const Outcome outcome = Run({"foo"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err, "ramspan-bench: there is no case \"foo\"; the cases are pin, stream, random, memory, small, compute, "
                         "vector, policy, buddy, contention, apps, rambrain, pages, swap-targets (--help says more)\n");
}

// Zeros were taken for counts that were not given, --mode had no effect on other cases, and the limit was blamed on "memory".
TEST_F(Rambrain, OptionsThatTheCaseCannotFollowAreNamed) {
  const auto error = [&](const Words& words) {
    const Outcome outcome = Run(words);
    EXPECT_EQ(outcome.status, 1) << words.back();
    return outcome.err;
  };
  EXPECT_EQ(error({"pin", "--ops", "0"}), "ramspan-bench: --ops: at least 1\n");
  EXPECT_EQ(error({"memory", "--chunks", "0"}), "ramspan-bench: --chunks: at least 1\n");
  EXPECT_EQ(error({"pin", "--sweeps", "0"}), "ramspan-bench: --sweeps: at least 1\n");
  EXPECT_EQ(error({"pin", "--mode", "read"}), "ramspan-bench: --mode is stream's\n");
  // Boost makes of -1 the largest number; what is multiplied may wrap, too.
  EXPECT_EQ(error({"random", "--ops", "-1"}), "ramspan-bench: --ops: at least 1\n");
  EXPECT_EQ(error({"small", "--chunks", "-1"}), "ramspan-bench: --chunks: at least 1\n");
  EXPECT_EQ(error({"stream", "--servers", "-1"}), "ramspan-bench: --servers: at least 0\n");
  EXPECT_EQ(error({"stream", "--transport", "ofi", "--server-threads", "-1"}), "ramspan-bench: --server-threads: at least 1\n");
  EXPECT_EQ(error({"memory", "--chunks", "4503599627370496"}), "ramspan-bench: --chunks: at most 64 TiB together\n");
  EXPECT_EQ(error({"stream", "--data", "65TiB", "--limit", "1MiB"}), "ramspan-bench: --data: at most 64 TiB\n");
  EXPECT_EQ(error({"stream", "--chunk", "65TiB"}), "ramspan-bench: --chunk: at most 64 TiB\n");
  EXPECT_EQ(error({"stream", "--server-memory", "65TiB"}), "ramspan-bench: --server-memory: at most 64 TiB\n");
  for (const char* limit : {"0", "1023KiB", "65TiB"}) {
    EXPECT_EQ(error({"stream", "--limit", limit}), "ramspan-bench: --limit: 1 MiB to 64 TiB (by default a quarter of --data)\n");
  }
}

// The fixture looks for processes that are left.
TEST_F(Rambrain, AnEndedRunLeavesNoExperimentBehind) {
  const pid_t pid = StartCommand({bench_path, "rambrain"});
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  SendSignal(pid, SIGTERM);
  EXPECT_EQ(Wait(pid).status, 128 + SIGTERM);
}

class Contention : public BenchFixture {};

TEST_F(Contention, EachPartTellsWhatItMeasuredAndWhetherItsTargetsHold) {
  const Outcome outcome = Run({"contention", "--quick", "--json", "--chunks", "20000"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::vector<json> lines = Lines(outcome);
  std::map<std::string, int> rows;
  for (const json& line : lines) ++rows[line["experiment"]];
  const std::map<std::string, int> expected = {{"scale", 3 + 1}, {"servers", 2 + 1}, {"pins", 4 + 1}, {"large", 4 + 1}, {"misses", 20 + 2}};
  const bool counted = bench::LockMeter::Works();
  for (const auto& [part, n] : expected) EXPECT_EQ(rows[part], n - (part == "misses" && !counted)) << part;
  EXPECT_THAT(Values(lines, "misses_per_s"), Each(Gt(0.0)));
  EXPECT_THAT(Values(lines, "p999_ns"), Each(Gt(0.0)));
  EXPECT_THAT(Values(lines, "servers_used"), ElementsAre(1, Gt(1)));
  for (const json& line : lines) {
    EXPECT_TRUE(line.value("verified", true)) << line;
    if (!line.contains("engine_locked_us") || !counted) continue;
    EXPECT_GT(line["engine_locked_us"].get<double>(), 0) << line;
    EXPECT_LE(line["engine_locked_us"].get<double>(), line["locked_us"].get<double>() + 1e-9) << line;
    EXPECT_GE(line["locks"].get<double>(), 1) << line;
  }
}

TEST_F(Contention, APartThatIsNotKnownIsSaidWithThoseThatAre) {
  const Outcome outcome = Run({"contention", "--experiment", "pin"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "ramspan-bench contention: --experiment is all, scale, servers, pins, large or misses\n");
}

// What the meter says of holds and waits that are known.
TEST(ContentionMeter, CountsHoldsOnceWhereTheyAreNestedAndNoWaitForACondition) {
  using bench::LockMeter;
  if (!LockMeter::Works()) GTEST_SKIP() << "a sanitizer has pthread's functions for itself";
  std::mutex outer, inner;
  std::condition_variable never;
  constexpr auto kHold = std::chrono::milliseconds(20);
  LockMeter::WatchNext();
  inner.lock();
  inner.unlock();
  LockMeter::Start();
  std::atomic<bool> held{false};
  std::thread holder([&] {
    std::unique_lock first(outer);
    held = true;
    {
      const std::lock_guard second(inner);
      std::this_thread::sleep_for(kHold);
    }
    never.wait_for(first, 5 * kHold);
  });
  std::thread waiter([&] {
    while (!held) std::this_thread::yield();
    const std::lock_guard lock(outer);
  });
  holder.join();
  waiter.join();
  const LockMeter::Times times = LockMeter::Stop();
  const double hold_ns = std::chrono::nanoseconds(kHold).count();
  EXPECT_EQ(times.any.times, 3u);  // the holder's, before and behind the condition, and the waiter's
  EXPECT_EQ(times.watched.times, 1u);
  EXPECT_EQ(times.waits, 1u);
  EXPECT_GE(times.watched.held_ns, hold_ns);
  EXPECT_GE(times.any.held_ns, times.watched.held_ns);
  EXPECT_LT(times.any.held_ns, times.watched.held_ns + 4 * hold_ns) << "the wait for the condition counts as a hold";
  EXPECT_GT(times.wait_ns, hold_ns / 4);
  EXPECT_GE(times.preempted, 1u);  // and what a busy machine preempts of the other two
  EXPECT_LE(times.preempted, times.any.times);
}

TEST_F(Policies, EachPatternAndLimitIsALineWithAllPoliciesAndBothReferences) {
  const Outcome outcome = Run({"policy", "--pattern", "zipf,sweep", "--limits", "25,62.5", "--json", "--plots", Plots()});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::vector<json> lines = Lines(outcome);
  ASSERT_EQ(lines.size(), 4u);
  for (const json& line : lines) {
    const double min = line["min"]["bytes_in"], lru = line["lru"]["bytes_in"];
    EXPECT_GT(min, 0) << line;
    EXPECT_LT(min, lru) << line;
    for (const char* policy : {"cyclic", "second-chance"}) {
      const json& one = line["policies"][policy];
      EXPECT_NEAR(one["in_over_min"].get<double>(), one["bytes_in"].get<double>() / min, 1e-9) << line;
    }
  }
  EXPECT_EQ(lines[0]["pattern"], "sweep");
  EXPECT_EQ(lines[1]["limit_percent"], 62.5);
  // 20 sweeps read what is not there; cyclic, as LRU, all of it.
  EXPECT_NEAR(lines[0]["min"]["bytes_in"].get<double>() / lines[0]["data_bytes"].get<double>(), 15, 0.1);
  EXPECT_TRUE(lines[0]["policies"]["cyclic"]["target_missed"].get<bool>());
  EXPECT_TRUE(IsDrawn("policy_sweep.dat") && IsDrawn("policy_zipf.gp"));
}

TEST_F(Policies, TheSameComesOutEachTimeAndMissedTargetsAreNoFailure) {
  const Words words = {"policy", "--pattern", "sweep,omp-matmul", "--limits", "50", "--policy", "second-chance", "--bare", "--steady"};
  const Outcome one = Run(words), two = Run(words);
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(one.out, two.out);
  EXPECT_THAT(one.out, HasSubstr("second half of each trace, no read-ahead, no reserve"));
  EXPECT_THAT(one.out, testing::ContainsRegex("sweep +50 +[0-9.]+ +[0-9.]+ +[0-9.]+! "));
}

// The program's figures at its end beside those of its trace: within a tenth, since the run has threads and a clock.
TEST_F(Policies, ATraceOfARunMovesAboutWhatTheRunMoved) {
  for (const char* policy : {"cyclic", "second-chance"}) {
    SCOPED_TRACE(policy);
    const std::string trace = (folder_ / "trace.%r").string();
    const Outcome run = Run({"stream", "--tier", "file", "--data", "32MiB", "--chunk", "64KiB", "--sweeps", "4"},
                            {"RAMSPAN_TRACE=" + trace, "RAMSPAN_STATS=" + (folder_ / "stats").string(), std::string("RAMSPAN_MEMORY_MANAGER=") + policy});
    ASSERT_EQ(run.status, 0) << run.err;
    const json moved = json::parse(ReadFile(folder_ / "stats"))["tiers"]["file"];
    const Outcome outcome = Run({"policy", (folder_ / "trace.0").string(), "--limits", "25", "--policy", policy, "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const json line = Lines(outcome).at(0);
    EXPECT_NEAR(line["policies"][policy]["bytes_in"].get<double>() / moved["bytes_in"].get<double>(), 1, 0.1);
    EXPECT_NEAR(line["policies"][policy]["bytes_out"].get<double>() / moved["bytes_out"].get<double>(), 1, 0.1);
    EXPECT_GE(line["data_bytes"].get<uint64_t>(), 32u << 20);
  }
}

TEST_F(Policies, WhatIsNoTraceIsNamed) {
  const std::string file = (folder_ / "file").string();
  std::ofstream(file) << "a text that is long enough for a header";
  EXPECT_THAT(Run({"policy", file}).err, HasSubstr(file + " is no trace"));
  EXPECT_THAT(Run({"policy", file + "s"}).err, HasSubstr("cannot read " + file + "s: No such file"));
  const Outcome untraced = Run({"memory", "--chunks", "100"}, {"RAMSPAN_TRACE=/no/such/folder/trace"});
  EXPECT_EQ(untraced.status, 0);
  EXPECT_THAT(untraced.err, HasSubstr("nothing is traced (key trace, RAMSPAN_TRACE): /no/such/folder/trace: No such file or directory"));
}

TEST_F(Policies, WhatThereIsNotIsNamed) {
  const auto error = [&](const Words& words) {
    const Outcome outcome = Run(words);
    EXPECT_EQ(outcome.status, 1) << words.back();
    return outcome.err;
  };
  EXPECT_THAT(error({"policy", "--policy", "lru"}), HasSubstr("there is no cache policy \"lru\"; the choices are replay, cyclic, second-chance"));
  EXPECT_THAT(error({"policy", "--pattern", "sweep,wave"}), HasSubstr("there is no \"wave\"; there are sweep, "));
  for (const char* limits : {"0", "101", "5,", "nan", "5%"}) EXPECT_THAT(error({"policy", "--limits", limits}), HasSubstr("--limits: percents of the data")) << limits;
}

// A third of the ratio in docs/benchmarks.md: read-ahead off gets 72 to 76 % of its roofline there.
TEST_F(Ratios, RandomAccessWithoutReadAheadIsNotFarUnderItsRoofline) {
  std::vector<double> ratios;
  const auto good = [&] { return std::count_if(ratios.begin(), ratios.end(), [](double ratio) { return ratio > 0.25; }); };
  for (int i = 0; i < kRuns && good() < 2; ++i) {
    const Outcome outcome = Run({"random", "--preemptive", "off", "--data", "128MiB", "--sweeps", "3", "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    ratios.push_back(Lines(outcome).at(0)["ratio"].get<double>());
  }
  EXPECT_EQ(good(), 2) << testing::PrintToString(ratios);
}

// The bound of a far wait was that of a near one, for which no other process has to get a core.
TEST_F(Ratios, WhatALoadExplainsOfAWaitCountsTheServersThatTakePart) {
  const Words stream = {"stream", "--data", "24MiB", "--chunk", "64KiB", "--threads", "2", "--busy", "1", "--sweeps", "3", "--json"};
  const auto slices = [&](const Words& environment) {
    const Outcome outcome = Run(stream, environment);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const json line = Lines(outcome).at(0);
    EXPECT_GT(line["busy_wait_bound_s"].get<double>(), 0.001 * line["busy_wait_bound_slices"].get<int>());
    return line["busy_wait_bound_slices"].get<int>();
  };
  EXPECT_EQ(slices({}), 2);
  EXPECT_EQ(slices({"MPIR_CVAR_NOLOCAL=1", "UCX_TLS=tcp,self"}), 8);
}

TEST_F(Ratios, WorkOnEachChunkTellsHowManyWereThere) {
  const Outcome outcome = Run({"stream", "--data", "24MiB", "--chunk", "64KiB", "--work", "30", "--sweeps", "3", "--json"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const json line = Lines(outcome).at(0);
  EXPECT_GT(line["ready_share"].get<double>(), 0.5);
  EXPECT_LE(line["ready_share"].get<double>(), 1.0);
  EXPECT_GE(line["sweep_over_work"].get<double>(), 1.0);
  EXPECT_NE(Run({"random", "--work", "30"}).status, 0);
}

// What docs/benchmarks.md says of a busy machine is at most 1.25 times the CPU time, and hardly a wait that its load does not explain.
// A short run says that to within some 10 %, so the bounds here are 1.4 and one wait in fifty, of the median of three runs: all three
// count, none is tried again. Near servers: with far ones the kernel's network takes part, and the scatter is larger.
TEST_F(Ratios, ALoadCostsASweepHardlyMoreCpuTimeAndExplainsItsWaits) {
  const auto median = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  std::vector<double> cpu, late;
  for (int i = 0; i < 3; ++i) {
    const Outcome outcome = Run({"stream", "--data", "64MiB", "--chunk", "256KiB", "--threads", "2", "--busy", "1", "--sweeps", "5", "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const json line = Lines(outcome).at(0);
    ASSERT_GT(line["busy_waits"].get<double>(), 0);
    cpu.push_back(line["busy_cpu_ratio"].get<double>());
    late.push_back(line["busy_waits_beyond_bound"].get<double>() / line["busy_waits"].get<double>());
  }
  EXPECT_LT(median(cpu), 1.4) << testing::PrintToString(cpu);
  EXPECT_LT(median(late), 0.02) << testing::PrintToString(late);
}

TEST_F(Ratios, SmallObjectsCostLittleAndTravelTogether) {
  const Outcome outcome = Run({"small", "--servers", "0", "--chunks", "300000", "--sweeps", "3", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json line = Lines(outcome).at(0);
  EXPECT_TRUE(line["verified"].get<bool>());
  EXPECT_LE(line["metadata_bytes_per_object"].get<double>() + line["handle_bytes"].get<double>(), 24);
  EXPECT_GT(line["transfers_per_sweep"].get<double>(), 10);
  EXPECT_LT(line["transfers_per_sweep"].get<double>(), 300);
}

TEST_F(Ratios, TheHitRatioRecoversWithinOneSweepAfterARandomPhase) {
  double best = 0;
  for (int i = 0; i < kRuns && best < 0.7; ++i) {
    const Outcome outcome = Run({"rambrain", "--experiment", "decay", "--quick", "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    best = std::max(best, Values(Lines(outcome), "recovered_after_one_sweep").at(0));
  }
  EXPECT_GE(best, 0.7);
}

// The target is 1.05. Thread CPU time does not count what others run meanwhile, but they share caches and clock, so on a busy
// machine single ratios reach 1.1. Vector registers that are left in use make the sine loop 2 to 20 times slower.
TEST_F(Ratios, TheProgramsOwnLoopsRunBesideSwappingAsOverAPlainArray) {
  for (const Words& place : {Words{"--servers", "1"}, Words{"--tier", "file"}}) {
    std::map<std::string, double> best;
    for (int i = 0; i < kRuns; ++i) {
      Words words = {"compute", "--data", "16MiB", "--sweeps", "5", "--json"};
      words.insert(words.end(), place.begin(), place.end());
      const Outcome outcome = Run(words);
      ASSERT_EQ(outcome.status, 0) << outcome.err;
      for (const json& line : Lines(outcome)) {
        EXPECT_TRUE(line["verified"].get<bool>()) << line;
        EXPECT_GT(line["swapped_in"].get<double>(), 0.5) << line;
        const auto [entry, first] = best.emplace(line["loop"].get<std::string>(), line["ratio"].get<double>());
        if (!first) entry->second = std::min(entry->second, line["ratio"].get<double>());
      }
      if (std::all_of(best.begin(), best.end(), [](const auto& one) { return one.second < 1.25; })) break;
    }
    EXPECT_EQ(best.size(), 4u);
    for (const auto& [loop, ratio] : best) EXPECT_LT(ratio, 1.25) << loop << ' ' << place.front();
  }
}

// Ten times the target: on a busy machine the median of some hundred pairs still says this much.
TEST_F(Ratios, ResidentDataCostsNBodyNearlyNothing) {
  double best = 100;
  for (int i = 0; i < kRuns && best > 5; ++i) {
    const Outcome outcome = Run({"rambrain", "--experiment", "nbody", "--quick", "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    best = std::min(best, Values(Lines(outcome), "overhead_percent").back());
  }
  EXPECT_LE(best, 5);
}

}  // namespace
}  // namespace ramspan

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) {
    std::cerr << "usage: bench_test RAMSPAN_BENCH\n";
    return 2;
  }
  ramspan::bench_path = argv[1];
  return RUN_ALL_TESTS();
}
