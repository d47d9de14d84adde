#include "client/engine/touch_ring.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace ramspan {
namespace {

TEST(TouchRing, GivesBackWhatWasPutInItsOrderAndNothingTwice) {
  TouchRing ring;
  Touch out[TouchRing::kCapacity];
  EXPECT_EQ(ring.Take(7, out), 0u);
  for (uint32_t i = 0; i < 3 * TouchRing::kCapacity; i += 3) {
    EXPECT_TRUE(ring.Put(i, false, 1));
    EXPECT_TRUE(ring.Put(UINT32_MAX - i, true, kEpochMax));
    EXPECT_TRUE(ring.Put(i, true, 5));
    ASSERT_EQ(ring.Take(7, out), 3u);
    EXPECT_EQ(out[0].chunk, i);
    EXPECT_FALSE(out[0].write);
    EXPECT_EQ(out[1].chunk, UINT32_MAX - i);
    EXPECT_EQ(out[1].epoch, kEpochMax);
    EXPECT_TRUE(out[1].write);
    EXPECT_EQ(out[2].epoch, 5u);
    for (const Touch& touch : {out[0], out[1], out[2]}) EXPECT_EQ(touch.thread, 7u);
    EXPECT_EQ(ring.Take(7, out), 0u);
  }
}

TEST(TouchRing, AFullOneTakesNoMoreAndKeepsWhatItHas) {
  TouchRing ring;
  for (uint32_t i = 0; i < TouchRing::kCapacity; ++i) EXPECT_TRUE(ring.Put(i, false, 1));
  EXPECT_FALSE(ring.Put(99, false, 1));
  Touch out[3];
  ASSERT_EQ(ring.Take(0, out), 3u);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(ring.Put(100 + i, false, 1));
  EXPECT_FALSE(ring.Put(99, false, 1));
  Touch rest[2 * TouchRing::kCapacity];
  ASSERT_EQ(ring.Take(0, rest), TouchRing::kCapacity);
  EXPECT_EQ(rest[0].chunk, 3u);
  EXPECT_EQ(rest[TouchRing::kCapacity - 1].chunk, 102u);
}

// One thread puts as fast as it can, one takes: TSan says whether they are ordered, the numbers whether any is lost.
TEST(TouchRing, NothingIsLostOrTwiceBetweenTwoThreads) {
  constexpr uint32_t kTouches = 20000;
  TouchRing ring;
  std::thread owner([&] {
    for (uint32_t i = 0; i < kTouches; ++i) {
      while (!ring.Put(i, i % 2 == 1, 1 + i % 5)) std::this_thread::yield();
    }
  });
  uint32_t next = 0;
  while (next < kTouches && !testing::Test::HasFailure()) {
    Touch out[5];
    const size_t n = ring.Take(3, out);
    for (size_t i = 0; i < n; ++i, ++next) {
      EXPECT_EQ(out[i].chunk, next);
      EXPECT_EQ(out[i].write, next % 2 == 1);
      EXPECT_EQ(out[i].epoch, 1 + next % 5);
    }
    if (n == 0) std::this_thread::yield();
  }
  owner.join();
  EXPECT_EQ(next, kTouches);
}

// The ring's two orders: who takes a touch sees what its owner did before, and who finds room sees what the taker did
// before it made that room. The entries themselves are atomic, so only plain words beside them let TSan see an order that
// is missing; x86 never does.
TEST(TouchRing, APutIsSeenWithAllBeforeItAndSoIsTheRoomThatATakeMakes) {
  constexpr uint32_t kTouches = 2000;
  TouchRing ring;
  std::vector<uint32_t> put(kTouches), taken(kTouches);  // written before touch i is put, and before it is taken
  uint32_t unseen_by_owner = 0;
  std::thread owner([&] {
    for (uint32_t i = 0; i < kTouches; ++i) {
      put[i] = i + 1;
      while (!ring.Put(i, false, 1)) std::this_thread::yield();
      if (i >= TouchRing::kCapacity) unseen_by_owner += taken[i - TouchRing::kCapacity] == 0;
    }
  });
  uint32_t unseen_by_taker = 0;
  for (uint32_t i = 0; i < kTouches; ++i) {
    taken[i] = 1;
    Touch one[1];
    while (ring.Take(0, one) == 0) std::this_thread::yield();
    unseen_by_taker += put[i] != i + 1;
  }
  owner.join();
  EXPECT_EQ(unseen_by_owner, 0u);
  EXPECT_EQ(unseen_by_taker, 0u);
}

}  // namespace
}  // namespace ramspan
