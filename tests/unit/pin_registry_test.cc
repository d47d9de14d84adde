// How pin tables pass from thread to thread. What evictors see in them: tests/interleave.
#include "client/front/pin_registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <set>
#include <thread>
#include <vector>

namespace ramspan {
namespace {

// Pins once more when its thread ends, as a thread_local container of managedPtrs whose elements have destructors.
struct PinsAtThreadEnd {
  bool used = false;
  ~PinsAtThreadEnd() {
    if (used) detail::ThisThreadPins();
  }
};
thread_local PinsAtThreadEnd t_late;

void RunThreads(int n) {
  for (int i = 0; i < n; ++i) {
    std::thread([] {
      t_late.used = true;  // made before the thread's first pin, so it is destroyed after what that pin made
      PinRegistry::Get().Adopt();
    }).join();
  }
}

// The table that such an end adopts was never given up: 1 KiB and 64 slots to be looked at a thread, and for ever a thread
// that might release something, so that no deadlock was certain any more.
TEST(PinRegistry, ATableThatAThreadsLastDestructorsTookIsGivenUp) {
  PinRegistry& registry = PinRegistry::Get();
  if (detail::t_pins == nullptr) registry.Adopt();
  RunThreads(1);
  const uint64_t before = registry.metadata_bytes();
  RunThreads(20);
  EXPECT_EQ(registry.metadata_bytes(), before);
  EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kDeadlock);  // nobody else lives
}

// An adhereTo on the heap outlives its thread. Its pin counted as one of a thread that goes on, and who needed the memory
// waited for ever.
TEST(PinRegistry, ThePinOfAThreadThatHasEndedIsNotWaitedForWithoutEnd) {
  PinRegistry& registry = PinRegistry::Get();
  if (detail::t_pins == nullptr) registry.Adopt();
  static Chunk chunk;
  std::atomic<detail::ChunkHead*>* slot = nullptr;
  std::thread([&] {
    slot = &registry.Adopt()->slots[0];
    slot->store(&chunk);
  }).join();
  EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kUnlikely);
  std::promise<void> adopted, end;
  std::thread other([&] {
    registry.Adopt();
    adopted.set_value();
    end.get_future().wait();
  });
  adopted.get_future().wait();
  EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kSomebodyMayUnpin);  // that one may
  end.set_value();
  other.join();
  slot->store(nullptr);
}

// A thread that lives and does not wait, from when it is made until it is destroyed.
class LivingThread {
 public:
  explicit LivingThread(std::function<void()> work = [] {}, std::function<void()> at_end = [] {}) {
    thread_ = std::thread([this, work, at_end] {
      PinRegistry::Get().Adopt();
      work();
      ready_.set_value();
      end_.get_future().wait();
      PinRegistry::Get().SetWaiting(nullptr);
      at_end();
    });
    ready_.get_future().wait();
  }
  ~LivingThread() {
    end_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> ready_, end_;
  std::thread thread_;
};

// The pins counted for ever for the thread that had taken them, and who needed the memory waited for that one for ever.
TEST(PinRegistry, CountedPinsThatAnotherThreadEndedAreNobodys) {
  PinRegistry& registry = PinRegistry::Get();
  if (detail::t_pins == nullptr) registry.Adopt();
  {
    const LivingThread taker([] { PinRegistry::NoteCounted(20); });
    EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kSomebodyMayUnpin);
    const LivingThread ender([] { PinRegistry::NoteCounted(-20); });
    EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kUnlikely);
  }
  EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kDeadlock);
}

// It had ended as many of others before: its own seemed to be none.
TEST(PinRegistry, CountedPinsOfAThreadThatEndedOthersAreWaitedFor) {
  PinRegistry& registry = PinRegistry::Get();
  if (detail::t_pins == nullptr) registry.Adopt();
  {
    const LivingThread taker([] { PinRegistry::NoteCounted(20); });
    const LivingThread ender([] {
      PinRegistry::NoteCounted(-20);
      PinRegistry::NoteCounted(20);
    });
    EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kSomebodyMayUnpin);
    std::thread([] { PinRegistry::NoteCounted(-20); }).join();  // one without a table
    EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kUnlikely);
  }
}

// What this thread had taken and others had ended hid as many pins that others really held: it was told that no thread can go on
// to release one.
TEST(PinRegistry, PinsThatThisThreadHandedOverHideNoneThatOthersHold) {
  PinRegistry& registry = PinRegistry::Get();
  if (detail::t_pins == nullptr) registry.Adopt();
  for (const int kept : {0, 1}) {
    PinRegistry::NoteCounted(kept);
    PinRegistry::NoteCounted(3);
    std::thread([] { PinRegistry::NoteCounted(-3); }).join();
    {
      const LivingThread other([] { PinRegistry::NoteCounted(3); }, [] { PinRegistry::NoteCounted(-3); });
      EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kSomebodyMayUnpin) << kept;
    }
    PinRegistry::NoteCounted(-kept);
    const LivingThread other;
    EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kUnlikely) << "with no counted pin left";
  }
}

// As long as there are counted pins that could be meant. Without any, what was handed over is forgotten.
TEST(PinRegistry, PinsThatWereHandedOverAreForgottenWithTheLastOne) {
  PinRegistry& registry = PinRegistry::Get();
  if (detail::t_pins == nullptr) registry.Adopt();
  PinRegistry::NoteCounted(3);
  std::thread([] { PinRegistry::NoteCounted(-3); }).join();
  const LivingThread other;
  PinRegistry::NoteCounted(2);
  EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kUnlikely);
  PinRegistry::NoteCounted(-2);
}

TEST(PinRegistry, CountedPinsOfThisThreadOrOfOneThatWaitsAreNotWaitedFor) {
  PinRegistry& registry = PinRegistry::Get();
  if (detail::t_pins == nullptr) registry.Adopt();
  static Chunk chunk;
  chunk.state = uint64_t{static_cast<uint8_t>(Phase::kSwapped)} << kPhaseShift;  // and stays there
  PinRegistry::NoteCounted(5);
  {
    const LivingThread waiter([&] {
      PinRegistry::NoteCounted(20);
      registry.SetWaiting(&chunk);
    });
    EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kDeadlock);
    const LivingThread other;
    EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kUnlikely);
  }
  PinRegistry::NoteCounted(-5);
  std::thread([] { PinRegistry::NoteCounted(-20); }).join();
}

// Those of p[i] stay until their thread's next one. It joined the thread that waited for them, which never threw.
TEST(PinRegistry, ElementsThatAThreadHoldsUnknowinglyAreNotWaitedForWithoutEnd) {
  PinRegistry& registry = PinRegistry::Get();
  if (detail::t_pins == nullptr) registry.Adopt();
  static Chunk chunk;
  const auto hold = [](unsigned slot, Chunk* held) { detail::t_pins->slots[slot] = held; };
  const LivingThread user([&] { hold(detail::PinTable::kSlots - 8, &chunk); }, [&] { hold(detail::PinTable::kSlots - 8, nullptr); });
  EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kUnlikely);
  const LivingThread holder([&] { hold(detail::PinTable::kSlots - 9, &chunk); }, [&] { hold(detail::PinTable::kSlots - 9, nullptr); });
  EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kSomebodyMayUnpin);
}

constexpr unsigned kInTable = detail::PinTable::kAdhereToSlots - detail::PinTable::kInlineSlots;

// Behind the inline ones, by the calling thread.
std::vector<unsigned> Take(size_t n, Chunk* chunk) {
  auto* const table = static_cast<ThreadTable*>(detail::t_pins != nullptr ? detail::t_pins : PinRegistry::Get().Adopt());
  std::vector<unsigned> taken;
  for (size_t i = 0; i < n; ++i) {
    taken.push_back(table->FreeSlot());
    if (taken.back() != detail::kCountedPin) detail::StorePinAnywhere(chunk, table, taken.back(), false);
  }
  return taken;
}
void End(const std::vector<unsigned>& taken, Chunk* chunk, detail::PinTable* table) {
  for (const unsigned slot : taken) {
    if (slot != detail::kCountedPin) detail::Unpin(chunk, table, slot);
  }
}
bool IsFound(Chunk* chunk) {
  Chunk* const chunks[1] = {chunk};
  bool found[1] = {false};
  PinRegistry::Get().FindPinned(chunks, found);
  return found[0];
}
// On a thread of its own, so that no test finds what another one has left of its thread's slots.
void OnAThread(const std::function<void()>& work) { std::thread(work).join(); }

TEST(PinRegistry, TwoThousandPinsOfAThreadHaveASlotEach) {
  OnAThread([] {
    static Chunk chunk;
    const std::vector<unsigned> taken = Take(kInTable + detail::MorePins::kSlots, &chunk);
    EXPECT_EQ(std::set<unsigned>(taken.begin(), taken.end()).size(), taken.size());
    EXPECT_EQ(std::count(taken.begin(), taken.end(), detail::kCountedPin), 0);
    EXPECT_EQ(std::count_if(taken.begin(), taken.end(), [](unsigned slot) { return slot < detail::kFirstBeyond; }), kInTable);
    EXPECT_EQ(Take(1, &chunk), std::vector<unsigned>{detail::kCountedPin});
    End(taken, &chunk, detail::t_pins);
    EXPECT_FALSE(IsFound(&chunk));
  });
}

TEST(PinRegistry, WhereManyAreHeldOneThatComesAndGoesHasASlotEachTime) {
  for (const size_t held : {size_t{0}, size_t{kInTable - 1}, size_t{kInTable}, size_t{kInTable + 1}, size_t{kInTable + detail::MorePins::kSlots - 1}}) {
    OnAThread([held] {
      static Chunk chunk;
      const std::vector<unsigned> taken = Take(held, &chunk);
      for (int i = 0; i < 3000; ++i) {
        const std::vector<unsigned> one = Take(1, &chunk);
        ASSERT_NE(one[0], detail::kCountedPin) << "beside " << held << ", the " << i << "th time";
        End(one, &chunk, detail::t_pins);
      }
      End(taken, &chunk, detail::t_pins);
    });
  }
}

// An evictor looks at a thread's slots up to the last one that it uses. A thousand pins that are gone would cost each eviction a thousand looks.
TEST(PinRegistry, WhoHeldManyPinsIsLookedAtNoLongerAfterwards) {
  OnAThread([] {
    static Chunk chunk;
    const std::vector<unsigned> taken = Take(1000, &chunk);
    const auto* const more = static_cast<ThreadTable*>(detail::t_pins)->more.load();
    EXPECT_GE(more->used_end() - more->slots, 1000 - kInTable);
    End(taken, &chunk, detail::t_pins);
    EXPECT_LE(more->used_end() - more->slots, 64);
  });
}

TEST(PinRegistry, SlotsThatOtherThreadsEmptyAreUsedAgain) {
  OnAThread([] {
    static Chunk chunk;
    const std::vector<unsigned> taken = Take(kInTable + detail::MorePins::kSlots, &chunk);
    OnAThread([&taken, table = detail::t_pins] { End(taken, &chunk, table); });
    size_t counted = 0;
    std::vector<unsigned> again;
    while (again.size() < taken.size() && counted < 2000) {
      const unsigned slot = Take(1, &chunk)[0];
      slot == detail::kCountedPin ? static_cast<void>(++counted) : again.push_back(slot);
    }
    EXPECT_EQ(std::set<unsigned>(again.begin(), again.end()), std::set<unsigned>(taken.begin(), taken.end()));
    End(again, &chunk, detail::t_pins);
  });
}

// An adhereTo may outlive its thread, also one that is beyond the table.
TEST(PinRegistry, PinsBeyondATableStayWhenItPassesToAnotherThread) {
  PinRegistry& registry = PinRegistry::Get();
  if (detail::t_pins == nullptr) registry.Adopt();
  static Chunk forgotten, chunk;
  detail::PinTable* table = nullptr;
  unsigned left = 0;
  OnAThread([&] {
    std::vector<unsigned> taken = Take(kInTable + 10, &forgotten);
    std::sort(taken.begin(), taken.end());
    table = detail::t_pins;
    left = taken.back();
    taken.pop_back();
    End(taken, &forgotten, table);
  });
  EXPECT_GE(left, detail::kFirstBeyond);
  EXPECT_TRUE(IsFound(&forgotten));
  EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kUnlikely);
  const uint64_t before = registry.metadata_bytes();
  OnAThread([&] {
    registry.Adopt();
    EXPECT_EQ(detail::t_pins, table) << "then this test shows nothing";
    const std::vector<unsigned> taken = Take(kInTable + 500, &chunk);
    EXPECT_EQ(std::count(taken.begin(), taken.end(), left), 0);
    End(taken, &chunk, table);
    EXPECT_TRUE(IsFound(&forgotten));
  });
  EXPECT_EQ(registry.metadata_bytes(), before) << "the slots beyond the table pass with it";
  detail::Unpin(&forgotten, table, left);
  EXPECT_FALSE(IsFound(&forgotten));
  EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kDeadlock);
}

TEST(PinRegistry, PinsBeyondTheTableOfAThreadThatGoesOnAreWaitedFor) {
  PinRegistry& registry = PinRegistry::Get();
  if (detail::t_pins == nullptr) registry.Adopt();
  static Chunk chunk;
  std::vector<unsigned> taken;
  const auto hold_one_beyond = [&] {
    taken = Take(kInTable + 1, &chunk);
    std::sort(taken.begin(), taken.end());
    End(std::vector<unsigned>(taken.begin(), taken.end() - 1), &chunk, detail::t_pins);
    EXPECT_TRUE(PinRegistry::HoldsPins());
  };
  const LivingThread holder(hold_one_beyond, [&] { End({taken.back()}, &chunk, detail::t_pins); });
  EXPECT_GE(taken.back(), detail::kFirstBeyond);
  EXPECT_EQ(registry.JudgeWaiters(), PinScanner::Verdict::kSomebodyMayUnpin);
  EXPECT_TRUE(registry.IsAdheredTo(&chunk));
}

}  // namespace
}  // namespace ramspan
