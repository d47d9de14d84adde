// A program that knows nothing of MPI: more data than RAMSPAN_MEMORY, in chunks.
#include <ramspan/adhere_to.h>
#include <ramspan/managed_ptr.h>

#include <cstdio>
#include <vector>

#ifdef MPI_COMM_WORLD
#error "the headers of a serial program must not bring in mpi.h"
#endif

int main() {
  constexpr size_t kChunks = 64, kCount = 32768;
  std::vector<ramspan::managedPtr<double>> rows;
  for (size_t i = 0; i < kChunks; ++i) {
    rows.emplace_back(kCount);
    ramspan::adhereTo<double> glue(rows.back());
    double* row = glue;
    for (size_t j = 0; j < kCount; ++j) row[j] = static_cast<double>(i * kCount + j);
  }
  for (size_t i = 0; i < kChunks; ++i) {
    ramspan::adhereTo<double> glue(rows[i]);
    const double* row = glue;
    for (size_t j = 0; j < kCount; ++j) {
      if (row[j] != static_cast<double>(i * kCount + j)) return 1;
    }
  }
  std::puts("plain: fine");
}
