// Rambrain's timer: SIGUSR1, which prints statistics (managedMemory::sigswapstats), at regular times. One a process.
// Thread-safety: one thread at a time.
#pragma once

#include <signal.h>
#include <string.h>
#include <time.h>

#include "rambrain/common.h"
#include "ramspan/detail/resident.h"

namespace rambrain {

class RAMSPAN_API Timer {
 public:
  Timer() = delete;
  // From now on a SIGUSR1 every `seconds` and `nanoseconds`, also where it runs already. Throws
  // incompleteSetupException when the system has no timer left.
  static void startTimer(long seconds, long nanoseconds);
  static void stopTimer();
  static bool isRunning() { return running; }

 private:
  static bool running;
};

}  // namespace rambrain
