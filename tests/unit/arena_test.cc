// The arena against a naive model of it, and what its cache of frames is for.
#include "client/arena/arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/huge_page.h"
#include "common/slot_ref.h"

namespace ramspan {
namespace {

constexpr uint64_t kLimit = 64 << 20;
constexpr size_t kSizesMixed = 80;  // granules: more than have a class of their own

class ArenaTest : public testing::Test {
 protected:
  size_t bytes_gone_ = 0;
  Budget budget_{kLimit, /*metadata_beside_limit=*/true};
  Arena arena_{&budget_, {.addresses = 16 * kLimit, .before_pages_go = [this](std::span<std::byte> pages) { bytes_gone_ += pages.size(); }}};
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
  std::vector<Frame> frames;
  for (uint64_t bytes = 0; bytes < kLimit; bytes += kHugePageBytes) frames.push_back(arena_.TryTake(kHugePageBytes));
  frames.clear();
  const Frame small = arena_.TryTake(kSwapGranule);
  EXPECT_TRUE(small);
  EXPECT_EQ(bytes_gone_, kHugePageBytes);
}

// What a program had freed was kept for it for ever, up to the limit.
TEST_F(ArenaTest, WhatIsNotNeededForAWhileCanGoBack) {
  constexpr size_t kLarge = 3 << 20;  // on no huge page with others
  std::vector<Frame> frames;
  for (int i = 0; i < 20; ++i) frames.push_back(arena_.TryTake(kLarge));
  arena_.IdleFrom();
  frames.resize(4);
  EXPECT_EQ(arena_.idle(), 0u) << "they were needed";
  arena_.IdleFrom();
  EXPECT_EQ(arena_.idle(), 16 * kLarge);
  for (int i = 0; i < 6; ++i) frames.push_back(arena_.TryTake(kLarge));
  frames.resize(4);
  EXPECT_EQ(arena_.idle(), 10 * kLarge) << "six of them were needed";
  EXPECT_EQ(bytes_gone_, 0u);
  EXPECT_EQ(arena_.TrimSome(kLarge + 1), kLarge);
  EXPECT_EQ(bytes_gone_, kLarge);
  EXPECT_EQ(arena_.TrimSome(kLarge - 1), 0u) << "none is as small";
  uint64_t more = 0;
  int pieces = -1;
  for (uint64_t gone = 1; gone > 0; ++pieces) more += gone = arena_.TrimSome(kLimit);
  EXPECT_EQ(more, 15 * kLarge);
  EXPECT_GE(pieces, 5) << "not all at once: others wait";
  EXPECT_EQ(arena_.committed(), 4 * kLarge);
}

TEST_F(ArenaTest, AHugePageThatSmallFramesShareDoesNotGoBackForBeingIdle) {
  std::vector<Frame> frames;
  for (uint64_t bytes = 0; bytes < kHugePageBytes; bytes += 4 * kSwapGranule) frames.push_back(arena_.TryTake(4 * kSwapGranule));
  frames.clear();
  EXPECT_EQ(arena_.TrimSome(kLimit), 0u);
  EXPECT_EQ(arena_.committed(), kHugePageBytes);
}

TEST_F(ArenaTest, SmallFramesAreCutFromARegionThatIsCommittedWhole) {
  std::vector<Frame> frames;
  for (uint64_t bytes = 0; bytes < kHugePageBytes; bytes += 4 * kSwapGranule) {
    frames.push_back(arena_.TryTake(4 * kSwapGranule));
    EXPECT_EQ(static_cast<char*>(frames.back().get()), static_cast<char*>(frames.front().get()) + bytes);
    EXPECT_EQ(arena_.committed(), kHugePageBytes);
  }
  EXPECT_EQ(reinterpret_cast<uintptr_t>(frames.front().get()) % kHugePageBytes, 0u);
  frames.push_back(arena_.TryTake(4 * kSwapGranule));
  EXPECT_EQ(arena_.committed(), 2 * kHugePageBytes);
  frames.clear();
  arena_.Trim(0);
  EXPECT_EQ(arena_.committed(), 0u);
  EXPECT_EQ(bytes_gone_, 2 * kHugePageBytes);
}

TEST_F(ArenaTest, WhatIsLeftOfARegionGoesToFramesThatFitWhereTheLimitAllowsNoMore) {
  const Frame small = arena_.TryTake(kSwapGranule);
  std::vector<Frame> frames;
  while (Frame frame = arena_.TryTake(kHugePageBytes)) frames.push_back(std::move(frame));
  EXPECT_EQ(frames.size(), kLimit / kHugePageBytes - 1);
  EXPECT_EQ(arena_.TryTake(kHugePageBytes - kSwapGranule).bytes(), kHugePageBytes - kSwapGranule);
  EXPECT_EQ(arena_.available(), kHugePageBytes - kSwapGranule);
}

TEST_F(ArenaTest, LargeFramesFillRegionsOfTheirOwn) {
  std::vector<Frame> frames;
  for (int i = 0; i < 8; ++i) {
    frames.push_back(arena_.TryTake(kHugePageBytes / 2));
    frames.push_back(arena_.TryTake(kSwapGranule));
  }
  EXPECT_EQ(arena_.committed(), 5 * kHugePageBytes);
  frames.push_back(arena_.TryTake(kHugePageBytes / 2 - kSwapGranule));  // two of them would leave two pages, three no room
  EXPECT_EQ(arena_.committed(), 5 * kHugePageBytes + frames.back().bytes());
}

TEST_F(ArenaTest, ASmallLimitIsNotSpentOnWholeRegions) {
  budget_.set_limit(kLimit / 4);
  const Frame frame = arena_.TryTake(kSwapGranule);
  EXPECT_EQ(arena_.committed(), kSwapGranule);
}

// What the kernel says of an address's page: /proc/self/pagemap, and for root the flags of what lies behind it.
struct PageState {
  bool present = false;
  bool known = false;  // whether `huge` is
  bool huge = false;
};

// Entries of 8 bytes, as these files have them; fewer where the system lets us read no more.
std::vector<uint64_t> EntriesOf(const char* path, uint64_t first, size_t count) {
  std::vector<uint64_t> entries(count);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t got = file < 0 ? 0 : pread(file, entries.data(), count * sizeof(uint64_t), static_cast<off_t>(first * sizeof(uint64_t)));
  if (file >= 0) close(file);
  entries.resize(got < 0 ? 0 : static_cast<size_t>(got) / sizeof(uint64_t));
  return entries;
}

std::vector<uint64_t> PagesAt(const void* address, size_t count) {
  return EntriesOf("/proc/self/pagemap", reinterpret_cast<uintptr_t>(address) / kSwapGranule, count);
}

bool IsPresent(uint64_t entry) { return entry >> 63 != 0; }

PageState StateOf(const void* address) {
  PageState state;
  const std::vector<uint64_t> entry = PagesAt(address, 1);
  if (entry.empty()) return state;
  state.present = IsPresent(entry[0]);
  const uint64_t page = entry[0] & ((uint64_t{1} << 55) - 1);  // zero where we may not know it
  if (page == 0) return state;
  const std::vector<uint64_t> flags = EntriesOf("/proc/kpageflags", page, 1);
  state.known = !flags.empty();
  state.huge = state.known && (flags[0] >> 22 & 1) != 0;  // KPF_THP
  return state;
}

// Else the kernel would keep the memory of the whole page, in no process's account, until it is short of memory itself.
TEST_F(ArenaTest, AHugePageIsSplitBeforeAPartOfItGoesBack) {
  std::vector<Frame> frames;
  for (uint64_t bytes = 0; bytes < kHugePageBytes; bytes += 4 * kSwapGranule) {
    frames.push_back(arena_.TryTake(4 * kSwapGranule));
    std::memset(frames.back().get(), 1, frames.back().bytes());
  }
  const void* const first = frames.front().get();
  const void* const last = frames.back().get();
  const PageState before = StateOf(first);
  ASSERT_TRUE(before.present);
  if (!before.known || !before.huge) GTEST_SKIP() << "no huge page, or none that we may know of";
  frames.pop_back();
  arena_.Trim(0);
  EXPECT_FALSE(StateOf(last).present);
  EXPECT_TRUE(StateOf(first).present);
  EXPECT_FALSE(StateOf(first).huge);
  EXPECT_EQ(static_cast<const char*>(first)[kSwapGranule], 1);
}

TEST_F(ArenaTest, WhereHugePagesAreLeftAllOfThemAreSplit) {
  const Frame frame = arena_.TryTake(kSwapGranule);
  std::memset(frame.get(), 1, frame.bytes());
  const bool was_huge = StateOf(frame.get()).huge;
  arena_.LeaveHugePages();
  EXPECT_FALSE(StateOf(frame.get()).huge);
  std::vector<Frame> others;  // of that region, and of one more
  for (uint64_t bytes = 0; bytes < 2 * kHugePageBytes; bytes += kHugePageBytes / 16) {
    others.push_back(arena_.TryTake(kHugePageBytes / 16));
    std::memset(others.back().get(), 1, others.back().bytes());
    EXPECT_FALSE(StateOf(others.back().get()).huge);
  }
  if (!was_huge) GTEST_SKIP() << "no huge page, or none that we may know of";
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
  uint64_t in_use = 0, limit = kLimit, most_resident = 0;
  const auto resident = [this] {
    const std::vector<uint64_t> entries = PagesAt(arena_.range().data(), arena_.range().size() / kSwapGranule);
    return kSwapGranule * static_cast<uint64_t>(std::count_if(entries.begin(), entries.end(), IsPresent));
  };
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
      std::memset(at, 1, bytes);
      live.emplace(at, std::move(frame));
    }
    if (i % 1000 == 0) {
      const uint64_t bytes = resident();
      ASSERT_LE(bytes, arena_.committed());
      most_resident = std::max(most_resident, bytes);
    }
    ASSERT_EQ(arena_.in_use(), in_use);
    ASSERT_LE(arena_.committed(), limit);
  }
  if (!PagesAt(&seed, 1).empty()) {
    EXPECT_GT(most_resident, kLimit / 4);
  }
}

}  // namespace
}  // namespace ramspan
