// Seldom: when to tell of what strangers, or clients, can make happen as often as they like: at once, then at most once in kEvery, with how often it
// has happened meanwhile. So the log, which is the owner's disk, stays small, and whoever looks for a reason finds it there within kEvery.
//
// Thread-safety: none. A value.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "common/running_clock.h"

namespace ramspan {

class Seldom {
 public:
  // 1.3 MB of log a day, at a line of 150 bytes.
  static constexpr std::chrono::seconds kEvery{10};

  // It has happened. How often since it was told last, this time included; 0: it is not to be told now.
  uint64_t Note(RunningClock::time_point now) {
    ++untold_;
    if (now < next_) return 0;
    next_ = now + kEvery;
    return std::exchange(untold_, 0);
  }

  // The end of the line that tells.
  static std::string Times(uint64_t count) { return count == 1 ? "" : " (" + std::to_string(count) + " times since this was told last)"; }

 private:
  uint64_t untold_ = 0;
  RunningClock::time_point next_{};
};

}  // namespace ramspan
