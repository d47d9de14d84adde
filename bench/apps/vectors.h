// Loops for the widest vectors of this CPU, chosen at run time, because an installed benchmark may run elsewhere than where it was
// compiled. Source files of such loops are compiled with -ffp-contract=fast.
#pragma once

#include <cstddef>

#if defined(__x86_64__)
#if defined(__clang__)
#define RAMSPAN_BENCH_AVX512 "avx512f,avx512dq,avx512vl,avx2,fma"
#else  // g++ would stay with 32 bytes
#define RAMSPAN_BENCH_AVX512 "avx512f,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512"
#endif

// Defines `void NAME PARAMETERS`, which calls BODY ARGUMENTS, compiled for several CPUs. REQUIRES: BODY is an always_inline function.
#define RAMSPAN_BENCH_VECTORS(NAME, BODY, PARAMETERS, ARGUMENTS)                                                     \
  void NAME##ForAny PARAMETERS { BODY ARGUMENTS; }                                                                   \
  __attribute__((target("avx2,fma"))) void NAME##ForAvx2 PARAMETERS { BODY ARGUMENTS; }                              \
  __attribute__((target(RAMSPAN_BENCH_AVX512))) void NAME##ForAvx512 PARAMETERS { BODY ARGUMENTS; }                  \
  void NAME PARAMETERS {                                                                                             \
    static const auto chosen = ::ramspan::bench::Widest(&NAME##ForAny, &NAME##ForAvx2, &NAME##ForAvx512);            \
    chosen ARGUMENTS;                                                                                                \
  }

namespace ramspan::bench {

template <typename Function>
Function Widest(Function any, Function avx2, Function avx512) {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) return avx512;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? avx2 : any;
}

}  // namespace ramspan::bench

#else
#define RAMSPAN_BENCH_VECTORS(NAME, BODY, PARAMETERS, ARGUMENTS) \
  void NAME PARAMETERS { BODY ARGUMENTS; }
#endif

namespace ramspan::bench {

// 64 bytes, which the compiler makes of as many registers as that takes. May lie anywhere and be anything's bytes.
using Doubles __attribute__((vector_size(64), aligned(8), may_alias)) = double;
using Floats __attribute__((vector_size(64), aligned(4), may_alias)) = float;

}  // namespace ramspan::bench
