// An MPI program: sees its own ranks only, calls MPI itself, and keeps data in managedPtrs.
#include <ramspan/adhere_to.h>
#include <ramspan/managed_ptr.h>
#include <ramspan/mpi.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = -1, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  long sum = 0;
  {
    ramspan::managedPtr<long> data(1000, 1L);
    ramspan::adhereTo<long> glue(data);
    const long* values = glue;
    for (int i = 0; i < 1000; ++i) sum += values[i];
  }
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) std::printf("with_mpi: %d ranks, sum %ld\n", ranks, sum);
  MPI_Finalize();
  return sum == 1000L * ranks ? 0 : 1;
}
