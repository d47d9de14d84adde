// A program's own swap and strategy, derived from Rambrain's classes (examples/rambrain_extend.cc has longer ones) and from
// Ramspan's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rambrain/cyclicManagedMemory.h"
#include "rambrain/dummyManagedMemory.h"
#include "rambrain/managedDummySwap.h"
#include "rambrain/managedFileSwap.h"
#include "rambrain/managedPtr.h"
#include "ramspan/adhere_all.h"
#include "ramspan/extend.h"
#include "ramspan/mapped_file.h"
#include "ramspan/runtime.h"
#include "tests/rambrain/field.h"
#include "tests/support/ends_or_else.h"
#include "tests/support/map_store.h"

using namespace rambrain;

namespace {

// Run-length coded doubles: what a program that knows its data would do.
class RunLengthSwap : public managedSwap {
 public:
  explicit RunLengthSwap(global_bytesize size) : managedSwap(size) {}

  std::atomic<int> outs{0}, ins{0}, deletes{0};
  std::atomic<bool> fail_writes{false}, fail_reads{false};

 protected:
  global_bytesize swapOut(managedMemoryChunk* chunk) override {
    if (fail_writes) return 0;
    ++outs;
    if (chunk->swapBuf == nullptr) chunk->swapBuf = new Runs;
    Runs& runs = *static_cast<Runs*>(chunk->swapBuf);
    runs.clear();
    const char* bytes = static_cast<const char*>(chunk->locPtr);
    for (global_bytesize at = 0; at < chunk->size; at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + at, std::min<global_bytesize>(8, chunk->size - at));
      if (runs.empty() || runs.back().first != word) runs.emplace_back(word, 0);
      ++runs.back().second;
    }
    return chunk->size;
  }
  global_bytesize swapIn(managedMemoryChunk* chunk) override {
    if (fail_reads) return 0;
    ++ins;
    char* bytes = static_cast<char*>(chunk->locPtr);
    global_bytesize at = 0;
    for (const auto& [word, count] : *static_cast<Runs*>(chunk->swapBuf)) {
      for (uint64_t i = 0; i < count; ++i, at += 8) std::memcpy(bytes + at, &word, std::min<global_bytesize>(8, chunk->size - at));
    }
    return chunk->size;
  }
  void swapDelete(managedMemoryChunk* chunk) override {
    ++deletes;
    delete static_cast<Runs*>(chunk->swapBuf);
  }

 private:
  using Runs = std::vector<std::pair<uint64_t, uint64_t>>;
};

TEST(OwnSwap, HoldsWhatLeavesAndGivesItBack) {
  RunLengthSwap swap(64 * mib);
  {
    cyclicManagedMemory manager(&swap, 4 * mib);
    auto field = Field(60);
    managedPtr<char> odd(12345, 'x');
    Expect(field);
    EXPECT_GT(swap.outs, 20);
    EXPECT_GT(swap.ins, 20);
    EXPECT_GT(swap.getUsedSwap(), 8 * mib);
    ADHERETOLOCCONST(char, odd, data);
    EXPECT_EQ(data[12344], 'x');
  }
  EXPECT_GT(swap.deletes, 0);
  EXPECT_EQ(swap.getUsedSwap(), 0u);
}

TEST(OwnSwap, FailuresLoseNothing) {
  RunLengthSwap swap(64 * mib);
  cyclicManagedMemory manager(&swap, 4 * mib);
  auto field = Field(40);
  Expect(field);
  swap.fail_reads = true;
  int threw = 0;
  for (auto& row : field) {
    try {
      ADHERETOLOCCONST(double, row, data);
      EXPECT_EQ(data[0], data[1]);
    } catch (const memoryException& e) {
      ++threw;
    }
  }
  EXPECT_GT(threw, 10);
  swap.fail_reads = false;
  Expect(field);
  swap.fail_writes = true;
  std::vector<managedPtr<double>> more;
  EXPECT_THROW(for (int i = 0; i < 100; ++i) more.emplace_back(kDoubles, i), memoryException);
  swap.fail_writes = false;
  Expect(field);
  Expect(more);
}

// Last in, first out: right for a program that sweeps to and fro.
class StackManager : public managedMemory {
 public:
  StackManager(managedSwap* swap, global_bytesize size) : managedMemory(swap, size) {}

  std::atomic<int> registered{0}, asked{0}, missed{0}, ahead_used{0};
  std::atomic<bool> names_nobody{false}, reads_ahead{false};

 protected:
  void schedulerRegister(managedMemoryChunk& chunk) override {
    ++registered;
    order_.push_back(&chunk);
    chunk.schedBuf = new std::list<managedMemoryChunk*>::iterator(std::prev(order_.end()));
  }
  void schedulerDelete(managedMemoryChunk& chunk) override {
    --registered;
    auto* place = static_cast<std::list<managedMemoryChunk*>::iterator*>(chunk.schedBuf);
    order_.erase(*place);
    delete place;
  }
  bool swapIn(managedMemoryChunk& chunk) override {
    ++missed;
    auto& place = *static_cast<std::list<managedMemoryChunk*>::iterator*>(chunk.schedBuf);
    if (auto next = std::next(place); reads_ahead && next != order_.end()) fetchAhead(**next);
    return true;
  }
  bool touch(managedMemoryChunk& chunk) override {
    ++ahead_used;
    return swapIn(chunk);
  }
  swapErrorCode swapOut(global_bytesize min_size) override {
    ++asked;
    if (names_nobody) return ERR_NOTENOUGHCANDIDATES;
    global_bytesize sum = 0;
    for (auto it = order_.rbegin(); it != order_.rend() && sum < min_size; ++it) {
      if (!isResident(**it)) continue;
      sum += (*it)->size;
      if (!letGo(**it)) break;
    }
    return sum >= min_size ? ERR_SUCCESS : ERR_NOTENOUGHCANDIDATES;
  }

 private:
  std::list<managedMemoryChunk*> order_;
  inCharge strategy{*this};
};

TEST(OwnManager, DecidesWhoLeaves) {
  managedDummySwap swap(64 * mib);
  auto before = Field(3);
  {
    StackManager manager(&swap, 4 * mib);
    manager.closeSwap();  // nothing is in it
  }
  managedDummySwap again(64 * mib);
  StackManager manager(&again, 4 * mib);
  EXPECT_EQ(manager.registered, 3);
  auto field = Field(40);
  EXPECT_EQ(manager.registered, 43);
  EXPECT_GT(manager.asked, 0);
  // The first ones stayed, as the strategy says; the cyclic one would have let them go.
  const auto counts = ramspan::GetStatistics();
  for (int i = 0; i < 3; ++i) {
    ROWCONST(double, field[i], data);
    EXPECT_EQ(data[0], i);
  }
  EXPECT_EQ(ramspan::GetStatistics().misses, counts.misses);
  Expect(field);
  Expect(before);
  EXPECT_GT(manager.missed, 20);
}

TEST(OwnManager, ReadsAheadWhatItNames) {
  managedDummySwap swap(64 * mib);
  StackManager manager(&swap, 8 * mib);
  manager.reads_ahead = true;
  auto field = Field(100);
  for (int i = 0; i < 50000 && manager.ahead_used == 0; ++i) {
    ROWCONST(double, field[i % 100], data);
    ASSERT_EQ(data[7], i % 100);
    std::this_thread::sleep_for(std::chrono::microseconds(300));  // the program computes
  }
  EXPECT_GT(manager.ahead_used, 0);
}

TEST(OwnManager, APoorStrategyIsSlowButRight) {
  managedDummySwap swap(64 * mib);
  StackManager manager(&swap, 4 * mib);
  manager.names_nobody = true;
  auto field = Field(40);
  Expect(field);
}

// It names the same objects again and again, and the program holds them.
TEST(OwnManager, WhatIsHeldStaysThoughItIsNamed) {
  managedDummySwap swap(64 * mib);
  StackManager manager(&swap, 4 * mib);
  auto field = Field(12);
  std::vector<adhereTo<double>> held(field.end() - 8, field.end());
  for (auto& glue : held) static_cast<void>(static_cast<const double*>(std::as_const(glue)));
  auto more = Field(30);
  Expect(more);
  held.clear();
  Expect(field);
}

TEST(OwnManager, StepsAsideForOthersAndComesBack) {
  managedDummySwap swap(64 * mib);
  StackManager manager(&swap, 4 * mib);
  auto field = Field(20);
  EXPECT_EQ(manager.registered, 20);
  {
    managedDummySwap inner(64 * mib);
    cyclicManagedMemory cyclic(&inner, 4 * mib);
    EXPECT_EQ(manager.registered, 0);
    auto more = Field(20);
    Expect(more);
    Expect(field);
  }
  EXPECT_EQ(manager.registered, 20);
  Expect(field);
}

// Does something within its next swapOut.
struct ActingSwap final : RunLengthSwap {
  using RunLengthSwap::RunLengthSwap;
  std::function<void()> next;  // until `acted`
  std::atomic<bool> acted{true};
  global_bytesize swapOut(managedMemoryChunk* chunk) override {
    if (!acted) next();
    acted = true;
    return RunLengthSwap::swapOut(chunk);
  }
  void Act(const std::function<void()>& what) {
    next = what;
    acted = false;
    auto more = Field(60);
    EXPECT_TRUE(acted) << "then this test shows nothing";
    Expect(more);
  }
};

// Ramspan refuses to turn to another strategy within a store's call, and a destructor cannot pass that on: the end of the program. Without a
// strategy the store of the swap that was being called was destroyed, because its manager was the last one.
TEST(OwnManager, EndsWithinACallOfItsSwap) {
  managedDummySwap outer_swap(64 * mib);
  cyclicManagedMemory outer(&outer_swap, 16 * mib);
  for (const bool with_strategy : {true, false}) {
    ActingSwap swap(64 * mib);
    std::unique_ptr<managedMemory> manager;
    const auto begin = [&] {
      if (with_strategy) {
        manager = std::make_unique<StackManager>(&swap, 4 * mib);
      } else {
        manager = std::make_unique<cyclicManagedMemory>(&swap, 4 * mib);
      }
    };
    begin();
    auto field = Field(40);
    testing::internal::CaptureStderr();
    swap.Act([&] { manager.reset(); });
    EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("within a call of a swap's"));
    EXPECT_EQ(managedMemory::defaultManager, &outer);
    EXPECT_GT(swap.getUsedSwap(), 0u) << "what is there has not come home yet";
    Expect(field);
    begin();
    Expect(field);
    manager.reset();
    EXPECT_EQ(swap.getUsedSwap(), 0u);
    EXPECT_EQ(outer.getMemoryLimit(), 16 * mib);
    Expect(field);
  }
}

TEST(OwnManager, IsNotConstructedWithinACallOfASwap) {
  ActingSwap swap(64 * mib);
  managedDummySwap other(64 * mib);
  cyclicManagedMemory manager(&swap, 4 * mib);
  auto field = Field(40);
  int refused = 0;
  swap.Act([&] {
    try {
      const cyclicManagedMemory inner(&other, 2 * mib);
    } catch (const incompleteSetupException&) {
      ++refused;
    }
    try {
      const dummyManagedMemory inner;
    } catch (const incompleteSetupException&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(managedMemory::defaultManager, &manager);
  EXPECT_EQ(manager.getMemoryLimit(), 4 * mib);
  EXPECT_EQ(other.getUsedSwap(), 0u);
  Expect(field);
}

// Within its own call nobody can wait for the end of that.
TEST(OwnManager, ItsStrategyEndsWithinItsOwnCall) {
  struct BriefManager final : managedMemory {
    explicit BriefManager(managedSwap* swap) : managedMemory(swap, 4 * mib) {}
    int known = 0, asked = 0;
    std::optional<inCharge> strategy{std::in_place, *this};
    void schedulerRegister(managedMemoryChunk&) override { ++known; }
    void schedulerDelete(managedMemoryChunk&) override { --known; }
    swapErrorCode swapOut(global_bytesize) override {
      ++asked;
      strategy.reset();
      return ERR_NOTENOUGHCANDIDATES;
    }
  };
  managedDummySwap swap(64 * mib);
  std::vector<managedPtr<double>> field;
  {
    BriefManager manager(&swap);
    field = Field(60);
    Expect(field);
    EXPECT_EQ(manager.asked, 1);
    EXPECT_EQ(manager.known, 0);
  }
  StackManager next(&swap, 4 * mib);
  EXPECT_EQ(next.registered, 60);
  Expect(field);
}

TEST(OwnSwapDeathTest, EndsTheProgramWithAMessageWithinItsOwnCall) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto* swap = new ActingSwap(64 * mib);
        cyclicManagedMemory manager(swap, 4 * mib);
        swap->Act([&] { delete swap; });
      },
      "a swap was destroyed within a call of its own");
}

TEST(SwapStore, InUseRemovedAbandoned) {
  MapStore store(64 * mib);
  const ramspan::SwapId id = ramspan::AddSwap(&store);
  ramspan::UseSwap(id);
  EXPECT_EQ(ramspan::SwapInUse(), id);
  auto field = Field(120);  // 30 MiB in 16
  Expect(field);
  EXPECT_GT(store.slots(), 40u);
  EXPECT_GT(ramspan::GetSwapUse(id).used, 10 * mib);
  ramspan::RemoveSwap(id);
  EXPECT_EQ(store.slots(), 0u);
  EXPECT_EQ(ramspan::SwapInUse(), ramspan::SwapId::kConfigured);
  Expect(field);
  const uint64_t limit = ramspan::GetStatistics().memory_limit;
  ramspan::SetMemoryLimit(mib);  // what has not been written there since goes there, not into the next one
  Expect(field);
  ramspan::SetMemoryLimit(limit);

  // Lost is what is in the abandoned swap only, and nothing else: not what is in memory besides, though it is clean there.
  // Without read-ahead and write-behind nothing moves but for the pulls below.
  ramspan::SetPreemptive(false, false);
  const ramspan::SwapId lost = ramspan::AddSwap(&store);
  ramspan::UseSwap(lost);
  std::vector<ramspan::managedPtr<double>> other;
  const auto first_of = [](const ramspan::managedPtr<double>& row) {
    const ramspan::adhereTo<double> glue(row);
    return *static_cast<const double*>(glue);
  };
  for (int i = 0; i < 120; ++i) other.emplace_back(kDoubles, i);
  for (int i = 0; i < 120; ++i) EXPECT_EQ(first_of(other[i]), i);  // read: what is in memory now is clean
  ramspan::AbandonSwap(lost);
  const auto state = [](const auto& row) {
    return std::string(ramspan::detail::DescribeChunk(ramspan::detail::ObjectOf()(row).chunk()));
  };
  std::vector<bool> in_swap_only;
  for (const auto& row : other) {
    while (state(row) == "swapping out") std::this_thread::yield();  // the mover takes the end of the write
    in_swap_only.push_back(state(row) != "in memory");
  }
  EXPECT_GT(std::count(in_swap_only.begin(), in_swap_only.end(), true), 10);
  EXPECT_GT(std::count(in_swap_only.begin(), in_swap_only.end(), false), 10);
  Expect(field);  // makes all that can leave leave
  for (size_t i = 0; i < other.size(); ++i) {
    bool gone = false;
    try {
      EXPECT_EQ(first_of(other[i]), static_cast<double>(i));
    } catch (const ramspan::DataLost&) {
      gone = true;
    }
    EXPECT_EQ(gone, in_swap_only[i]) << "row " << i;
  }
  ramspan::SetPreemptive(true, true);
}

// A manager whose swap was gone used it, and the message was that this is a bug in Ramspan.
TEST(SwapStore, OneThatWasRemovedIsAnErrorThatNamesIt) {
  MapStore store(1 * mib);
  const ramspan::SwapId id = ramspan::AddSwap(&store);
  ramspan::RemoveSwap(id);
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const ramspan::ConfigError& e) {
      return e.what();
    }
    return "no error";
  };
  using testing::HasSubstr;
  const std::string number = "swap " + std::to_string(static_cast<int>(id));
  EXPECT_THAT(message([&] { ramspan::UseSwap(id); }), HasSubstr(number));
  EXPECT_THAT(message([&] { ramspan::RemoveSwap(id); }), HasSubstr(number));
  EXPECT_THAT(message([&] { static_cast<void>(ramspan::GetSwapUse(id)); }), HasSubstr(number));
  EXPECT_THAT(message([&] { ramspan::SetSwapLimit(id, 1 * mib); }), HasSubstr(number));
  EXPECT_THAT(message([&] { ramspan::RemoveSwap(ramspan::SwapId::kConfigured); }), HasSubstr("configured"));
  EXPECT_THAT(message([&] { ramspan::UseSwap(ramspan::SwapId(99)); }), HasSubstr("99"));
  ramspan::AbandonSwap(id);  // for destructors: says so on standard error and throws nothing
  EXPECT_EQ(ramspan::SwapInUse(), ramspan::SwapId::kConfigured);
}

// Managers, swaps and strategies come and go while threads make, use and destroy objects.
TEST(Threads, WorkWhileManagersComeAndGo) {
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, rounds{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::vector<managedPtr<int>> field;
      for (int i = 0; i < 60; ++i) field.emplace_back(1 << 14, 100 * t + i);  // 64 KiB
      for (unsigned i = 0; !stop; ++i) {
        const int at = static_cast<int>(i * 7 % 60);
        ROW(int, field[at], data);
        if (data[0] != 100 * t + at || data[16383] != 100 * t + at) ++wrong;
        if (i % 5 == 0) {
          managedPtr<int> fresh(1 << 14, 100 * t + (at + 1) % 60);
          field[(at + 1) % 60] = fresh;
        }
        ++rounds;
      }
    });
  }
  const int cycles = 30;
  for (int i = 0; i < cycles; ++i) {
    RunLengthSwap swap(64 * mib);
    StackManager manager(&swap, 4 * mib);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    managedFileSwap files(64 * mib, "/tmp/rambrain-threads-%d-%d");
    cyclicManagedMemory inner(&files, 3 * mib);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stop = true;
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(rounds, cycles);
}

TEST(SwapStore, TooManyAtATimeIsAnError) {
  std::vector<std::unique_ptr<MapStore>> stores;
  std::vector<ramspan::SwapId> ids;
  EXPECT_THROW(
      for (int i = 0; i < 20; ++i) {
        stores.push_back(std::make_unique<MapStore>(64 * mib));
        ids.push_back(ramspan::AddSwap(stores.back().get()));
      },
      ramspan::ConfigError);
  EXPECT_GE(ids.size(), 12u);
  for (auto id : ids) ramspan::RemoveSwap(id);
}

// Does something within each of its calls, but not within those that come of it: its capacity is a part of its use, say.
class WithinStore : public MapStore {
 public:
  using MapStore::MapStore;
  virtual void Within(const std::string& call) const = 0;
  uint64_t Capacity() const override { return Enter("Capacity"), MapStore::Capacity(); }
  bool Extend(uint64_t) override { return Enter("Extend"), false; }
  bool Write(uint64_t slot, const void* data, size_t bytes) override { return Enter("Write"), MapStore::Write(slot, data, bytes); }
  bool Read(uint64_t slot, void* data, size_t bytes) override { return Enter("Read"), MapStore::Read(slot, data, bytes); }
  void Erase(uint64_t slot, size_t bytes) noexcept override {
    Enter("Erase");
    MapStore::Erase(slot, bytes);
  }

 private:
  void Enter(const char* call) const {
    static thread_local bool inside = false;
    if (std::exchange(inside, true)) return;
    Within(call);
    inside = false;
  }
};

// GetSwapUse asks the store's capacity, and RemoveSwap and CloseSwap move its bytes: a store that asked back in such a call stood
// still for ever.
TEST(SwapStore, MayAskForItsUseInEachOfItsCalls) {
  struct AskingStore final : WithinStore {
    AskingStore() : WithinStore(64 * mib) {}
    std::atomic<ramspan::SwapId> id{};
    mutable std::atomic<int> writes{0}, reads{0}, erased{0};
    void Within(const std::string& call) const override {
      if (id == ramspan::SwapId{}) return;
      writes += call == "Write";
      reads += call == "Read";
      erased += call == "Erase";
      EXPECT_LE(ramspan::GetSwapUse(id).used, 64 * mib);
      static_cast<void>(ramspan::SwapInUse());
      static_cast<void>(ramspan::GetStatistics());
      static_cast<void>(ramspan::MemoryLimit());
    }
  } store;
  std::atomic<bool> ended{false};
  std::thread watch([&] { EndsOrElse([&] { return ended.load(); }); });
  {
    RunLengthSwap other(64 * mib);
    cyclicManagedMemory manager(&other, 4 * mib);
    const auto use = [&] {
      store.id = ramspan::SwapId{};
      const ramspan::SwapId id = ramspan::AddSwap(&store);
      store.id = id;
      ramspan::UseSwap(id);
    };
    use();
    {
      auto field = Field(60);
      Expect(field);
      EXPECT_GT(ramspan::GetSwapUse(store.id).used, mib);
      EXPECT_GT(store.writes, 0);
      ramspan::UseSwap(ramspan::SwapId::kConfigured);
      const int reads = store.reads, erased = store.erased;
      ramspan::RemoveSwap(store.id);
      EXPECT_GT(store.reads, reads);
      EXPECT_GT(store.erased, erased);
      Expect(field);
    }
    use();
    auto more = Field(60);
    Expect(more);
    EXPECT_THROW(ramspan::CloseSwap(), ramspan::Error);  // reads until memory is full
    ramspan::AbandonSwap(store.id);
    store.id = ramspan::SwapId{};
  }
  ended = true;
  watch.join();
}

// It was in use when it was gone; and then, waiting for the end of the removal, a thread whose pins that waits for stood still for ever.
TEST(SwapStore, IsNotPutToUseWhileItIsRemoved) {
  struct EagerStore final : MapStore {
    EagerStore() : MapStore(64 * mib) {}
    std::atomic<ramspan::SwapId> id{};
    std::atomic<int> refused{0}, used{0};
    bool Read(uint64_t slot, void* data, size_t bytes) override {
      std::thread([this] {  // as any other thread, which the removal may wait for
        try {
          const bool is_removed = refused > 0;  // before that, the mover may be reading ahead
          ramspan::UseSwap(id);
          used += is_removed ? 1 : 0;
        } catch (const ramspan::ConfigError&) {
          ++refused;
        }
      }).join();
      return MapStore::Read(slot, data, bytes);
    }
  } store;
  RunLengthSwap other(64 * mib);
  cyclicManagedMemory manager(&other, 4 * mib);
  store.id = ramspan::AddSwap(&store);
  ramspan::UseSwap(store.id);
  auto field = Field(60);
  Expect(field);
  ramspan::UseSwap(ramspan::SwapId::kConfigured);
  store.used = store.refused = 0;
  ramspan::RemoveSwap(store.id);
  EXPECT_GT(store.refused, 0);
  EXPECT_EQ(store.used, 0);
  EXPECT_EQ(ramspan::SwapInUse(), ramspan::SwapId::kConfigured);
  Expect(field);
}

// A hint was followed at once, on the thread that ran the store's own call: one with a lock of its own stood still for ever.
TEST(SwapStore, ReadsForNoHintOfItsOwnCalls) {
  struct HintingStore final : MapStore {
    HintingStore() : MapStore(64 * mib) {}
    std::atomic<const std::vector<ramspan::managedPtr<char>>*> hinted{nullptr};
    std::atomic<int> reads{0}, reads_within{0};
    static bool& IsHinting() {
      static thread_local bool hinting = false;
      return hinting;
    }
    uint64_t Capacity() const override {
      if (const auto* data = hinted.load()) {
        IsHinting() = true;
        for (const auto& one : *data) one.prepareUse();
        IsHinting() = false;
      }
      return MapStore::Capacity();
    }
    bool Read(uint64_t slot, void* data, size_t bytes) override {
      ++reads;
      reads_within += IsHinting();
      return MapStore::Read(slot, data, bytes);
    }
  } store;
  RunLengthSwap other(64 * mib);
  cyclicManagedMemory manager(&other, 4 * mib);
  ramspan::SetPreemptive(false, false);
  const ramspan::SwapId id = ramspan::AddSwap(&store);
  ramspan::UseSwap(id);
  {
    std::vector<ramspan::managedPtr<char>> data;
    for (int i = 0; i < 32; ++i) {
      data.emplace_back(mib / 4);
      ramspan::adhereTo<char> glue(data.back());
      static_cast<char*>(glue)[0] = 1;
    }
    data.erase(data.begin() + 24, data.end());  // those that came last were in memory
    const int reads = store.reads;
    store.hinted = &data;
    static_cast<void>(ramspan::GetSwapUse(id));  // asks its capacity, on this thread
    store.hinted = nullptr;
    EXPECT_EQ(store.reads_within, 0);
    for (const auto& one : data) one.prepareUse();
    EXPECT_GT(store.reads, reads) << "there was no room for any hint";
  }
  ramspan::UseSwap(ramspan::SwapId::kConfigured);
  ramspan::RemoveSwap(id);
  ramspan::SetPreemptive(true, true);
}

// What a store may call in its calls, and what it is refused: a call that waits for the store's own stood still for ever, and GetSwapUse
// within Capacity asked itself until the stack ended.
TEST(SwapStore, IsRefusedWhatWaitsForItsCallAndMayAskTheRest) {
  struct CallingStore final : WithinStore {
    struct Call {
      const char* name;
      std::function<void()> call;
      bool refused;
    };
    CallingStore() : WithinStore(2 * mib) {}
    std::vector<Call> calls;
    std::atomic<bool> armed{false};
    mutable std::mutex mutex;
    mutable std::map<std::string, std::string> told;  // by callback and call: what came of it
    void Within(const std::string& within) const override {
      if (!armed) return;
      for (const Call& one : calls) {
        const std::string key = within + ": " + one.name;
        {
          const std::lock_guard lock(mutex);
          if (!told.emplace(key, "not ended").second) continue;  // once is enough
        }
        std::string result = "nothing";
        try {
          one.call();
        } catch (const ramspan::Error& e) {
          result = e.what();
        }
        const std::lock_guard lock(mutex);
        told[key] = result;
      }
    }
  } store;
  std::atomic<bool> ended{false};
  std::thread watch([&] { EndsOrElse([&] { return ended.load(); }); });
  {
    RunLengthSwap other(64 * mib);
    cyclicManagedMemory manager(&other, 4 * mib);
    const ramspan::SwapId id = ramspan::AddSwap(&store);
    std::vector<ramspan::managedPtr<double>> field, more;  // the first does not change while the store may look at it
    const auto pull_all = [&] {
      for (const auto& row : field) {
        const ramspan::adhereTo<double> glue(row);
        static_cast<void>(static_cast<const double*>(glue));
      }
    };
    store.calls = {
        {"GetSwapUse", [&] { static_cast<void>(ramspan::GetSwapUse(id)); }, false},
        {"SwapInUse", [] { static_cast<void>(ramspan::SwapInUse()); }, false},
        {"GetSwapFragmentation", [] { static_cast<void>(ramspan::GetSwapFragmentation(ramspan::SwapId::kConfigured)); }, false},
        {"GetStatistics", [] { static_cast<void>(ramspan::GetStatistics()); }, false},
        {"StatsJson", [] { static_cast<void>(ramspan::StatsJson()); }, false},
        {"MemoryLimit", [] { static_cast<void>(ramspan::MemoryLimit()); }, false},
        {"SwapLimit", [] { static_cast<void>(ramspan::SwapLimit()); }, false},
        {"EffectiveOptions", [] { static_cast<void>(ramspan::EffectiveOptions()); }, false},
        {"AbandonSwap", [&] { ramspan::AbandonSwap(id); }, false},  // says so on standard error
        {"RemoveSwap", [&] { ramspan::RemoveSwap(id); }, true},
        {"CloseSwap", [] { ramspan::CloseSwap(); }, true},
        {"WaitForTransfers", [] { ramspan::WaitForTransfers(); }, true},
        {"SetEvictionPolicy", [] { ramspan::SetEvictionPolicy(nullptr); }, true},
        {"SetMemoryLimit", [] { ramspan::SetMemoryLimit(8 * mib); }, true},
        {"Reconfigure", [] { ramspan::Reconfigure({}); }, true},
        {"a managedPtr", [] { const ramspan::managedPtr<double> made(kDoubles); }, true},
        {"a small managedPtr", [] { const ramspan::managedPtr<double> made(1); }, true},
        {"pulls", pull_all, true},
        {"LISTOFINGREDIENTS", [] { const ramspan::detail::IngredientsScope scope; }, true},
        {"a mappedFile that is written back", [] { ramspan::detail::WriteBackChunks({}, {}, 0, 0); }, true},
        {"adhereAll", [&] { static_cast<void>(ramspan::adhereAll(field[0], field[1])); }, true},
    };
    ramspan::UseSwap(id);
    std::vector<ramspan::managedPtr<double>> gone;
    for (int i = 0; i < 2; ++i) gone.emplace_back(kDoubles, i);
    for (int i = 0; i < 20; ++i) field.emplace_back(kDoubles, i);
    for (int sweep = 0; sweep < 3; ++sweep) pull_all();  // what is not used any more is in swap
    EXPECT_GT(ramspan::GetSwapUse(id).used, 0u);
    store.armed = true;
    gone.clear();  // their places are given back, of which it hears before something is written again
    pull_all();
    EXPECT_THROW(for (int i = 0; i < 20; ++i) more.emplace_back(kDoubles, i), ramspan::OutOfSwap);  // asks it to extend
    store.armed = false;
    EXPECT_GT(ramspan::GetSwapUse(id).used, 0u) << "it is there";
    more.clear();  // a program of Rambrain's fills swap to the last byte, so nothing could change places
    for (size_t i = 0; i < field.size(); ++i) {
      const ramspan::adhereTo<double> glue(field[i]);
      EXPECT_EQ(*static_cast<const double*>(glue), static_cast<double>(i));
    }
    field.clear();
    ramspan::RemoveSwap(id);
  }
  ended = true;
  watch.join();
  for (const char* within : {"Capacity", "Extend", "Write", "Read", "Erase"}) {
    for (const auto& one : store.calls) {
      const std::string key = std::string(within) + ": " + one.name;
      ASSERT_TRUE(store.told.contains(key)) << key;
      EXPECT_THAT(store.told[key], one.refused ? testing::HasSubstr("within a call of a SwapStore") : testing::HasSubstr("nothing")) << key;
    }
  }
}

}  // namespace
