// PinRegistry: all threads' pin tables, and how an evictor looks into them. One a process, never destroyed: an adhereTo
// may outlive its thread, and a thread the runtime. A table whose thread has ended is given to the next new thread.
// Thread-safety: synchronises itself.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

#include "client/engine/engine.h"
#include "client/engine/touch_ring.h"
#include "client/front/more_pins.h"
#include "client/front/pin_gate.h"
#include "common/mutex.h"
#include "ramspan/detail/block_cache.h"

namespace ramspan {

// A thread's pins and what else is its own. All of it lies in the padding behind the pins, so it costs no memory.
struct ThreadTable final : detail::PinTable {
  // A look at the table's slots takes as long as some ten pins, so it is made again at once only where it has found as many. Else pins go beyond the
  // table first: as many as a word of MorePins has slots, and after each look that found none twice as many, up to 16 words.
  static constexpr uint32_t kFoundMin = 16, kWordsALookMax = 16;
  static constexpr uint64_t kAdhereToBits = (uint64_t{1} << kAdhereToSlots) - (uint64_t{1} << kInlineSlots);

  // The slot that was found last, or kCountedPin where it is taken: what comes and goes beside pins that stay finds it again.
  unsigned LatestIfEmpty() const {
    const unsigned slot = latest.load(std::memory_order_relaxed);
    if (slot < detail::kFirstBeyond) return slots[slot].load(std::memory_order_acquire) == nullptr ? slot : detail::kCountedPin;  // acquire: as Pin
    const detail::MorePins* const beyond = more.load(std::memory_order_relaxed);
    const unsigned at = slot - detail::kFirstBeyond;
    return beyond->slots[at].load(std::memory_order_acquire) == nullptr && beyond->IsWithin(at) ? slot : detail::kCountedPin;
  }
  // An empty slot behind the inline ones for an adhereTo of the owner's, or kCountedPin: none is known. Lock-free, because a signal handler may pull. Does
  // not look at all slots, but at those that are likely to be empty (MorePins says what may be wrong with that).
  unsigned KnownSlot() {
    if (const unsigned slot = LatestIfEmpty(); slot != detail::kCountedPin) return slot;
    detail::MorePins* const beyond = more.load(std::memory_order_relaxed);
    for (uint64_t bits = empty.load(std::memory_order_relaxed); bits != 0; bits = empty.load(std::memory_order_relaxed)) {
      empty.store(bits & (bits - 1), std::memory_order_relaxed);
      const auto slot = static_cast<unsigned>(std::countr_zero(bits));
      if (slots[slot].load(std::memory_order_acquire) == nullptr) return Taken(slot);
    }
    const unsigned at = beyond != nullptr ? beyond->Find() : detail::MorePins::kSlots;
    return at < detail::MorePins::kSlots ? Taken(detail::kFirstBeyond + at) : detail::kCountedPin;
  }
  // The same when none is known.
  unsigned LookForSlot();
  unsigned FreeSlot() {
    const unsigned slot = KnownSlot();
    return slot != detail::kCountedPin ? slot : LookForSlot();
  }

  uint32_t index = 0;           // of this thread; constant, as are the next two
  bool pins_fence = false;      // PinRegistry::pins_fence, within the pin's reach
  ThreadTable* next = nullptr;  // in the registry
  // Set once. Release, acquire: it is seen complete. An evictor that sees none misses no pin in it that counts: as `end` of MorePins.
  std::atomic<detail::MorePins*> more{nullptr};
  std::atomic<uint64_t> empty{kAdhereToBits};  // as MorePins::empty; an unpin here is one store and tells nobody, so it does not set its bit
  std::atomic<uint32_t> latest{kInlineSlots};  // slot that was found
  std::atomic<uint32_t> until_look{0};         // words of MorePins that are used up until the table's slots are looked at again
  std::atomic<uint32_t> words_a_look{1};
  TouchRing touches;

 private:
  unsigned Taken(unsigned slot) {
    latest.store(slot, std::memory_order_relaxed);
    return slot;
  }
};
static_assert(sizeof(ThreadTable) == sizeof(detail::PinTable));

class PinRegistry final : public PinScanner {
 public:
  static PinRegistry& Get();

  // The calling thread's table, made or recycled; given up when the thread ends.
  detail::PinTable* Adopt();
  uint64_t metadata_bytes() const;  // all of MorePins are counted, though the kernel gives pages to those that are used only
  bool pins_fence() const { return pins_fence_; }  // no membarrier here: a pin executes the fence
  // The calling thread starts to wait for the one that has the ingredients; SetWaiting(nullptr) ends it. Nobody waits
  // for them while they are not taken, whatever those say that have not woken up yet.
  void SetWaitingForIngredients();
  void SetIngredientsTaken(bool taken) { ingredients_taken_.store(taken); }
  // The table's thread waits until other calls of adhereAll are done. Called by itself, or by who ends its wait.
  static void SetWaitingForTurn(detail::PinTable* table, bool waits);
  uint64_t pulls() const;  // of all threads that ever were
  struct ElementUses {
    uint64_t all = 0;
    uint64_t most = 0;  // of one thread, or of several one after the other
  };
  ElementUses element_uses() const;  // of elements of vectors one by one, x[i]

  // Whether an adhereTo seems to hold the chunk. Elements of include/rambrain/ (p[i]) are held for longer than they are used,
  // in the last slots of a table, and do not count. For debug mode.
  bool IsAdheredTo(const Chunk* chunk) const;
  // Whether the calling thread holds pins, but for elements.
  static bool HoldsPins();
  // Gives slots beyond the table to `table`, the calling thread's. Where there is no memory for them it stays as it is.
  void MakeMorePins(ThreadTable* table);
  // The calling thread took `n` pins that are counted in chunks, or ended -n.
  static void NoteCounted(int32_t n);

  void Barrier() override;
  void FindPinned(std::span<Chunk* const> chunks, std::span<bool> pinned) override;
  void SetWaiting(Chunk* chunk) override;
  Verdict JudgeWaiters() override;
  Pins CountPins() const override;
  bool MayWait(std::chrono::steady_clock::duration waited) override;
  void HoldUpOthers(const void* who, std::chrono::steady_clock::duration waited, uint64_t bytes) override {
    detail::BlockCache::Call();  // again: each time half of what is left
    PinGate::Get().Look(who, waited, bytes);
  }
  void DataHasOutgrownMemory() override { detail::BlockCache::Call(); }
  void EndHoldUp(const void* who) override { PinGate::Get().End(who); }
  bool HoldsUpOthers() const override { return PinGate::Get().IsShut(); }
  uint32_t ThisThread() const override;
  void TakeTouches(const Hear& hear) override;
  uint64_t touches_dropped() const override;
  // By the table's owner. False: its ring is full.
  bool PutTouch(ThreadTable* table, uint32_t chunk, bool write, uint32_t epoch);
  uint32_t threads() const { return threads_.load(std::memory_order_relaxed); }  // that ever were at one time

 private:
  PinRegistry();

  // A number of pins that are counted in chunks, and its generation: one ends with the last such pin of all threads, and what was
  // noted in an older one is 0 now.
  struct alignas(8) Counted {
    uint32_t generation;  // the struct is aligned as a word, so that clang needs no libatomic
    int32_t pins;
    int32_t In(uint32_t current) const { return generation == current ? pins : 0; }
  };
  static Counted CountedBy(const detail::PinTable* table);
  static void NoteHandedOver(Counted counted);

  // Neither publishes anything: the judge looks again and again.
  static inline constinit std::atomic<Counted> all_counted_{};  // whoever took them and will end them
  // Pins that were ended by others than those that took them, whose tables count them still.
  static inline constinit std::atomic<Counted> handed_over_{};
  static_assert(decltype(all_counted_)::is_always_lock_free && sizeof(Counted) == sizeof(int64_t));
  const bool pins_fence_;
  std::atomic<bool> ingredients_taken_{false};
  // Those who look into the tables take no lock: a table is put in front of its list whole (release, acquire) and stays for ever. An evictor
  // that does not see a table yet misses no pin of it that counts: the table was put there before the pin (client/front/store_pin.h).
  static constexpr uint32_t kLists = 64;
  std::array<std::atomic<ThreadTable*>, kLists> tables_{};  // by index
  std::atomic<uint64_t> noted_{0};                          // a bit a list: a ring of its tables may hold something
  std::atomic<uint32_t> threads_{0};
  std::atomic<uint32_t> more_pins_{0};                      // tables that have them
  Mutex adopting_{LockRank::kPinRegistry};  // one thread at a time takes or makes a table

  template <typename Look>
  void ForEachTable(Look&& look) const {
    for (const auto& list : tables_) {
      for (ThreadTable* table = list.load(std::memory_order_acquire); table != nullptr; table = table->next) look(table);
    }
  }
  // Of each table the first `of_table` slots and all beyond it.
  template <typename Look>
  void ForEachSlot(unsigned of_table, Look&& look) const {
    ForEachTable([&](const ThreadTable* table) {
      std::for_each(table->slots, table->slots + of_table, look);
      if (const detail::MorePins* more = table->more.load(std::memory_order_acquire)) std::for_each(more->slots, more->used_end(), look);
    });
  }
};

}  // namespace ramspan
