// Mutex, MutexLock, MutexUnlock, CondVar: std's, with a rank (lock_rank.h) checked in debug builds and with clang's thread-safety
// annotations. A Mutex synchronises itself. Nothing may hold one across a backend call, a copy of chunk data, logging
// or user code.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "common/check.h"
#include "common/lock_rank.h"
#include "common/thread_annotations.h"

namespace ramspan {

namespace detail {
#ifdef NDEBUG
inline void RankAcquire(LockRank) {}
inline void RankRelease(LockRank) {}
#else
void RankAcquire(LockRank rank);
void RankRelease(LockRank rank);
#endif
}  // namespace detail

class RS_CAPABILITY("mutex") Mutex {
 public:
  explicit Mutex(LockRank rank) : rank_(rank) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // Blocks. Named lower-case so that std::condition_variable_any-like code can use it.
  void lock() RS_ACQUIRE() {
    detail::RankAcquire(rank_);
    // Nothing long happens under a Mutex, and to sleep and be woken costs more than all of it: look again for a while.
    for (int look = 0; look < kLooks; ++look) {
      if (mutex_.try_lock()) return;
      for (int i = 0; i < 8; ++i) __builtin_ia32_pause();
    }
    mutex_.lock();
  }
  void unlock() RS_RELEASE() {
    mutex_.unlock();
    detail::RankRelease(rank_);
  }
  bool try_lock() RS_TRY_ACQUIRE(true) {
    if (!mutex_.try_lock()) return false;
    detail::RankAcquire(rank_);
    return true;
  }

 private:
  static constexpr int kLooks = 200;  // about 20 us: longer than all that is usual
  friend class CondVar;
  std::mutex mutex_;
  const LockRank rank_;
};

class RS_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) RS_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RS_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Lets go of a held mutex for a scope, and holds it again at the end of it, also when an exception ends it.
class RS_SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) RS_RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~MutexUnlock() RS_RELEASE() { mutex_.lock(); }  // "release" of the scope: takes the mutex
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // May wake spuriously: callers loop. Every wait here has a deadline, so a lost notification costs time, not a hang.
  void WaitFor(Mutex& mutex, std::chrono::microseconds timeout) RS_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait_for(lock, timeout);
    lock.release();
  }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace ramspan
