// detail/resident.h itself (and front/store_pin.h, front/more_pins.h and front/take_off.h), operation by operation. The header is compiled once more here, over atomics that record what
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
#include <utility>
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
#include "client/front/more_pins.h"
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
std::vector<SlowCall> slow_calls, other_slot_calls;
std::vector<unsigned> unpins_beyond;

__thread PinTable* t_pins;
PinTable* MakePinTable() { return nullptr; }
void* PinSlow(ChunkHead* chunk, PinTable* table, unsigned slot, bool write) {
  slow_calls.push_back({chunk, table, slot, write});
  return nullptr;
}
void* PinInOtherSlot(ChunkHead* chunk, PinTable* table, unsigned* slot, bool write) {
  other_slot_calls.push_back({chunk, table, *slot, write});
  return nullptr;
}
void UnpinBeyondTable(ChunkHead*, PinTable*, unsigned slot) noexcept { unpins_beyond.push_back(slot); }

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
    other_slot_calls.clear();
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
    EXPECT_EQ(other_slot_calls.size(), taken == PinTable::kInlineSlots ? 1u : 0u);
  }
}

TEST_F(Resident, AnUnpinReleasesWhatWasDoneToTheFrame) {
  table_->slots[7].value = &chunk_;
  Unpin(&chunk_, table_.get(), 7);
  EXPECT_EQ(table_->slots[7].value, nullptr);
  ASSERT_EQ(traced_std::operations.size(), 1u);
  EXPECT_TRUE((traced_std::operations[0] == Operation{Operation::kStore, &table_->slots[7], std::memory_order_release}));
  unpins_beyond.clear();
  Unpin(&chunk_, table_.get(), kCountedPin);
  Unpin(&chunk_, table_.get(), kFirstBeyond);
  EXPECT_EQ(unpins_beyond, (std::vector<unsigned>{kCountedPin, kFirstBeyond}));
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

using Steps = std::vector<Operation>;

// What is done to the slots, to `end` and to the state; all else is the owner's own affair.
Steps StepsThatOthersSee(const MorePins& more, const ChunkHead& chunk) {
  Steps seen;
  for (const Operation& one : traced_std::operations) {
    const bool is_slot = one.where >= more.slots && one.where < more.slots + MorePins::kSlots;
    if (is_slot || one.where == &more.end || one.where == &chunk.state || one.kind == Operation::kThreadFence) seen.push_back(one);
  }
  return seen;
}

// As PinRegistry: of all that are known.
unsigned Known(MorePins* more) {
  const unsigned at = more->Find();
  return at < MorePins::kSlots ? at : more->FindNext();
}

TEST_F(Resident, APinBeyondTheTableStoresItsSlotAndThenTheEndBeforeItLooks) {
  const auto more = std::make_unique<MorePins>(table_.get());
  for (const bool write : {false, true}) {
    for (const bool fence : {false, true}) {
      for (const bool raises : {true, false}) {
        Reset(15);
        more->end.value = raises ? 0 : 64;
        EXPECT_TRUE(StorePinBeyond(&chunk_, more.get(), 5, write, fence));
        Steps expected = {{Operation::kStore, &more->slots[5], std::memory_order_release}, {Operation::kLoad, &more->end, std::memory_order_relaxed}};
        if (raises) expected.push_back({Operation::kStore, &more->end, std::memory_order_release});
        if (fence) expected.push_back({Operation::kThreadFence, nullptr, std::memory_order_seq_cst});
        expected.push_back({Operation::kLoad, &chunk_.state, std::memory_order_acquire});
        EXPECT_TRUE(StepsThatOthersSee(*more, chunk_) == expected);
        EXPECT_EQ(more->end.value, 64u);
      }
    }
  }
  for (const bool write : {false, true}) {
    for (uint64_t bits = 0; bits < 16; ++bits) {
      chunk_.state.value = bits;
      const bool may = write ? bits == 15 : (bits & kReadable) && (bits & kReferenced);
      EXPECT_EQ(StorePinBeyond(&chunk_, more.get(), 5, write, false), may) << bits;
    }
  }
}

TEST_F(Resident, AnUnpinBeyondTheTableReleasesAndLowersTheEndOverWhatItAcquires) {
  const auto more = std::make_unique<MorePins>(table_.get());
  for (unsigned i = 0; i < 200; ++i) StorePinBeyond(&chunk_, more.get(), Known(more.get()), false, false);
  EXPECT_EQ(more->end.value, 256u);
  for (unsigned at = 65; at < 200; ++at) more->Unpin(at, true);
  EXPECT_EQ(more->end.value, 192u) << "one word of empty slots beside the one in use would be looked at in vain";
  more->Unpin(0, false);
  EXPECT_EQ(more->end.value, 192u) << "another thread's unpin is one store";
  Reset(15);
  more->Unpin(64, true);
  Steps expected = {{Operation::kStore, &more->slots[64], std::memory_order_release},
                    {Operation::kLoad, &more->end, std::memory_order_relaxed},
                    {Operation::kLoad, &more->end, std::memory_order_relaxed}};
  for (unsigned at = 128; at < 192; ++at) expected.push_back({Operation::kLoad, &more->slots[at], std::memory_order_acquire});
  expected.push_back({Operation::kStore, &more->end, std::memory_order_release});
  EXPECT_TRUE(StepsThatOthersSee(*more, chunk_) == expected);
  EXPECT_EQ(more->end.value, 128u);
  Reset(15);
  EXPECT_EQ(more->used_end(), more->slots + 128);
  EXPECT_TRUE((traced_std::operations == Steps{{Operation::kLoad, &more->end, std::memory_order_acquire}}));
}

// Slots in use, as the owner would find them: by looking at each.
unsigned Used(const MorePins& more) {
  unsigned used = 0;
  for (const auto& slot : more.slots) used += slot.value != nullptr;
  return used;
}

TEST_F(Resident, AThreadsSlotsBeyondTheTableAreAllFoundAndTheLowestFirst) {
  const auto more = std::make_unique<MorePins>(table_.get());
  const auto pin = [&] {
    const unsigned at = Known(more.get());
    if (at < MorePins::kSlots) StorePinBeyond(&chunk_, more.get(), at, false, false);
    return at;
  };
  for (unsigned i = 0; i < MorePins::kSlots; ++i) ASSERT_EQ(pin(), i);
  EXPECT_EQ(pin(), unsigned{MorePins::kSlots});
  for (unsigned at = 7; at < MorePins::kSlots; at += 50) more->Unpin(at, true);
  EXPECT_EQ(more->end.value, unsigned{MorePins::kSlots});
  for (unsigned at = 7; at < MorePins::kSlots; at += 50) EXPECT_EQ(pin(), at);
  for (unsigned at = 0; at < MorePins::kSlots; ++at) more->Unpin(at, true);
  EXPECT_LE(more->end.value, 64u);
  for (unsigned i = 0; i < MorePins::kSlots; ++i) ASSERT_EQ(pin(), i);
  EXPECT_EQ(Used(*more), unsigned{MorePins::kSlots});
}

TEST_F(Resident, WhatOtherThreadsHaveEmptiedIsFoundWhenNothingElseIs) {
  const auto more = std::make_unique<MorePins>(table_.get());
  const auto pin = [&] {
    unsigned at = Known(more.get());
    if (at == MorePins::kSlots) at = more->FindAnew();
    if (at < MorePins::kSlots) StorePinBeyond(&chunk_, more.get(), at, false, false);
    return at;
  };
  for (unsigned i = 0; i < MorePins::kSlots; ++i) ASSERT_LT(pin(), unsigned{MorePins::kSlots});
  EXPECT_EQ(pin(), unsigned{MorePins::kSlots}) << "it has looked in vain";
  for (unsigned at = 0; at < MorePins::kSlots; ++at) more->Unpin(at, false);
  unsigned tries = 1;
  while (pin() == MorePins::kSlots && tries < 2 * MorePins::kPinsALook) ++tries;
  EXPECT_EQ(tries, MorePins::kPinsALook + 1) << "looks that find nothing are far apart";
  for (unsigned i = 1; i < MorePins::kSlots; ++i) ASSERT_LT(pin(), unsigned{MorePins::kSlots});
}

// A signal handler of the owner's thread pins and unpins between any two operations of the owner's. Whatever it leaves of the owner's bits: no slot is
// used twice, the pin is within `end`, and all slots are still found.
TEST_F(Resident, AHandlerThatPinsBetweenAnyTwoOperationsTakesNoPinAway) {
  ChunkHead others{};
  others.state.value = 15;
  // Within the second word of bits, and from the first one to the second.
  for (const auto& setting : std::vector<std::pair<unsigned, unsigned>>{{70, 1}, {70, 3}, {70, 70}, {65, 1}, {65, 3}, {65, 70}}) {
    const unsigned held = setting.first, pins_of_handler = setting.second;
    bool came = true;
    for (int when = 0; came; ++when) {
      const auto more = std::make_unique<MorePins>(table_.get());
      Reset(15);
      came = false;
      int operation = 0;
      const auto handler = [&] {
        if (came || operation++ != when) return;
        came = true;
        std::vector<unsigned> at;
        for (unsigned i = 0; i < pins_of_handler; ++i) {
          at.push_back(Known(more.get()));
          ASSERT_LT(at.back(), unsigned{MorePins::kSlots});
          ASSERT_EQ(more->slots[at.back()].value, nullptr);
          StorePinBeyond(&others, more.get(), at.back(), false, false);
        }
        for (const unsigned one : at) more->Unpin(one, true);
      };
      const auto pin = [&] {
        const unsigned at = Known(more.get());
        StorePinBeyond(&chunk_, more.get(), at, false, false);
        return at;
      };
      for (unsigned i = 0; i + 3 < held; ++i) pin();
      traced_std::between = handler;
      pin();
      const unsigned last = pin();
      pin();
      more->Unpin(last, true);
      pin();
      traced_std::between = nullptr;
      ASSERT_EQ(Used(*more), held) << "a handler after " << when << " operations";
      for (unsigned at = 0; at < MorePins::kSlots; ++at) ASSERT_TRUE(more->slots[at].value == nullptr || at < more->end.value) << at << ", " << when;
      for (unsigned i = held; i < MorePins::kSlots; ++i) {
        unsigned at = Known(more.get());
        if (at == MorePins::kSlots) at = more->FindAnew();
        ASSERT_LT(at, unsigned{MorePins::kSlots}) << when;
        more->slots[at].value = &others;
      }
      EXPECT_EQ(Known(more.get()), unsigned{MorePins::kSlots});
    }
  }
}

// As PinsThatNobodySaw, beyond the table: the evictor loads `end` and then the slots below it, at one of the points of a pin, which has two stores to
// drain.
TEST_F(Resident, WithTheBarrierNoPinBeyondTheTableIsOverlooked) {
  const auto more = std::make_unique<MorePins>(table_.get());
  const auto unseen = [&](bool with_barrier, bool with_fence) {
    int count = 0;
    constexpr int kPoints = 5;  // before each of the pin's operations, and behind the last
    for (int close = 0; close < kPoints; ++close) {
      for (int barrier = close; barrier < kPoints; ++barrier) {
        for (int scan = barrier; scan < kPoints; ++scan) {
          Reset(15);
          more->slots[5].value = nullptr;
          more->end.value = 0;
          traced_std::buffers = true;
          bool found = false;
          int point = 0;
          traced_std::between = [&] {
            if (point == close) chunk_.state.value &= ~(kReadable | kWritable);
            if (point == barrier && with_barrier) traced_std::Drain();
            if (point == scan) found = more->end.value > 5 && more->slots[5].value == &chunk_;
            ++point;
          };
          const bool holds = StorePinBeyond(&chunk_, more.get(), 5, false, with_fence);
          while (point < kPoints) traced_std::between();
          traced_std::between = nullptr;
          traced_std::Drain();
          count += holds && !found;
        }
      }
    }
    return count;
  };
  EXPECT_EQ(unseen(true, false), 0);
  EXPECT_EQ(unseen(false, true), 0) << "the pin's own fence";
  EXPECT_GT(unseen(false, false), 0) << "the model cannot fail";
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
