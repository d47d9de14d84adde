#include "launch/nesting.h"

#include <cstdlib>
#include <string>

namespace ramspan {
namespace {

// SLURM numbers the steps that srun starts from 0; batch scripts and interactive allocations have numbers above this.
constexpr unsigned long kLastStep = 0xfffffff0;

bool IsTaskOfStep(const char* step) {
  if (step == nullptr || *step == '\0') return false;
  char* end = nullptr;
  const unsigned long number = std::strtoul(step, &end, 10);
  return *end == '\0' && number < kLastStep;
}

}  // namespace

Status CheckNotNested(const std::function<const char*(const char*)>& getenv) {
  const char* step = getenv("SLURM_STEP_ID");
  const char* tasks = getenv("SLURM_STEP_NUM_TASKS");
  const bool one_of_several = IsTaskOfStep(step) && tasks != nullptr && std::atoi(tasks) > 1;
  const char* found = one_of_several ? "SLURM_STEP_ID" : nullptr;
  const bool by_slurm_without_mpi = step != nullptr && !IsTaskOfStep(step);
  for (const char* name : {"PMI_FD", "PMI_PORT", "PMI_RANK", "PMIX_RANK"}) {
    if (found == nullptr && getenv(name) != nullptr && !by_slurm_without_mpi) found = name;
  }
  if (found == nullptr) return {};
  const std::string where = std::string("`ramspan run` was started inside a rank of an MPI job (") + found + " is set), but ";
  if (getenv("OMPI_COMM_WORLD_SIZE") != nullptr) {
    return FailedPrecondition(where + "it starts the whole job. Remedy, with Open MPI: write `ramspan run -n 1 OPTIONS -- mpirun -n RANKS ./app` instead of `mpirun -n RANKS ramspan run ...`; the memory limit is each rank's");
  }
  return FailedPrecondition(
      where + "it starts the ranks itself. Remedy: write `ramspan run -n RANKS -- ./app` instead of mpiexec or "
      "srun, in a batch script or in salloc; to limit the ranks of a job that mpiexec starts, set RAMSPAN_MEMORY; to start "
      "a job of its own from within a rank: env -u PMI_FD -u PMI_PORT -u PMI_RANK -u PMIX_RANK ramspan run ...");
}

}  // namespace ramspan
