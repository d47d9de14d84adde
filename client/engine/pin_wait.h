// PinWait: one thread's wait for pins since it last made progress; PinClock: the time that all such waits count. Only time spent
// in that very wait counts, a little for each look at the pins: disks, servers and a busy machine take theirs besides.
// Thread-safety: plain values; guarded by the engine's mutex.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace ramspan {

struct PinWait {
  std::chrono::steady_clock::duration waited{};
  std::chrono::steady_clock::duration hopeless{};  // since some thread was seen that may unpin
  bool was_deadlock = false;  // the last verdict; the pins have been looked at since
  bool hopeful = false;       // by the last verdict some thread may unpin
  bool told = false;          // the log says that somebody waits
  bool others_first = false;  // a thread waits that can do without and gives up soon (Vacate): no verdict before it has
  uint64_t own = 0;           // bytes that are reserved for this thread, but for which no addresses are free
};

// Runs for all in the queue for memory: it is the time spent by its watchers, ever.
class PinClock {
 public:
  using Time = std::chrono::steady_clock::duration;

  Time now() const { return now_; }
  // By somebody who is in the queue since `since`, and has seen no progress.
  Time Waited(Time since) const { return now_ - std::max(since, progress_at_); }
  // A frame has come, or is on its way: the wait begins anew, for all.
  void NoteProgress(PinWait* wait) {
    progress_at_ = hopeful_at_ = now_;
    *wait = PinWait{.told = wait->told};
  }
  // A watcher that is in the queue since `since` begins to look, and has looked since it `began`.
  void Begin(Time since, PinWait* wait) const {
    wait->waited = Waited(since);
    wait->hopeless = now_ - std::max(since, hopeful_at_);
  }
  void End(Time began, Time looked, bool hopeful) {
    if (hopeful) hopeful_at_ = std::max(hopeful_at_, began);
    now_ = std::max(now_, began + looked);
  }

 private:
  Time now_{};
  Time progress_at_{}, hopeful_at_{};  // what it showed then; when some thread was seen last that may unpin
};

}  // namespace ramspan
