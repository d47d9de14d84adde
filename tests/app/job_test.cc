// The same program as the ranks of jobs of all small shapes, near and far, and with servers that are full or absent.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>

#include "tests/app/app_fixture.h"

namespace ramspan {
namespace {

using nlohmann::json;

constexpr SweepSize kSmall = {.bytes = 8 * kMiB, .chunk_bytes = 128 << 10};

class Jobs : public AppFixture {
 protected:
  // Every rank moved more than its limit to the servers and got it back.
  void ExpectRemoteTraffic(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      const json stats = Stats(rank);
      ASSERT_TRUE(stats["tiers"].contains("remote")) << stats;
      EXPECT_GT(stats["tiers"]["remote"]["bytes_out"], 2 * kMiB) << "rank " << rank;
      EXPECT_GT(stats["tiers"]["remote"]["bytes_in"], 2 * kMiB) << "rank " << rank;
      EXPECT_EQ(stats["rank"], rank);
    }
  }

  static constexpr int kRanksMax = 4, kServersMax = 3;
  static bool IsExtreme(int ranks, int servers) {
    return (ranks == 1 && servers == 1) || (ranks == kRanksMax && servers == kServersMax);
  }

  void RunShapes(const Words& environment, bool extremes) {
    for (int ranks = 1; ranks <= kRanksMax; ++ranks) {
      for (int servers = 1; servers <= kServersMax; ++servers) {
        if (IsExtreme(ranks, servers) != extremes) continue;
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(servers) + " servers");
        Words all = environment;
        all.push_back(StatsVariable());
        ExpectVerified(Run(Job({.ranks = ranks, .servers = servers}, Sweep(kSmall)), all), kSmall, ranks);
        ExpectRemoteTraffic(ranks);
        if (HasFailure()) return;
      }
    }
  }
};

TEST_F(Jobs, TheSmallestAndTheLargestShapesVerifyOnOneHost) { RunShapes({}, true); }

TEST_F(Jobs, TheSmallestAndTheLargestShapesVerifyOverTheNetwork) { RunShapes(kFar, true); }

TEST_F(Jobs, LongTheShapesBetweenThemVerifyOnOneHost) { RunShapes({}, false); }

TEST_F(Jobs, LongTheShapesBetweenThemVerifyOverTheNetwork) { RunShapes(kFar, false); }

TEST_F(Jobs, FullServersSendTheRestToFiles) {
  for (const Words& environment : {Words{}, kFar}) {
    Words all = environment;
    all.push_back(StatsVariable());
    ExpectVerified(Run(Job({.ranks = 2, .servers = 1, .server_memory = "4MiB"}, Sweep(kSmall)), all), kSmall, 2);
    uint64_t remote = 0;
    for (int rank : {0, 1}) {
      remote += Stats(rank)["tiers"]["remote"]["bytes_out"].get<uint64_t>();
      EXPECT_GT(Stats(rank)["tiers"]["file"]["bytes_out"], 0);
    }
    EXPECT_GT(remote, 0u);
  }
}

// Remote memory was left before the destructors of forgotten objects ran, which then found their data lost.
TEST_F(Jobs, ForgottenObjectsOnServersAreDestroyedAtTheEnd) {
  const Outcome end = Run(Job({.ranks = 1, .servers = 1}, {FORGOTTEN_PROGRAM}));
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, testing::HasSubstr("all destroyed"));
  EXPECT_THAT(end.err, testing::Not(testing::HasSubstr("without their destructors")));
}

// MPICH asked the kernel for each page of the servers' memory, at the start: 0.23 s for a GiB. The quickest of three, for the machine may be busy.
TEST_F(Jobs, LargeServersStartAsQuicklyAsSmallOnes) {
  const auto start = [&](const std::string& server_memory) {
    auto quickest = std::chrono::steady_clock::duration::max();
    for (int i = 0; i < 3; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_EQ(Run(Job({.ranks = 2, .servers = 1, .server_memory = server_memory}, Sweep(kSmall))).status, 0);
      quickest = std::min(quickest, std::chrono::steady_clock::now() - begin);
    }
    return std::chrono::duration<double>(quickest).count();
  };
  const double small = start("64MiB"), large = start("4GiB");
  EXPECT_LT(large, small + 0.4);
}

TEST_F(Jobs, WithoutServersFilesDo) {
  for (int ranks : {1, 2}) {
    ExpectVerified(Run(Job({.ranks = ranks}, Sweep(kSmall)), {StatsVariable()}), kSmall, ranks);
    for (int rank = 0; rank < ranks; ++rank) {  // a program without MPI has a rank too: each writes a file of its own
      const json stats = Stats(rank);
      EXPECT_EQ(stats["rank"], rank);
      EXPECT_GT(stats["tiers"]["file"]["bytes_out"], 2 * kMiB);
      EXPECT_FALSE(stats["tiers"].contains("remote"));
    }
  }
}

TEST_F(Jobs, TwoRanksAndFourThreadsWithSeveralPins) {
  const SweepSize size = {.bytes = 16 * kMiB, .chunk_bytes = 128 << 10, .threads = 4, .pins = 3, .sweeps = 3};
  ExpectVerified(Run(Job({.ranks = 2, .servers = 1}, Sweep(size))), size, 2);
}

// "--server-memory 40MiB or less" named a figure that did not fit either, and the default did not fit a container's 64 MiB.
TEST_F(Jobs, InASmallSharedMemoryTheDefaultFitsAndSoDoesTheSizeThatTheErrorNames) {
  if (std::system("unshare -m mount -t tmpfs tmpfs /dev/shm 2>/dev/null") != 0) {
    GTEST_SKIP() << "needs the right to mount a small /dev/shm in a namespace of its own (unshare -m)";
  }
  const auto run = [&](const std::string& sizes) {
    std::string line = "mount -t tmpfs -o size=64m tmpfs /dev/shm && exec " + launcher_path + " run -n 2 -s 1 --transport mpi " + sizes + " --";
    for (const std::string& word : Sweep(kSmall)) line += " " + word;
    return Wait(StartCommand({"unshare", "-m", "sh", "-c", line}));
  };
  ExpectVerified(run("--memory 4MiB"), kSmall, 2);
  const Outcome refused = run("--memory 4MiB --server-memory 60MiB");
  EXPECT_EQ(refused.status, 2);
  const size_t at = refused.err.find("Remedy: --server-memory ");
  ASSERT_NE(at, std::string::npos) << refused.err;
  const std::string named = refused.err.substr(at + 8, refused.err.find(" or less") - at - 8);
  ExpectVerified(run("--memory 4MiB " + named), kSmall, 2);
}

}  // namespace
}  // namespace ramspan
