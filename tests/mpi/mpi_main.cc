// main of the GoogleTest programs under mpiexec: every rank runs every test in the same order, so a test may call
// collectives on ramspan::computeComm(). Rank 0 prints; the others print only failures.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>

#include "ramspan/mpi.h"

namespace {

class FailuresOnly : public testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "%s:%d: %s\n", result.file_name(), result.line_number(), result.summary());
  }
};

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
  MPI_Finalize();
  return failed;
}
