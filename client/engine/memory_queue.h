// MemoryQueue: the threads that wait for memory, in the order of their coming, and who of them sleeps. It decides nothing:
// the engine gives memory to waiters and takes them out.
//
// There may be hundreds of them, so nothing here wakes them all. Each sleeps on a condition variable of its own until it has
// been served, its chunk has come by another thread's doing, or it has to look for memory itself. One of them, the watcher,
// looks at pins that may have gone (nobody says so) for all of them, and polls transfers. The invariant: while anybody is
// in the queue, somebody in it is awake. That one may be held up where it has let go of the mutex, so nobody sleeps for ever.
// Thread-safety: none of its own; guarded by the engine's mutex, which sleepers let go of. Ownership: waiters own themselves.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "client/arena/arena.h"
#include "client/chunk/chunk.h"
#include "common/mutex.h"

namespace ramspan {

class MemoryQueue {
 public:
  // One thread, on its stack.
  struct Waiter {
    Waiter(Chunk* for_chunk, uint64_t for_bytes) : chunk(for_chunk), bytes(for_bytes) {}
    Chunk* const chunk;
    const uint64_t bytes;
    Reservation memory;           // what it has been given; it is not in the queue any more then
    uint64_t takes_before = 0;    // frames that were taken before it came
    std::chrono::steady_clock::duration since{};  // of the engine's PinClock when it came
    bool must_look = false;       // for memory, although another one watches
    bool refused = false;         // it is to be told that there is none (Engine::RefuseOldest)
    CondVar wake;

   private:
    friend class MemoryQueue;
    bool queued_ = false, asleep_ = false;
    Waiter *before_ = nullptr, *next_ = nullptr;
    Waiter* next_of_chunk_ = nullptr;
  };

  // Join: the last place of the queue. Remove: no place any more, but the waiter still hears of its chunk. Leave: neither.
  void Join(Waiter* waiter);
  void Remove(Waiter* waiter);
  void Leave(Waiter* waiter);

  bool empty() const { return oldest_ == nullptr; }
  uint64_t bytes() const { return bytes_; }  // of frames that those in the queue wait for
  Waiter* oldest() const { return oldest_; }
  static Waiter* After(const Waiter* waiter) { return waiter->next_; }
  static bool IsQueued(const Waiter* waiter) { return waiter->queued_; }
  static bool IsAsleep(const Waiter* waiter) { return waiter->asleep_; }

  // Who looks for all, while it waits to look again; null: nobody does, or the one that does is at work. The mark must not stand
  // while its thread is in what may take long (a message, a transfer that is submitted): others sleep on because of it.
  Waiter* watcher() const { return watcher_; }
  void BeginWatch(Waiter* waiter) {
    watcher_ = waiter;
    ++watches_;
  }
  void EndWatch(const Waiter* waiter) {
    if (watcher_ == waiter) watcher_ = nullptr;
  }

  // The calling thread sleeps until it is woken, or for `safety`. When nobody has begun to watch in all that time, the watcher
  // is held up somewhere, and its mark is taken off: who has slept looks himself, and the next one may watch.
  // REQUIRES: there is a watcher. `mutex`: the engine's.
  void Sleep(Waiter* waiter, Mutex& mutex, std::chrono::microseconds safety) RS_REQUIRES(mutex);
  void Wake(Waiter* waiter);
  // Wakes the oldest one that sleeps, if any: the calling thread will be away for a while and cannot look.
  void WakeOne();
  // Who waits for this chunk: it has come, or has gone for good.
  void WakeFor(const Chunk* chunk);
  // Keeps up the invariant. To be called when a waiter has left or has been removed.
  void KeepOneAwake() {
    if (awake_ == 0 && oldest_ != nullptr) Wake(oldest_);
  }

 private:
  // Lists of waiters by chunk, so that who brings one finds those that wait for it without a look at all others. Twice as
  // many would save little with hundreds of threads, half as many cost little.
  static constexpr size_t kLists = 64;
  Waiter** ListOf(const Chunk* chunk) { return &by_chunk_[chunk->id % kLists]; }

  Waiter *oldest_ = nullptr, *newest_ = nullptr;
  Waiter* watcher_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t watches_ = 0;  // begun, ever
  uint64_t awake_ = 0;  // in the queue and not asleep; who is being woken counts as awake
  std::array<Waiter*, kLists> by_chunk_{};
};

}  // namespace ramspan
