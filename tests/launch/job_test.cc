#include "launch/job.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

namespace ramspan {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;

// Two app ranks (0, 1) and one server (2), all started and inside MPI.
class JobTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < 3; ++rank) {
      job_.OnHello(rank, "alpha");
      job_.OnPid(rank, 100 + rank);
      job_.OnMpiInit(rank);
    }
  }
  static RankEnd Ended(int code, int64_t at_ns) { return {code, 0, true, at_ns}; }
  static RankEnd Killed(int signal_number, int64_t at_ns) { return {0, signal_number, false, at_ns}; }
  void MpiexecEnds(int status) { job_.OnMpiexecEnd(status, 99 * kSecond); }
  bool Says(const std::string& text) const {
    for (const std::string& message : job_.Finish().messages) {
      if (message.find(text) != std::string::npos) return true;
    }
    return false;
  }

  Job job_{2, 1, "./app"};
};

// The launcher's ticks for so long, at this second of its clock and after it.
void Pass(Job& job, int64_t from_second, int seconds) {
  for (int i = 0; i <= seconds * 10; ++i) job.OnTick(from_second * kSecond + i * kSecond / 10);
}

TEST_F(JobTest, AGoodEndIsStatusZeroWithoutAWord) {
  for (int rank = 0; rank < 3; ++rank) job_.OnEnd(rank, Ended(0, kSecond));
  MpiexecEnds(0);
  EXPECT_FALSE(job_.kill_all());
  EXPECT_EQ(job_.Finish().status, 0);
  EXPECT_TRUE(job_.Finish().messages.empty());
}

TEST_F(JobTest, AnExitStatusAfterMpiLetsTheOthersFinish) {
  job_.OnEnd(1, Ended(7, kSecond));
  EXPECT_FALSE(job_.kill_all());
  job_.OnEnd(0, Ended(0, 2 * kSecond));
  job_.OnEnd(2, Ended(0, 2 * kSecond));
  EXPECT_EQ(job_.Finish().status, 7);
}

TEST_F(JobTest, ARankKilledByASignalEndsTheJobWith128More) {
  job_.OnEnd(1, Killed(SIGSEGV, kSecond));
  EXPECT_TRUE(job_.kill_all());
  EXPECT_EQ(job_.Finish().status, 139);
  EXPECT_TRUE(Says("rank 1 (./app, pid 101 on alpha) was killed by signal 11"));
}

TEST_F(JobTest, TheEarliestFailureIsTheCauseWhateverIsHeardFirst) {
  job_.OnEnd(0, {1, 0, false, 3 * kSecond});  // a rank that noticed
  job_.OnEnd(2, Killed(SIGKILL, 2 * kSecond));
  EXPECT_EQ(job_.Finish().status, 137);
  EXPECT_TRUE(Says("memory server rank 2 was killed by signal 9; the chunks that it held are lost. Remedy:"));
}

TEST_F(JobTest, AllIsToldWhenOfEachRankTheEndIsKnownOrCannotBe) {
  job_.OnEnd(1, Ended(1, kSecond));
  job_.OnKeeperLost(0, kSecond);
  EXPECT_TRUE(job_.kill_all());
  EXPECT_FALSE(job_.told());
  job_.OnEnd(2, Killed(SIGKILL, kSecond));
  EXPECT_TRUE(job_.told());
}

TEST_F(JobTest, WhatTheKillOrderCausesIsNoFailure) {
  job_.OnEnd(0, {7, 0, false, kSecond});
  job_.OnEnd(1, Killed(SIGKILL, 2 * kSecond));
  job_.OnEnd(2, Killed(SIGKILL, 2 * kSecond));
  MpiexecEnds(9);
  EXPECT_EQ(job_.Finish().status, 7);
  EXPECT_EQ(job_.Finish().messages.size(), 1u);
}

// Rank 0 had called MPI_Abort on a communicator of its own, rank 1 ended first and was blamed alone.
TEST_F(JobTest, ARankIsNotBlamedAloneForAnExitThatMpiAbortMayHaveCaused) {
  job_.OnEnd(1, {9, 0, false, kSecond});
  EXPECT_TRUE(Says("exited with status 9") && !Says("so did"));
  job_.OnEnd(0, {9, 0, false, kSecond + kMs});
  EXPECT_EQ(job_.Finish().status, 9);
  EXPECT_TRUE(Says("rank 1 (./app, pid 101 on alpha) exited with status 9, and so did rank 0 within a second; if that was MPI_Abort"));
}

TEST_F(JobTest, ALaterOrAnotherExitIsNotCalledTheSame) {
  job_.OnEnd(1, {9, 0, false, kSecond});
  job_.OnEnd(0, {9, 0, false, 2 * kSecond});
  EXPECT_FALSE(Says("so did"));
  Job other(2, 1, "./app");
  for (int rank = 0; rank < 3; ++rank) other.OnMpiInit(rank);
  other.OnEnd(1, {9, 0, false, kSecond});
  other.OnEnd(0, {7, 0, false, kSecond + kMs});
  EXPECT_EQ(other.Finish().messages.at(0).find("so did"), std::string::npos);
}

TEST_F(JobTest, LeavingWithoutFinalizeWhileOthersWorkIsAFailure) {
  job_.OnEnd(0, {0, 0, false, kSecond});
  EXPECT_TRUE(job_.kill_all());
  EXPECT_EQ(job_.Finish().status, 1);
  EXPECT_TRUE(Says("without MPI_Finalize"));
}

TEST_F(JobTest, AServerThatHangsAfterTheApplicationIsEnded) {
  job_.OnEnd(0, Ended(0, kSecond));
  job_.OnEnd(1, Ended(0, kSecond));
  Pass(job_, 1, 14);
  EXPECT_FALSE(job_.end_servers());
  Pass(job_, 15, 2);
  EXPECT_TRUE(job_.end_servers());
  job_.OnEnd(2, Killed(SIGKILL, 18 * kSecond));
  EXPECT_EQ(job_.Finish().status, 0);
}

TEST_F(JobTest, AServerThatFailsAfterTheApplicationDoesNotSpoilTheResult) {
  job_.OnEnd(0, Ended(0, kSecond));
  job_.OnEnd(1, Ended(0, kSecond));
  job_.OnEnd(2, Killed(SIGSEGV, 2 * kSecond));
  EXPECT_EQ(job_.Finish().status, 0);
  EXPECT_TRUE(Says("failed after the application had ended"));
}

TEST_F(JobTest, AVanishedKeeperEndsTheJob) {
  job_.OnKeeperLost(0, kSecond);
  EXPECT_TRUE(job_.kill_all());
  EXPECT_EQ(job_.Finish().status, 137);
}

TEST_F(JobTest, AKilledMpiexecEndsTheJob) {
  job_.OnMpiexecEnd(SIGKILL, kSecond);  // a wait status
  EXPECT_TRUE(job_.kill_all());
  EXPECT_EQ(job_.Finish().status, 137);
  EXPECT_TRUE(Says("mpiexec was killed"));
}

TEST_F(JobTest, ASignalIsGivenFiveSecondsThenAllIsKilled) {
  job_.OnSignal(SIGTERM);
  Pass(job_, 1, 4);
  EXPECT_FALSE(job_.kill_all());
  Pass(job_, 5, 1);
  EXPECT_TRUE(job_.kill_all());
  for (int rank = 0; rank < 3; ++rank) job_.OnEnd(rank, Killed(SIGKILL, 7 * kSecond));
  EXPECT_EQ(job_.Finish().status, 143);
}

// A launcher that was stopped, or a laptop that slept, ended servers and programs that had had no time.
TEST_F(JobTest, ASuspendedLauncherEndsNobodyForBeingLate) {
  job_.OnTick(kSecond);
  job_.OnEnd(0, Ended(0, kSecond));
  job_.OnEnd(1, Ended(0, kSecond));
  job_.OnTick(3600 * kSecond);
  EXPECT_FALSE(job_.end_servers());
  job_.OnSignal(SIGTERM);
  job_.OnTick(7200 * kSecond);
  EXPECT_FALSE(job_.kill_all());
  Pass(job_, 7200, 6);
  EXPECT_TRUE(job_.kill_all());
}

TEST_F(JobTest, ASecondSignalKillsAtOnce) {
  job_.OnSignal(SIGINT);
  job_.OnSignal(SIGINT);
  job_.OnTick(2 * kSecond);
  EXPECT_TRUE(job_.kill_all());
}

TEST_F(JobTest, AnApplicationThatHandlesTheSignalKeepsItsStatus) {
  job_.OnSignal(SIGINT);
  for (int rank = 0; rank < 3; ++rank) job_.OnEnd(rank, Ended(0, 2 * kSecond));
  EXPECT_EQ(job_.Finish().status, 0);
}

// A kill of one rank in MPI_Init was blamed on another one, which had noticed it and whose keeper was faster.
TEST_F(JobTest, ARankKilledFromOutsideIsTheCauseThoughItsKeeperReportsLate) {
  job_.OnEnd(1, {1, 0, false, kSecond});  // "connection to rank 0 lost"
  EXPECT_TRUE(job_.kill_all());
  job_.OnEnd(0, Killed(SIGKILL, kSecond + 30 * kMs));
  EXPECT_EQ(job_.Finish().status, 137);
  EXPECT_TRUE(Says("rank 0 (./app, pid 100 on alpha) was killed by signal 9"));
}

TEST_F(JobTest, AServerKilledFromOutsideIsTheCauseThoughAllRanksEndedBeforeItsReport) {
  job_.OnEnd(1, {1, 0, false, kSecond});
  job_.OnEnd(0, {1, 0, false, kSecond});
  job_.OnEnd(2, Killed(SIGKILL, kSecond + 30 * kMs));
  EXPECT_EQ(job_.Finish().status, 137);
  EXPECT_TRUE(Says("memory server rank 2 was killed by signal 9"));
}

TEST_F(JobTest, AKillByOrderIsNeverTheCause) {
  job_.OnEnd(1, {7, 0, false, kSecond});
  job_.OnEnd(0, {0, SIGKILL, false, kSecond + 30 * kMs, /*ordered=*/true});
  EXPECT_EQ(job_.Finish().status, 7);
}

// The message said that the keeper or hydra_pmi_proxy was killed; mpiexec had given up by itself.
TEST_F(JobTest, AVanishedKeeperIsToldWithWhatMpiexecSaid) {
  job_.OnKeeperLost(0, kSecond);
  EXPECT_TRUE(Says("ended without a report"));
  EXPECT_FALSE(job_.Finish().explained);
}

TEST_F(JobTest, ALimitThatKilledIsNamedWithItsRemedy) {
  job_.OnEnd(1, Killed(SIGXFSZ, kSecond));
  EXPECT_TRUE(Says("ulimit -f"));
  Job other(1, 1, "./app");
  other.OnEnd(1, Killed(SIGBUS, kSecond));
  EXPECT_NE(other.Finish().messages.at(0).find("/dev/shm"), std::string::npos);
}

TEST_F(JobTest, AJobThatCannotBeStartedIsEndedWithTheReason) {
  Job job(2, 0, "./app");
  job.OnHello(0, "alpha");
  job.OnCannotStart("no more processes", kSecond);
  EXPECT_TRUE(job.kill_all());
  EXPECT_EQ(job.Finish().status, 1);
  EXPECT_EQ(job.Finish().messages.at(0), "1 of 2 ranks have started: no more processes");
}

TEST(Job, MpiexecsGoodEndWithoutAnyRanksIsAFailure) {
  Job job(1, 1, "./app");
  job.OnMpiexecEnd(0, kSecond);
  EXPECT_EQ(job.Finish().status, 1);
  EXPECT_NE(job.Finish().messages.at(0).find("all ranks of the job never reported"), std::string::npos);
}

TEST(Job, AnApplicationWithoutMpiNeedsNoServers) {
  Job job(1, 1, "/bin/true");
  job.OnHello(0, "alpha");
  job.OnMpiInit(1);
  job.OnEnd(0, {0, 0, false, kSecond});
  EXPECT_TRUE(job.end_servers());
  EXPECT_FALSE(job.kill_all());
  EXPECT_EQ(job.Finish().status, 0);
}

TEST(Job, ARankThatNeverJoinsWhileAnotherWaitsForItIsFoundOut) {
  Job job(2, 0, "./app");
  job.OnMpiInit(1);
  job.OnEnd(0, {0, 0, false, kSecond});
  Pass(job, 2, 2);
  EXPECT_FALSE(job.kill_all());
  Pass(job, 4, 2);
  EXPECT_TRUE(job.kill_all());
  EXPECT_EQ(job.Finish().status, 1);
}

TEST(Job, WithoutReportsMpiexecsWordCounts) {
  Job job(1, 1, "./app");
  job.OnMpiexecEnd(5 << 8, kSecond);
  EXPECT_EQ(job.Finish().status, 5);
  EXPECT_NE(job.Finish().messages.at(0).find("started no rank"), std::string::npos);
  EXPECT_FALSE(job.Finish().explained);
}

TEST(Job, AStatusOfOneProcessNeedsNoWords) {
  Job job(1, 0, "./app");
  job.OnEnd(0, {7, 0, true, kSecond});
  EXPECT_EQ(job.Finish().status, 7);
  EXPECT_TRUE(job.Finish().messages.empty());
}

}  // namespace
}  // namespace ramspan
