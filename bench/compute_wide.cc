#include "bench/compute_loops.h"

namespace ramspan::bench {
namespace {

// In each of the functions below, so that it is compiled for that one's instructions.
__attribute__((always_inline)) inline void Iterate(double* x, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const double a = 1 + x[i] * x[i];
    double y = 1 / a;
    for (int step = 0; step < 8; ++step) y = y * (1.5 - 0.5 * a * y * y);
    x[i] += y;
  }
}

void ForAnyCpu(double* x, size_t n) { Iterate(x, n); }

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void ForAvx2(double* x, size_t n) { Iterate(x, n); }
#if defined(__clang__)
#define RAMSPAN_WIDEST "avx512f,avx512dq,avx512vl,avx2,fma"
#else  // g++ would stay with 32 bytes
#define RAMSPAN_WIDEST "avx512f,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512"
#endif
__attribute__((target(RAMSPAN_WIDEST))) void ForAvx512(double* x, size_t n) { Iterate(x, n); }

struct Choice {
  void (*loop)(double*, size_t);
  const char* vectors;
};
Choice Choose() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return {ForAvx512, "AVX-512"};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {ForAvx2, "AVX2"};
  return {ForAnyCpu, "SSE2"};
}
#else
struct Choice {
  void (*loop)(double*, size_t);
  const char* vectors;
};
Choice Choose() { return {ForAnyCpu, "the compiler's default"}; }
#endif

}  // namespace

void WideLoop(double* x, size_t n) {
  static const Choice choice = Choose();
  choice.loop(x, n);
}

const char* WideLoopVectors() { return Choose().vectors; }

}  // namespace ramspan::bench
