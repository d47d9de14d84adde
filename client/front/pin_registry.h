// PinRegistry: all threads' pin tables, and how an evictor looks into them. One a process, never destroyed: an adhereTo
// may outlive its thread, and a thread the runtime. A table whose thread has ended is given to the next new thread.
// Thread-safety: synchronises itself.
#pragma once

#include <array>
#include <atomic>

#include "client/engine/engine.h"
#include "client/engine/touch_ring.h"
#include "client/front/pin_gate.h"
#include "common/mutex.h"
#include "ramspan/detail/block_cache.h"

namespace ramspan {

// A thread's pins and what else is its own. The touches lie in the padding behind the pins, so they cost no memory.
struct ThreadTable final : detail::PinTable {
  uint32_t index = 0;           // of this thread; constant, as is what follows
  ThreadTable* next = nullptr;  // in the registry
  TouchRing touches;
};
static_assert(sizeof(ThreadTable) == sizeof(detail::PinTable));

class PinRegistry final : public PinScanner {
 public:
  static PinRegistry& Get();

  // The calling thread's table, made or recycled; given up when the thread ends.
  detail::PinTable* Adopt();
  uint64_t metadata_bytes() const;
  bool pins_fence() const { return pins_fence_; }  // no membarrier here: a pin executes the fence
  // The calling thread starts to wait for the one that has the ingredients; SetWaiting(nullptr) ends it. Nobody waits
  // for them while they are not taken, whatever those say that have not woken up yet.
  void SetWaitingForIngredients();
  void SetIngredientsTaken(bool taken) { ingredients_taken_.store(taken); }
  // The table's thread waits until other calls of adhereAll are done. Called by itself, or by who ends its wait.
  static void SetWaitingForTurn(detail::PinTable* table, bool waits);
  uint64_t pulls() const;  // of all threads that ever were

  // Whether an adhereTo seems to hold the chunk. Elements of include/rambrain/ (p[i]) are held for longer than they are used,
  // in the last slots of a table, and do not count. For debug mode.
  bool IsAdheredTo(const Chunk* chunk) const;
  // Whether the calling thread holds pins, but for elements.
  static bool HoldsPins();
  // The calling thread took `n` pins that are counted in chunks, or ended -n.
  static void NoteCounted(int32_t n);

  void Barrier() override;
  void FindPinned(std::span<Chunk* const> chunks, std::span<bool> pinned) override;
  void SetWaiting(Chunk* chunk) override;
  Verdict JudgeWaiters() override;
  bool MayWait(std::chrono::steady_clock::duration waited) override;
  void HoldUpOthers(const void* who, std::chrono::steady_clock::duration waited, uint64_t bytes) override {
    detail::BlockCache::Call();  // again: each time half of what is left
    PinGate::Get().Look(who, waited, bytes);
  }
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
  Mutex adopting_{LockRank::kPinRegistry};  // one thread at a time takes or makes a table

  template <typename Look>
  void ForEachTable(Look&& look) const {
    for (const auto& list : tables_) {
      for (ThreadTable* table = list.load(std::memory_order_acquire); table != nullptr; table = table->next) look(table);
    }
  }
};

}  // namespace ramspan
