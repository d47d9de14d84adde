#include "common/vector_state.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace ramspan {

#if defined(__x86_64__) || defined(__i386__)

namespace {

// One vzeroupper clears what AVX and AVX-512 keep above the first 16 bytes of registers 0 to 15. Registers 16 to 31, which
// only AVX-512 has, cost SSE code nothing: SSE instructions cannot name them.
__attribute__((target("avx"))) void ZeroUpper() { _mm256_zeroupper(); }

}  // namespace

// Asked of the CPU's own description (filled before any constructor of the program runs) and not of a variable of this
// file, which a constructor of another file could meet before it is set. It says no where the kernel does not save AVX.
void ClearUpperVectorState() {
  if (__builtin_cpu_supports("avx")) ZeroUpper();
}

#else

void ClearUpperVectorState() {}  // no such state, or none that slows other code down

#endif

}  // namespace ramspan
