// A Monte Carlo table lookup: each history looks a random energy up in a sorted grid, small and used all the time, and adds a row of a large
// table. usage: lookup [MiB of the table] [lookups]
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Row {
  double reactions[16];
};

struct Tables {
  std::vector<double> grid;
  std::vector<Row> rows;
};

double Random(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<double>(*state >> 11) * 0x1p-53;
}

void Fill(Tables* tables, size_t points) {
  tables->grid.resize(points);
  tables->rows.resize(points);
  auto& grid = tables->grid;
  auto& rows = tables->rows;
  for (size_t i = 0; i < points; ++i) grid[i] = (static_cast<double>(i) + 0.5) / static_cast<double>(points);
  for (size_t i = 0; i < points; ++i) {
    Row row;
    for (size_t r = 0; r < 16; ++r) row.reactions[r] = static_cast<double>((16 * i + r) * 2654435761u % 1000003) * 1e-6;
    rows[i] = row;
  }
}

// The last grid point that is not above `energy`, or the first.
size_t Find(const std::vector<double>& grid, double energy) {
  size_t low = 0, high = grid.size();
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    (grid[middle] > energy ? high : low) = middle;
  }
  return low;
}

double LookUp(const std::vector<double>& grid, const std::vector<Row>& rows, double energy) {
  const Row row = rows[Find(grid, energy)];
  double sum = 0;
  for (const double reaction : row.reactions) sum += reaction;
  return sum;
}

int main(int argc, char** argv) {
  const size_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200;
  const size_t lookups = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1000000;
  Tables tables;
  Fill(&tables, (mib << 20) / sizeof(Row));
  const auto begin = std::chrono::steady_clock::now();
  double sum = 0;
#pragma omp parallel reduction(+ : sum)
  {
    const auto& grid = tables.grid;
    const auto& rows = tables.rows;
#pragma omp for schedule(static, 1000) nowait
    for (size_t i = 0; i < lookups; ++i) {
      uint64_t state = i * 0x9E3779B97F4A7C15u;
      Random(&state);
      sum += LookUp(grid, rows, Random(&state));
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%.6f\n", sum);
  std::fprintf(stderr, "%.3f s\n", seconds);
}
