// A program of two files, one of which (this one) includes <mpi.h>. See CMakeLists.txt.
// Argument: the call that it makes with the MPI_COMM_WORLD of <mpi.h>.
#include <mpi.h>

#include <string_view>

namespace other_file {
void Init(int* argc, char*** argv);
void Finalize();
}  // namespace other_file

int main(int argc, char** argv) {
  other_file::Init(&argc, &argv);
  const std::string_view call = argc > 1 ? argv[1] : "";
  int mine = 1, all[8] = {};
  if (call == "barrier") MPI_Barrier(MPI_COMM_WORLD);
  if (call == "window") {
    void* base;
    MPI_Win window;
    MPI_Win_allocate_shared(8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
  }
  if (call == "gather") {
    MPI_Request request;
    MPI_Iallgather(&mine, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  if (call == "probe") MPI_Probe(2, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  other_file::Finalize();
}
