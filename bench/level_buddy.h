// LevelBuddy: the parallel binary buddy allocator of the codestrokes report (after Johnson & Davis 1992), as something to compare with:
// a free list and a lock for each level. Blocks are powers of two of the unit. A request that finds its level empty waits there
// for a block from the level above, and a block that is split serves two such requests; how many wait on a level at one time is counted.
//
// Offsets in units in, offsets out; it never touches the memory it divides. Level k holds the free blocks of 2^k units.
// Thread-safety: any thread. One level is locked at a time, so there is no order of locks to keep.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace ramspan::bench {

// The two locks of the report. Wait: lets others have the lock until something on this level may have changed.
class MutexLevelLock {
 public:
  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }
  void Wait() {
    std::unique_lock<std::mutex> held(mutex_, std::adopt_lock);
    changed_.wait(held);
    held.release();
  }
  void NotifyAll() { changed_.notify_all(); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class SpinLevelLock {
 public:
  SpinLevelLock() { pthread_spin_init(&spin_, PTHREAD_PROCESS_PRIVATE); }
  ~SpinLevelLock() { pthread_spin_destroy(&spin_); }
  SpinLevelLock(const SpinLevelLock&) = delete;
  SpinLevelLock& operator=(const SpinLevelLock&) = delete;
  void lock() { pthread_spin_lock(&spin_); }
  bool try_lock() { return pthread_spin_trylock(&spin_) == 0; }
  void unlock() { pthread_spin_unlock(&spin_); }
  // The thread that splits may want this core.
  void Wait() {
    unlock();
    sched_yield();
    lock();
  }
  void NotifyAll() {}

 private:
  pthread_spinlock_t spin_;
};

template <typename Lock>
class LevelBuddy {
 public:
  // REQUIRES: 0 < units < 2^31.
  explicit LevelBuddy(uint32_t units) {
    for (uint32_t n = units; n > 0; n >>= 1) levels_.emplace_back(n);
    for (uint32_t first = 0; first < units;) {
      const int fit = std::bit_width(units - first) - 1;
      const int k = first == 0 ? fit : std::min(fit, std::countr_zero(first));
      levels_[static_cast<size_t>(k)].Push(first >> k);
      first += uint32_t{1} << k;
    }
  }

  static int LevelFor(uint32_t units) { return units <= 1 ? 0 : std::bit_width(units - 1); }

  // The first of at least `units` > 0 units. nullopt: no block is free that is large enough, apart from what a Free of another
  // thread is just merging.
  std::optional<uint32_t> Allocate(uint32_t units) {
    const auto k = static_cast<size_t>(LevelFor(units));
    if (k >= levels_.size()) return std::nullopt;
    const std::optional<uint32_t> block = Take(k);
    if (!block) return std::nullopt;
    return *block << k;
  }

  // REQUIRES: Allocate(units) returned `first`, and it was not given back.
  void Free(uint32_t first, uint32_t units) {
    auto k = static_cast<size_t>(LevelFor(units));
    for (uint32_t block = first >> k;; block >>= 1, ++k) {
      Level& level = levels_[k];
      Enter(level);
      const uint32_t buddy = block ^ 1;
      if (k + 1 == levels_.size() || !level.IsFree(buddy)) {
        level.Push(block);
        level.lock.NotifyAll();
        level.lock.unlock();
        return;
      }
      level.Remove(buddy);
      level.lock.unlock();
    }
  }

  size_t levels() const { return levels_.size(); }
  // The most requests that waited at one time on a level, for its lock or for a block from above.
  int waiting_max(size_t level) const { return levels_[level].waiting_max.load(std::memory_order_relaxed); }
  void ResetWaiting() {
    for (Level& level : levels_) level.waiting_max.store(0, std::memory_order_relaxed);
  }

  // With no other thread inside.
  uint32_t free_units() const {
    uint32_t sum = 0;
    for (size_t k = 0; k < levels_.size(); ++k) sum += levels_[k].count << k;
    return sum;
  }
  // All that could be merged is: after everything came back, the blocks of the constructor and no others.
  uint32_t free_blocks() const {
    uint32_t sum = 0;
    for (const Level& level : levels_) sum += level.count;
    return sum;
  }

 private:
  static constexpr uint32_t kEnd = UINT32_MAX, kNotFree = UINT32_MAX - 1;

  // All but the two counters guarded by `lock`.
  struct Level {
    explicit Level(uint32_t blocks) : next(blocks, kNotFree), prev(blocks) {}
    bool IsFree(uint32_t block) const { return block < next.size() && next[block] != kNotFree; }
    void Push(uint32_t block) {
      next[block] = head;
      prev[block] = kEnd;
      if (head != kEnd) prev[head] = block;
      head = block;
      ++count;
    }
    void Remove(uint32_t block) {
      (prev[block] == kEnd ? head : next[prev[block]]) = next[block];
      if (next[block] != kEnd) prev[next[block]] = prev[block];
      next[block] = kNotFree;
      --count;
    }

    Lock lock;
    uint32_t head = kEnd;
    std::vector<uint32_t> next, prev;  // by block: its neighbours in the list
    uint32_t count = 0;                // of free blocks
    int hungry = 0;                    // requests that have found the list empty, and are not served yet
    int splitting = 0;                 // of those, how many fetch a block from above: each will serve two
    // Counts, which publish nothing.
    std::atomic<int> waiting{0}, waiting_max{0};
  };

  static void BeginWaiting(Level& level) {
    const int now = level.waiting.fetch_add(1, std::memory_order_relaxed) + 1;
    int most = level.waiting_max.load(std::memory_order_relaxed);
    while (now > most && !level.waiting_max.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
    }
  }
  static void EndWaiting(Level& level) { level.waiting.fetch_sub(1, std::memory_order_relaxed); }

  static void Enter(Level& level) {
    if (level.lock.try_lock()) return;
    BeginWaiting(level);
    level.lock.lock();
    EndWaiting(level);
  }

  // A block of level k, by its number there.
  std::optional<uint32_t> Take(size_t k) {
    Level& level = levels_[k];
    Enter(level);
    std::optional<uint32_t> block;
    if (level.head == kEnd && k + 1 < levels_.size()) {
      block = TakeFromAbove(k);
    } else if (level.head != kEnd) {
      block = level.head;
      level.Remove(*block);
    }
    level.lock.unlock();
    return block;
  }

  // REQUIRES: the level's lock, which is let go meanwhile.
  std::optional<uint32_t> TakeFromAbove(size_t k) {
    Level& level = levels_[k];
    BeginWaiting(level);
    ++level.hungry;
    std::optional<uint32_t> block;
    for (bool failed = false; !block && !failed;) {
      if (level.head != kEnd) {
        block = level.head;
        level.Remove(*block);
      } else if (2 * level.splitting >= level.hungry) {
        level.lock.Wait();
      } else {
        ++level.splitting;
        level.lock.unlock();
        const std::optional<uint32_t> above = Take(k + 1);
        level.lock.lock();
        --level.splitting;
        if (above) {
          block = *above << 1;
          level.Push(*block | 1);
        }
        failed = !above && level.head == kEnd;
      }
    }
    --level.hungry;
    EndWaiting(level);
    // Those that wait here look again: at the other half, or for a block above, where this request found none.
    level.lock.NotifyAll();
    return block;
  }

  std::deque<Level> levels_;  // a lock does not move
};

}  // namespace ramspan::bench
