// WaitTrust: whether waits for arrivals may be believed. An endpoint waits for descriptors that its network's library may not
// use for every message (EventDescriptors). What tells is the messages that are found right after a wait: they should have
// ended it. Where too many were there although the wait ended by time, waiting only makes clients late.
//
// Pure. Thread-safety: none; one server's loop.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ramspan {

class WaitTrust {
 public:
  // A wait that could have lasted has ended: something arrived, or the time was over.
  void NoteWait(bool arrived) {
    last_ = arrived ? Last::kEndedByArrival : Last::kEndedByTime;
    polls_ = 0;
  }
  void NotePoll() { ++polls_; }
  // The last poll found a message of the kind that should end a wait.
  void NoteMessage() {
    if (last_ != Last::kNone && polls_ <= kPollsThatFind) ++(last_ == Last::kEndedByArrival ? told_ : untold_);
    last_ = Last::kNone;
  }
  bool trusted() const { return untold_ <= std::max(kUntoldMax, told_); }

 private:
  // A message that came during a wait is found by one of the first polls after it (MPICH's first probe may do no more than
  // progress). One that is found later has come later, and says nothing about the wait.
  static constexpr uint64_t kPollsThatFind = 4;
  // A few are chance: they came between the end of the wait and the poll.
  static constexpr uint64_t kUntoldMax = 8;

  enum class Last { kNone, kEndedByArrival, kEndedByTime } last_ = Last::kNone;
  uint64_t polls_ = 0;             // since that wait
  uint64_t told_ = 0, untold_ = 0;  // messages that ended a wait, and that were there when one ended by time
};

}  // namespace ramspan
