#include "bench/apps/run.h"

namespace ramspan::bench {

std::vector<const AppKind*> AppKinds() {
  return {
      &kMatrixMultiply,
#ifdef RAMSPAN_BENCH_FFTW
      &kFft,
#endif
      &kStencil,
      &kHeat,
      &kLatticeBoltzmann,
      &kBarnesHut,
      &kSort,
      &kPageRank,
  };
}

}  // namespace ramspan::bench
