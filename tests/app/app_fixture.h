// The sweep program, alone and as the ranks of a job, and what its output and statistics say.
#pragma once

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/job_fixture.h"
#include "tests/support/sizes.h"

namespace ramspan {

extern std::string launcher_path, sweep_path;  // set by main

struct SweepSize {
  size_t bytes = 24 * kMiB;
  size_t chunk_bytes = 256 << 10;
  int threads = 2;
  int pins = 1;
  int sweeps = 1;  // 0: until Stop()
};

struct JobSize {
  int ranks = 1;
  int servers = 0;
  std::string memory = "4MiB";
  std::string server_memory = "32MiB";
};

// Seconds. It takes one or two. What waits instead of ending does so for a minute, which is when MPI's watchdog gives up, or for ever.
constexpr double kSoon = 30;

// Far servers: MPICH then moves everything through the network, as between hosts.
const Words kFar = {"MPIR_CVAR_NOLOCAL=1", "UCX_TLS=tcp,self", "UCX_LOG_LEVEL=fatal"};

class AppFixture : public JobFixture {
 protected:
  static Words Sweep(const SweepSize& size = {}) {
    return {sweep_path,
            std::to_string(size.bytes),
            std::to_string(size.chunk_bytes),
            std::to_string(size.threads),
            std::to_string(size.pins),
            std::to_string(size.sweeps)};
  }

  static Words Job(const JobSize& job, const Words& app) {
    Words words = {launcher_path, "run", "-n", std::to_string(job.ranks), "-s", std::to_string(job.servers)};
    if (!job.memory.empty()) words.insert(words.end(), {"--memory", job.memory});
    if (job.servers > 0) words.insert(words.end(), {"--server-memory", job.server_memory});
    if (job.servers > 0 && job.ranks > 1) words.insert(words.end(), {"--transport", "mpi"});  // tests/ofi looks at the others
    words.push_back("--");
    words.insert(words.end(), app.begin(), app.end());
    return words;
  }

  Outcome Run(const Words& command, const Words& environment = {}, std::chrono::seconds patience = kPatience) {
    return Wait(StartCommand(command, environment), patience);
  }

  // RAMSPAN_STATS=... for a run, and the object that the run of this rank wrote.
  std::string StatsVariable() const { return "RAMSPAN_STATS=" + (folder_ / "stats.%r.json").string(); }
  nlohmann::json Stats(int rank = 0) const {
    const std::string text = ReadFile(folder_ / ("stats." + std::to_string(rank) + ".json"));
    const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << "not JSON: " << text;
    return json;
  }

  // A good run of `ranks` ranks: status 0, each rank verified its bytes, nobody complained.
  static void ExpectVerified(const Outcome& outcome, const SweepSize& size = {}, int ranks = 1) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::string expected;
    for (int i = 0; i < ranks; ++i) expected += "verified " + std::to_string(size.bytes) + " bytes\n";
    EXPECT_EQ(outcome.out, expected);
    EXPECT_THAT(outcome.err, testing::Not(testing::HasSubstr("WRONG DATA")));
  }

  // A run that ended with an error which says all of `parts`: the problem, its place, the remedy.
  static void ExpectError(const Outcome& outcome, const Words& parts) {
    EXPECT_NE(outcome.status, 0);
    EXPECT_EQ(outcome.out.find("verified"), std::string::npos) << outcome.out;
    for (const std::string& part : parts) EXPECT_THAT(outcome.err, testing::HasSubstr(part));
  }

  void Stop() const;
  void WriteFile(const std::filesystem::path& path, const std::string& text) const;
};

// ctest knows the suites by their names; those that need more are beside their tests.
class Alone : public AppFixture {};
class BadInput : public AppFixture {};

}  // namespace ramspan
