#include "client/engine/memory_queue.h"

#include <utility>

namespace ramspan {

void MemoryQueue::Join(Waiter* waiter) {
  waiter->queued_ = true;
  ++awake_;
  bytes_ += RoundUpToGranule(waiter->bytes);
  waiter->before_ = newest_;
  (newest_ == nullptr ? oldest_ : newest_->next_) = waiter;
  newest_ = waiter;
  Waiter** list = ListOf(waiter->chunk);
  waiter->next_of_chunk_ = std::exchange(*list, waiter);
}

void MemoryQueue::Remove(Waiter* waiter) {
  if (!std::exchange(waiter->queued_, false)) return;
  bytes_ -= RoundUpToGranule(waiter->bytes);
  (waiter->before_ == nullptr ? oldest_ : waiter->before_->next_) = waiter->next_;
  (waiter->next_ == nullptr ? newest_ : waiter->next_->before_) = waiter->before_;
  waiter->before_ = waiter->next_ = nullptr;
  if (!waiter->asleep_) --awake_;
  if (watcher_ == waiter) watcher_ = nullptr;
}

void MemoryQueue::Leave(Waiter* waiter) {
  Remove(waiter);
  Waiter** at = ListOf(waiter->chunk);
  while (*at != waiter) at = &(*at)->next_of_chunk_;
  *at = waiter->next_of_chunk_;
}

void MemoryQueue::Sleep(Waiter* waiter, Mutex& mutex, std::chrono::microseconds safety) {
  waiter->asleep_ = true;
  if (waiter->queued_) --awake_;
  const uint64_t watches = watches_;
  waiter->wake.WaitFor(mutex, safety);
  if (!std::exchange(waiter->asleep_, false)) return;
  if (waiter->queued_) ++awake_;  // nobody has woken it
  if (watches_ == watches) watcher_ = nullptr;
}

void MemoryQueue::Wake(Waiter* waiter) {
  if (std::exchange(waiter->asleep_, false) && waiter->queued_) ++awake_;
  waiter->wake.NotifyAll();
}

void MemoryQueue::WakeOne() {
  Waiter* waiter = oldest_;
  while (waiter != nullptr && !waiter->asleep_) waiter = waiter->next_;
  if (waiter != nullptr) Wake(waiter);
}

void MemoryQueue::WakeFor(const Chunk* chunk) {
  for (Waiter* waiter = *ListOf(chunk); waiter != nullptr; waiter = waiter->next_of_chunk_) {
    if (waiter->chunk == chunk) Wake(waiter);
  }
}

}  // namespace ramspan
