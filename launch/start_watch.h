// StartWatch: notices that a job does not get started. hydra's proxy, when it cannot fork, spins without a word for ever,
// and so would the ranks that did start, in MPI_Init. Each rank's keeper says hello as soon as it runs; this counts the
// time since the last one while some are missing. Time during which this process did not run itself (a suspended job)
// does not count. Pure; no thread-safety.
#pragma once

#include <cstdint>

namespace ramspan {

class StartWatch {
 public:
  // kProbe: it takes long enough to see whether processes can be made at all. kTell: say that it takes long.
  // kGiveUp: on this host alone nothing takes that long. Each is returned once for a stretch of waiting.
  enum class Advice { kNone, kProbe, kTell, kGiveUp };
  StartWatch(int expected, bool several_hosts) : expected_(expected), several_hosts_(several_hosts) {}

  // Call at least every 100 ms. `heard`: how many keepers have said hello so far.
  Advice OnTick(int heard, int64_t now_ns);

 private:
  const int expected_;
  const bool several_hosts_;
  int heard_ = 0;
  int64_t last_ns_ = 0;    // 0: no tick yet
  int64_t waited_ns_ = 0;  // since the last hello
};

}  // namespace ramspan
