// PageBlock: the descriptor of a block of memory that is swapped by pages (page_space.h), and its lock. All zeros is what one begins with, so untouched tables take no memory.
// Thread-safety: as its members say. Ownership: of nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace ramspan {

struct Chunk;

struct PageBlock {
  std::atomic<Chunk*> chunk{nullptr};
  std::atomic<int64_t> shown_ns{0};   // when it came home
  std::atomic<uint64_t> bytes{0};     // of an allocation, at its first unit
  std::atomic<uint32_t> tail{0};      // bytes of a unit that were asked for, where that is not all of it
  std::atomic<uint32_t> shown_at{0};  // by the count of faults; 0: never
  std::atomic<bool> locked{false};
  std::atomic<bool> home{false};  // changed with `locked`, which guards what follows
  bool blank = false;  // the chunk has no contents yet, which are zeros
  std::atomic<bool> is_protected{false}, is_locked{false};  // pages of it are (rights_, locks_); stored with `locked`
  bool held = false;            // is at home, where it stays, because of the one or the other
  uint16_t calls = 0;           // that use it: the same
  bool is_copied = false;       // just now, for a forked child: its chunk is not given back meanwhile
  std::atomic<uint8_t> row{0};  // so many before it came home just before it, one after the other
  bool is_hidden = false, was_hidden = false;  // only to be heard of (page_hearing.cc); until a fork showed it: guarded by locked
  std::atomic<uint32_t> heard_at{0};  // its last place among those that were heard of

  // For who waits for another thread.
  static constexpr auto kNap = std::chrono::microseconds(50);

  // REQUIRES: the caller's stack is not in a block (client/runtime/page_call.h): he would wait for himself where that leaves.
  void Lock() {
    for (int looks = 0; locked.exchange(true, std::memory_order_acquire); ++looks) {
      if (looks >= kLooksBeforeNap) std::this_thread::sleep_for(kNap);  // who has it may get no core otherwise (real-time)
      if (looks >= kLooks) std::this_thread::yield();
      __builtin_ia32_pause();
    }
  }
  // For a while only.
  bool TryLock() {
    for (int looks = 0; looks < kLooks; ++looks) {
      if (!locked.exchange(true, std::memory_order_acquire)) return true;
      __builtin_ia32_pause();
    }
    return false;
  }
  bool TryLockOnce() { return !locked.exchange(true, std::memory_order_acquire); }
  void Unlock() { locked.store(false, std::memory_order_release); }

  // For who looks whether the block has the chunk that it had. A block that has one is a block, and as large as that.
  class Locked {
   public:
    explicit Locked(PageBlock* block) : block_(block) { block_->Lock(); }
    ~Locked() { block_->Unlock(); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

   private:
    PageBlock* const block_;
  };

 private:
  // A look takes some ns: the lock is held for a move, of 5 to 15 us. Who holds it may have been preempted.
  static constexpr int kLooks = 2000, kLooksBeforeNap = 4000;
};

}  // namespace ramspan
