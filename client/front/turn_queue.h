// TurnQueue: threads that do one after another what may wait for other threads' pins. Who is not in turn yet may hold adhereTos, which it cannot
// release here: until then it counts as waiting (PinRegistry), so that the one in turn is told of a deadlock instead of waiting for it for ever.
// Thread-safety: any thread, one Turn a thread and queue at a time. Blocking: making a Turn waits for all that came before, an OnlyIfFree does not.
#pragma once

#include <condition_variable>
#include <mutex>

#include "client/front/pin_registry.h"

namespace ramspan {

class TurnQueue {
 public:
  enum OnlyIfFree { kOnlyIfFree };

  // The calling thread's turn, for a scope.
  class Turn {
   public:
    // `table`: the thread's own; null: it has none, so no pins.
    Turn(TurnQueue* queue, detail::PinTable* table) : queue_(*queue), table_(table) {
      std::unique_lock lock(queue_.mutex_);
      (queue_.last_ != nullptr ? queue_.last_->next_ : queue_.first_) = this;
      queue_.last_ = this;
      if (queue_.first_ != this) SetWaiting(true);
      queue_.changed_.wait(lock, [this] { return queue_.first_ == this; });
    }
    // For who has no pins and can come again: false if another thread has the turn.
    Turn(TurnQueue* queue, OnlyIfFree) : queue_(*queue) {
      std::lock_guard lock(queue_.mutex_);
      is_in_turn_ = queue_.first_ == nullptr;
      if (is_in_turn_) queue_.first_ = queue_.last_ = this;
    }
    explicit operator bool() const { return is_in_turn_; }
    ~Turn() {
      if (!is_in_turn_) return;
      {
        std::lock_guard lock(queue_.mutex_);
        queue_.first_ = next_;
        if (next_ == nullptr) queue_.last_ = nullptr;
        // Its wait is over from now on, not from when it wakes up.
        if (next_ != nullptr) next_->SetWaiting(false);
      }
      queue_.changed_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // Whether somebody waits for it to end.
    bool HasNext() {
      std::lock_guard lock(queue_.mutex_);
      return next_ != nullptr;
    }

   private:
    void SetWaiting(bool waits) {
      if (table_ != nullptr) PinRegistry::SetWaitingForTurn(table_, waits);
    }

    TurnQueue& queue_;
    detail::PinTable* const table_ = nullptr;
    bool is_in_turn_ = true;
    Turn* next_ = nullptr;  // guarded by the queue's mutex
  };

  bool AnybodyWaits() {
    std::lock_guard lock(mutex_);
    return first_ != nullptr;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Turn* first_ = nullptr;  // both guarded by the mutex
  Turn* last_ = nullptr;
};

}  // namespace ramspan
