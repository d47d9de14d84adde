// MoverBell: how threads tell the mover that there is work, and how it sleeps until they do.
// Thread-safety: none of its own; guarded by the engine's mutex, which a sleeper lets go of.
#pragma once

#include <chrono>

#include "common/mutex.h"

namespace ramspan {

class MoverBell {
 public:
  void Ring() {
    rung_ = true;
    if (asleep_) wake_.NotifyAll();
  }
  bool rung() const { return rung_; }
  // The mover begins to look for work: what is rung for from now on it may not find.
  void Hear() { rung_ = false; }
  // Until it is rung, `max` at most. `mutex`: the engine's.
  void Wait(Mutex& mutex, std::chrono::microseconds max) RS_REQUIRES(mutex) {
    if (rung_) return;
    asleep_ = true;
    wake_.WaitFor(mutex, max);
    asleep_ = false;
  }

 private:
  CondVar wake_;
  bool asleep_ = false, rung_ = false;
};

}  // namespace ramspan
