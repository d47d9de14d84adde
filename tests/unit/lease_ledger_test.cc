// A memory server that lies. Every kTake here ends in stores at the address that the server said.
#include "client/swap/lease_ledger.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ramspan {
namespace {

using Verdict = LeaseLedger::Verdict;
constexpr uint64_t kPool = 64 * kLeaseGranule;

WireMessage Request(uint32_t sequence, uint64_t granules) {
  return {.type = WireType::kLeaseRequest, .sequence = sequence, .bytes = granules * kLeaseGranule, .minimum_bytes = kLeaseGranule};
}
WireMessage Grant(uint32_t sequence, uint64_t lease, uint64_t at, uint64_t granules) {
  return {.type = WireType::kLeaseGrant, .sequence = sequence, .lease = lease, .offset = at * kLeaseGranule,
          .bytes = granules * kLeaseGranule};
}

TEST(LeaseLedger, AGrantThatAnswersTheRequestIsTakenOnce) {
  LeaseLedger ledger;
  ledger.NoteRequest(0, Request(1, 8));
  EXPECT_EQ(ledger.Judge(0, Grant(1, 5, 0, 8), kPool), Verdict::kTake);
  EXPECT_TRUE(ledger.Holds(0, 5));
  EXPECT_EQ(ledger.Outstanding(0), nullptr);
  EXPECT_EQ(ledger.Judge(0, Grant(1, 5, 0, 8), kPool), Verdict::kIgnore) << "sent twice: it must not be given back";
}

TEST(LeaseLedger, AGrantBeyondWhatIsMappedIsNotTaken) {
  const uint64_t end = kPool / kLeaseGranule;
  for (const WireMessage& grant : {Grant(1, 5, end, 1), Grant(1, 5, end - 1, 2), Grant(1, 5, 0, end + 1)}) {
    LeaseLedger ledger;
    ledger.NoteRequest(0, Request(1, 2 * end));
    EXPECT_EQ(ledger.Judge(0, grant, kPool), Verdict::kBroken);
    EXPECT_FALSE(ledger.Holds(0, 5));
    EXPECT_EQ(ledger.Outstanding(0), nullptr) << "it was the answer";
  }
}

TEST(LeaseLedger, SumsThatWrapAreNotTaken) {
  LeaseLedger ledger;
  ledger.NoteRequest(0, {.type = WireType::kLeaseRequest, .sequence = 1, .bytes = ~uint64_t{0}});
  EXPECT_EQ(ledger.Judge(0, {.type = WireType::kLeaseGrant, .sequence = 1, .lease = 1, .offset = ~uint64_t{0} - 10, .bytes = 20}, kPool),
            Verdict::kBroken);
}

TEST(LeaseLedger, AGrantLargerThanTheRequestIsNotTaken) {
  LeaseLedger ledger;
  ledger.NoteRequest(0, Request(1, 4));
  EXPECT_EQ(ledger.Judge(0, Grant(1, 5, 0, 5), kPool), Verdict::kBroken);
}

TEST(LeaseLedger, AGrantSmallerThanTheRequestsLeastIsNotTaken) {
  LeaseLedger ledger;
  WireMessage request = Request(1, 8);
  request.minimum_bytes = 2 * kLeaseGranule;
  ledger.NoteRequest(0, request);
  EXPECT_EQ(ledger.Judge(0, Grant(1, 7, 0, 1), kPool), Verdict::kBroken);
  request.sequence = 2;
  ledger.NoteRequest(0, request);
  EXPECT_EQ(ledger.Judge(0, Grant(2, 8, 0, 2), kPool), Verdict::kTake);
}

TEST(LeaseLedger, AGrantThatNobodyAskedForGoesBack) {
  LeaseLedger ledger;
  EXPECT_EQ(ledger.Judge(0, Grant(1, 5, 0, 1), kPool), Verdict::kGiveBack);
  ledger.NoteRequest(0, Request(2, 4));
  EXPECT_EQ(ledger.Judge(0, Grant(1, 5, 0, 1), kPool), Verdict::kGiveBack) << "an earlier request's";
  EXPECT_EQ(ledger.Judge(1, Grant(2, 5, 0, 1), kPool), Verdict::kGiveBack) << "another server's";
  EXPECT_NE(ledger.Outstanding(0), nullptr);
}

TEST(LeaseLedger, AGrantThatOverlapsALeaseHeldIsNotTaken) {
  for (const auto& [at, granules] : {std::pair<uint64_t, uint64_t>{10, 4}, {9, 2}, {13, 2}, {11, 1}, {0, 64}, {8, 10}}) {
    LeaseLedger ledger;
    ledger.NoteRequest(0, Request(1, 4));
    ASSERT_EQ(ledger.Judge(0, Grant(1, 5, 10, 4), kPool), Verdict::kTake);
    ledger.NoteRequest(0, Request(2, 64));
    EXPECT_EQ(ledger.Judge(0, Grant(2, 6, at, granules), kPool), Verdict::kBroken) << at << " " << granules;
    ledger.NoteReturned(0, 5);
    ledger.NoteRequest(0, Request(3, 64));
    EXPECT_EQ(ledger.Judge(0, Grant(3, 7, at, granules), kPool), Verdict::kTake) << at << " " << granules;
  }
}

TEST(LeaseLedger, TheNeighboursOfALeaseAreFree) {
  LeaseLedger ledger;
  uint32_t sequence = 0;
  for (const uint64_t at : {10, 14, 6}) {
    ledger.NoteRequest(0, Request(++sequence, 4));
    EXPECT_EQ(ledger.Judge(0, Grant(sequence, sequence, at, 4), kPool), Verdict::kTake) << at;
  }
}

TEST(LeaseLedger, TheIdOfALeaseHeldIsNotGrantedAgain) {
  LeaseLedger ledger;
  ledger.NoteRequest(0, Request(1, 4));
  ASSERT_EQ(ledger.Judge(0, Grant(1, 5, 0, 4), kPool), Verdict::kTake);
  ledger.NoteRequest(0, Request(2, 4));
  EXPECT_EQ(ledger.Judge(0, Grant(2, 5, 20, 4), kPool), Verdict::kBroken);
  EXPECT_TRUE(ledger.Holds(0, 5)) << "and it must not be given back for that";
}

TEST(LeaseLedger, WhateverAServerSaysNoTwoLeasesTouchAndNoneLeavesThePool) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  LeaseLedger ledger;
  struct Held {
    uint64_t lease, begin, end;
  };
  std::vector<Held> held;
  int taken = 0;
  for (int i = 0; i < 20000; ++i) {
    const uint32_t sequence = 1 + random() % 3;
    if (random() % 2 == 0) ledger.NoteRequest(0, Request(sequence, 1 + random() % 16));
    const WireMessage grant = Grant(1 + random() % 3, 1 + random() % 200, random() % 70, random() % 20);
    if (ledger.Judge(0, grant, kPool) == Verdict::kTake) {
      ++taken;
      ASSERT_LE(grant.offset + grant.bytes, kPool);
      for (const Held& other : held) {
        ASSERT_TRUE(other.lease != grant.lease && (other.end <= grant.offset || other.begin >= grant.offset + grant.bytes));
      }
      held.push_back({grant.lease, grant.offset, grant.offset + grant.bytes});
    }
    if (!held.empty() && random() % 3 == 0) {
      const size_t which = random() % held.size();
      ledger.NoteReturned(0, held[which].lease);
      held.erase(held.begin() + static_cast<long>(which));
    }
  }
  EXPECT_GT(taken, 500);
}

}  // namespace
}  // namespace ramspan
