#include "client/pages/heard_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <utility>
#include <vector>

namespace ramspan {
namespace {

// A program's blocks, of which some are in memory: who is at home is not heard of, who has left home is.
class Program {
 public:
  explicit Program(uint32_t blocks) : at_(blocks), at_home_(blocks, false) {}
  void Touch(uint32_t block, HeardRing::Came came = HeardRing::Came::kToBeHeard) {
    if (at_home_[block]) return;
    at_home_[block] = true;
    ++heard_;
    uint32_t place = 0;
    const uint32_t due = ring.Note(block, &at_[block], came, kMost, &place);
    if (due == UINT32_MAX || at_[due].load() != place || !ring.MayHide()) return;
    at_home_[due] = false;
    ring.CountHidden();
  }
  uint32_t TakeHeard() { return std::exchange(heard_, 0); }
  HeardRing ring;

 private:
  static constexpr uint32_t kMost = 128;
  std::vector<std::atomic<uint32_t>> at_;
  std::vector<bool> at_home_;
  uint32_t heard_ = 0;
};

constexpr uint32_t kBlocks = 256;

// All of it came from swap, which pays for some passes.
void Fill(Program* program) {
  for (uint32_t i = 0; i < kBlocks; ++i) program->Touch(i, HeardRing::Came::kFromSwap);
  program->TakeHeard();
}

TEST(HeardRing, ASweepIsHeardOfAllButOfTheLatest) {
  Program program(kBlocks);
  Fill(&program);
  for (int sweep = 0; sweep < 3; ++sweep) {
    for (uint32_t i = 0; i < kBlocks; ++i) program.Touch(i);
    EXPECT_GE(program.TakeHeard(), kBlocks - 2 * HeardRing::kLateLeast);
  }
}

// All that had left just before a turn came early at once: `late` was 8 times as much after the first one, and half of what was in memory was not heard of.
TEST(HeardRing, ATurnDoublesOnceHowLateBlocksLeave) {
  Program program(kBlocks);
  Fill(&program);
  for (int sweep = 0; sweep < 4; ++sweep) {
    for (uint32_t i = 0; i < kBlocks; ++i) program.Touch(sweep % 2 == 0 ? kBlocks - 1 - i : i);
    EXPECT_LE(program.ring.late(), 2 * HeardRing::kLateLeast);
    EXPECT_GE(program.TakeHeard(), kBlocks - 4 * HeardRing::kLateLeast);
  }
}

// A thread goes through twelve arrays at once: each of their blocks is used again after eleven others.
TEST(HeardRing, BlocksThatAreUsedByTurnsAreSoonLeftWhereTheyAre) {
  constexpr uint32_t kArrays = 12, kTurns = 1000;
  Program program(kBlocks);
  Fill(&program);
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    for (uint32_t i = 0; i < kArrays; ++i) program.Touch(i * 20);
  }
  EXPECT_GT(program.ring.late(), kArrays);
  EXPECT_LT(program.TakeHeard(), 4 * kArrays);
}

// Where nothing comes from swap any more, nothing is gained by hearing.
TEST(HeardRing, NothingLeavesUnlessSomethingHasPaid) {
  Program program(kBlocks);
  for (uint32_t i = 0; i < kBlocks; ++i) program.Touch(i);
  EXPECT_FALSE(program.ring.MayHide());
  EXPECT_EQ(program.TakeHeard(), kBlocks);
  for (uint32_t i = 0; i < kBlocks; ++i) program.Touch(i);
  EXPECT_EQ(program.TakeHeard(), 0U);
  program.Touch(0, HeardRing::Came::kFromSwap);
  EXPECT_FALSE(program.ring.MayHide()) << "it was at home";
}

}  // namespace
}  // namespace ramspan
