// Against a list of all chunks that is searched.
#include "client/policy/next_use_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace ramspan {
namespace {

constexpr uint32_t kNobody = NextUseQueue::kNobody;

// Chunks with the ids from 0 on.
class Chunks {
 public:
  explicit Chunks(uint32_t n) : table_(&budget_) {
    for (uint32_t i = 0; i < n; ++i) table_.New(4096);
    queue.Reserve(n);
  }

 private:
  Budget budget_{1 << 30};
  ChunkTable table_;

 public:
  NextUseQueue queue{&table_};
};

std::vector<uint32_t> Farthest(const NextUseQueue& queue) {
  std::vector<uint32_t> all;
  for (uint32_t chunk = queue.NextFarthest(kNobody); chunk != kNobody; chunk = queue.NextFarthest(chunk)) all.push_back(chunk);
  return all;
}
std::vector<uint32_t> Overdue(const NextUseQueue& queue) {
  std::vector<uint32_t> all;
  for (uint32_t chunk = queue.NextOverdue(kNobody); chunk != kNobody; chunk = queue.NextOverdue(chunk)) all.push_back(chunk);
  return all;
}

std::vector<uint32_t> Young(const NextUseQueue& queue) {
  std::vector<uint32_t> all;
  for (uint32_t chunk = queue.NextYoung(kNobody); chunk != kNobody; chunk = queue.NextYoung(chunk)) all.push_back(chunk);
  return all;
}

TEST(NextUseQueue, TheFarthestIsFirst) {
  Chunks chunks(4);
  NextUseQueue& queue = chunks.queue;
  queue.Expect(0, 10);
  queue.Expect(1, 300);
  queue.Expect(2, 20);
  EXPECT_EQ(Farthest(queue), (std::vector<uint32_t>{1, 2, 0}));
  queue.Expect(1, 15);
  EXPECT_EQ(Farthest(queue), (std::vector<uint32_t>{2, 1, 0}));
  queue.Remove(2);
  EXPECT_EQ(Farthest(queue), (std::vector<uint32_t>{1, 0}));
  EXPECT_FALSE(queue.Has(2));
}

TEST(NextUseQueue, OfWhatIsExpectedAtTheSameTimeTheLatestIsFirst) {
  Chunks chunks(2);
  NextUseQueue& queue = chunks.queue;
  queue.Expect(0, 10);
  queue.Advance(1);
  queue.Expect(1, 9);
  EXPECT_EQ(Farthest(queue), (std::vector<uint32_t>{1, 0}));
}

TEST(NextUseQueue, OfWhatIsUnknownTheLatestIsFirst) {
  Chunks chunks(3);
  NextUseQueue& queue = chunks.queue;
  queue.Expect(2, 0);
  queue.Expect(0, 0);
  EXPECT_EQ(queue.NextUnknown(kNobody), 0u);
  EXPECT_EQ(queue.NextUnknown(0), 2u);
  EXPECT_EQ(queue.NextUnknown(2), kNobody);
}

TEST(NextUseQueue, WhoIsLateIsWaitedForForASixteenthOfItsTime) {
  Chunks chunks(1);
  NextUseQueue& queue = chunks.queue;
  queue.Expect(0, 1600);
  queue.Advance(1600);
  EXPECT_TRUE(Overdue(queue).empty());
  queue.Advance(1690);
  EXPECT_TRUE(Overdue(queue).empty());
  EXPECT_EQ(queue.Distance(0), 0u);
  queue.Advance(1720);
  EXPECT_EQ(Overdue(queue), std::vector<uint32_t>{0});
  EXPECT_TRUE(Farthest(queue).empty());
}

TEST(NextUseQueue, WhoMayBeLaterIsWaitedForLonger) {
  Chunks chunks(1);
  NextUseQueue& queue = chunks.queue;
  queue.SetSlack(2);
  queue.Expect(0, 1600);
  queue.Advance(1600);
  queue.Advance(1990);
  EXPECT_TRUE(Overdue(queue).empty());
  EXPECT_TRUE(queue.IsInTime(0, 2));
  EXPECT_FALSE(queue.IsInTime(0, 4));
  queue.Advance(2020);
  EXPECT_EQ(Overdue(queue), std::vector<uint32_t>{0});
}

TEST(NextUseQueue, TheYoungestStandApartUntilOthersAreYounger) {
  Chunks chunks(6);
  NextUseQueue& queue = chunks.queue;
  queue.SetYoung(2);
  queue.Use(0, 500);
  queue.Use(1, 0);
  EXPECT_EQ(Young(queue), (std::vector<uint32_t>{0, 1}));
  EXPECT_TRUE(Farthest(queue).empty());
  queue.Advance(100);
  queue.Use(2, 100);
  EXPECT_EQ(Farthest(queue), std::vector<uint32_t>{0});
  EXPECT_EQ(queue.Distance(0), 400u);
  queue.Use(3, 3);
  EXPECT_EQ(queue.NextUnknown(kNobody), 1u);
  queue.Advance(150);
  queue.Use(4, 100);  // 2 goes
  EXPECT_EQ(Farthest(queue), (std::vector<uint32_t>{0, 2}));
  queue.Use(5, 100);  // 3 goes, whose time has passed meanwhile
  EXPECT_EQ(Overdue(queue), std::vector<uint32_t>{3});
  EXPECT_EQ(Young(queue), (std::vector<uint32_t>{4, 5}));
  queue.Use(4, 100);
  EXPECT_EQ(Young(queue), (std::vector<uint32_t>{5, 4})) << "used again: once more the youngest";
  queue.SetYoung(0);
  EXPECT_TRUE(Young(queue).empty());
  EXPECT_EQ(Farthest(queue).size(), 4u);
}

TEST(NextUseQueue, WhoIsSetAsideIsInNoOtherOrderUntilItIsUsed) {
  Chunks chunks(4);
  NextUseQueue& queue = chunks.queue;
  for (uint32_t chunk = 0; chunk < 4; ++chunk) queue.Expect(chunk, 10 + chunk);
  queue.SetAside(3);
  queue.SetAside(1);
  queue.SetAside(3);  // behind the others
  EXPECT_EQ(Farthest(queue), (std::vector<uint32_t>{2, 0}));
  EXPECT_EQ(queue.NextAside(kNobody), 1u);
  EXPECT_EQ(queue.NextAside(1), 3u);
  EXPECT_EQ(queue.NextAside(3), kNobody);
  queue.Advance(5);
  queue.Use(1, 100);
  EXPECT_EQ(Farthest(queue), (std::vector<uint32_t>{1, 2, 0}));
  EXPECT_EQ(queue.NextAside(kNobody), 3u);
  queue.Advance(200);
  EXPECT_EQ(queue.NextAside(kNobody), 3u) << "its time passes, it stays";
}

// Of two that had been young for nearly all of their interval, each was put behind the other for ever: the buckets did not reach as far as they may be late.
TEST(NextUseQueue, WhoWasYoungForLongIsWaitedForAsLongAsOthers) {
  for (const uint32_t interval : {16290u, 16310u, 16330u, 100'000u}) {
    Chunks chunks(8);
    NextUseQueue& queue = chunks.queue;
    queue.SetYoung(2);
    queue.Use(0, interval);
    queue.Advance(1);
    queue.Use(1, interval - 1);
    uint32_t now = interval - 20;
    queue.Advance(now);
    queue.Use(2, 10);
    queue.Use(3, 10);  // 0 and 1 go, nearly in time
    EXPECT_EQ(queue.Distance(0), 20u);
    const uint32_t overdue = interval + 4 + interval / 16;
    for (; now < overdue + interval / 50 + 10; now += 3) {
      queue.Advance(now);
      const std::vector<uint32_t> late = Overdue(queue);
      const bool has = std::find(late.begin(), late.end(), 0u) != late.end();
      ASSERT_FALSE(has && now + 1 < overdue) << interval << " at " << now;
    }
    const std::vector<uint32_t> late = Overdue(queue);
    EXPECT_EQ(std::count(late.begin(), late.end(), 0u), 1) << interval;
    EXPECT_EQ(std::count(late.begin(), late.end(), 1u), 1) << interval;
  }
}

TEST(NextUseQueue, AgreesWithAListOverWrapsOfTimeAndLongIntervals) {
  for (const uint32_t longest : {50u, 3000u, 1u << 20, 1u << 29}) {
    std::mt19937 random(longest);
    constexpr uint32_t kChunks = 200;
    Chunks chunks(kChunks);
    NextUseQueue& queue = chunks.queue;
    struct Expected {
      uint64_t since, at;
    };
    std::map<uint32_t, Expected> list;
    uint64_t now = 0xFFFF0000;  // wraps soon
    queue.Advance(static_cast<uint32_t>(now));
    for (int step = 0; step < 1000; ++step) {
      now += random() % (longest / 40 + 2);
      queue.Advance(static_cast<uint32_t>(now));
      const auto chunk = static_cast<uint32_t>(random() % kChunks);
      if (random() % 8 == 0) {
        queue.Remove(chunk);
        list.erase(chunk);
      } else {
        const auto interval = static_cast<uint32_t>(1 + random() % longest);
        queue.Expect(chunk, interval);
        list[chunk] = {now, now + interval};
      }
      const std::vector<uint32_t> farthest = Farthest(queue), overdue = Overdue(queue);
      ASSERT_EQ(farthest.size() + overdue.size(), list.size());
      // The width of a bucket, twice: those of one are in any order, and who is late may be a bucket longer.
      const uint64_t rough = 2 * (longest / 200 + 1) + 4;
      for (const uint32_t one : overdue) ASSERT_GE(now + rough, list[one].at + (list[one].at - list[one].since) / 16) << one;
      if (step < 400) continue;  // the scale has been found then
      for (const uint32_t one : farthest) ASSERT_LE(now, list[one].at + (list[one].at - list[one].since) / 16 + 2 * rough) << one;
      for (size_t i = 1; i < farthest.size(); ++i) {
        ASSERT_GE(queue.Distance(farthest[i - 1]) + rough + longest / 16, queue.Distance(farthest[i])) << i;
        if (queue.Distance(farthest[i]) > rough) {
          ASSERT_EQ(queue.Distance(farthest[i]), list[farthest[i]].at - now);
        }
      }
    }
  }
}

// One that had not been used for long made the times of all others so rough that they left in the order of their use.
TEST(NextUseQueue, OneThatIsFarDoesNotBlurTheOthers) {
  constexpr uint32_t kOthers = 600;
  Chunks chunks(kOthers + 1);
  NextUseQueue& queue = chunks.queue;
  std::mt19937 random(7);
  uint32_t now = 0;
  for (int sweep = 0; sweep < 6; ++sweep) {
    queue.Expect(kOthers, 1 << 28);
    for (uint32_t chunk = 0; chunk < kOthers; ++chunk) {
      queue.Advance(++now);
      queue.Expect(chunk, 1 + static_cast<uint32_t>(random() % kOthers));
    }
  }
  const std::vector<uint32_t> farthest = Farthest(queue);
  ASSERT_GT(farthest.size(), kOthers / 4);
  EXPECT_EQ(farthest[0], kOthers);
  for (size_t i = 2; i < farthest.size(); ++i) {
    if (queue.Distance(farthest[i]) > kOthers / 4) {  // who is late is waited for
      EXPECT_GE(queue.Distance(farthest[i - 1]) + 4, queue.Distance(farthest[i])) << i;
    }
  }
}

TEST(NextUseQueue, WhoIsFarComesInTimeAllTheSame) {
  constexpr uint32_t kNear = 100, kFar = 50'000;
  Chunks chunks(kNear + 8);
  NextUseQueue& queue = chunks.queue;
  for (uint32_t i = 0; i < 8; ++i) queue.Expect(kNear + i, kFar + 10 * i);
  for (uint32_t now = 1; now <= kFar - 100; ++now) {
    queue.Advance(now);
    queue.Expect(now % kNear, kNear);
  }
  const std::vector<uint32_t> farthest = Farthest(queue);
  ASSERT_EQ(farthest.size(), kNear + 8);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_NEAR(queue.Distance(farthest[i]), 170 - 10 * i, 10) << i;
  uint32_t now = kFar - 100;
  for (; now <= kFar + kFar / 16 + 200; ++now) {
    queue.Advance(now);
    queue.Expect(now % kNear, kNear);
  }
  EXPECT_EQ(Overdue(queue).size(), 8u);
}

// The scale is found again: coarse for a phase with long times, fine behind it.
TEST(NextUseQueue, BehindLongTimesShortOnesAreToldApart) {
  constexpr uint32_t kChunks = 3000;
  Chunks chunks(kChunks);
  NextUseQueue& queue = chunks.queue;
  std::mt19937 random(11);
  uint32_t now = 0;
  for (int i = 0; i < 20'000; ++i) {
    queue.Advance(now += 100);
    queue.Expect(static_cast<uint32_t>(random() % kChunks), 300'000);
  }
  for (uint32_t chunk = 100; chunk < kChunks; ++chunk) queue.Remove(chunk);
  for (int i = 0; i < 20'000; ++i) {
    queue.Advance(++now);
    queue.Expect(static_cast<uint32_t>(i % 100), 200 + static_cast<uint32_t>(random() % 100));
  }
  const std::vector<uint32_t> farthest = Farthest(queue);
  ASSERT_EQ(farthest.size(), 100u);
  for (size_t i = 1; i < farthest.size(); ++i) EXPECT_GE(queue.Distance(farthest[i - 1]) + 2, queue.Distance(farthest[i])) << i;
}

}  // namespace
}  // namespace ramspan
