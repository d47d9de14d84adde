// LeavePace: when chunks that shall leave a memory server are tried again that had no other place, and whether the user is told. They are
// looked at in passes over all chunks, each in one part or several (Vacating::Part).
// Thread-safety: none; the mover's.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace ramspan {

class LeavePace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Each try reads one chunk, or a few of several sizes. After the shortest pause new room is used soon enough; the longest costs nothing.
  static constexpr std::chrono::milliseconds kPauseMin{1000}, kPauseMax{16'000};

  bool MayTry(Time now) const { return now >= again_; }
  // True: the user is to be told, once until all that leaves has found a place.
  bool NotePart(bool failed, bool ends_pass, Time now) {
    const bool tell = failed && !std::exchange(told_, told_ || failed);
    if (failed) {
      pass_failed_ = true;
      pause_ = std::clamp(2 * pause_, kPauseMin, kPauseMax);
      again_ = now + pause_;
    }
    // A part that has moved all that it has looked at says nothing of those before it.
    if (ends_pass && !std::exchange(pass_failed_, false)) *this = LeavePace();
    return tell;
  }
  // There is nothing to try. What was told stays so: a server may want some back again and again.
  void NoteNothingLeaves() {
    pause_ = {};
    again_ = {};
    pass_failed_ = false;
  }

 private:
  std::chrono::milliseconds pause_{};  // doubles while some find no place
  Time again_{};
  bool pass_failed_ = false;  // a part of this pass
  bool told_ = false;
};

}  // namespace ramspan
