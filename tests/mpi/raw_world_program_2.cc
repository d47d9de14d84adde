// The file of raw_world_program.cc's program that does it right.
#include "ramspan/mpi.h"

namespace other_file {
void Init(int* argc, char*** argv) { MPI_Init(argc, argv); }
void Finalize() { MPI_Finalize(); }
}  // namespace other_file
