// CancelDisabled: while it lives, its thread is not cancelled (pthread_cancel): for what calls cancellation points on behalf of what is none, as fork or a load.
// Thread-safety: a value of one thread.
#pragma once

#include <pthread.h>

namespace ramspan {

class CancelDisabled {
 public:
  CancelDisabled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancelDisabled() noexcept(false) { pthread_setcancelstate(before_, nullptr); }  // may be the end of this thread, where it is cancelled at once (asynchronously)
  CancelDisabled(const CancelDisabled&) = delete;
  CancelDisabled& operator=(const CancelDisabled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace ramspan
