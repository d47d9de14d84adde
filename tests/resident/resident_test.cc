// detail/resident.h itself (and front/store_pin.h and front/take_off.h), operation by operation. The header is compiled once more here, over atomics that record what
// is done to them in which order and with which memory order, in a namespace of their own. So this sees what no run on
// x86 can: a release that became relaxed, and a store and a load that changed places.
//
// The same atomics model the one reordering that x86 does make: a store waits in its thread's store buffer while later
// loads go ahead. All interleavings of a pin with an evictor are tried over that model.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace traced_std {

using std::memory_order;
using std::numeric_limits;
using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_release;
using std::memory_order_relaxed;
using std::memory_order_seq_cst;

struct Operation {
  enum Kind { kStore, kLoad, kExchange, kSignalFence, kThreadFence } kind;
  const void* where;
  std::memory_order order;
  bool operator==(const Operation&) const = default;
};
std::vector<Operation> operations;
std::function<void()> between;  // other threads' turn: before each operation, and when a test says so

// The store that has not reached memory yet.
struct Buffered {
  const void* where;
  std::function<void()> drain;
};
std::optional<Buffered> buffered;
bool buffers = false;  // stores wait there until somebody drains them
inline void Drain() {
  if (buffered) buffered->drain();
  buffered.reset();
}

template <typename T>
struct atomic {
  T value{};
  atomic() = default;
  atomic(T initial) : value(initial) {}  // NOLINT: as std's
  void store(T next, std::memory_order order) {
    if (between) between();
    operations.push_back({Operation::kStore, this, order});
    Drain();  // in the order of the program
    if (!buffers) {
      value = next;
    } else {
      buffered = {this, [this, next] { value = next; }};
    }
  }
  T load(std::memory_order order) const {
    if (between) between();
    operations.push_back({Operation::kLoad, this, order});
    if (buffered && buffered->where == this) Drain();  // a thread sees its own store
    return value;
  }
  bool compare_exchange_weak(T& expected, T next, std::memory_order order, std::memory_order) {
    if (between) between();
    operations.push_back({Operation::kExchange, this, order});
    Drain();  // a locked operation
    if (value != expected) {
      expected = value;
      return false;
    }
    value = next;
    return true;
  }
  T fetch_sub(T less, std::memory_order order) {
    if (between) between();
    operations.push_back({Operation::kExchange, this, order});
    Drain();
    const T before = value;
    value = static_cast<T>(value - less);
    return before;
  }
};

inline void atomic_signal_fence(std::memory_order order) {
  operations.push_back({Operation::kSignalFence, nullptr, order});
}

inline void atomic_thread_fence(std::memory_order order) {
  operations.push_back({Operation::kThreadFence, nullptr, order});
  if (order == std::memory_order_seq_cst) Drain();  // no weaker one keeps a store and a later load in order
}

}  // namespace traced_std

#define std traced_std
#define ramspan ramspan_traced
#include "ramspan/detail/resident.h"
#include "client/front/store_pin.h"
#include "client/front/take_off.h"
#undef ramspan
#undef std

namespace ramspan_traced::detail {

struct SlowCall {
  ChunkHead* chunk;
  PinTable* table;
  unsigned slot;
  bool write;
};
std::vector<SlowCall> slow_calls, without_slot_calls;
int counted_unpins = 0;

__thread PinTable* t_pins;
PinTable* MakePinTable() { return nullptr; }
void* PinSlow(ChunkHead* chunk, PinTable* table, unsigned slot, bool write) {
  slow_calls.push_back({chunk, table, slot, write});
  return nullptr;
}
void* PinWithoutSlot(ChunkHead* chunk, PinTable* table, unsigned* slot, bool write) {
  without_slot_calls.push_back({chunk, table, *slot, write});
  return nullptr;
}
void UnpinCounted(ChunkHead*) noexcept { ++counted_unpins; }

namespace {

using traced_std::Operation;

class Resident : public testing::Test {
 protected:
  Resident() : table_(std::make_unique<PinTable>()) {
    chunk_.frame = &chunk_;
    Reset(15);
  }
  ~Resident() override {
    traced_std::between = nullptr;
    traced_std::buffers = false;
    traced_std::buffered.reset();
  }
  void Reset(uint64_t state) {
    chunk_.state.value = state;
    for (auto& slot : table_->slots) slot.value = nullptr;
    traced_std::operations.clear();
    traced_std::buffered.reset();
    slow_calls.clear();
    without_slot_calls.clear();
  }

  ChunkHead chunk_{};
  std::unique_ptr<PinTable> table_;
};

template <bool kWrite>
void ExpectBits(ChunkHead* chunk, PinTable* table, const std::function<void(uint64_t)>& reset) {
  for (uint64_t bits = 0; bits < 16; ++bits) {
    SCOPED_TRACE("state " + std::to_string(bits) + (kWrite ? ", to write" : ", to read"));
    reset(bits);
    const bool may = kWrite ? bits == (kReadable | kWritable | kReferenced | kDirty)
                            : (bits & kReadable) && (bits & kReferenced);
    EXPECT_EQ(PinInSlot<kWrite>(chunk, table, 3) != nullptr, may);
    EXPECT_EQ(table->slots[3].value, chunk);
    ASSERT_EQ(slow_calls.size(), may ? 0u : 1u);
    if (may) continue;
    EXPECT_EQ(slow_calls[0].chunk, chunk);
    EXPECT_EQ(slow_calls[0].table, table);
    EXPECT_EQ(slow_calls[0].slot, 3u);
    EXPECT_EQ(slow_calls[0].write, kWrite);
  }
}

TEST_F(Resident, TheFastPathNeedsAllBitsThatItsUseNeeds) {
  ExpectBits<false>(&chunk_, table_.get(), [this](uint64_t bits) { Reset(bits); });
  ExpectBits<true>(&chunk_, table_.get(), [this](uint64_t bits) { Reset(bits); });
}

TEST_F(Resident, APinStoresItsSlotThenLoadsTheStateWithTheOrdersThatItsProtocolNames) {
  for (const bool write : {false, true}) {
    Reset(15);
    write ? PinInSlot<true>(&chunk_, table_.get(), 5) : PinInSlot<false>(&chunk_, table_.get(), 5);
    const std::vector<Operation> expected = {{Operation::kStore, &table_->slots[5], std::memory_order_release},
                                             {Operation::kSignalFence, nullptr, std::memory_order_seq_cst},
                                             {Operation::kLoad, &chunk_.state, std::memory_order_acquire}};
    EXPECT_TRUE(traced_std::operations == expected);
  }
}

TEST_F(Resident, WithoutMembarrierAPinStoresItsSlotAndExecutesTheFenceBeforeItLooks) {
  for (const bool write : {false, true}) {
    Reset(15);
    EXPECT_TRUE(StorePinFenced(&chunk_, table_.get(), 5, write, true));
    const std::vector<Operation> expected = {{Operation::kStore, &table_->slots[5], std::memory_order_release},
                                             {Operation::kThreadFence, nullptr, std::memory_order_seq_cst},
                                             {Operation::kStore, &table_->slots[5], std::memory_order_release},
                                             {Operation::kSignalFence, nullptr, std::memory_order_seq_cst},
                                             {Operation::kLoad, &chunk_.state, std::memory_order_acquire}};
    EXPECT_TRUE(traced_std::operations == expected);
    Reset(15);
    EXPECT_TRUE(StorePinFenced(&chunk_, table_.get(), 5, write, false));
    EXPECT_EQ(traced_std::operations.size(), 3u) << "with membarrier it costs no fence";
  }
}

TEST_F(Resident, TheFirstEmptyInlineSlotIsTakenAndAcquiredFromWhoEmptiedIt) {
  ChunkHead other{};
  for (unsigned taken = 0; taken <= PinTable::kInlineSlots; ++taken) {
    Reset(15);
    for (unsigned i = 0; i < taken; ++i) table_->slots[i].value = &other;
    unsigned slot = kNoPin;
    Pin<false>(&chunk_, table_.get(), &slot);
    for (unsigned i = 0; i <= taken && i < PinTable::kInlineSlots; ++i) {
      EXPECT_TRUE((traced_std::operations.at(i) == Operation{Operation::kLoad, &table_->slots[i], std::memory_order_acquire}));
    }
    if (taken < PinTable::kInlineSlots) {
      EXPECT_EQ(slot, taken);
      EXPECT_EQ(table_->slots[taken].value, &chunk_);
    }
    EXPECT_EQ(without_slot_calls.size(), taken == PinTable::kInlineSlots ? 1u : 0u);
  }
}

TEST_F(Resident, AnUnpinReleasesWhatWasDoneToTheFrame) {
  table_->slots[7].value = &chunk_;
  Unpin(&chunk_, table_.get(), 7);
  EXPECT_EQ(table_->slots[7].value, nullptr);
  ASSERT_EQ(traced_std::operations.size(), 1u);
  EXPECT_TRUE((traced_std::operations[0] == Operation{Operation::kStore, &table_->slots[7], std::memory_order_release}));
  counted_unpins = 0;
  Unpin(&chunk_, table_.get(), kCountedPin);
  EXPECT_EQ(counted_unpins, 1);
}

// An evictor's three steps, at any of the points of a pin (before its store, between store and load, behind the load), and
// the moment at which the stored slot leaves the store buffer by itself. Returns how often the pin held a chunk that the
// evictor took for unpinned.
int PinsThatNobodySaw(ChunkHead* chunk, PinTable* table, bool with_barrier, bool with_fence,
                      const std::function<void(uint64_t)>& reset) {
  int unseen = 0;
  for (int close = 0; close < 3; ++close) {
    for (int barrier = close; barrier < 3; ++barrier) {
      for (int scan = barrier; scan < 3; ++scan) {
        for (int drain = 0; drain < 4; ++drain) {  // at that point; 3: not before the end
          reset(15);
          traced_std::buffers = true;
          bool found = false;
          int point = 0;
          traced_std::between = [&] {
            if (point == drain) traced_std::Drain();
            if (point == close) chunk->state.value &= ~(kReadable | kWritable);
            if (point == barrier && with_barrier) traced_std::Drain();  // membarrier: a fence in the pin's thread
            if (point == scan) found = table->slots[0].value == chunk;
            ++point;
          };
          const bool holds = StorePinFenced(chunk, table, 0, false, with_fence);
          while (point < 3) traced_std::between();
          traced_std::between = nullptr;
          traced_std::Drain();
          unseen += holds && !found;
        }
      }
    }
  }
  return unseen;
}

TEST_F(Resident, WithTheBarrierNoPinIsOverlookedInAnyOrderOfTheSteps) {
  const auto reset = [this](uint64_t state) { Reset(state); };
  EXPECT_EQ(PinsThatNobodySaw(&chunk_, table_.get(), true, false, reset), 0);
  EXPECT_EQ(PinsThatNobodySaw(&chunk_, table_.get(), false, true, reset), 0) << "the pin's own fence";
  EXPECT_GT(PinsThatNobodySaw(&chunk_, table_.get(), false, false, reset), 0) << "the model cannot fail";
}

// Both could see the one pin that was left and take it off: the count wrapped, and the object was pinned for ever. The second thread has its
// turn before each operation of the first one.
template <typename Word>
void ExpectOneIsRefused(Word one) {
  bool had_its_turn = true;
  for (int turn = 0; had_its_turn; ++turn) {
    traced_std::atomic<Word> count(one);
    had_its_turn = false;
    bool second = false;
    int operation = 0;  // of the first one
    traced_std::between = [&] {
      if (had_its_turn || operation++ != turn) return;
      had_its_turn = true;
      second = TakeOff(count, one, std::memory_order_release);
    };
    const bool first = TakeOff(count, one, std::memory_order_release);
    traced_std::between = nullptr;
    if (!had_its_turn) second = TakeOff(count, one, std::memory_order_release);
    EXPECT_NE(first, second) << "the second one before operation " << turn;
    EXPECT_EQ(count.value, 0u) << turn;
  }
}

TEST_F(Resident, OfTwoThreadsThatEndTheSamePinOneIsRefusedWhereverTheyMeet) {
  ExpectOneIsRefused(uint64_t{1} << 32);
  ExpectOneIsRefused(uint16_t{1});
}

// For a moment the count had wrapped to 0: another thread's pin was taken then, the first one took its own off, and 65536 pins were
// counted as none.
TEST_F(Resident, OfAFullCountBothAreRefusedWhereverTheyMeet) {
  bool had_its_turn = true;
  for (int turn = 0; had_its_turn; ++turn) {
    traced_std::atomic<uint16_t> count(UINT16_MAX);
    had_its_turn = false;
    bool second = false;
    int operation = 0;
    traced_std::between = [&] {
      if (had_its_turn || operation++ != turn) return;
      had_its_turn = true;
      second = PutOn(count);
    };
    const bool first = PutOn(count);
    traced_std::between = nullptr;
    EXPECT_FALSE(first || second) << turn;
    EXPECT_EQ(count.value, UINT16_MAX) << turn;
  }
  traced_std::atomic<uint16_t> last(UINT16_MAX - 1);
  EXPECT_TRUE(PutOn(last));
  EXPECT_EQ(last.value, UINT16_MAX);
}

}  // namespace
}  // namespace ramspan_traced::detail
