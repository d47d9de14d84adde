// The arena against a naive model of it, and what its cache of frames is for.
#include "client/arena/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "common/slot_ref.h"

namespace ramspan {
namespace {

constexpr uint64_t kLimit = 64 << 20;
constexpr size_t kSizesMixed = 80;  // granules: more than have a class of their own

class ArenaTest : public testing::Test {
 protected:
  size_t bytes_gone_ = 0;
  Budget budget_{kLimit, /*metadata_beside_limit=*/true};
  Arena arena_{&budget_, {.before_pages_go = [this](std::span<std::byte> pages) { bytes_gone_ += pages.size(); }}};
};

TEST_F(ArenaTest, FramesOfSizesThatMixGoToTheNextThatFitsWithTheirPages) {
  std::vector<size_t> sizes(100);
  std::mt19937 random(1);
  for (size_t& bytes : sizes) bytes = (1 + random() % 16) * kSwapGranule;
  std::vector<Frame> frames;
  for (int round = 0; round < 3; ++round) {
    std::shuffle(sizes.begin(), sizes.end(), random);
    for (const size_t bytes : sizes) frames.push_back(arena_.TryTake(bytes));
    frames.clear();
  }
  EXPECT_EQ(bytes_gone_, 0u);
}

TEST_F(ArenaTest, ALargeFrameIsCutForSmallOnesWhereTheLimitAllowsNoMore) {
  constexpr size_t kLarge = kLimit / 64;  // below the size of a huge page
  std::vector<Frame> frames;
  for (int i = 0; i < 64; ++i) frames.push_back(arena_.TryTake(kLarge));
  frames.clear();
  for (size_t bytes = 0; bytes < kLimit; bytes += 3 * kSwapGranule) frames.push_back(arena_.TryTake(3 * kSwapGranule));
  EXPECT_TRUE(std::all_of(frames.begin(), frames.end() - 1, [](const Frame& frame) { return static_cast<bool>(frame); }));
  // Each large one is cut to the last granule that is not enough for one more; those are given back together in the end.
  EXPECT_LE(bytes_gone_, 64 * 2 * kSwapGranule);
}

TEST_F(ArenaTest, AFrameWithHugePagesIsGivenBackWhole) {
  constexpr size_t kHugePage = 2 << 20;
  std::vector<Frame> frames;
  for (uint64_t bytes = 0; bytes < kLimit; bytes += kHugePage) frames.push_back(arena_.TryTake(kHugePage));
  frames.clear();
  const Frame small = arena_.TryTake(kSwapGranule);
  EXPECT_TRUE(small);
  EXPECT_EQ(bytes_gone_, kHugePage);
}

TEST_F(ArenaTest, AFrameIsAsLargeAsWhatWasAskedForWhereverItComesFrom) {
  for (int round = 0; round < 2; ++round) {
    for (size_t granules = 1; granules <= kSizesMixed; ++granules) {
      for (const size_t less : {size_t{0}, kSwapGranule - 1}) {
        const size_t bytes = granules * kSwapGranule - less;
        Frame one = arena_.TryTake(bytes), two = arena_.TryTake(bytes);
        ASSERT_TRUE(one && two);
        std::memset(one.get(), 1, bytes);
        std::memset(two.get(), 2, bytes);
        EXPECT_EQ(std::accumulate(static_cast<char*>(one.get()), static_cast<char*>(one.get()) + bytes, size_t{0}), bytes);
      }
    }
  }
}

TEST_F(ArenaTest, RandomTakesAndReturnsAgreeWithANaiveMap) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::map<char*, Frame> live;
  uint64_t in_use = 0, limit = kLimit;
  for (int i = 0; i < 20000; ++i) {
    const unsigned what = random() % 100;
    if (what < 45 && !live.empty()) {
      const auto victim = std::next(live.begin(), static_cast<ptrdiff_t>(random() % live.size()));
      in_use -= RoundUpToGranule(victim->second.bytes());
      live.erase(victim);
    } else if (what == 99) {
      limit = kLimit / (1 + random() % 4);
      if (in_use > limit) limit = kLimit;
      budget_.set_limit(limit);
      arena_.Trim(budget_.frames_limit());
    } else {
      const size_t bytes = 1 + random() % (kSizesMixed * kSwapGranule);
      Frame frame = arena_.TryTake(bytes);
      ASSERT_EQ(static_cast<bool>(frame), in_use + RoundUpToGranule(bytes) <= limit);
      if (!frame) continue;
      char* const at = static_cast<char*>(frame.get());
      const auto after = live.lower_bound(at);
      ASSERT_TRUE(after == live.end() || at + bytes <= after->first);
      ASSERT_TRUE(after == live.begin() || std::prev(after)->first + std::prev(after)->second.bytes() <= at);
      in_use += RoundUpToGranule(bytes);
      live.emplace(at, std::move(frame));
    }
    ASSERT_EQ(arena_.in_use(), in_use);
    ASSERT_LE(arena_.committed(), limit);
  }
}

}  // namespace
}  // namespace ramspan
