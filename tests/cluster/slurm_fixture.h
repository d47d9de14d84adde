// A real Slurm: slurmctld, and four slurmd that are the nodes h1 to h4, each on a host of its own (cluster_fixture.h). The test itself is the login
// node, and it runs the scripts of examples/batch, as users do.
//
// Started once for all tests of the process, in a folder of its own; the daemons have the test's world for themselves, so every port is
// free, and they end with it. Skipped where there is no Slurm, no munge, or no world.
#pragma once

#include "tests/cluster/cluster_fixture.h"

namespace ramspan {

class SlurmFixture : public ClusterFixture {
 protected:
  static constexpr int kNodes = 4;
  struct BatchJob {
    std::string id;
    std::filesystem::path said;  // its output
  };

  void SetUp() override;
  void TearDown() override;

  // sbatch OPTIONS examples/batch/SCRIPT WORDS
  BatchJob Submit(const Words& options, const std::string& script, const Words& words, const Words& environment = {});
  // Waits for its end: COMPLETED, CANCELLED, TIMEOUT, ... as Slurm calls it.
  std::string EndOf(const BatchJob& job, std::chrono::seconds patience = std::chrono::seconds(120));
  std::string Said(const BatchJob& job) const { return ReadFile(job.said); }
  // What is still there so long after its SIGTERM gets a SIGKILL. Until the end of the test.
  void KillAfter(std::chrono::seconds wait);
  // A short command on the login node; its output.
  std::string Ask(const Words& command);
  // ready/rank-0 was written by a program of a job.
  void AwaitProgram(const BatchJob& job);

 private:
  std::string StateOf(const BatchJob& job);
  int submitted_ = 0;
  bool kills_early_ = false;
};

}  // namespace ramspan
