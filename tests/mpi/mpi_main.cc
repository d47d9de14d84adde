// main of the GoogleTest programs under mpiexec: every rank runs every test in the same order, so a test may call
// collectives on ramspan::computeComm(). Rank 0 prints; the others print only failures.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "ramspan/mpi.h"

namespace {

class FailuresOnly : public testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "%s:%d: %s\n", result.file_name(), result.line_number(), result.summary());
  }
};

// Where a test lets a server die, mpiexec dies of the next rank that leaves (it writes to a proxy that has gone), with
// output that it has not passed on yet; and the job's exit status is the dead server's. So expect.sh reads of the result
// in a file: that of all ranks, which leave together after it is written.
void Report(const char* path, int rank, int failed) {
  int any_failed = 1;
  MPI_Allreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) {
    std::ofstream(path, std::ios::app) << (any_failed == 0 ? "all ranks passed " : "a rank failed one of ")
                        << testing::UnitTest::GetInstance()->test_to_run_count() << " tests\n";
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  MPI_Init(&argc, &argv);
  std::signal(SIGUSR1, SIG_IGN);  // hydra's notice that a rank died, where a test lets one die
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) {
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly);
  }
  const int failed = RUN_ALL_TESTS();
  if (const char* path = std::getenv("RAMSPAN_TEST_REPORT")) Report(path, rank, failed);
  MPI_Finalize();
  return failed;
}
