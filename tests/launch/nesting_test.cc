#include "launch/nesting.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace ramspan {
namespace {

Status Check(const std::map<std::string, std::string>& environment) {
  return CheckNotNested([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Nesting, AnOrdinaryShellABatchScriptAndAnAllocationAreFine) {
  EXPECT_TRUE(Check({}).ok());
  EXPECT_TRUE(Check({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).ok());
  // The shell that salloc starts on a node is a step with a number of its own kind, whatever MPI its srun has set up.
  EXPECT_TRUE(Check({{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"PMI_RANK", "0"}}).ok());
  EXPECT_TRUE(Check({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}).ok());  // srun --pty bash
}

TEST(Nesting, RanksOfAnMpiJobAndTasksOfSrunAreNot) {
  for (const char* name : {"PMI_FD", "PMI_RANK", "PMI_PORT", "PMIX_RANK"}) {
    const Status status = Check({{name, "1"}});
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(name), std::string::npos);
  }
  EXPECT_FALSE(Check({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}).ok());
  EXPECT_NE(Check({{"PMIX_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}).message().find("ramspan run -n 1 OPTIONS -- mpirun -n RANKS"), std::string::npos);
  EXPECT_FALSE(Check({{"SLURM_STEP_ID", "2"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"PMI_FD", "9"}}).ok());
}

}  // namespace
}  // namespace ramspan
