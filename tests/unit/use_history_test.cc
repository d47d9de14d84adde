#include "client/policy/use_history.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ramspan {
namespace {

// How many of the last `looked_at` predictions were exact.
double Exact(const std::vector<uint32_t>& uses, uint32_t chunks, size_t looked_at) {
  UseHistory history(1 << 14);
  history.Reserve(chunks);
  std::vector<uint32_t> said;
  for (const uint32_t chunk : uses) said.push_back(history.Use(chunk, 0));
  std::vector<size_t> next(chunks, uses.size());
  size_t exact = 0, asked = 0;
  for (size_t i = uses.size(); i-- > 0;) {
    if (i >= uses.size() - looked_at && next[uses[i]] < uses.size()) {
      ++asked;
      exact += said[i] == next[uses[i]] - i ? 1 : 0;
    }
    next[uses[i]] = i;
  }
  return static_cast<double>(exact) / static_cast<double>(asked);
}

TEST(UseHistory, NothingIsKnownOfAFirstUse) {
  UseHistory history(1 << 14);
  history.Reserve(2);
  EXPECT_EQ(history.Use(0, 0), 0u);
  EXPECT_EQ(history.Use(1, 0), 0u);
  EXPECT_EQ(history.Use(0, 0), 2u) << "the last interval";
  history.Forget(0);
  EXPECT_EQ(history.Use(0, 0), 0u);
}

TEST(UseHistory, RepeatedSweepsAreForeseen) {
  std::vector<uint32_t> uses;
  for (int sweep = 0; sweep < 4; ++sweep) {
    for (uint32_t i = 0; i < 100; ++i) uses.push_back(i);
  }
  EXPECT_EQ(Exact(uses, 100, 200), 1.0);
}

TEST(UseHistory, SweepsToAndFroAreForeseenThoughTheIntervalsAlternate) {
  std::vector<uint32_t> uses;
  for (int sweep = 0; sweep < 8; ++sweep) {
    for (uint32_t i = 0; i < 100; ++i) uses.push_back(sweep % 2 == 0 ? i : 99 - i);
  }
  EXPECT_EQ(Exact(uses, 100, 300), 1.0);
}

TEST(UseHistory, ANestedLoopIsForeseenFromItsSecondStepOn) {
  std::vector<uint32_t> uses;
  for (int step = 0; step < 4; ++step) {
    for (uint32_t i = 0; i < 20; ++i) {
      for (uint32_t j = 0; j < 20; ++j) {
        uses.push_back(20 + i);
        uses.push_back(j);
      }
    }
  }
  EXPECT_EQ(Exact(uses, 40, 1600), 1.0);
}

TEST(UseHistory, TheSequenceIsFoundAgainBehindADisturbance) {
  std::mt19937 random(1);
  std::vector<uint32_t> uses;
  for (int sweep = 0; sweep < 8; ++sweep) {
    for (uint32_t i = 0; i < 200; ++i) {
      uses.push_back(sweep % 2 == 0 ? i : 199 - i);
      if (random() % 50 == 0) uses.push_back(200 + static_cast<uint32_t>(random() % 100));
    }
  }
  UseHistory history(1 << 14);
  history.Reserve(300);
  size_t follows = 0;
  for (size_t i = 0; i < uses.size(); ++i) {
    history.Use(uses[i], 0);
    follows += i >= uses.size() / 2 && history.run(0) > 0 ? 1 : 0;
  }
  EXPECT_GE(follows, uses.size() / 2 * 85 / 100);
}

// A product of matrices by blocks: each row of A and each block of C come once in their lives, in the place of those before.
TEST(UseHistory, WhoIsInTheRoleOfAnotherIsExpectedWhenThatOneCameAgain) {
  constexpr uint32_t kSide = 16, kBlocks = kSide * kSide;
  UseHistory history(1 << 14);
  history.Reserve(3 * kBlocks);
  for (uint32_t chunk = 0; chunk < 3 * kBlocks; ++chunk) history.Use(chunk, 0);
  uint32_t rows = 0, last_rows = 0, results = 0, matrix = 0;
  for (uint32_t i = 0; i < kSide; ++i) {
    for (uint32_t j = 0; j < kSide; ++j) {
      for (uint32_t k = 0; k < kSide; ++k) {
        const uint32_t a = history.Use(i * kSide + k, 0), b = history.Use(kBlocks + k * kSide + j, 0), c = history.Use(2 * kBlocks + i * kSide + j, 0);
        if (i < 4) continue;
        rows += j + 1 < kSide && a == 3 * kSide ? 1 : 0;
        last_rows += j + 1 == kSide && a > 3 * kBlocks ? 1 : 0;
        matrix += b == 3 * kBlocks ? 1 : 0;
        results += k + 1 < kSide && c == 3 ? 1 : 0;
      }
    }
  }
  constexpr uint32_t kRows = kSide - 4;
  EXPECT_GE(rows, kRows * kSide * (kSide - 1) * 99 / 100);
  EXPECT_GE(last_rows, kRows * kSide * 99 / 100) << "not used again";
  EXPECT_EQ(matrix, kRows * kBlocks);
  EXPECT_GE(results, kRows * kSide * (kSide - 1) * 99 / 100);
}

TEST(UseHistory, NoRoleIsPlayedBesideARandomTable) {
  constexpr uint32_t kSweep = 900, kTable = 100;
  UseHistory history(1 << 14);
  history.Reserve(kSweep + kTable);
  std::mt19937 random(5);
  std::vector<uint32_t> last(kTable);
  uint32_t own = 0, uses = 0;
  for (uint32_t i = 0; i < 20'000; ++i) {
    history.Use(i % kSweep, 0);
    const uint32_t chunk = static_cast<uint32_t>(random() % kTable);
    const uint32_t interval = history.Use(kSweep + chunk, 0);
    if (i > 10'000) {
      ++uses;
      own += interval == history.now() - last[chunk] ? 1 : 0;
    }
    last[chunk] = history.now();
  }
  EXPECT_GE(own, uses * 9 / 10);
}

TEST(UseHistory, ThreadsAreFollowedEachByItself) {
  UseHistory history(1 << 14);
  history.Reserve(200);
  std::mt19937 random(3);
  for (int sweep = 0; sweep < 4; ++sweep) {
    uint32_t at[2] = {0, 0};
    while (at[0] < 100 || at[1] < 100) {
      uint32_t thread = static_cast<uint32_t>(random() % 2);
      if (at[thread] == 100) thread = 1 - thread;
      history.Use(thread * 100 + at[thread]++, thread);
      if (sweep >= 2) {
        ASSERT_GT(history.run(thread), 0u);
      }
    }
  }
  std::vector<uint32_t> next;
  history.Use(100, 1);
  history.ForEachNext(1, [&](uint32_t chunk) { return next.push_back(chunk), next.size() < 3; });
  EXPECT_EQ(next, (std::vector<uint32_t>{101, 102, 103}));
}

TEST(UseHistory, ASmallerOneFindsTheSequenceAnew) {
  UseHistory history(1 << 14);
  history.Reserve(100);
  for (int sweep = 0; sweep < 8; ++sweep) {
    if (sweep == 3) history.Resize(512);
    for (uint32_t i = 0; i < 100; ++i) {
      const uint32_t interval = history.Use(i, 0);
      if (sweep > 0) {
        ASSERT_EQ(interval, 100u) << "from the last use, if not from the sequence";
      }
      if (sweep >= 6) {
        ASSERT_GT(history.run(0), 0u) << i;
      }
    }
  }
  EXPECT_EQ(history.uses(), 512u);
}

// Four passes over an order in which each chunk comes after another time, so the last use says nothing; then another size, in the middle of a pass.
void ResizedHistoryGoesOn(uint32_t from, uint32_t to) {
  UseHistory history(from);
  history.Reserve(100);
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < 100; ++i) {
    order.push_back(i);
    if (i % 3 == 0) order.push_back(i / 2);
  }
  for (int pass = 0; pass < 6; ++pass) {
    for (size_t i = 0; i < order.size(); ++i) {
      if (pass == 4 && i == 50) history.Resize(to);
      history.Use(order[i], 0);
      if (pass >= 2) {
        ASSERT_GT(history.run(0), 0u) << "pass " << pass << ", use " << i;
      }
    }
  }
  EXPECT_EQ(history.uses(), to);
}

TEST(UseHistory, ASmallerOneFollowsTheSequenceWhereItWas) { ResizedHistoryGoesOn(1 << 14, 512); }

TEST(UseHistory, ALargerOneFollowsTheSequenceWhereItWas) { ResizedHistoryGoesOn(512, 1 << 14); }

// Forwards and backwards; then forwards, from the middle on. The last use of each chunk was backwards, so only what came before it tells.
TEST(UseHistory, AResizedOneFindsItsPlaceByWhatCameBefore) {
  for (const auto& [from, to] : {std::pair{1 << 14, 512}, {512, 1 << 14}}) {
    UseHistory history(static_cast<uint32_t>(from));
    history.Reserve(100);
    for (int pass = 0; pass < 4; ++pass) {
      for (uint32_t i = 0; i < 100; ++i) history.Use(pass % 2 == 0 ? i : 99 - i, 0);
    }
    history.Resize(static_cast<uint32_t>(to));
    size_t lost = 0;
    for (uint32_t i = 50; i < 100; ++i) {
      history.Use(i, 0);
      lost += history.run(0) == 0 ? 1 : 0;
    }
    EXPECT_LE(lost, 3u) << from << " to " << to;
  }
}

TEST(UseHistory, WhatIsForgottenIsNotFollowed) {
  UseHistory history(1 << 14);
  history.Reserve(1);
  for (uint32_t i = 0; i < (3u << 14); ++i) history.Use(0, 0);
  size_t steps = 0;
  history.ForEachNext(0, [&](uint32_t) { return ++steps < (1u << 20); });
  EXPECT_LT(steps, 1u << 15);
}

}  // namespace
}  // namespace ramspan
