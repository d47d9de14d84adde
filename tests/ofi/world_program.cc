// world_program CHUNKS CHUNK_BYTES [barrier]: an MPI program that includes <mpi.h> and no header of Ramspan's for MPI. Fills and verifies chunks
// on each rank, adds up what was verified by MPI_COMM_WORLD, and prints "ranks N bytes B" on rank 0.
#include <mpi.h>
#include <ramspan/managed_ptr.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc > 3) MPI_Barrier(MPI_COMM_WORLD);  // before Ramspan is used
  const size_t count = std::strtoull(argv[1], nullptr, 10), words = std::strtoull(argv[2], nullptr, 10) / sizeof(uint64_t);
  const auto word = [rank](size_t chunk, size_t at) { return (static_cast<uint64_t>(rank) << 48) ^ (chunk * 0x9e3779b97f4a7c15u) ^ at; };
  unsigned long long good = 0, all = 0;
  {
    std::vector<ramspan::managedPtr<uint64_t>> chunks;
    for (size_t c = 0; c < count; ++c) {
      chunks.emplace_back(words);
      ramspan::adhereTo<uint64_t> glue(chunks[c]);
      uint64_t* data = glue;
      for (size_t i = 0; i < words; ++i) data[i] = word(c, i);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t c = 0; c < count; ++c) {
      const ramspan::adhereTo<uint64_t> glue(chunks[c]);
      const uint64_t* data = glue;
      for (size_t i = 0; i < words; ++i) good += data[i] == word(c, i) ? sizeof(uint64_t) : 0;
    }
  }
  MPI_Allreduce(&good, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) std::printf("ranks %d bytes %llu\n", ranks, all);
  MPI_Finalize();
  return 0;
}
