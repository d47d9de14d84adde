// Contention: whether others want the core that a thread spins on. The kernel counts how often it took the core from a thread that would
// have gone on. One that spins on a core of its own hardly ever loses it; one that shares it loses it with each time slice, and
// is late by the slices of all others with what it spins for: it should sleep, because who has slept gets the core when something comes.
//
// Thread-safety: an object is one thread's.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <cstdint>

namespace ramspan {

class Contention {
 public:
  using Clock = std::chrono::steady_clock;

  // How often this thread has lost its core since it began. A system call of some 100 ns.
  static uint64_t LossesOfThisThread() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return static_cast<uint64_t>(usage.ru_nivcsw);
  }

  // To be asked now and then while the thread spins, with what tells its losses. It stays contended for a while after it was: a thread that
  // sleeps loses nothing.
  template <class Losses>
  bool Look(Clock::time_point now, Losses losses_until_now) {
    const Clock::duration since = now - begin_;
    if (since >= kWindow) {
      const uint64_t losses = losses_until_now();
      const uint64_t lost = losses - losses_at_begin_;
      // As often as the window's end finds it, also where it was looked at long ago.
      if (begin_ != Clock::time_point() && lost >= kLossesMin && lost * (kWindow / kLossesMin) >= since) contended_until_ = now + kRemembered;
      begin_ = now;
      losses_at_begin_ = losses;
    }
    return now < contended_until_;
  }

 private:
  // A time slice is 3 to 6 ms.
  static constexpr std::chrono::milliseconds kWindow{20}, kRemembered{200};
  static constexpr uint64_t kLossesMin = 2;

  Clock::time_point begin_{}, contended_until_{};
  uint64_t losses_at_begin_ = 0;
};

}  // namespace ramspan
