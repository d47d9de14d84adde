// A program that calls MPI and is linked with libramspan only, in a job with memory servers: its first object ends it with an error.
#include <mpi.h>

#include <cstdio>

#include "ramspan/errors.h"
#include "ramspan/managed_ptr.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    const ramspan::managedPtr<int> data(1000);
    std::printf("made\n");
  } catch (const ramspan::ConfigError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 3;
  }
  return 0;
}
