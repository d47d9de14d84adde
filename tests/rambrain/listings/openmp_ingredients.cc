// arXiv 1510.06358, section 2.2: threads that need two objects each, of which memory holds fewer than all want. With
// LISTOFINGREDIENTS they take turns; without, Rambrain would wait for ever.
#include <omp.h>

#include <cstdio>
#include <vector>

#include "rambrain/managedPtr.h"
using namespace rambrain;

int main() {
  managedMemory::defaultManager->setOutOfSwapIsFatal(false);
  const int n = 32;
  const unsigned int size = 1 << 16;  // 512 KiB each, 16 MiB in all; memory is 4 MiB
  std::vector<managedPtr<double>> field;
  for (int i = 0; i < n; ++i) field.emplace_back(size, 1.);
  int failed = 0;
#pragma omp parallel for reduction(+ : failed)
  for (int i = 0; i < 8 * n; ++i) {
    try {
      adhereTo<double> here_glue(field[i % n]), there_glue(field[(i + 7) % n]);
      double *here, *there;
      {
        LISTOFINGREDIENTS
        here = here_glue;
        there = there_glue;
      }
#pragma omp atomic
      here[i % 100] += 1;
#pragma omp atomic
      there[100 + i % 100] += 1;
    } catch (const memoryException& e) {
      printf("%s\n", e.what());
      failed += 1;
    }
  }
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    const adhereTo<double> row_glue(field[i]); const double* row = row_glue;
    for (int k = 0; k < 200; ++k) sum += row[k] - 1;
  }
  printf("%d failed, sum %g\n", failed, sum);
  return failed != 0 || sum != 2 * 8 * n;
}
