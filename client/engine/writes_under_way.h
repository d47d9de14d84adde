// WritesUnderWay: the account of frames that are being written out, and which of them may be counted upon. As long as writes end, those
// under way are memory that comes back soon; when none has ended for a while (a server that stands still, a disk whose writes take long
// however many there are), those are not expected any more, and only what is begun from then on is.
//
// A wire, a disk and a server end first what was begun first. So the end of any write is news of all, also of one that is not expected any
// more: what is behind it comes next. Else the first batch after a pause of some ms would be overdue behind what the pause held up, the next
// one behind both, and so on.
//
// Thread-safety: none of its own; guarded by the engine's mutex.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace ramspan {

class WritesUnderWay {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // What a write belongs to; its own to keep until it ends.
  using Spell = uint32_t;
  Spell Begin(uint64_t bytes, Time now) {
    if (bytes_ == overdue_bytes_) {
      last_news_ = now;
      largest_ = 0;
    }
    bytes_ += bytes;
    largest_ = std::max(largest_, bytes);
    return spell_;
  }
  void End(uint64_t bytes, Spell spell, Time now) {
    bytes_ -= bytes;
    if (spell != spell_) overdue_bytes_ -= bytes;
    last_news_ = now;
  }

  uint64_t bytes() const { return bytes_; }
  // Of bytes() those that are expected: unless no write has ended for as long as the largest of them may take on a slow wire.
  uint64_t Expected(Time now) {
    if (bytes_ > overdue_bytes_ && now - last_news_ > PatienceFor(largest_)) {
      overdue_bytes_ = bytes_;
      ++spell_;  // to be mistaken for one of old, a write would have to outlast 2^32 of them
    }
    return bytes_ - overdue_bytes_;
  }

  // A tenth of what one adapter of 10 Gbit/s moves, and never less than what a busy server takes to answer.
  static std::chrono::nanoseconds PatienceFor(uint64_t bytes) {
    return std::max(std::chrono::nanoseconds(std::chrono::milliseconds(1)), std::chrono::nanoseconds(bytes * 10));
  }

 private:
  uint64_t bytes_ = 0, overdue_bytes_ = 0;
  uint64_t largest_ = 0;  // since none was expected; not smaller than any that is
  Spell spell_ = 0;
  Time last_news_{};  // an end, or the first that is expected
};

}  // namespace ramspan
