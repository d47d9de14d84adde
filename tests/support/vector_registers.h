// What the CPU says about the calling thread's vector registers, for tests. Written without the library's own code, so
// that a mistake there cannot hide itself. Thread-safety: any thread; each asks about its own registers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ramspan {

#if defined(__x86_64__)

// Upper halves of ymm0-15 (bit 2) and of zmm0-15 (bit 6) in the CPU's map of state in use. Opmasks and zmm16-31 (bits 5 and
// 7) do not count: glibc's string functions use them all the time because they cost SSE code nothing.
inline constexpr uint64_t kUpperHalves = (uint64_t{1} << 2) | (uint64_t{1} << 6);

// XGETBV with ECX = 1: which parts of the register state differ from their initial values, as far as the CPU tracks it.
inline uint64_t RegistersInUse() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return (uint64_t{high} << 32) | low;
}

inline bool UpperHalvesInUse() { return (RegistersInUse() & kUpperHalves) != 0; }

// As text and not as functions for AVX, at whose end a compiler would put a vzeroupper. Only after CanSeeUpperHalves.
inline void ClearUpperHalves() { __asm__ volatile("vzeroupper" ::: "memory"); }

inline void DirtyUpperHalves() {
  __asm__ volatile("vpcmpeqd %%xmm0, %%xmm0, %%xmm0\n\tvinsertf128 $1, %%xmm0, %%ymm0, %%ymm0" ::: "xmm0", "memory");
}

// Whether this CPU can be asked, and answers what this test needs to hear.
inline bool CanSeeUpperHalves() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__builtin_cpu_supports("avx")) return false;
  if (__get_cpuid_count(0xd, 1, &a, &b, &c, &d) == 0 || (a & 4) == 0) return false;  // no XGETBV with ECX = 1
  DirtyUpperHalves();
  const bool dirty_is_seen = UpperHalvesInUse();
  ClearUpperHalves();
  return dirty_is_seen && !UpperHalvesInUse();
}

#else

inline bool CanSeeUpperHalves() { return false; }
inline bool UpperHalvesInUse() { return false; }
inline void ClearUpperHalves() {}
inline void DirtyUpperHalves() {}

#endif

// `what()` leaves the calling thread's upper halves clear.
template <class Call>
void ExpectUpperHalvesClearAfter(const char* name, Call&& what) {
  ClearUpperHalves();
  what();
  const bool in_use = UpperHalvesInUse();
  EXPECT_FALSE(in_use) << name << " leaves the upper halves of vector registers in use";
  ClearUpperHalves();
}

#define RAMSPAN_NEEDS_TO_SEE_UPPER_HALVES() \
  if (!CanSeeUpperHalves()) GTEST_SKIP() << "this CPU does not tell which registers are in use (XGETBV with ECX = 1)"

}  // namespace ramspan
