// Loops as programs have them, each in a file that is compiled as such a program would be. They know nothing of the
// library. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ramspan::bench {

// -O2 for any x86-64 (SSE2): x[i] += sin(i / 10). libm's sin uses AVX where the CPU has it, so SSE and AVX code alternate.
void SineLoop(double* x, size_t n);

// -O2, integer registers and SSE2: eight rounds of a multiplicative hash on each element.
void IntegerLoop(uint64_t* x, size_t n);

// For the widest vectors of this CPU, as -march=native makes it, but chosen at run time, because an installed benchmark may
// run elsewhere: eight steps of a Newton iteration for 1 / sqrt(1 + x * x), in doubles, added to x.
void WideLoop(double* x, size_t n);
const char* WideLoopVectors();  // which that are

}  // namespace ramspan::bench
