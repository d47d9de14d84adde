// ThreadWatch: after each call everything that belongs to the calling thread is as it was before: errno, floating-point environment,
// signal mask, vector registers. thread_state_test.cc and vector_state_test.cc look at each of them alone; this looks at all at
// once, for beds in which a run takes longer.
//
//   ThreadWatch watch;
//   guest::EveryCall(watch);
#pragma once

#include <fenv.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "tests/support/vector_registers.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace guest {

class ThreadWatch {
 public:
  // What a program may set: another rounding, flush-to-zero, two blocked signals.
  ThreadWatch() {
    sigset_t odd;
    sigemptyset(&odd);
    sigaddset(&odd, SIGUSR2);
    sigaddset(&odd, SIGRTMIN + 3);
    pthread_sigmask(SIG_SETMASK, &odd, &mask_of_the_program_);
    pthread_sigmask(SIG_SETMASK, nullptr, &mask_);
    fesetround(FE_UPWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, denormals are zero
#endif
    control_ = Control();
  }
  ~ThreadWatch() {
    fesetenv(FE_DFL_ENV);
    pthread_sigmask(SIG_SETMASK, &mask_of_the_program_, nullptr);
  }
  ThreadWatch(const ThreadWatch&) = delete;
  ThreadWatch& operator=(const ThreadWatch&) = delete;

  template <class Call>
  void operator()(const char* name, Call&& call) {
    // Flags that nobody has raised stay so, and flags that somebody has raised, too.
    const int flags = ++calls_ % 2 == 0 ? kNeverRaised : 0;
    feclearexcept(FE_ALL_EXCEPT);
    feraiseexcept(flags);
    errno = kOdd;
    if (sees_vectors_) ramspan::ClearUpperHalves();
    call();
    const int error = errno;
    if (sees_vectors_ && ramspan::UpperHalvesInUse()) ADD_FAILURE() << name << " leaves the upper halves of vector registers in use";
    if (error != kOdd) ADD_FAILURE() << name << " leaves errno: " << std::strerror(error);
    if (fetestexcept(kNeverRaised) != flags) ADD_FAILURE() << name << " leaves the flags " << fetestexcept(kNeverRaised) << " and not " << flags;
    if (Control() != control_) ADD_FAILURE() << name << " leaves another rounding or other traps";
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    for (int signal = 1; signal < SIGRTMAX; ++signal) {
      if (sigismember(&mask, signal) != sigismember(&mask_, signal)) ADD_FAILURE() << name << " leaves another mask of signals: " << signal;
    }
  }

  uint64_t calls() const { return calls_; }

 private:
  static constexpr int kOdd = 4711;  // no error has this number
  // Inexact is raised by nearly every calculation.
  static constexpr int kNeverRaised = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW;

  // All of the environment but the flags of what has happened.
  static uint64_t Control() {
#if defined(__x86_64__)
    uint16_t x87 = 0;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return uint64_t{_mm_getcsr() & ~0x3fu} << 16 | x87;
#else
    return static_cast<uint64_t>(fegetround());
#endif
  }

  const bool sees_vectors_ = ramspan::CanSeeUpperHalves();
  sigset_t mask_of_the_program_, mask_;
  uint64_t control_ = 0, calls_ = 0;
};

}  // namespace guest
