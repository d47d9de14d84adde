// Servers die: the program is told how many chunks are lost, and each that is used says with which server.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/engine/engine.h"
#include "client/runtime/swaps.h"
#include "client/swap/remote_swap.h"
#include "client/swap/retirable_tier.h"
#include "client/swap/tiered_swap.h"
#include "common/units.h"
#include "tests/support/local_transport.h"
#include "tests/support/no_pins.h"
#include "tests/support/policies.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr uint64_t kLosingBytes = 64 << 10, kLosingChunks = 96;

// It said the bytes of all slots there, also of chunks that were in memory, and no number of chunks; what is thrown named no server.
TEST(Losses, AreToldExactlyAndWithTheirServer) {
  LocalServers servers({.servers = 2, .pool_bytes = 64 * kMiB});
  const std::unique_ptr<ServerTransport> transport = servers.Connect(0);
  auto remote = std::make_unique<RetirableTier>(std::make_unique<RemoteSwap>(*transport, RemoteSwapOptions{.first_lease_bytes = kMiB, .lease_bytes_max = kMiB}));
  RetirableTier* const raw = remote.get();
  std::vector<std::unique_ptr<SwapTier>> tiers;
  tiers.push_back(std::move(remote));
  TieredSwap swap(std::move(tiers));
  NoPins pins;
  Engine engine({.budget = 2 * kMiB, .preemptive = false}, &swap, &pins, DefaultPolicy());
  Swaps swaps(&engine, Swaps::Configured{&swap, raw, nullptr});
  std::vector<Chunk*> chunks;
  for (uint64_t i = 0; i < kLosingChunks; ++i) {
    chunks.push_back(engine.Create(kLosingBytes).value());
    ASSERT_TRUE(engine.Acquire(chunks.back(), true).ok());
    std::memset(chunks.back()->frame, static_cast<int>(i), kLosingBytes);
  }
  for (uint64_t i = 0; i < kLosingChunks / 3; ++i) ASSERT_TRUE(engine.Acquire(chunks[i], false).ok());  // in memory, and on a server
  const auto told = [&] {
    testing::internal::CaptureStderr();
    swaps.TellLosses();
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(told(), "");
  std::vector<bool> is_lost(kLosingChunks);
  for (const uint32_t dead : {0u, 1u}) {
    const std::string label = transport->server(dead).label;
    servers.Kill(dead);
    swap.Upkeep();
    uint64_t lost = 0;
    for (uint64_t i = 0; i < kLosingChunks; ++i) {
      if (is_lost[i] || !engine.IsLost(chunks[i])) continue;
      is_lost[i] = true;
      if (++lost > 3) continue;  // some are found to be lost before it is told
      const Status status = engine.Acquire(chunks[i], false);
      EXPECT_EQ(status.code(), StatusCode::kDataLoss);
      EXPECT_NE(status.message().find("was only on memory server " + label), std::string::npos) << status.message();
    }
    EXPECT_GT(lost, 3u);
    EXPECT_NE(told().find("memory server " + label + ": " + std::to_string(lost) + " chunks (" + FormatBytes(lost * kLosingBytes) + ")"), std::string::npos) << lost;
    EXPECT_EQ(told(), "") << "once";
  }
  for (uint64_t i = 0; i < kLosingChunks; ++i) EXPECT_EQ(engine.Acquire(chunks[i], false).ok(), !is_lost[i]) << i;
  EXPECT_TRUE(engine.IsValid());
  for (Chunk* chunk : chunks) engine.Free(chunk);
  engine.Drain();
}

// What a server of this host held stays when it dies. New objects took all of memory then, since there was no swap to keep room for: nothing could make way
// for what was there, whose slots were not given to others either. By pages its threads waited for ever.
TEST(Losses, WhatADeadServerOfThisHostHoldsStaysUsableHoweverMuchComes) {
  LocalServers servers({.servers = 1, .pool_bytes = 64 * kMiB, .near = 1});
  const std::unique_ptr<ServerTransport> transport = servers.Connect(0);
  RemoteSwap swap(*transport, RemoteSwapOptions{.first_lease_bytes = kMiB, .lease_bytes_max = kMiB, .is_all = true});
  NoPins pins;
  Engine engine({.budget = 2 * kMiB, .preemptive = false}, &swap, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  const auto add = [&] {
    chunks.push_back(engine.Create(kLosingBytes).value());
    const Status status = engine.Acquire(chunks.back(), true);
    if (status.ok()) std::memset(chunks.back()->frame, static_cast<int>(chunks.size()), kLosingBytes);
    return status;
  };
  for (uint64_t i = 0; i < kLosingChunks; ++i) ASSERT_TRUE(add().ok());
  servers.Kill(0);
  swap.Upkeep();
  Status refused;
  for (uint64_t i = 0; i < kLosingChunks && refused.ok(); ++i) refused = add();
  EXPECT_FALSE(refused.ok()) << "there is no swap for it";
  EXPECT_NE(refused.message().find("all memory servers of this job are dead"), std::string::npos) << refused.message();
  engine.Free(chunks.back());
  chunks.pop_back();
  for (const bool write : {false, true}) {
    for (size_t i = 0; i < chunks.size(); ++i) {
      ASSERT_TRUE(engine.AcquireCounted(chunks[i], write).ok()) << i;
      EXPECT_EQ(static_cast<const unsigned char*>(chunks[i]->frame)[kLosingBytes - 1], i + 1);
      const Status second = engine.Acquire(chunks[(i + 7) % chunks.size()], false);
      EXPECT_TRUE(second.ok()) << i << ": " << second.ToString();
      chunks[i]->state.fetch_sub(kOneCountedPin);
    }
  }
  for (Chunk* chunk : chunks) engine.Free(chunk);
  engine.Drain();
}

// What went with a server of another host needs no room.
TEST(Losses, NewObjectsTakeAllOfMemoryWhereAllElseIsLost) {
  LocalServers servers({.servers = 1, .pool_bytes = 64 * kMiB});
  const std::unique_ptr<ServerTransport> transport = servers.Connect(0);
  RemoteSwap swap(*transport, RemoteSwapOptions{.first_lease_bytes = kMiB, .lease_bytes_max = kMiB, .is_all = true});
  NoPins pins;
  Engine engine({.budget = 4 * kMiB, .preemptive = false}, &swap, &pins, DefaultPolicy());
  std::vector<Chunk*> chunks;
  const auto add = [&](uint64_t bytes) {
    chunks.push_back(engine.Create(bytes).value());
    return engine.Acquire(chunks.back(), true).ok();
  };
  for (uint64_t i = 0; i < kLosingChunks; ++i) ASSERT_TRUE(add(kLosingBytes));
  ASSERT_TRUE(add(kMiB));
  for (uint64_t i = 0; i < kLosingChunks; ++i) ASSERT_TRUE(engine.Acquire(chunks[i], false).ok());  // so that the large one has left
  servers.Kill(0);
  swap.Upkeep();
  for (uint64_t i = 0; i < kLosingChunks; ++i) {
    if (PhaseOf(chunks[i]) == Phase::kResident) engine.Free(std::exchange(chunks[i], nullptr));
  }
  uint64_t came = 0;
  while (add(kLosingBytes)) came += kLosingBytes;
  EXPECT_GT(came, 3 * kMiB + kMiB / 4);
  for (Chunk* chunk : chunks) {
    if (chunk != nullptr) engine.Free(chunk);
  }
  engine.Drain();
}

// Memory is empty, and what is in swap is lost, though nobody has asked for it yet: room was kept for it, and a new object of half of the limit was refused.
TEST(Losses, ANewObjectIsNotRefusedForWhatIsLost) {
  LocalServers servers({.servers = 1, .pool_bytes = 64 * kMiB});
  const std::unique_ptr<ServerTransport> transport = servers.Connect(0);
  RemoteSwap swap(*transport, RemoteSwapOptions{.first_lease_bytes = kMiB, .lease_bytes_max = kMiB, .is_all = true});
  NoPins pins;
  Engine engine({.budget = 4 * kMiB, .preemptive = false}, &swap, &pins, DefaultPolicy());
  Chunk* const first = engine.Create(5 * kMiB / 2).value();
  ASSERT_TRUE(engine.Acquire(first, true).ok());
  Chunk* const second = engine.Create(5 * kMiB / 2).value();
  ASSERT_TRUE(engine.Acquire(second, true).ok());
  servers.Kill(0);
  swap.Upkeep();
  engine.Free(second);
  ASSERT_TRUE(engine.IsLost(first));
  Chunk* const later = engine.Create(2 * kMiB).value();
  const Status status = engine.Acquire(later, true);
  EXPECT_TRUE(status.ok()) << status.ToString();
  engine.Free(later);
  engine.Free(first);
  engine.Drain();
}

}  // namespace
}  // namespace ramspan
