// arXiv 1510.06358, section 3.5: with MPI each process has its own manager, and data is copied by send and receive.
// Source as for Rambrain, <mpi.h> included; compiled with -include ramspan/mpi.h.
#include <mpi.h>
#include <cstdio>
#include <vector>

#include "rambrain/managedPtr.h"
using namespace rambrain;

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int n = 64, doubles = 1 << 14;  // 8 MiB a rank, in 2 MiB
  long wrong = 0;
  {
    std::vector<managedPtr<double>> mine, theirs;
    for (int i = 0; i < n; ++i) {
      mine.emplace_back(doubles, rank * 1000. + i);
      theirs.emplace_back(doubles);
    }
    for (int i = 0; i < n; ++i) {
      const adhereTo<double> send_glue(mine[i]);
      adhereTo<double> receive_glue(theirs[i]);
      const double *send = send_glue;
      double *receive = receive_glue;
      MPI_Sendrecv(send, doubles, MPI_DOUBLE, (rank + 1) % size, i, receive, doubles, MPI_DOUBLE,
                   (rank + size - 1) % size, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < n; ++i) {
      const adhereTo<double> glue(theirs[i]);
      const double *data = glue;
      for (int k = 0; k < doubles; ++k) wrong += data[k] != (rank + size - 1) % size * 1000. + i;
    }
    if (managedMemory::defaultManager->getTotalSwappedOutBytes() == 0) ++wrong;
  }
  long all = 0;
  MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks, %ld wrong\n", size, all);
  MPI_Finalize();
  return wrong != 0;
}
