// MorePins: where a thread stores the pins for which its PinTable has no slot, so that a thousand pins of a thread cost no locked
// operations. Made when they are needed first, and with the table for ever. In a header that needs nothing but resident.h, so that
// tests/resident can compile it over atomics that record what is done.
//
// Thread-safety: as a PinTable: the owner fills slots, whoever destroys the adhereTo empties them, evictors read them.
//   slots, end: the protocol of resident.h. A pin stores its slot, then raises `end` if it has to, and THEN loads the state; the
//     evictor closes the state and THEN loads `end` and the slots below it. Both stores come before the load, so the evictor's
//     membarrier (or the pin's fence) makes it see both or the pin see the state closed. `end` comes second: a signal handler that pins and
//     unpins between the two would lower it again below a slot that is still empty.
//     `end` is lowered by the owner over slots that it has seen empty (acquire), with release; the evictor loads it with acquire, so what it does
//     to the frame of a pin that it need not look at any more happens after that pin's accesses.
//   all else is the owner's. It may be wrong at any moment, also because a signal handler of the owner's thread has pinned and unpinned between two
//     instructions: a bit says where to look, and the slot itself says whether it is empty. What a handler pins it unpins before it
//     returns, so what the owner has seen empty still is. Relaxed: one thread only, and when no bit is left a look at the slots repairs what was
//     lost.
#pragma once

#include "ramspan/detail/resident.h"

namespace ramspan::detail {

struct alignas(16384) MorePins {
  // 16 KiB are 2048 words, of which all that is no slot needs some 40.
  static constexpr unsigned kWords = 31, kSlots = 64 * kWords;
  // A look at all slots takes as long as 60 counted pins. After one that found few it is worth another one when so many pins have come.
  static constexpr uint32_t kPinsALook = 512;

  explicit MorePins(PinTable* owner) : table(owner) { Look(); }

  // A slot that is empty, of the word of bits that is being used up; kSlots: none there. One word, so that pins which follow each other need
  // not look for it.
  unsigned Find() {
    for (uint64_t bits = run_bits.load(std::memory_order_relaxed); bits != 0; bits = run_bits.load(std::memory_order_relaxed)) {
      run_bits.store(bits & (bits - 1), std::memory_order_relaxed);
      const unsigned at = run.load(std::memory_order_relaxed) + static_cast<unsigned>(__builtin_ctzll(bits));
      // Acquire: if another thread emptied it, what that did to the old pin's frame is passed on by the next store here.
      if (slots[at].load(std::memory_order_acquire) == nullptr) return at;
    }
    return kSlots;
  }
  // The same in the next word that has bits: the lowest one, so that evictors have few slots to look at.
  unsigned FindNext() {
    for (uint32_t some = words.load(std::memory_order_relaxed); some != 0; some = words.load(std::memory_order_relaxed)) {
      const auto w = static_cast<unsigned>(__builtin_ctz(some));
      words.store(some & (some - 1), std::memory_order_relaxed);
      run.store(64 * w, std::memory_order_relaxed);
      run_bits.store(empty[w].load(std::memory_order_relaxed), std::memory_order_relaxed);
      empty[w].store(0, std::memory_order_relaxed);
      if (const unsigned at = Find(); at < kSlots) return at;
    }
    return kSlots;
  }
  // The same when none is known: now and then all slots are looked at, for those that other threads have emptied.
  unsigned FindAnew() {
    if (const uint32_t pins = until_look.load(std::memory_order_relaxed); pins > 0) {
      until_look.store(pins - 1, std::memory_order_relaxed);
      return kSlots;
    }
    const uint32_t found = Look();
    until_look.store(found < kPinsALook ? kPinsALook - found : 0, std::memory_order_relaxed);
    return FindNext();
  }
  // The slot at `at` is stored.
  void RaiseEnd(unsigned at) {
    // Release: who finds this instead of an `end` that was lowered must still see what that one told.
    if (end.load(std::memory_order_relaxed) <= at) end.store(at / 64 * 64 + 64, std::memory_order_release);
  }
  // By any thread.
  void Unpin(unsigned at, bool by_owner) {
    slots[at].store(nullptr, std::memory_order_release);
    if (by_owner) NoteEmpty(at);
  }
  // Whether a pin there is seen without raising `end`.
  bool IsWithin(unsigned at) const { return at < end.load(std::memory_order_relaxed); }
  const std::atomic<ChunkHead*>* used_end() const { return slots + end.load(std::memory_order_acquire); }

  std::atomic<ChunkHead*> slots[kSlots] = {};
  PinTable* const table;
  std::atomic<uint32_t> end{0};         // slots from here on are empty; a multiple of 64
  std::atomic<uint32_t> until_look{0};  // pins that are counted until all slots are looked at again
  std::atomic<uint32_t> words{0};       // bit w: empty[w] may have bits
  std::atomic<uint32_t> run{0};         // slot of the first of run_bits, which are no longer in `empty`
  std::atomic<uint64_t> run_bits{0};
  std::atomic<uint64_t> empty[kWords] = {};

 private:
  uint32_t Look() {
    uint32_t found = 0, some = 0;
    for (unsigned w = 0; w < kWords; ++w) {
      uint64_t bits = 0;
      for (unsigned i = 0; i < 64; ++i) bits |= uint64_t{slots[64 * w + i].load(std::memory_order_relaxed) == nullptr} << i;
      empty[w].store(bits, std::memory_order_relaxed);
      some |= uint32_t{bits != 0} << w;
      found += static_cast<uint32_t>(__builtin_popcountll(bits));
    }
    words.store(some, std::memory_order_relaxed);
    run_bits.store(0, std::memory_order_relaxed);
    LowerEnd();
    return found;
  }
  void NoteEmpty(unsigned at) {
    const unsigned w = at / 64;
    const uint64_t before = empty[w].load(std::memory_order_relaxed), bits = before | uint64_t{1} << at % 64;
    if (bits != before) empty[w].store(bits, std::memory_order_relaxed);
    if (before == 0) words.store(words.load(std::memory_order_relaxed) | uint32_t{1} << w, std::memory_order_relaxed);
    if (at + 128 >= end.load(std::memory_order_relaxed) && SeemsEmpty(w)) LowerEnd();
  }
  // Else each eviction after a thread's thousand pins would look at a thousand slots for ever. One word of empty slots stays within `end`: a pin that
  // comes and goes at the border must not look at 64 slots each time. The next pins begin below.
  [[gnu::noinline]] void LowerEnd() {  // rare, and would cost each unpin its registers
    const uint32_t before = end.load(std::memory_order_relaxed) / 64;
    uint32_t last = before;
    while (last >= 2 && SeemsEmpty(last - 1) && SeemsEmpty(last - 2) && IsEmpty(last - 1)) --last;
    if (last == before) return;
    end.store(64 * last, std::memory_order_release);
    const uint32_t w = run.load(std::memory_order_relaxed) / 64;
    const uint64_t left = run_bits.load(std::memory_order_relaxed);
    if (w < last || left == 0) return;
    run_bits.store(0, std::memory_order_relaxed);
    empty[w].store(empty[w].load(std::memory_order_relaxed) | left, std::memory_order_relaxed);
    words.store(words.load(std::memory_order_relaxed) | uint32_t{1} << w, std::memory_order_relaxed);
  }
  bool SeemsEmpty(unsigned w) const {
    const uint64_t in_run = run.load(std::memory_order_relaxed) == 64 * w ? run_bits.load(std::memory_order_relaxed) : 0;
    return (empty[w].load(std::memory_order_relaxed) | in_run) == ~uint64_t{0};
  }
  bool IsEmpty(unsigned w) {
    for (unsigned at = 64 * w; at < 64 * w + 64; ++at) {
      if (slots[at].load(std::memory_order_acquire) == nullptr) continue;
      // The bit was wrong. It goes, or this would be asked at each unpin.
      std::atomic<uint64_t>& bits = empty[w].load(std::memory_order_relaxed) >> at % 64 & 1 ? empty[w] : run_bits;
      bits.store(bits.load(std::memory_order_relaxed) & ~(uint64_t{1} << at % 64), std::memory_order_relaxed);
      return false;
    }
    return true;
  }
};
static_assert(sizeof(MorePins) == alignof(MorePins));

}  // namespace ramspan::detail
