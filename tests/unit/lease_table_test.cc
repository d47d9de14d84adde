#include "memserver/lease_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace ramspan {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

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

}  // namespace
}  // namespace ramspan
