#include "client/front/turn_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <optional>
#include <thread>

namespace ramspan {
namespace {

using Verdict = PinScanner::Verdict;

Verdict Becomes(Verdict expected) {
  Verdict verdict = expected;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30); std::chrono::steady_clock::now() < end; std::this_thread::yield()) {
    verdict = PinRegistry::Get().JudgeWaiters();
    if (verdict == expected) break;
  }
  return verdict;
}

// A thread that holds a pin and is not in turn cannot release it before who is: that is a deadlock, and no longer one when the turn has passed on,
// even if the thread has not run yet.
TEST(TurnQueue, WhoWaitsForItsTurnCountsAsWaitingUntilTheTurnIsItsOwn) {
  PinRegistry& registry = PinRegistry::Get();
  if (detail::t_pins == nullptr) registry.Adopt();
  static Chunk chunk;
  TurnQueue queue;
  std::optional<TurnQueue::Turn> mine(std::in_place, &queue, detail::t_pins);
  EXPECT_TRUE(queue.AnybodyWaits());
  std::promise<void> pinned, end;
  std::thread other([&] {
    detail::PinTable* const table = registry.Adopt();
    table->slots[0].store(&chunk);
    pinned.set_value();
    {
      const TurnQueue::Turn its(&queue, table);
      end.get_future().wait();
    }
    table->slots[0].store(nullptr);
  });
  pinned.get_future().wait();
  EXPECT_EQ(Becomes(Verdict::kDeadlock), Verdict::kDeadlock);
  mine.reset();
  EXPECT_EQ(registry.JudgeWaiters(), Verdict::kSomebodyMayUnpin);
  end.set_value();
  other.join();
  EXPECT_FALSE(queue.AnybodyWaits());
}

TEST(TurnQueue, ATurnThatIsTakenIsNotWaitedForByWhoComesAgain) {
  TurnQueue queue;
  {
    const TurnQueue::Turn first(&queue, nullptr);
    const TurnQueue::Turn second(&queue, TurnQueue::kOnlyIfFree);
    EXPECT_FALSE(second);
  }
  {
    const TurnQueue::Turn third(&queue, TurnQueue::kOnlyIfFree);
    EXPECT_TRUE(third);
    EXPECT_TRUE(queue.AnybodyWaits());
  }
  const TurnQueue::Turn fourth(&queue, nullptr);
}

}  // namespace
}  // namespace ramspan
