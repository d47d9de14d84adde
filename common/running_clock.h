// RunningClock: a monotonic clock for deadlines that counts only time during which this process could run. A job that is
// suspended (SIGSTOP, `scontrol suspend`, a closed lid) is not late when it goes on, and neither are those it waits for.
//
// A process cannot see that it was stopped, only that much time has passed since it last looked. So each look moves the
// clock by what has passed, but by kStepMax at most. Who waits for a deadline has to look more often than that, which
// all do; while nobody waits the clock may stand still, which nobody notices. A suspension costs a deadline one kStepMax.
//
// Thread-safety: none of an object's own; ProcessNow may be called by any thread, also while the process exits.
#pragma once

#include <chrono>

namespace ramspan {

class RunningClock {
 public:
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<RunningClock, duration>;
  using Source = duration (*)();  // of a monotonic clock that also runs while the process does not

  // Half a second: longer than any pause between two looks, and than what a loaded machine keeps a thread waiting for a
  // core; far below the shortest deadline.
  static constexpr std::chrono::milliseconds kStepMax{500};

  explicit RunningClock(Source source = Steady) : source_(source), last_(source()) {}

  time_point Now() {
    const duration here = source_();
    now_ += Step(last_, here);
    last_ = here;
    return now_;
  }

  // How far two looks at a monotonic clock move this one.
  static constexpr duration Step(duration from, duration to) {
    if (to <= from) return duration(0);
    return to - from < kStepMax ? to - from : duration(kStepMax);
  }

  // One clock for all threads of the process. A mutex is held for the look.
  static time_point ProcessNow();

 private:
  static duration Steady() { return std::chrono::steady_clock::now().time_since_epoch(); }

  const Source source_;
  duration last_;
  time_point now_{};
};

}  // namespace ramspan
