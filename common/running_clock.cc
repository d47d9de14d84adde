#include "common/running_clock.h"

#include "common/mutex.h"

namespace ramspan {

RunningClock::time_point RunningClock::ProcessNow() {
  struct Shared {
    Mutex mutex{LockRank::kClock};
    RunningClock clock RS_GUARDED_BY(mutex);
  };
  static Shared* const shared = new Shared;  // never destroyed: exit handlers wait, too
  MutexLock lock(shared->mutex);
  return shared->clock.Now();
}

}  // namespace ramspan
