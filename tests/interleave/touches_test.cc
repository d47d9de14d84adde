// First touches as real pins of real threads make them: managedPtrs, the threads' own tables, the mover.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "client/engine/engine.h"
#include "client/front/pin_registry.h"
#include "client/front/session.h"
#include "ramspan/managed_ptr.h"
#include "tests/support/policies.h"
#include "tests/support/recording_policy.h"

namespace ramspan {
namespace {

constexpr size_t kInts = 4096;  // 16 KiB: a chunk of its own

class Touches : public testing::Test {
 protected:
  Touches() {
    Session::Get().engine->ReplacePolicy([this](const ChunkTable* chunks) {
      return std::make_unique<RecordingPolicy>(MakePolicy("cyclic", chunks).value(), &record_);
    });
  }
  ~Touches() override { Session::Get().engine->ReplacePolicy(DefaultPolicy()); }

  // Returns when the bits of all chunks are cleared: the mover asks for another epoch.
  void NewEpoch() {
    const uint32_t before = record_.epoch;
    record_.wants_epoch = true;
    Await([&] { return record_.epoch > before; });
    const uint64_t asked = record_.asked;
    Await([&] { return record_.asked > asked; });
  }
  template <typename Condition>
  void Await(Condition&& condition) {
    while (!condition()) {
      Session::Get().engine->WakeMover();
      std::this_thread::yield();
    }
  }
  // Of this epoch, by a thread, in the order in which the policy heard them. No thread may pin meanwhile.
  std::vector<PolicyRecord::Event> Heard(uint32_t thread) {
    const uint64_t asked = record_.asked;
    Await([&] { return record_.asked > asked + 1; });  // a whole step of the mover, which drains before it asks
    Session::Get().engine->counters();             // takes the mutex: what was recorded under it is seen
    std::vector<PolicyRecord::Event> heard;
    for (const auto& event : record_.events) {
      if (event.kind == PolicyRecord::Kind::kTouch && event.epoch == record_.epoch && event.thread == thread) {
        heard.push_back(event);
      }
    }
    return heard;
  }
  static uint64_t Dropped() { return Session::Get().engine->counters().touches_dropped; }

  PolicyRecord record_;
};

uint32_t IdOf(const managedPtr<int>& p) {
  adhereTo<int> glue(p);
  static_cast<void>(static_cast<const int*>(std::as_const(glue)));
  for (const auto& slot : detail::t_pins->slots) {
    if (const detail::ChunkHead* chunk = slot.load()) return chunk->id;
  }
  return UINT32_MAX;
}

TEST_F(Touches, AThreadsFirstTouchesAreHeardOnceInItsOrderWithWhatTheyWere) {
  constexpr size_t kChunks = 20;  // fewer than a ring holds
  std::vector<managedPtr<int>> field;
  std::vector<uint32_t> ids;
  for (size_t i = 0; i < kChunks; ++i) field.emplace_back(kInts, 1);
  for (const auto& p : field) ids.push_back(IdOf(p));
  const uint32_t thread = PinRegistry::Get().ThisThread();
  for (size_t epoch = 0; epoch < 20; ++epoch) {
    NewEpoch();
    const uint64_t dropped = Dropped();
    for (int round = 0; round < 3; ++round) {
      for (size_t i = 0; i < kChunks; ++i) {
        const size_t at = (i * 7 + epoch) % kChunks;
        adhereTo<int> glue(field[at]);
        if (at % 2) {
          static_cast<int*>(glue)[0] = 2;
        } else {
          static_cast<void>(static_cast<const int*>(std::as_const(glue)));
        }
      }
    }
    const auto heard = Heard(thread);
    ASSERT_EQ(heard.size(), kChunks) << "epoch " << epoch;
    for (size_t i = 0; i < kChunks; ++i) {
      const size_t at = (i * 7 + epoch) % kChunks;
      EXPECT_EQ(heard[i].chunk, ids[at]);
      EXPECT_EQ(heard[i].write, at % 2 == 1);
    }
    EXPECT_EQ(Dropped(), dropped);
  }
}

// A clean object's first write goes through PinSlow, too, whether or not it was read before.
TEST_F(Touches, AReadAndThenAWriteOfACleanObjectAreOne) {
  managedPtr<int> p(kInts, 1);
  const uint32_t thread = (IdOf(p), PinRegistry::Get().ThisThread());
  NewEpoch();
  adhereTo<int> reader(p), writer(p);
  static_cast<void>(static_cast<const int*>(std::as_const(reader)));
  for (auto& slot : detail::t_pins->slots) {
    if (detail::ChunkHead* chunk = slot.load()) chunk->state.fetch_and(~kDirty);  // as if it had come back from swap
  }
  static_cast<int*>(writer)[0] = 2;
  EXPECT_EQ(Heard(thread).size(), 1u);
}

// Its id then means another chunk, or none.
TEST_F(Touches, OfAnObjectThatIsDestroyedAtOnceAreHeardBeforeItsEnd) {
  detail::ThisThreadPins();  // the thread has no number before it has a table
  const uint32_t thread = PinRegistry::Get().ThisThread();
  constexpr size_t kObjects = 20;
  for (int round = 0; round < 20; ++round) {
    std::vector<managedPtr<int>> field;
    for (size_t i = 0; i < kObjects; ++i) field.emplace_back(kInts, 1);
    NewEpoch();
    while (!field.empty()) {
      {
        adhereTo<int> glue(field.back());
        static_cast<int*>(glue)[0] = 3;
      }
      field.pop_back();
    }
    EXPECT_EQ(Heard(thread).size(), kObjects);
  }
}

// Nobody was there to empty the ring: what found no place in it was never heard of again where the policy clears no bits by epochs.
TEST_F(Touches, OneThatIsDroppedIsHeardWithTheNextPin) {
  constexpr size_t kChunks = TouchRing::kCapacity + 8;
  std::vector<managedPtr<int>> field;
  for (size_t i = 0; i < kChunks; ++i) field.emplace_back(kInts, 1);
  std::vector<uint32_t> ids;
  for (const auto& p : field) ids.push_back(IdOf(p));
  const uint32_t thread = PinRegistry::Get().ThisThread();
  const auto pin_all = [&] {
    for (const auto& p : field) IdOf(p);
  };
  NewEpoch();
  const uint64_t dropped = Dropped();
  std::binary_semaphore held(0), go_on(0);
  record_.on_describe = [&] {
    held.release();
    go_on.acquire();
  };
  std::thread holder([] { Session::Get().engine->DescribePolicy(); });
  held.acquire();
  pin_all();
  go_on.release();
  holder.join();
  record_.on_describe = nullptr;
  EXPECT_EQ(Dropped() - dropped, 8u);
  EXPECT_EQ(Heard(thread).size(), TouchRing::kCapacity);
  pin_all();
  const auto heard = Heard(thread);
  ASSERT_EQ(heard.size(), kChunks);
  for (size_t i = 0; i < kChunks; ++i) EXPECT_EQ(heard[i].chunk, ids[i]);
}

// More touches than the rings hold, and chunks that all threads touch at once. One that was dropped is heard of with the next pin: a policy that clears
// no bits waited for it for ever.
TEST_F(Touches, OfManyThreadsEachIsHeardOnceOrCountedAsDropped) {
  constexpr int kThreads = 4;
  constexpr size_t kOwn = 60, kShared = 40;
  constexpr int kEpochs = 10;
  std::vector<managedPtr<int>> shared;
  for (size_t i = 0; i < kShared; ++i) shared.emplace_back(kInts, 1);
  std::vector<std::vector<managedPtr<int>>> own(kThreads);
  std::vector<std::vector<uint32_t>> own_ids(kThreads);
  std::vector<uint32_t> index(kThreads);
  std::barrier step(kThreads + 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < kOwn; ++i) own[t].emplace_back(kInts, t);
      for (const auto& p : own[t]) own_ids[t].push_back(IdOf(p));
      index[t] = PinRegistry::Get().ThisThread();
      step.arrive_and_wait();
      for (int epoch = 0; epoch < kEpochs; ++epoch) {
        step.arrive_and_wait();  // the epoch has begun
        for (int round = 0; round < 2; ++round) {
          for (size_t i = 0; i < kOwn; ++i) {
            adhereTo<int> mine(own[t][i]);
            static_cast<int*>(mine)[i] = t;
            adhereTo<int> ours(shared[i % kShared]);
            static_cast<void>(static_cast<const int*>(std::as_const(ours)));
          }
        }
        step.arrive_and_wait();
      }
    });
  }
  step.arrive_and_wait();
  for (const auto& p : shared) IdOf(p);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    NewEpoch();
    const uint64_t dropped = Dropped();
    step.arrive_and_wait();
    step.arrive_and_wait();
    size_t heard = 0, heard_of_shared = 0;
    for (int t = 0; t < kThreads; ++t) {
      size_t next = 0;  // of the thread's own: a subsequence of its order
      bool may_begin_again = Dropped() > dropped;  // those that were dropped in the first round
      for (const auto& event : Heard(index[t])) {
        ++heard;
        auto at = std::find(own_ids[t].begin() + static_cast<ptrdiff_t>(next), own_ids[t].end(), event.chunk);
        if (at == own_ids[t].end() && may_begin_again) {
          at = std::find(own_ids[t].begin(), own_ids[t].end(), event.chunk);
          may_begin_again = at == own_ids[t].end();
        }
        if (at == own_ids[t].end()) {
          ++heard_of_shared;
          EXPECT_FALSE(event.write);
          for (const auto& ids : own_ids) EXPECT_EQ(std::count(ids.begin(), ids.end(), event.chunk), 0) << "order, or the thread";
        } else {
          next = static_cast<size_t>(at - own_ids[t].begin()) + 1;
          EXPECT_TRUE(event.write);
        }
      }
    }
    EXPECT_LE(heard_of_shared, kShared);  // one of the threads each; the policy itself refuses a second one
    EXPECT_LE(heard, kThreads * kOwn + kShared) << "epoch " << epoch;
    EXPECT_GE(heard + Dropped() - dropped, kThreads * kOwn + kShared) << "epoch " << epoch;
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace ramspan
