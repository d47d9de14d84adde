// A program of two files, one of which (this one) includes <mpi.h>. See CMakeLists.txt.
#include <mpi.h>

namespace other_file {
void Init(int* argc, char*** argv);
void Finalize();
}  // namespace other_file

int main(int argc, char** argv) {
  other_file::Init(&argc, &argv);
  MPI_Barrier(MPI_COMM_WORLD);
  other_file::Finalize();
}
