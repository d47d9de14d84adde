// The upper halves of the vector registers, which belong to nobody between two calls.
//
// An x86 CPU remembers whether the part of a vector register above its first 16 bytes has been written since it was last
// cleared. While it has, Intel's CPUs merge the old upper part into the result of every SSE instruction, so code compiled
// for SSE, and every function that mixes SSE with libm's AVX code, runs up to 20 times slower, until somebody executes
// vzeroupper. Compilers put that instruction at the end of functions that use wide registers. Some libraries' hand-made
// dispatch goes without it (libxxhash 0.8.1). Ramspan is a guest in the program's threads and must not leave them like that:
// whoever calls a library that chooses wide vectors at run time (checksums, compression, erasure codes, encryption) makes a
// VectorStateGuard around the call. tests/guest checks every public call and every tier.
//
// Thread-safety: any thread; it is the calling thread's registers that are cleared.
#pragma once

namespace ramspan {

// Marks the upper halves as unused, where the CPU has them: about 1 ns. Their contents are lost, as in any call.
void ClearUpperVectorState();

class VectorStateGuard {
 public:
  VectorStateGuard() = default;
  ~VectorStateGuard() { ClearUpperVectorState(); }
  VectorStateGuard(const VectorStateGuard&) = delete;
  VectorStateGuard& operator=(const VectorStateGuard&) = delete;
};

}  // namespace ramspan
