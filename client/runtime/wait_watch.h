// WaitWatch: whether a program has spent most of a minute on waiting for the same data again and again: its memory limit is far below what it uses at a time, or its loops go
// across its data. Who only looks takes that for a hang.
// Thread-safety: none; the mover's.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace ramspan {

class WaitWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kPeriod{60};
  // So far, of all threads.
  struct Figures {
    uint64_t wait_us = 0;      // for data and memory
    uint64_t page_faults = 0;
    uint64_t bytes_in = 0;
    uint64_t data_bytes = 0;   // now
  };
  // Of one period.
  struct Finding {
    double seconds = 0, waited = 0;  // all threads together
    uint64_t page_faults = 0;
    uint64_t bytes_in = 0;
    double times_data = 0;
  };

  bool IsDue(Time now) const { return !told_ && now - begin_ >= kPeriod; }
  // Ends a period. `threads()`: how many can have computed in it at a time; it is asked where one might have waited for long enough. What the user is to be told, once.
  template <typename Threads>
  std::optional<Finding> Look(const Figures& now, const Threads& threads, Time at) {
    const Figures before = std::exchange(before_, now);
    Finding found;
    found.seconds = std::chrono::duration<double>(at - std::exchange(begin_, at)).count();
    found.waited = static_cast<double>(now.wait_us - before.wait_us) / 1e6;
    found.page_faults = now.page_faults - before.page_faults;
    found.bytes_in = now.bytes_in - before.bytes_in;
    found.times_data = static_cast<double>(found.bytes_in) / static_cast<double>(std::max<uint64_t>(1, std::max(now.data_bytes, before.data_bytes)));
    const double lost = found.waited + static_cast<double>(found.page_faults * kFaultUs) / 1e6, long_enough = kMostlyWaits * found.seconds;
    if (found.times_data < kTimesDataLeast || lost < long_enough || lost < long_enough * threads()) return {};
    told_ = true;
    return found;
  }

  explicit WaitWatch(Time begin) : begin_(begin) {}

 private:
  // As `ramspan report` has it (launch/adviser.cc): about what a fault takes beside its wait, which is told as a number of faults, because it is no measurement; how much is most; how often data comes back where its loops, not only its size, are to
  // blame. By pages at a limit of 1 MiB, 24 MiB of data touched at random: waits 28 %, faults 25 %, and the rest, but for the touches, goes for making room; 1900 times the data a minute.
  static constexpr uint64_t kFaultUs = 20;
  static constexpr double kMostlyWaits = 0.5;
  static constexpr double kTimesDataLeast = 10;

  Time begin_;
  Figures before_;
  bool told_ = false;
};

}  // namespace ramspan
