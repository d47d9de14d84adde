// Bundles over a real engine and a fake tier; the budget is what is left to see.
#include "client/front/bundles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/fake_tier.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"

namespace ramspan {
namespace {

using detail::Object;

class BundlesTest : public testing::Test {
 protected:
  explicit BundlesTest(uint64_t budget = uint64_t{16} << 20)
      : engine_({.budget = budget}, &tier_, &pins_,
                PolicyNamed("cyclic")),
        bundles_(&engine_) {}
  void TearDown() override {
    EXPECT_TRUE(bundles_.IsValid());
    EXPECT_TRUE(engine_.IsValid());
  }
  Object New(uint64_t bytes, uint64_t alignment = 8) { return bundles_.New(bytes, alignment).value(); }

  FakeTier tier_{FakeTierOptions{.seed = 9}};
  NoPins pins_;
  Engine engine_;
  Bundles bundles_;
};

TEST_F(BundlesTest, APlaceIsAlignedAndHoldsTheObject) {
  for (uint64_t alignment = 1; alignment <= 4096; alignment *= 2) {
    for (uint64_t bytes = 1; bytes < detail::kSmallBytesEnd; bytes += 1 + bytes / 7) {
      const uint64_t place = Bundles::PlaceBytes(bytes, alignment);
      EXPECT_GE(place, bytes);
      EXPECT_EQ(place % alignment, 0u);
      if (alignment <= 8) {
        EXPECT_LE(place, std::max<uint64_t>(bytes * 3 / 2, bytes + 7));
      }
    }
  }
}

TEST_F(BundlesTest, SmallLimitsHaveSmallBundles) {
  EXPECT_EQ(Bundles::ChunkBytesFor(uint64_t{1} << 20), 8u << 10);
  EXPECT_EQ(Bundles::ChunkBytesFor(uint64_t{8} << 20), 64u << 10);
  EXPECT_EQ(Bundles::ChunkBytesFor(uint64_t{1} << 40), 64u << 10);
}

TEST_F(BundlesTest, AnObjectOfEightBytesCostsEight) {
  const uint64_t before = engine_.counters().metadata_bytes;
  std::vector<Object> objects;
  for (int i = 0; i < 500'000; ++i) objects.push_back(New(8));
  EXPECT_LT((engine_.counters().metadata_bytes - before) / 500'000.0, 8.5);
  EXPECT_LT(engine_.counters().chunks, 70u);
  for (const Object object : objects) bundles_.Free(object);
  EXPECT_EQ(bundles_.objects(), 0u);
  EXPECT_EQ(engine_.counters().chunks, 1u);  // one is kept
}

// Each thread kept one empty bundle of each size: memory and swap were full without one object.
TEST_F(BundlesTest, EmptyBundlesOfManySizesAndThreadsAreASmallShareOfTheLimit) {
  for (int i = 0; i < 20; ++i) {
    std::thread([this] {
      std::vector<Object> objects;
      for (uint64_t bytes = 1; bytes < detail::kSmallBytesEnd; bytes += 1 + bytes / 7) objects.push_back(New(bytes));
      for (const Object object : objects) bundles_.Free(object);
    }).join();
  }
  EXPECT_EQ(bundles_.objects(), 0u);
  EXPECT_LE(engine_.counters().data_bytes, (uint64_t{16} << 20) / 32);
  EXPECT_GT(engine_.counters().chunks, 0u) << "some are kept";
}

TEST_F(BundlesTest, OnlyThoseWithoutObjectsAreFreed) {
  const Object stays = New(8);
  bundles_.Free(New(100));
  bundles_.Free(New(3000));
  EXPECT_EQ(engine_.counters().chunks, 3u);
  bundles_.FreeEmpty();
  EXPECT_EQ(engine_.counters().chunks, 1u);
  bundles_.Free(stays);
  bundles_.FreeEmpty();
  EXPECT_EQ(engine_.counters().chunks, 0u);
  bundles_.Free(New(100));  // what was freed counts no more among those that are kept
  EXPECT_EQ(engine_.counters().chunks, 1u);
}

TEST_F(BundlesTest, AKeptBundleThatIsUsedAgainMakesWayForAnotherOne) {
  for (int i = 0; i < 1000; ++i) {  // 32 KiB of the share of 512 KiB each time, if it stayed counted
    const Object object = New(8);
    bundles_.Free(object);
  }
  EXPECT_EQ(engine_.counters().chunks, 1u);
}

TEST_F(BundlesTest, NoTwoObjectsShareAByte) {
  std::mt19937_64 random(7);
  std::vector<Object> objects;
  for (int i = 0; i < 3000; ++i) objects.push_back(New(1 + random() % 4095));
  std::set<std::pair<detail::ChunkHead*, std::pair<uint64_t, uint64_t>>> ranges;
  for (const Object object : objects) {
    EXPECT_LE(object.offset() + object.bytes(), object.chunk()->bytes);
    ranges.insert({object.chunk(), {object.offset(), object.offset() + object.bytes()}});
  }
  EXPECT_EQ(ranges.size(), objects.size());
  for (auto one = ranges.begin(), next = std::next(one); next != ranges.end(); one = next++) {
    if (one->first == next->first) {
      EXPECT_LE(one->second.second, next->second.first);
    }
  }
  for (const Object object : objects) bundles_.Free(object);
}

TEST_F(BundlesTest, RandomMakingAndFreeingKeepsTheCounts) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::pair<Object, uint64_t>> objects;
    for (int step = 0; step < 20'000; ++step) {
      const bool grows = (step / 2000) % 2 == 0;
      if (objects.empty() || (random() % 3 != 0) == grows) {
        const uint64_t bytes = 8 + random() % 6 * 40;
        objects.push_back({New(bytes), bytes});
      } else {
        std::swap(objects[random() % objects.size()], objects.back());
        bundles_.Free(objects.back().first);
        objects.pop_back();
      }
    }
    ASSERT_TRUE(bundles_.IsValid()) << "seed " << seed;
    EXPECT_EQ(bundles_.objects(), objects.size()) << "seed " << seed;
    for (const auto& [object, bytes] : objects) {
      ASSERT_EQ(object.bytes(), bytes) << "seed " << seed;
      bundles_.Free(object);
    }
  }
  EXPECT_LE(engine_.counters().chunks, 6u);  // one a size
}

// A single gap must not bring a swapped bundle back for the next object.
TEST_F(BundlesTest, AFullBundleTakesObjectsAgainWhenAQuarterIsFree) {
  std::vector<Object> objects;
  while (objects.empty() || objects.back().chunk() == objects.front().chunk()) objects.push_back(New(64));
  bundles_.Free(objects.front());
  const Object next = New(64);
  EXPECT_EQ(next.chunk(), objects.back().chunk());
  const size_t full = objects.size() - 1;
  for (size_t i = 1; i <= full / 4 + 1; ++i) bundles_.Free(objects[i]);
  std::vector<Object> more;
  bool reused = false;
  for (size_t i = 0; i < full && !reused; ++i) {
    more.push_back(New(64));
    reused = more.back().chunk() == objects[full - 1].chunk();
  }
  EXPECT_TRUE(reused);
  for (const Object object : more) bundles_.Free(object);
  bundles_.Free(next);
  for (size_t i = full / 4 + 2; i < objects.size(); ++i) bundles_.Free(objects[i]);
}

class BundlesInALittleMemory : public BundlesTest {
 protected:
  BundlesInALittleMemory() : BundlesTest(uint64_t{1} << 20) {}
};

TEST_F(BundlesInALittleMemory, TablesThatFillTheLimitAreAnErrorAndNothingIsLost) {
  std::vector<Object> objects;
  Result<Object> next = bundles_.New(8, 8);
  for (; next.ok(); next = bundles_.New(8, 8)) objects.push_back(next.value());
  EXPECT_EQ(next.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(next.status().message().find("RAMSPAN_MEMORY"), std::string::npos) << next.status().message();
  EXPECT_GT(objects.size(), 50'000u);
  EXPECT_TRUE(bundles_.IsValid());
  const uint64_t metadata = engine_.counters().metadata_bytes;
  EXPECT_FALSE(bundles_.New(8, 8).ok());
  EXPECT_EQ(engine_.counters().metadata_bytes, metadata);
  EXPECT_LE(metadata, uint64_t{1} << 20);
  for (const Object object : objects) bundles_.Free(object);
  Object one = New(8);  // there is room again
  bundles_.Free(one);
}

// New objects were put between those of a bundle that was lost, and were lost with it although they had held nothing yet.
TEST_F(BundlesTest, ANewObjectDoesNotLieInABundleThatIsLost) {
  std::vector<Object> objects;
  for (int i = 0; i < 24'000; ++i) {
    objects.push_back(New(1000));
    ASSERT_TRUE(engine_.Acquire(static_cast<Chunk*>(objects.back().chunk()), true).ok());
  }
  ASSERT_TRUE(engine_.SetBudget(uint64_t{64} << 20).ok());
  engine_.Drain();
  tier_.SetGone(true);
  std::vector<Object> kept;
  for (size_t i = 0; i < objects.size(); ++i) {  // every second one; a stretch of them as a whole
    if (i % 2 == 0 && i > 2000) {
      kept.push_back(objects[i]);
    } else {
      bundles_.Free(objects[i]);
    }
  }
  for (int i = 0; i < 8000; ++i) {
    kept.push_back(New(1000));
    const Status status = engine_.Acquire(static_cast<Chunk*>(kept.back().chunk()), true);
    ASSERT_TRUE(status.ok()) << i << ": " << status.ToString();
  }
  for (const Object& object : kept) bundles_.Free(object);
}

// That data is lost was found only by who read it, so a new object was put into a bundle whose bytes in swap were wrong.
TEST_F(BundlesTest, ANewObjectDoesNotLieInABundleThatComesBackWrong) {
  const Object old = New(1000);
  auto* const chunk = static_cast<Chunk*>(old.chunk());
  ASSERT_TRUE(engine_.Acquire(chunk, true).ok());
  std::vector<Chunk*> others;  // push it out
  for (int i = 0; i < 40; ++i) {
    others.push_back(engine_.Create(1 << 20).value());
    ASSERT_TRUE(engine_.Acquire(others.back(), true).ok());
  }
  ASSERT_EQ(PhaseOf(chunk), Phase::kSwapped);
  chunk->checksum ^= 1;  // as if what lies in swap were wrong
  const Object next = New(1000);
  EXPECT_NE(next.chunk(), old.chunk());
  EXPECT_TRUE(engine_.Acquire(static_cast<Chunk*>(next.chunk()), true).ok());
  EXPECT_EQ(engine_.Acquire(chunk, false).code(), StatusCode::kDataLoss);
  bundles_.Free(old);
  bundles_.Free(next);
  for (Chunk* other : others) engine_.Free(other);
}

// A bundle that cannot be read now keeps its place: each new object would have got a bundle of its own.
TEST_F(BundlesTest, NewObjectsShareABundleWhileAnotherOneCannotBeRead) {
  const Object old = New(1000);
  auto* const chunk = static_cast<Chunk*>(old.chunk());
  ASSERT_TRUE(engine_.Acquire(chunk, true).ok());
  std::vector<Chunk*> others;
  for (int i = 0; i < 40; ++i) {
    others.push_back(engine_.Create(1 << 20).value());
    ASSERT_TRUE(engine_.Acquire(others.back(), true).ok());
  }
  ASSERT_EQ(PhaseOf(chunk), Phase::kSwapped);
  pins_.all_pinned = true;  // nothing can make way, and what is free is taken
  do {
    others.push_back(engine_.Create(64 << 10).value());
  } while (engine_.Acquire(others.back(), true, Engine::WhenPinned::kReturn).ok());
  std::vector<Object> fresh;
  for (int i = 0; i < 50; ++i) fresh.push_back(New(1000));
  for (const Object object : fresh) EXPECT_EQ(object.chunk(), fresh[0].chunk());
  EXPECT_NE(fresh[0].chunk(), old.chunk());
  pins_.all_pinned = false;
  for (const Object object : fresh) bundles_.Free(object);
  bundles_.Free(old);
  for (Chunk* other : others) engine_.Free(other);
}

}  // namespace
}  // namespace ramspan
