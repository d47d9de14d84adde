#include "memserver/lease_table.h"

#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <random>
#include <vector>

#include "tests/support/sizes.h"

namespace ramspan {
namespace {

uint64_t TakeAll(LeaseTable* table, uint32_t client) {
  uint64_t taken = 0;
  for (;;) {
    const Result<Lease> lease = table->Grant(client, kPoolBytesMax, kLeaseGranule);
    if (!lease.ok()) return taken;
    taken += lease.value().bytes;
  }
}

TEST(LeaseTable, ALoneClientCanHaveTheWholePool) {
  LeaseTable table(100 * kMiB, 1);
  EXPECT_EQ(TakeAll(&table, 0), 100 * kMiB);
  EXPECT_EQ(table.free_bytes(), 0u);
  EXPECT_TRUE(table.IsValid());
}

TEST(LeaseTable, APoolIsCutDownToWholeGranules) {
  LeaseTable table(kMiB + 1, 1);
  EXPECT_EQ(table.pool_bytes(), kMiB);
}

TEST(LeaseTable, OneLeaseIsAtMostAQuarterOfAnEvenShare) {
  LeaseTable table(64 * kMiB, 4);
  const Result<Lease> lease = table.Grant(2, 64 * kMiB, kLeaseGranule);
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease.value().bytes, 4 * kMiB);
}

TEST(LeaseTable, AGreedyClientLeavesTheReserveOfEachOther) {
  LeaseTable table(64 * kMiB, 4);
  EXPECT_EQ(TakeAll(&table, 0), 64 * kMiB - 3 * table.reserve_bytes());
  EXPECT_EQ(table.Grant(0, kMiB, kMiB).status().code(), StatusCode::kUnavailable);
  for (const uint32_t late : {1u, 2u, 3u}) EXPECT_EQ(TakeAll(&table, late), table.reserve_bytes()) << late;
  EXPECT_EQ(table.free_bytes(), 0u);
  EXPECT_EQ(table.Grant(0, kMiB, kMiB).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(table.IsValid());
}

TEST(LeaseTable, ARetiredClientIsPromisedNothing) {
  LeaseTable table(64 * kMiB, 2);
  TakeAll(&table, 1);
  table.Retire(1);
  EXPECT_EQ(table.free_bytes(), 64 * kMiB);
  EXPECT_EQ(TakeAll(&table, 0), 64 * kMiB);
}

TEST(LeaseTable, OnlyTheHolderCanReturnALease) {
  LeaseTable table(16 * kMiB, 2);
  const uint64_t lease = table.Grant(0, kMiB, kMiB).value().id;
  EXPECT_EQ(table.Return(1, lease).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(table.Return(0, lease + 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(table.HeldBy(0), kMiB);
  EXPECT_TRUE(table.Return(0, lease).ok());
  EXPECT_EQ(table.HeldBy(0), 0u);
}

TEST(LeaseTable, AReturnRepeatedAfterReuseHitsNobody) {
  LeaseTable table(kMiB, 2);
  const Lease first = table.Grant(0, kLeaseGranule, kLeaseGranule).value();
  ASSERT_TRUE(table.Return(0, first.id).ok());
  const Lease second = table.Grant(1, kLeaseGranule, kLeaseGranule).value();
  EXPECT_EQ(second.offset, first.offset);
  EXPECT_FALSE(table.Return(0, first.id).ok());
  EXPECT_EQ(table.HeldBy(1), kLeaseGranule);
}

TEST(LeaseTable, AWishThatIsNoPowerOfTwoWastesNothing) {
  LeaseTable table(64 * kMiB, 1);
  EXPECT_EQ(table.Grant(0, 3 * kMiB, 3 * kMiB).value().bytes, 3 * kMiB);
  EXPECT_EQ(TakeAll(&table, 0), 61 * kMiB);
}

TEST(LeaseTable, RandomTrafficNeverOverlapsLeasesOrLosesBytes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr uint32_t kClients = 3;
  LeaseTable table(37 * kMiB + 5 * kLeaseGranule, kClients);
  std::vector<Lease> live;
  for (int step = 0; step < 3000; ++step) {
    const uint32_t client = random() % kClients;
    if (live.empty() || random() % 5 < 3) {
      const uint64_t minimum = (1 + random() % 8) * kLeaseGranule;
      const uint64_t want = minimum + (random() % 64) * kLeaseGranule;
      const Result<Lease> lease = table.Grant(client, want, minimum);
      if (!lease.ok()) continue;
      ASSERT_GE(lease.value().bytes, minimum);
      ASSERT_LE(lease.value().bytes, want);
      live.push_back(lease.value());
    } else {
      const size_t i = random() % live.size();
      ASSERT_EQ(table.Return(client, live[i].id).ok(), client == live[i].client);
      if (client == live[i].client) live.erase(live.begin() + static_cast<long>(i));
    }
    ASSERT_TRUE(table.IsValid()) << "step " << step;
  }
  for (uint32_t client = 0; client < kClients; ++client) table.Retire(client);
  EXPECT_EQ(table.free_bytes(), table.pool_bytes());
  EXPECT_TRUE(table.IsValid());
}

TEST(LeaseTable, SharesAreCountedAnewWhenAClientComes) {
  LeaseTable table(64 * kLeaseGranule, 0);
  table.Welcome(0);
  EXPECT_EQ(table.lease_bytes_max(), 16 * kLeaseGranule);
  EXPECT_EQ(table.FreeFor(0), 64 * kLeaseGranule);
  table.Welcome(1);
  EXPECT_EQ(table.lease_bytes_max(), 8 * kLeaseGranule);
  EXPECT_EQ(table.FreeFor(0), 56 * kLeaseGranule) << "the other one's reserve";
  table.Retire(1);
  table.Welcome(1);
  EXPECT_TRUE(table.IsValid());
}

// ---- Fair shares ----

LeaseTable::Time At(int seconds) { return LeaseTable::Time(std::chrono::seconds(seconds)); }

uint64_t GiveBack(LeaseTable* table, std::vector<Lease>* held, uint64_t bytes) {
  uint64_t given = 0;
  for (; given < bytes && !held->empty(); held->pop_back()) {
    EXPECT_TRUE(table->Return(held->back().client, held->back().id).ok());
    given += held->back().bytes;
  }
  return given;
}

std::vector<Lease> Hog(LeaseTable* table, uint32_t client) {
  std::vector<Lease> held;
  for (;;) {
    const Result<Lease> lease = table->Grant(client, 4 * kMiB, kLeaseGranule);
    if (!lease.ok()) return held;
    held.push_back(lease.value());
  }
}

TEST(LeaseTable, WhoComesLateGetsItsShareFromWhoHasMore) {
  LeaseTable table(64 * kMiB, 0);
  table.Welcome(0);
  std::vector<Lease> hogs = Hog(&table, 0);
  EXPECT_EQ(table.HeldBy(0), 64 * kMiB);
  EXPECT_TRUE(table.AskBack(At(0)).empty()) << "nobody else wants it";
  table.Welcome(1);
  for (int round = 0; table.HeldBy(1) < 32 * kMiB; ++round) {
    ASSERT_LT(round, 100);
    const Result<Lease> lease = table.Grant(1, 4 * kMiB, kLeaseGranule);
    if (lease.ok()) continue;
    ASSERT_EQ(table.NoteWant(1, 4 * kMiB, 4 * kMiB, At(round)), 4 * kMiB);
    const std::vector<LeaseTable::Claim> claims = table.AskBack(At(round));
    ASSERT_EQ(claims.size(), 1u);
    EXPECT_EQ(claims[0].client, 0u);
    EXPECT_EQ(claims[0].bytes, 4 * kMiB);
    EXPECT_TRUE(table.AskBack(At(round)).empty()) << "it is told once";
    GiveBack(&table, &hogs, claims[0].bytes);
    EXPECT_FALSE(table.Grant(0, kMiB, kLeaseGranule).ok()) << "what was given back is promised";
  }
  EXPECT_EQ(table.NoteWant(1, 4 * kMiB, 4 * kMiB, At(0)), 0u) << "a share, and not more";
  EXPECT_TRUE(table.AskBack(At(0)).empty());
  EXPECT_EQ(table.HeldBy(0), 32 * kMiB);
  EXPECT_TRUE(table.IsValid());
}

TEST(LeaseTable, AJobOfManyClientsHasOneShare) {
  LeaseTable table(64 * kMiB, 0);
  for (uint32_t client = 0; client < 3; ++client) table.Welcome(client, "slurm 1");
  for (uint32_t client = 0; client < 3; ++client) Hog(&table, client);
  table.Welcome(3, "slurm 2");
  uint64_t asked = 0;
  EXPECT_EQ(table.NoteWant(3, 16 * kMiB, 16 * kMiB, At(0)), table.lease_bytes_max());
  for (const LeaseTable::Claim& claim : table.AskBack(At(0))) asked += claim.bytes;
  EXPECT_EQ(asked, table.lease_bytes_max()) << "a quarter of the clients, half of the jobs";
}

// A rank that came first held what it did not need, and the next one of its job ended by OutOfSwap.
TEST(LeaseTable, AClientGetsItsPartOfTheJobsShareFromTheOthersOfTheJob) {
  LeaseTable table(64 * kMiB, 0);
  table.Welcome(0, "slurm 1");
  std::vector<Lease> hogs = Hog(&table, 0);
  table.Welcome(1, "slurm 1");
  for (int round = 0; table.HeldBy(1) < 32 * kMiB; ++round) {
    ASSERT_LT(round, 100);
    if (table.Grant(1, 4 * kMiB, kLeaseGranule).ok()) continue;
    EXPECT_EQ(table.NoteWant(1, 4 * kMiB, 0, At(round)), 0u) << "it can wait";
    ASSERT_EQ(table.NoteWant(1, 4 * kMiB, 4 * kMiB, At(round)), 4 * kMiB);
    const std::vector<LeaseTable::Claim> claims = table.AskBack(At(round));
    ASSERT_EQ(claims.size(), 1u);
    EXPECT_EQ(claims[0].client, 0u);
    EXPECT_EQ(claims[0].bytes, 4 * kMiB);
    EXPECT_TRUE(table.AskBack(At(round)).empty()) << "it is told once";
    GiveBack(&table, &hogs, claims[0].bytes);
    EXPECT_FALSE(table.Grant(0, kMiB, kLeaseGranule).ok()) << "it is for the other one";
    EXPECT_TRUE(table.IsValid());
  }
  EXPECT_EQ(table.NoteWant(1, 4 * kMiB, 4 * kMiB, At(0)), 0u) << "a part, and not more";
  EXPECT_TRUE(table.AskBack(At(0)).empty());
  EXPECT_EQ(table.HeldBy(0), 32 * kMiB);
  table.Retire(1);
  EXPECT_TRUE(table.IsValid());
}

// What client 0 gives back is for `other` of its job, and not for itself again.
void GivesToTheOther(LeaseTable* table, std::vector<Lease>* hogs, uint32_t other) {
  GiveBack(table, hogs, 4 * kMiB);
  EXPECT_FALSE(table->Grant(0, kMiB, kLeaseGranule).ok());
  EXPECT_TRUE(table->Grant(other, 4 * kMiB, kLeaseGranule).ok());
  EXPECT_TRUE(table->IsValid());
}

TEST(LeaseTable, WhatAJobAboveItsShareGivesBackWithinIsForWhoNeedsIt) {
  LeaseTable table(64 * kMiB, 0);
  table.Welcome(0, "slurm 1");
  std::vector<Lease> hogs = Hog(&table, 0);
  GiveBack(&table, &hogs, 20 * kMiB);
  table.Welcome(1, "slurm 2");
  Hog(&table, 1);
  table.Welcome(2, "slurm 1");
  ASSERT_EQ(table.free_bytes(), 0u);
  ASSERT_EQ(table.NoteWant(2, 4 * kMiB, 4 * kMiB, At(0)), 4 * kMiB);
  ASSERT_EQ(table.AskBack(At(0)).size(), 1u);
  GivesToTheOther(&table, &hogs, 2);
}

TEST(LeaseTable, WhatIsAskedForAheadTakesNothingFromWhatSomebodyWaitsFor) {
  LeaseTable table(64 * kMiB, 0);
  table.Welcome(0, "slurm 1");
  Hog(&table, 0);
  table.Welcome(1, "slurm 1");
  ASSERT_EQ(table.NoteWant(1, 8 * kMiB, 2 * kMiB, At(0)), 2 * kMiB) << "what is needed now";
  ASSERT_EQ(table.AskBack(At(0)).size(), 1u);
  table.NoteWant(1, 8 * kMiB, 0, At(1));
  EXPECT_EQ(table.WantOf(1), 2 * kMiB);
  EXPECT_TRUE(table.TakeBack(At(1)).empty());
  EXPECT_EQ(table.awaited_bytes(), 2 * kMiB);
}

TEST(LeaseTable, WithinAQuotaTheOthersOfTheJobGiveToo) {
  LeaseTable table(64 * kMiB, 0);
  table.SetQuota("slurm 1", 32 * kMiB);
  table.Welcome(0, "slurm 1");
  std::vector<Lease> hogs = Hog(&table, 0);
  EXPECT_EQ(table.HeldBy(0), 32 * kMiB);
  table.Welcome(1, "slurm 1");
  table.Welcome(2, "slurm 2");
  const uint64_t before = table.FreeFor(2);
  ASSERT_EQ(table.NoteWant(1, 4 * kMiB, 4 * kMiB, At(0)), 4 * kMiB);
  EXPECT_EQ(table.FreeFor(2), before) << "it is within the job";
  const std::vector<LeaseTable::Claim> claims = table.AskBack(At(0));
  ASSERT_EQ(claims.size(), 1u);
  EXPECT_EQ(claims[0].bytes, 4 * kMiB);
  EXPECT_TRUE(table.TakeBack(At(1)).empty());
  GivesToTheOther(&table, &hogs, 1);
}

TEST(LeaseTable, OthersOfAJobGiveNothingOfTheirPartsNorOtherJobsOfTheirShares) {
  LeaseTable table(64 * kMiB, 0);
  table.Welcome(0, "slurm 1");
  table.Welcome(1, "slurm 1");
  table.Welcome(2, "slurm 2");
  std::vector<Lease> first = Hog(&table, 0);
  GiveBack(&table, &first, table.HeldBy(0) - 16 * kMiB);
  std::vector<Lease> others = Hog(&table, 2);
  GiveBack(&table, &others, table.HeldBy(2) - 32 * kMiB);
  Hog(&table, 1);
  ASSERT_EQ(table.free_bytes(), 0u);
  EXPECT_EQ(table.NoteWant(1, 4 * kMiB, 4 * kMiB, At(0)), 0u);
  EXPECT_EQ(table.NoteWant(0, 4 * kMiB, 4 * kMiB, At(0)), 0u);
  EXPECT_TRUE(table.AskBack(At(0)).empty());
}

TEST(LeaseTable, AWantThatIsNotRepeatedIsForgotten) {
  LeaseTable table(64 * kMiB, 0);
  table.Welcome(0);
  std::vector<Lease> hogs = Hog(&table, 0);
  table.Welcome(1);
  table.NoteWant(1, 4 * kMiB, 4 * kMiB, At(0));
  table.AskBack(At(0));
  GiveBack(&table, &hogs, 4 * kMiB + table.reserve_bytes());
  EXPECT_EQ(table.FreeFor(0), 0u + table.reserve_bytes() + 4 * kMiB - std::max(table.reserve_bytes(), 4 * kMiB));
  table.AskBack(At(11));
  EXPECT_EQ(table.FreeFor(0), 4 * kMiB);
}

TEST(LeaseTable, APoolThatLendsLessGetsTheRestBackFromWhoHoldsMost) {
  LeaseTable table(64 * kMiB, 0);
  table.Welcome(0);
  table.Welcome(1);
  std::vector<Lease> small;
  for (int i = 0; i < 2; ++i) small.push_back(table.Grant(1, 4 * kMiB, kLeaseGranule).value());
  std::vector<Lease> hogs = Hog(&table, 0);
  table.SetLent(32 * kMiB);
  const std::vector<LeaseTable::Claim> claims = table.AskBack(At(0));
  ASSERT_EQ(claims.size(), 1u);
  EXPECT_EQ(claims[0].client, 0u);
  EXPECT_EQ(claims[0].bytes, table.HeldBy(0) + table.HeldBy(1) - 32 * kMiB);
  EXPECT_EQ(table.FreeFor(1), 0u);
  GiveBack(&table, &hogs, claims[0].bytes);
  EXPECT_EQ(table.HeldBy(0) + table.HeldBy(1), 32 * kMiB);
  table.SetLent(1 << 30);
  EXPECT_EQ(table.lent_bytes(), 64 * kMiB) << "its memory, at most";
  EXPECT_GT(table.FreeFor(1), 0u);
}

// It lent a granule more to whoever asked.
TEST(LeaseTable, APoolThatLendsNothingGrantsNothingAndGetsAllBack) {
  LeaseTable table(64 * kMiB, 0);
  table.Welcome(0);
  std::vector<Lease> hogs = Hog(&table, 0);
  table.SetLent(0);
  EXPECT_EQ(table.lent_bytes(), 0u);
  uint64_t asked = 0;
  for (const LeaseTable::Claim& claim : table.AskBack(At(0))) asked += claim.bytes;
  EXPECT_EQ(asked, 64 * kMiB);
  EXPECT_EQ(GiveBack(&table, &hogs, asked), asked);
  EXPECT_EQ(table.NoteWant(0, kMiB, kMiB, At(0)), 0u);
  EXPECT_FALSE(table.Grant(0, kMiB, kLeaseGranule).ok());
  table.Welcome(1);
  EXPECT_FALSE(table.Grant(1, kMiB, kLeaseGranule).ok()) << "nor is there a reserve for who comes";
  EXPECT_TRUE(table.IsValid());
  table.SetLent(kMiB);
  EXPECT_TRUE(table.Grant(1, kMiB, kLeaseGranule).ok());
}

TEST(LeaseTable, AQuotaBindsItsJobAloneOrAllThatHaveNone) {
  LeaseTable table(64 * kMiB, 0);
  table.Welcome(0, "a");
  table.Welcome(1, "b");
  table.SetQuota("a", 8 * kMiB);
  EXPECT_EQ(TakeAll(&table, 0), 8 * kMiB);
  EXPECT_EQ(table.Grant(0, kMiB, kMiB).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(table.NoteWant(0, kMiB, kMiB, At(0)), 0u);
  EXPECT_EQ(TakeAll(&table, 1), 56 * kMiB);
  table.SetQuota("", 40 * kMiB);
  const std::vector<LeaseTable::Claim> claims = table.AskBack(At(0));
  ASSERT_EQ(claims.size(), 1u);
  EXPECT_EQ(claims[0].client, 1u);
  EXPECT_EQ(claims[0].bytes, 16 * kMiB);
  table.SetQuota("", UINT64_MAX);
  EXPECT_TRUE(table.AskBack(At(0)).empty());
}

TEST(LeaseTable, AJobThatLosesItsOwnQuotaHasThatOfAllOthers) {
  LeaseTable table(64 * kMiB, 0);
  table.Welcome(0, "a");
  table.SetQuota("", 40 * kMiB);
  table.SetQuota("a", UINT64_MAX);
  EXPECT_EQ(TakeAll(&table, 0), 64 * kMiB);
  table.SetQuota("a", std::nullopt);
  EXPECT_EQ(table.QuotaOf(0), 40 * kMiB);
  const std::vector<LeaseTable::Claim> claims = table.AskBack(At(0));
  ASSERT_EQ(claims.size(), 1u);
  EXPECT_EQ(claims[0].bytes, 24 * kMiB);
}

// What was promised were parts of the pool, not of what it lends: two clients with nothing refused each other for ever.
TEST(LeaseTable, APoolThatLendsLittleServesEachOfItsClients) {
  for (const uint64_t lent : {64 * kMiB, kMiB, kLeaseGranule}) {
    for (const char* second : {"a", "b"}) {
      LeaseTable table(512 * kMiB, 0);
      table.Welcome(0, "a");
      table.Welcome(1, second);
      table.SetLent(lent);
      EXPECT_TRUE(table.Grant(0, 8 * kMiB, kLeaseGranule).ok()) << lent;
      if (lent > kLeaseGranule) {
        EXPECT_TRUE(table.Grant(1, 8 * kMiB, kLeaseGranule).ok()) << lent;
      }
    }
  }
}

TEST(LeaseTable, WhatAJobMayNotHoldIsPromisedToNoneOfItsClients) {
  LeaseTable table(1024 * kMiB, 0);
  for (uint32_t client = 0; client < 16; ++client) table.Welcome(client, "bounded");
  table.Welcome(16, "other");
  table.SetQuota("bounded", 8 * kMiB);
  EXPECT_EQ(TakeAll(&table, 16), 1016 * kMiB);
  EXPECT_EQ(TakeAll(&table, 3), 8 * kMiB);
}

TEST(LeaseTable, SharesAreCountedAnewWhenAClientLeaves) {
  LeaseTable table(1024 * kMiB, 16);
  EXPECT_EQ(table.reserve_bytes(), 16 * kMiB);
  for (uint32_t client = 1; client < 16; ++client) table.Retire(client);
  EXPECT_EQ(table.reserve_bytes(), 64 * kMiB);
  EXPECT_EQ(table.lease_bytes_max(), 256 * kMiB);
}

// Each share was a walk over all clients, for each client, for each claim: 5 s for this one, in which the server answered nobody.
TEST(LeaseTable, AThousandClientsAreAskedForTheirMemoryInNoTime) {
  constexpr uint32_t kClients = 1024;
  constexpr double kSecondsMost = 1;  // of CPU time; 0.01 s are needed
  LeaseTable table(uint64_t{64} << 30, 0);
  for (uint32_t client = 0; client < kClients; ++client) table.Welcome(client, std::to_string(client % 4));
  for (uint32_t client = 0; client < kClients; ++client) {
    while (table.HeldBy(client) < 48 * kMiB && table.Grant(client, 16 * kMiB, kLeaseGranule).ok()) {
    }
  }
  const std::clock_t begin = std::clock();
  table.SetLent(table.pool_bytes() / 4);
  uint64_t asked = 0;
  for (const LeaseTable::Claim& claim : table.AskBack(At(0))) asked += claim.bytes;
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, kSecondsMost);
  EXPECT_EQ(asked, table.pool_bytes() - table.free_bytes() - table.lent_bytes());
}

}  // namespace
}  // namespace ramspan
