// heat3d: explicit steps of the heat equation with a 7-point stencil on an n x n x n grid. Ranks share the grid by slabs
// of planes and exchange halo planes; threads share the planes; each plane is one managedPtr, so only the few that
// are in use must be in memory. --verify computes the same in core and compares bit by bit.
#include <ramspan/managed_ptr.h>
#include <ramspan/mpi.h>
#include <ramspan/runtime.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

using ramspan::adhereTo;
using ramspan::managedPtr;

namespace {

// One plane: new values of `out` from the planes below, here and above. The boundary keeps its values.
void StepPlane(size_t n, const double* below, const double* here, const double* above, double* out) {
  std::memcpy(out, here, n * n * sizeof(double));
  for (size_t y = 1; y + 1 < n; ++y) {
    for (size_t x = 1; x + 1 < n; ++x) {
      const size_t i = y * n + x;
      out[i] = here[i] + 0.1 * (below[i] + above[i] + here[i - 1] + here[i + 1] + here[i - n] + here[i + n] - 6 * here[i]);
    }
  }
}

void FillPlane(size_t n, size_t z, double* plane) {
  for (size_t i = 0; i < n * n; ++i) plane[i] = static_cast<double>((i * 31 + z * 17) % 1000);
}

using Planes = std::vector<managedPtr<double>>;

// Fills the halo planes 0 and last of this rank's slab from its neighbours.
void ExchangeHalos(Planes* planes, size_t n, int rank, int ranks) {
  const int down = rank > 0 ? rank - 1 : MPI_PROC_NULL, up = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
  const int count = static_cast<int>(n * n);
  const size_t last = planes->size() - 1;
  const auto swap = [&](size_t send, int to, size_t receive, int from) {
    const adhereTo<double> out((*planes)[send]);
    adhereTo<double> in((*planes)[receive]);
    const double* from_here = out;
    double* to_here = in;
    MPI_Sendrecv(from_here, count, MPI_DOUBLE, to, 0, to_here, count, MPI_DOUBLE, from, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  };
  swap(1, down, last, up);
  swap(last - 1, up, 0, down);
}

// planes[1 .. last-1] are global planes first ..; 0 and last are halos.
void Step(const Planes& now, Planes* next, size_t n, size_t first) {
  const auto last = static_cast<long>(now.size()) - 1;
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // the first one; none may leave the loop
#pragma omp parallel for schedule(dynamic)
  for (long z = 1; z < last; ++z) {
    if (failed) continue;
    try {
      const auto i = static_cast<size_t>(z);
      const size_t global = first + i - 1;
      const adhereTo<double> here_glue(now[i]);
      adhereTo<double> out_glue((*next)[i]);
      const double* here = here_glue;
      double* out = out_glue;
      if (global == 0 || global == n - 1) {
        std::memcpy(out, here, n * n * sizeof(double));
        continue;
      }
      const adhereTo<double> below_glue(now[i - 1]), above_glue(now[i + 1]);
      const double* below = below_glue;
      const double* above = above_glue;
      StepPlane(n, below, here, above, out);
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

// The same with plain memory, all of the grid on each rank; compares this rank's planes.
bool Verify(const Planes& planes, size_t n, size_t first, int steps) {
  std::vector<std::vector<double>> now(n, std::vector<double>(n * n)), next = now;
  for (size_t z = 0; z < n; ++z) FillPlane(n, z, now[z].data());
  for (int s = 0; s < steps; ++s) {
    next[0] = now[0];
    next[n - 1] = now[n - 1];
    for (size_t z = 1; z + 1 < n; ++z) StepPlane(n, now[z - 1].data(), now[z].data(), now[z + 1].data(), next[z].data());
    std::swap(now, next);
  }
  bool same = true;
  for (size_t i = 1; i + 1 < planes.size(); ++i) {
    const adhereTo<double> glue(planes[i]);
    const double* plane = glue;
    same = same && std::memcmp(plane, now[first + i - 1].data(), n * n * sizeof(double)) == 0;
  }
  return same;
}

bool Run(size_t n, int steps, bool verify, int rank, int ranks) {
  const size_t first = n * static_cast<size_t>(rank) / static_cast<size_t>(ranks);
  const size_t end = n * static_cast<size_t>(rank + 1) / static_cast<size_t>(ranks);
  Planes now, next;
  for (size_t i = 0; i < end - first + 2; ++i) {
    now.emplace_back(n * n, 0.0);
    next.emplace_back(n * n, 0.0);
  }
  for (size_t z = first; z < end; ++z) {
    ADHERETOLOC(double, now[z - first + 1], plane);
    FillPlane(n, z, plane);
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int s = 0; s < steps; ++s) {
    ExchangeHalos(&now, n, rank, ranks);
    Step(now, &next, n, first);
    std::swap(now, next);
    if (rank == 0) std::fprintf(stderr, "heat3d: step %d of %d\n", s + 1, steps);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  double sum = 0, total = 0;
  for (size_t i = 1; i + 1 < now.size(); ++i) {
    ADHERETOLOCCONST(double, now[i], plane);
    for (size_t k = 0; k < n * n; ++k) sum += plane[k];
  }
  MPI_Reduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  int same = verify ? Verify(now, n, first, steps) : 1, all_same = 0;
  MPI_Allreduce(&same, &all_same, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (rank == 0) {
    std::printf("heat3d: n %zu, %d steps on %d ranks: %.2f s, sum %.17g; %.0f MB of data, limit %.0f MB a rank%s\n", n,
                steps, ranks, seconds, total, 2e-6 * static_cast<double>(n * n * n * sizeof(double)),
                1e-6 * static_cast<double>(ramspan::MemoryLimit()),
                !verify ? "" : all_same ? "; equal to the in-core result" : "; DIFFERS from the in-core result");
  }
  return all_same != 0;
}

}  // namespace

int main(int argc, char** argv) {
  size_t n = 128;
  int steps = 4;
  bool verify = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--verify") {
      verify = true;
    } else if (option == "--n" && i + 1 < argc) {
      n = std::strtoull(argv[++i], nullptr, 10);
    } else if (option == "--steps" && i + 1 < argc) {
      steps = std::atoi(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: heat3d [--n EDGE] [--steps STEPS] [--verify]\n");
      return option == "--help" ? 0 : 2;
    }
  }
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (n < 3 || n < static_cast<size_t>(ranks)) {
    if (rank == 0) std::fprintf(stderr, "heat3d: --n must be at least 3 and the number of ranks\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  bool good = false;
  try {
    good = Run(n, steps, verify, rank, ranks);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "heat3d: rank %d: %s\n", rank, e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
