// Listings 1 and 2 of Rambrain's paper (arXiv 1510.06358) side by side: a plane wave on a grid, first with new[], then
// with managedPtr. The differences are the lines marked (*). Ends with a comparison of the two, bit by bit.
#include <ramspan/managed_ptr.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using ramspan::adhereTo;
using ramspan::managedPtr;

int main(int argc, char** argv) {
  const size_t edge = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2048;
  if (edge == 0) {
    std::fprintf(stderr, "usage: field [EDGE]\n");
    return 2;
  }
  const double k_x = 1., k_y = 1.;

  std::vector<double*> arr(edge);
  for (size_t x = 0; x < edge; ++x) arr[x] = new double[edge];
  for (size_t x = 0; x < edge; ++x) {
    double* line = arr[x];
    const double xx = static_cast<double>(x) / static_cast<double>(edge);
    for (size_t y = 0; y < edge; ++y) line[y] = std::sin(xx * k_x + static_cast<double>(y) / static_cast<double>(edge) * k_y);
  }

  std::vector<managedPtr<double>> managed;
  for (size_t x = 0; x < edge; ++x) managed.emplace_back(edge);  // (*)
  for (size_t x = 0; x < edge; ++x) {
    adhereTo<double> glue(managed[x]);  // (*)
    double* line = glue;
    const double xx = static_cast<double>(x) / static_cast<double>(edge);
    for (size_t y = 0; y < edge; ++y) line[y] = std::sin(xx * k_x + static_cast<double>(y) / static_cast<double>(edge) * k_y);
  }

  size_t different = 0;
  for (size_t x = 0; x < edge; ++x) {
    const adhereTo<double> glue(managed[x]);
    const double* line = glue;  // const: the row is not written back
    different += std::memcmp(line, arr[x], edge * sizeof(double)) != 0;
    delete[] arr[x];
  }
  std::printf("%zu x %zu field: %zu rows differ\n", edge, edge, different);
  return different == 0 ? 0 : 1;
}
