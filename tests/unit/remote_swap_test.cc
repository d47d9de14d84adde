// RemoteSwap over servers within this process: what servers do to it. That its transfers are right on MPI too is for
// tests/mpi.
#include "client/swap/remote_swap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "client/swap/lease_space.h"
#include "common/checksum.h"
#include "common/units.h"
#include "tests/support/ends_or_else.h"
#include "tests/support/local_transport.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;

struct Buffer {
  explicit Buffer(size_t bytes, uint64_t seed = 0) : data(RoundUpToGranule(bytes)), size(bytes) {
    std::mt19937_64 random(seed);
    for (size_t i = 0; seed != 0 && i < bytes; i += 8) {
      const uint64_t word = random();
      std::memcpy(data.data() + i, &word, std::min<size_t>(8, bytes - i));
    }
  }
  std::vector<char> data;
  size_t size;
};

IoRequest Transfer(SwapTier& tier, SlotRef slot, Buffer& buffer, bool write) {
  IoRequest request{.slot = slot, .buffer = buffer.data.data(), .bytes = buffer.size};
  IoRequest* batch[] = {&request};
  write ? tier.SubmitWrite(batch) : tier.SubmitRead(batch);
  IoRequest* done[1] = {};
  for (int i = 0; i < 100'000 && tier.Poll(done, milliseconds(1)) == 0; ++i) {
  }
  EXPECT_EQ(done[0], &request);
  return request;
}

StatusCode Write(SwapTier& tier, SlotRef slot, size_t bytes, uint64_t seed) {
  Buffer buffer(bytes, seed);
  const IoRequest done = Transfer(tier, slot, buffer, true);
  EXPECT_EQ(done.bytes_done, done.result == StatusCode::kOk ? bytes : 0);
  return done.result;
}

bool ReadHolds(SwapTier& tier, SlotRef slot, size_t bytes, uint64_t seed) {
  Buffer buffer(bytes);
  const IoRequest done = Transfer(tier, slot, buffer, false);
  if (done.result != StatusCode::kOk || done.bytes_done != bytes) return false;
  if (tier.CapabilitiesOf(slot).checksums && done.checksum != Checksum(buffer.data.data(), bytes)) return false;
  return buffer.data == Buffer(bytes, seed).data;
}

std::vector<SlotRef> ReserveAll(SwapTier& tier, size_t bytes, Status* end) {
  std::vector<SlotRef> slots;
  for (;;) {
    Result<SlotRef> slot = tier.Reserve(bytes);
    if (!slot.ok()) {
      *end = slot.status();
      return slots;
    }
    slots.push_back(slot.value());
  }
}

// Servers, and the transports of their clients.
struct Job {
  explicit Job(const LocalServersOptions& options) : servers(options) {
    for (uint32_t i = 0; i < options.clients; ++i) transports.push_back(servers.Connect(i));
  }
  ServerTransport& transport(size_t client = 0) { return *transports[client]; }
  LocalServers servers;
  std::vector<std::unique_ptr<ServerTransport>> transports;
};

constexpr RemoteSwapOptions kImpatient{.answer_timeout = milliseconds(20)};

TEST(RemoteSwap, WhatEachServerHoldsAndHasMovedAddsUpToWhatAllHave) {
  Job job({.servers = 3, .pool_bytes = 2 * kMiB, .near = 1});
  RemoteSwap tier(job.transport(), {.first_lease_bytes = 256 * kKiB, .lease_bytes_max = 256 * kKiB, .answer_timeout = milliseconds(20)});
  Status end;
  const std::vector<SlotRef> slots = ReserveAll(tier, 100'000, &end);
  for (const SlotRef slot : slots) {
    ASSERT_EQ(Write(tier, slot, 100'000, 1), StatusCode::kOk);
    EXPECT_TRUE(ReadHolds(tier, slot, 100'000, 1));
  }
  const std::vector<ServerStats> servers = tier.servers();
  ASSERT_EQ(servers.size(), 3u);
  ServerStats sum;
  for (size_t i = 0; i < servers.size(); ++i) {
    EXPECT_EQ(servers[i].near, i == 0);
    EXPECT_STREQ(servers[i].state, "alive");
    EXPECT_GT(servers[i].bytes_written, kMiB) << i;
    EXPECT_EQ(servers[i].bytes_read, servers[i].bytes_written);
    sum.leased_bytes += servers[i].leased_bytes;
    sum.slot_bytes_used += servers[i].slot_bytes_used;
    sum.bytes_written += servers[i].bytes_written;
  }
  EXPECT_EQ(sum.leased_bytes, tier.stats().slot_bytes_capacity);
  EXPECT_EQ(sum.slot_bytes_used, tier.stats().slot_bytes_used);
  EXPECT_EQ(sum.bytes_written, tier.stats().bytes_written);
  job.servers.Kill(1);
  job.servers.Drain(2);
  tier.Upkeep();
  EXPECT_STREQ(tier.servers()[1].state, "dead");
  EXPECT_EQ(tier.servers()[1].leased_bytes, 0u);
  EXPECT_EQ(tier.servers()[1].bytes_written, servers[1].bytes_written) << "what was moved stays counted";
  EXPECT_STREQ(tier.servers()[2].state, "draining");
  for (const SlotRef slot : slots) tier.Free(slot, 100'000);
}

// ---- Servers that lie ----

// pool_bytes was the server's word, and a grant beyond the mapping was a store into whatever lay there.
TEST(RemoteSwap, AServerThatGrantsWhatItDoesNotHaveGetsNoStore) {
  const auto lies = std::vector<std::function<void(WireMessage*)>>{
      [](WireMessage* m) { m->offset += 4 * kMiB; },
      [](WireMessage* m) { m->offset = kPoolBytesMax - m->bytes; },
      [](WireMessage* m) { m->bytes *= 64; },
      [](WireMessage* m) { m->sequence += 1; },
  };
  for (const uint32_t near : {0u, 1u}) {
    for (size_t lie = 0; lie < lies.size(); ++lie) {
      Job job({.pool_bytes = 4 * kMiB, .near = near, .tamper = [&](uint32_t, WireMessage* m) {
                 if (m->type == WireType::kLeaseGrant) lies[lie](m);
               }});
      RemoteSwap tier(job.transport(), kImpatient);
      EXPECT_EQ(tier.Reserve(10'000).status().code(), StatusCode::kResourceExhausted) << "lie " << lie;
      EXPECT_EQ(tier.stats().slot_bytes_capacity, 0u);
    }
  }
}

TEST(RemoteSwap, AServerThatGrantsTheSamePlaceTwiceGetsNoSecondChunkThere) {
  Job job({.pool_bytes = 4 * kMiB, .near = 1, .tamper = [](uint32_t, WireMessage* m) { m->offset = 0; }});
  RemoteSwap tier(job.transport(), {.first_lease_bytes = 64 * kKiB, .lease_bytes_max = 64 * kKiB, .answer_timeout = milliseconds(20)});
  const Result<SlotRef> first = tier.Reserve(64 * kKiB);
  ASSERT_TRUE(first.ok());
  ASSERT_EQ(Write(tier, first.value(), 64 * kKiB, 1), StatusCode::kOk);
  EXPECT_FALSE(tier.Reserve(64 * kKiB).ok());
  EXPECT_TRUE(ReadHolds(tier, first.value(), 64 * kKiB, 1));
}

TEST(RemoteSwap, GrantsThatNobodyAskedForAreGivenBack) {
  Job job({.pool_bytes = 4 * kMiB});
  RemoteSwap tier(job.transport());
  job.servers.SendGarbage(0, 0, Encode({.type = WireType::kLeaseGrant, .sequence = 99, .lease = 7, .bytes = kMiB}));
  job.servers.SendGarbage(0, 0, WireRecord{});
  tier.Upkeep();
  EXPECT_EQ(tier.stats().slot_bytes_capacity, 0u);
  EXPECT_TRUE(tier.Reserve(10'000).ok());
  EXPECT_EQ(job.servers.server(0).session(0).bad_messages(), 1u) << "the return of a lease that it never gave";
}

// ---- Answers that come late, or never ----

TEST(RemoteSwap, AnswersThatAreLostAreAskedForAgainAndCostNoLease) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Job job({.seed = seed, .servers = 2, .pool_bytes = 4 * kMiB, .delay_max = 3, .lose_answers = 0.5});
  {
    RemoteSwap tier(job.transport(), {.first_lease_bytes = 256 * kKiB, .lease_bytes_max = 256 * kKiB, .answer_timeout = milliseconds(2)});
    std::vector<SlotRef> slots;
    for (int tries = 0; tries < 2000 && slots.size() < 40; ++tries) {
      const Result<SlotRef> slot = tier.Reserve(100 * kKiB);
      if (!slot.ok()) {
        std::this_thread::sleep_for(milliseconds(1));  // until the servers count as full no more
        continue;
      }
      slots.push_back(slot.value());
      ASSERT_EQ(Write(tier, slots.back(), 100 * kKiB, slots.size()), StatusCode::kOk);
    }
    ASSERT_EQ(slots.size(), 40u);
    for (size_t i = 0; i < slots.size(); ++i) EXPECT_TRUE(ReadHolds(tier, slots[i], 100 * kKiB, i + 1)) << i;
    EXPECT_GT(job.servers.answers_lost(), 0u);
  }
  for (int i = 0; i < 10; ++i) job.transport().Receive();  // the last returns arrive
  for (uint32_t i = 0; i < 2; ++i) EXPECT_LE(job.servers.server(i).leases().leases(), 1u) << "but for an answer lost at the end";
}

TEST(RemoteSwap, AServerThatDoesNotAnswerCountsAsFullUntilItDoes) {
  Job job({});
  RemoteSwap tier(job.transport(), kImpatient);
  job.servers.Freeze(0, true);
  EXPECT_EQ(tier.Reserve(4096).status().code(), StatusCode::kResourceExhausted);
  job.servers.Freeze(0, false);
  Result<SlotRef> slot = tier.Reserve(4096);
  for (int i = 0; i < 5000 && !slot.ok(); ++i) {
    std::this_thread::sleep_for(milliseconds(1));
    slot = tier.Reserve(4096);
  }
  EXPECT_TRUE(slot.ok()) << slot.status().message();
  EXPECT_EQ(job.servers.server(0).leases().leases(), 1u);
}

// ---- Servers that die, drain and join ----

TEST(RemoteSwap, ADeadServerLosesOnlyWhatItHeld) {
  Job job({.servers = 2, .pool_bytes = 8 * kMiB, .delay_max = 4});
  RemoteSwap tier(job.transport(), {.first_lease_bytes = kMiB, .lease_bytes_max = kMiB});
  std::vector<SlotRef> slots;
  for (uint64_t i = 0; i < 20; ++i) {
    const Result<SlotRef> slot = tier.Reserve(300 * kKiB);
    ASSERT_TRUE(slot.ok());
    slots.push_back(slot.value());
    ASSERT_EQ(Write(tier, slots[i], 300 * kKiB, i + 1), StatusCode::kOk);
  }
  job.servers.Kill(0);
  int lost = 0;
  for (uint64_t i = 0; i < slots.size(); ++i) {
    const bool is_lost = tier.IsLost(slots[i], 300 * kKiB);
    lost += is_lost;
    Buffer buffer(300 * kKiB);
    if (!is_lost) {
      EXPECT_TRUE(ReadHolds(tier, slots[i], 300 * kKiB, i + 1)) << i;
    } else {
      EXPECT_EQ(Transfer(tier, slots[i], buffer, false).result, StatusCode::kDataLoss);
      EXPECT_EQ(Write(tier, slots[i], 300 * kKiB, 1), StatusCode::kUnavailable);
    }
  }
  EXPECT_GT(lost, 0);
  EXPECT_LT(lost, 20);
  for (const SlotRef slot : slots) tier.Free(slot, 300 * kKiB);
  tier.Upkeep();
  const Result<SlotRef> slot = tier.Reserve(300 * kKiB);
  ASSERT_TRUE(slot.ok()) << slot.status().message();
  EXPECT_FALSE(tier.IsLost(slot.value(), 300 * kKiB));
  job.servers.Kill(1);
  EXPECT_EQ(tier.Reserve(8 * kMiB).status().code(), StatusCode::kUnavailable);
}

// Its leases are closed when it is found dead, once; a lease that came after that took every slot, whose writes then failed.
TEST(RemoteSwap, AGrantThatArrivesAfterItsServerDiedIsNotUsed) {
  uint32_t last_sequence = 0;
  LocalServers servers({.servers = 2, .pool_bytes = 64 * kMiB, .tamper = [&](uint32_t, WireMessage* message) {
                          last_sequence = std::max(last_sequence, message->sequence);
                        }});
  auto transport = servers.Connect(0);
  RemoteSwap tier(*transport, {.first_lease_bytes = kMiB, .lease_bytes_max = kMiB});
  const SlotRef first = tier.Reserve(900 * kKiB).value();
  servers.Freeze(0, true);
  servers.Freeze(1, true);
  tier.Upkeep();  // asks ahead
  for (const uint32_t dead : {1u, 0u}) {
    servers.Kill(dead);
    tier.Upkeep();  // closes it
    for (uint32_t sequence = last_sequence; sequence < last_sequence + 4; ++sequence) {
      servers.SendGarbage(dead, 0, Encode({.type = WireType::kLeaseGrant, .sequence = sequence, .lease = 77 + dead,
                                           .offset = 8 * kMiB, .bytes = kMiB}));
    }
    tier.Upkeep();
    const Result<SlotRef> slot = tier.TryReserve(64 * kKiB);
    EXPECT_TRUE(!slot.ok() || !tier.IsLost(slot.value(), 64 * kKiB)) << "a new slot on dead server " << dead;
    if (slot.ok()) tier.Free(slot.value(), 64 * kKiB);
  }
  tier.Free(first, 900 * kKiB);
}

TEST(RemoteSwap, WhatANearServerHeldOutlivesIt) {
  Job job({.pool_bytes = 8 * kMiB, .near = 1});
  RemoteSwap tier(job.transport());
  const SlotRef slot = tier.Reserve(100 * kKiB).value();
  ASSERT_EQ(Write(tier, slot, 100 * kKiB, 3), StatusCode::kOk);
  job.servers.Kill(0);
  tier.Upkeep();
  EXPECT_FALSE(tier.IsLost(slot, 100 * kKiB));
  EXPECT_TRUE(ReadHolds(tier, slot, 100 * kKiB, 3));
}

TEST(RemoteSwap, RequestsInFlightEndWhenTheirServerDies) {
  Job job({.delay_max = 4});
  RemoteSwap tier(job.transport());
  const SlotRef slot = tier.Reserve(100 * kKiB).value();
  job.servers.Freeze(0, true);
  Buffer buffer(100 * kKiB, 1);
  IoRequest request{.slot = slot, .buffer = buffer.data.data(), .bytes = buffer.size};
  IoRequest* batch[] = {&request};
  tier.SubmitWrite(batch);
  IoRequest* done[1] = {};
  EXPECT_EQ(tier.Poll(done, milliseconds(1)), 0u);
  job.servers.Kill(0);
  while (tier.Poll(done, milliseconds(1)) == 0) {
  }
  EXPECT_EQ(request.result, StatusCode::kUnavailable);
}

// Writes to a server that stood still took all places: whoever wanted to read or write anything, also elsewhere, waited in Submit until that
// one went on or was given up.
TEST(RemoteSwap, AServerThatStandsStillStopsNoTransfersOfOthers) {
  Job job({.servers = 2, .pool_bytes = 4 * kMiB});
  RemoteSwap tier(job.transport(), {.first_lease_bytes = 256 * kKiB, .lease_bytes_max = 256 * kKiB, .answer_timeout = milliseconds(20)});
  constexpr size_t kBytes = 8 * kKiB;
  Status end;
  const std::vector<SlotRef> slots = ReserveAll(tier, kBytes, &end);
  std::vector<Buffer> buffers;
  std::vector<IoRequest> requests;
  std::vector<bool> on_frozen;
  for (size_t i = 0; i < slots.size(); ++i) {
    const uint64_t before = tier.servers()[1].bytes_written;
    ASSERT_EQ(Write(tier, slots[i], kBytes, 1), StatusCode::kOk);
    on_frozen.push_back(tier.servers()[1].bytes_written != before);
    buffers.emplace_back(kBytes, i + 2);
    requests.push_back({.slot = slots[i], .buffer = buffers[i].data.data(), .bytes = kBytes});
  }
  const auto healthy = static_cast<size_t>(std::count(on_frozen.begin(), on_frozen.end(), false));
  ASSERT_GT(healthy, 2 * RemoteIo::kInFlightMax);
  ASSERT_GT(slots.size() - healthy, 2 * RemoteIo::kInFlightMax);

  job.servers.Freeze(1, true);
  std::atomic<bool> submitted{false};
  std::thread writer([&] {
    std::vector<IoRequest*> batch;
    for (IoRequest& request : requests) batch.push_back(&request);
    tier.SubmitWrite(batch);
    submitted = true;
  });
  EndsOrElse([&] { return submitted.load(); });
  writer.join();
  size_t ended = 0;
  const auto take = [&] {
    IoRequest* done[16];
    const size_t n = tier.Poll(done, milliseconds(0));
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(done[i]->result, StatusCode::kOk);
    return ended += n;
  };
  for (int i = 0; i < 10'000 && take() < healthy; ++i) {
  }
  EXPECT_EQ(ended, healthy);
  for (size_t i = 0; i < slots.size(); i += 50) {
    EXPECT_TRUE(on_frozen[i] || ReadHolds(tier, slots[i], kBytes, i + 2));
  }
  job.servers.Freeze(1, false);
  for (int i = 0; i < 10'000 && take() < slots.size(); ++i) {
  }
  EXPECT_EQ(ended, slots.size());
  for (size_t i = 0; i < slots.size(); i += 50) EXPECT_TRUE(ReadHolds(tier, slots[i], kBytes, i + 2));
  for (const SlotRef slot : slots) tier.Free(slot, kBytes);
}

TEST(RemoteSwap, ADrainingServerIsAskedForNothingMoreAndKeepsWhatItHolds) {
  Job job({.servers = 2});
  RemoteSwap tier(job.transport(), {.first_lease_bytes = kMiB, .lease_bytes_max = kMiB});
  const SlotRef slot = tier.Reserve(kMiB).value();
  ASSERT_EQ(Write(tier, slot, kMiB, 1), StatusCode::kOk);
  const uint32_t first = job.servers.server(0).leases().leases() != 0 ? 0 : 1;
  job.servers.Drain(first);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(tier.Reserve(kMiB).ok());
  EXPECT_EQ(job.servers.server(first).leases().leases(), 1u);
  EXPECT_TRUE(ReadHolds(tier, slot, kMiB, 1));
}

// An undrain opened what had to go back to others, and a lease that came in the same moment stayed open.
TEST(RemoteSwap, WhatIsAskedBackStaysClosedUntilItIsNotAskedForAnyMore) {
  Job job({.pool_bytes = 8 * kMiB});
  RemoteSwap tier(job.transport(), {.first_lease_bytes = kMiB, .lease_bytes_max = kMiB});
  ASSERT_TRUE(tier.Reserve(kMiB).ok());
  job.servers.AskBack(0, 2 * kMiB);
  tier.Upkeep();
  EXPECT_TRUE(tier.HasLeaving()) << "one lease, as there is no other";
  const SlotRef later = tier.Reserve(kMiB).value();
  EXPECT_FALSE(tier.IsLeaving(later, kMiB));
  tier.Upkeep();
  EXPECT_TRUE(tier.IsLeaving(later, kMiB)) << "what came later goes, too";
  job.servers.Drain(0);
  tier.Upkeep();
  job.servers.Drain(0, false);
  tier.Upkeep();
  EXPECT_TRUE(tier.IsLeaving(later, kMiB)) << "it drains no more, and wants it as before";
  job.servers.AskBack(0, 0);
  tier.Upkeep();
  EXPECT_FALSE(tier.HasLeaving());
}

// What had been freed there was given out again, so a server that drained became full.
TEST(RemoteSwap, InALeaseThatGoesBackOneSlotTakesThePlaceOfOthersAndNoMore) {
  Job job({});
  RemoteSwap tier(job.transport(), {.first_lease_bytes = kMiB, .lease_bytes_max = kMiB});
  std::vector<SlotRef> slots;
  for (int i = 0; i < 16; ++i) slots.push_back(tier.Reserve(64 * kKiB).value());
  for (int i = 2; i < 16; ++i) tier.Free(slots[i], 64 * kKiB);
  job.servers.Drain(0);
  tier.Upkeep();
  const HeldSlot given[] = {{slots[0], 64 * kKiB}, {slots[1], 64 * kKiB}};
  size_t taken = 0;
  EXPECT_FALSE(tier.TryExchange(given, 192 * kKiB, &taken));
  EXPECT_TRUE(tier.TryExchange(given, 40 * kKiB, &taken));
  EXPECT_EQ(taken, 1u);
  EXPECT_EQ(tier.stats().slot_bytes_used, 104 * kKiB);
  EXPECT_FALSE(tier.TryReserve(4096).ok()) << "it is as closed as before";
}

// Neither part of a slot on two servers was enough by itself, so nobody could have its place.
TEST(RemoteSwap, ASlotThatIsPartlyInALeaseThatGoesBackGivesItsPlaceToAnother) {
  LeaseSpace space;
  ASSERT_TRUE(space.Add({.server = 0, .id = 1, .bytes = 128 * kKiB}));
  const SlotRef first = space.Reserve(64 * kKiB);
  ASSERT_TRUE(space.Add({.server = 1, .id = 2, .bytes = 64 * kKiB}));
  const HeldSlot both[] = {{space.Reserve(128 * kKiB), 128 * kKiB}};  // half of it on each
  space.Free(first, 64 * kKiB);
  space.CloseServer(0, /*is_dead=*/false);
  ASSERT_EQ(space.leaving_bytes(), 64 * kKiB);
  size_t taken = 0;
  EXPECT_FALSE(space.Exchange(both, 132 * kKiB, &taken)) << "there is no room for more in the lease that stays";
  const SlotRef slot = space.Exchange(both, 128 * kKiB, &taken);
  ASSERT_TRUE(slot);
  EXPECT_EQ(taken, 1u);
  EXPECT_EQ(space.leaving_bytes(), 64 * kKiB) << "no more than was there";
  EXPECT_TRUE(space.IsLeaving(slot, 128 * kKiB));
  EXPECT_FALSE(space.Reserve(4 * kKiB)) << "it is as closed as before";
  space.Free(slot, 128 * kKiB);
  EXPECT_EQ(space.leaving_bytes(), 0u);
  EXPECT_EQ(space.used_bytes(), 0u);
}

// By what is reserved there when the server dies, also where a slot lies on two servers; the other one's are not counted.
TEST(RemoteSwap, TheDeathOfAServerIsToldWithAllThatItHeld) {
  Job job({.servers = 2});
  RemoteSwap tier(job.transport(), {.first_lease_bytes = kMiB, .lease_bytes_max = kMiB});
  std::vector<SlotRef> slots;
  for (int i = 0; i < 20; ++i) slots.push_back(tier.Reserve(192 * kKiB).value());
  tier.Free(slots[3], 192 * kKiB);
  const std::vector<ServerStats> before = tier.servers();
  ASSERT_GT(before[0].slot_bytes_used, 0u);
  ASSERT_GT(before[1].slot_bytes_used, 0u);
  EXPECT_EQ(before[0].slot_bytes_used + before[1].slot_bytes_used, 19 * 192 * kKiB);
  size_t lost = 0;
  job.servers.Kill(0);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) tier.Upkeep();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("died with " + FormatBytes(before[0].slot_bytes_used) + " of this program's chunks"), std::string::npos) << said;
  EXPECT_EQ(said.find("died with"), said.rfind("died with")) << "once";
  for (int i = 0; i < 20; ++i) lost += i != 3 && tier.IsLost(slots[i], 192 * kKiB);
  EXPECT_GE(lost * 192 * kKiB, before[0].slot_bytes_used);
  EXPECT_LT((lost - 1) * 192 * kKiB, before[0].slot_bytes_used + 8 * 192 * kKiB) << "a slot on two servers is lost, too; there is one at the end of each lease at most";
}

// Between two looks of one Upkeep: it "drained no more", and its leases gave slots again.
TEST(RemoteSwap, AServerThatDiesWhileItDrainsGivesNoMoreSlots) {
  for (int dies_at = 0; dies_at < 4; ++dies_at) {
    int looks = -1;  // until it dies; below 0: it stays as it is
    LocalServers* servers = nullptr;
    Job job({.before_state = [&](uint32_t server) {
      if (looks-- == 0) servers->Kill(server);
    }});
    servers = &job.servers;
    RemoteSwap tier(job.transport(), kImpatient);
    ASSERT_TRUE(tier.Reserve(kMiB).ok());
    job.servers.Drain(0);
    tier.Upkeep();
    looks = dies_at;
    tier.Upkeep();
    looks = -1;
    job.servers.Kill(0);
    EXPECT_FALSE(tier.TryReserve(kMiB).ok()) << dies_at;
  }
}

// What was still there counted as used, and no longer as capacity.
TEST(RemoteSwap, WhatADrainingServerStillHoldsIsWithinTheCapacity) {
  Job job({.servers = 2, .pool_bytes = 8 * kMiB});
  RemoteSwap tier(job.transport());
  Status full;
  const std::vector<SlotRef> slots = ReserveAll(tier, 256 * kKiB, &full);
  EXPECT_EQ(tier.stats().slot_bytes_capacity, 16 * kMiB);
  job.servers.Drain(0);
  tier.Upkeep();
  EXPECT_EQ(tier.stats().slot_bytes_used, 16 * kMiB);
  EXPECT_EQ(tier.stats().slot_bytes_capacity, 16 * kMiB);
  for (const SlotRef slot : slots) tier.Free(slot, 256 * kKiB);
  EXPECT_EQ(tier.stats().slot_bytes_used, 0u);
  EXPECT_EQ(tier.stats().slot_bytes_capacity, 8 * kMiB) << "what is free on a server that drains is no room";
}

TEST(RemoteSwap, AServerThatJoinsIsUsed) {
  Job job({.pool_bytes = 2 * kMiB});
  RemoteSwap tier(job.transport());
  Status full;
  ReserveAll(tier, 256 * kKiB, &full);
  ASSERT_EQ(full.code(), StatusCode::kResourceExhausted);
  const uint32_t joined = job.servers.Join();
  const Result<SlotRef> slot = tier.Reserve(256 * kKiB);
  ASSERT_TRUE(slot.ok()) << slot.status().message();
  EXPECT_EQ(job.servers.server(joined).leases().leases(), 1u);
  EXPECT_EQ(Write(tier, slot.value(), 256 * kKiB, 1), StatusCode::kOk);
}

TEST(RemoteSwap, WhereThereWasNoServerYetNobodyIsCalledDead) {
  Job job({.servers = 0});
  RemoteSwap tier(job.transport(), kImpatient);
  const Status none = tier.Reserve(kMiB).status();
  EXPECT_EQ(none.code(), StatusCode::kUnavailable);
  EXPECT_NE(none.message().find("no memory server has been found yet"), std::string::npos) << none.message();
  job.servers.Join();
  EXPECT_TRUE(tier.Reserve(kMiB).ok());
  job.servers.Kill(0);
  EXPECT_NE(tier.Reserve(16 * kMiB).status().message().find("all memory servers"), std::string::npos);
}

TEST(RemoteSwap, AFarServerThatJoinsNearOnesMakesTheTierAsynchronous) {
  LocalServers servers({.pool_bytes = 8 * kMiB, .near = 1});
  const auto transport = servers.Connect(0);
  RemoteSwap tier(*transport);
  EXPECT_TRUE(tier.capabilities().synchronous && tier.capabilities().checksums);
  servers.Join();
  Status end;
  const std::vector<SlotRef> slots = ReserveAll(tier, kMiB, &end);
  ASSERT_FALSE(tier.CapabilitiesOf(slots.back()).synchronous) << "a far slot, or the test says nothing";
  EXPECT_FALSE(tier.capabilities().synchronous || tier.capabilities().checksums);
  for (const SlotRef slot : slots) tier.Free(slot, kMiB);
}

TEST(RemoteSwap, TheLeasesOfAClientThatDiedServeOthers) {
  Job job({.clients = 2, .pool_bytes = 4 * kMiB});
  auto dying = std::make_unique<RemoteSwap>(job.transport(0));
  Status full;
  ReserveAll(*dying, 64 * kKiB, &full);
  RemoteSwap tier(job.transport(1));
  EXPECT_EQ(ReserveAll(tier, 64 * kKiB, &full).size() * 64 * kKiB, job.servers.server(0).leases().reserve_bytes());
  job.servers.KillClient(0);
  std::this_thread::sleep_for(milliseconds(60));  // the server counts as full for that long at most
  EXPECT_GT(ReserveAll(tier, 64 * kKiB, &full).size() * 64 * kKiB, 2 * kMiB);
}

// ---- Leases ----

TEST(RemoteSwap, AChunkLargerThanEveryLeaseIsSpreadOverSeveral) {
  for (const uint32_t near : {0u, 3u}) {
    Job job({.servers = 3, .near = near});
    RemoteSwap tier(job.transport(), {.first_lease_bytes = 256 * kKiB, .lease_bytes_max = 256 * kKiB});
    const size_t bytes = 3 * kMiB + 17;
    const Result<SlotRef> slot = tier.Reserve(bytes);
    ASSERT_TRUE(slot.ok()) << slot.status().message();
    ASSERT_EQ(Write(tier, slot.value(), bytes, 1), StatusCode::kOk);
    EXPECT_TRUE(ReadHolds(tier, slot.value(), bytes, 1));
  }
}

// The number of leases is bounded, because a slot's bits name them; the 65536th ended the program.
TEST(RemoteSwap, LeasesGrowWhereManyAreHeldAndOneThatNoSlotCouldNameIsNotAskedFor) {
  Job job({.pool_bytes = 8 * kMiB});
  RemoteSwap tier(job.transport(), {.first_lease_bytes = 64 * kKiB, .lease_bytes_max = 64 * kKiB, .answer_timeout = milliseconds(20), .idle_lease = milliseconds(0), .leases_max = 8});
  Status end;
  std::vector<SlotRef> slots = ReserveAll(tier, 64 * kKiB, &end);
  EXPECT_EQ(slots.size(), 2u * (1 + 2 + 4 + 8)) << "each quarter of the leases is twice as large as the one before";
  EXPECT_EQ(job.servers.server(0).leases().leases(), 8u);
  EXPECT_EQ(end.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(end.message().find("lent 8 pieces of 240 KiB on average"), std::string::npos) << end.message();
  for (const SlotRef slot : slots) tier.Free(slot, 64 * kKiB);
  for (int i = 0; i < 4; ++i) tier.Upkeep();
  EXPECT_TRUE(tier.Reserve(64 * kKiB).ok()) << "what has gone back makes room for others";
}

TEST(RemoteSwap, ScrapsAreRefusedOnceHalfOfTheLeasesAreSuch) {
  Job job({.pool_bytes = 64 * kMiB, .tamper = [](uint32_t, WireMessage* m) {
             if (m->type == WireType::kLeaseGrant) m->bytes = kLeaseGranule;
           }});
  RemoteSwap tier(job.transport(), {.first_lease_bytes = kMiB, .lease_bytes_max = kMiB, .leases_max = 8});
  Status end;
  EXPECT_EQ(ReserveAll(tier, kLeaseGranule, &end).size(), 5u);
  EXPECT_EQ(end.code(), StatusCode::kResourceExhausted);
}

TEST(RemoteSwap, AGrantThatComesWhenNoMoreLeasesFitGoesBack) {
  Job job({.servers = 2});
  RemoteSwap tier(job.transport(), {.first_lease_bytes = kMiB, .lease_bytes_max = kMiB, .answer_timeout = milliseconds(20), .idle_lease = std::chrono::hours(1), .leases_max = 1});
  for (const uint32_t late : {0u, 1u}) job.servers.Freeze(late, true);
  EXPECT_FALSE(tier.Reserve(kMiB).ok()) << "both have been asked";
  for (const uint32_t late : {0u, 1u}) job.servers.Freeze(late, false);
  for (int i = 0; i < 10; ++i) tier.Upkeep();
  EXPECT_EQ(job.servers.server(0).leases().leases() + job.servers.server(1).leases().leases(), 1u);
  EXPECT_EQ(tier.stats().slot_bytes_capacity, kMiB);
  EXPECT_TRUE(tier.Reserve(kMiB).ok());
}

TEST(RemoteSwap, NearServersAreTakenFirst) {
  Job job({.servers = 2, .pool_bytes = 4 * kMiB, .near = 1});
  RemoteSwap tier(job.transport());
  EXPECT_FALSE(tier.capabilities().synchronous);
  EXPECT_TRUE(tier.CapabilitiesOf(tier.Reserve(64 * kKiB).value()).synchronous);
  Status full;
  EXPECT_FALSE(tier.CapabilitiesOf(ReserveAll(tier, 64 * kKiB, &full).back()).synchronous);
}

// Each eviction waited 5 s for the near one, and then took the far one's answer for late.
TEST(RemoteSwap, ANearServerThatDrainsKeepsNobodyFromTheFarOnes) {
  Job job({.servers = 2, .near = 1});
  RemoteSwapOptions options{.first_lease_bytes = kMiB, .lease_bytes_max = kMiB, .is_all = true};
  RemoteSwap tier(job.transport(), options);
  job.servers.Drain(0);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 4; ++i) {
    const Result<SlotRef> slot = tier.Reserve(kMiB);
    ASSERT_TRUE(slot.ok()) << slot.status().message();
    EXPECT_TRUE(slot_bits::IsFar(slot.value()));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, options.answer_timeout) << "one wait for the near one takes as long";
  EXPECT_EQ(tier.TryReserve(kMiB).status().code(), StatusCode::kMustAsk) << "a far server is to be asked";
}

TEST(RemoteSwap, FullServersSayWhatToEnlargeAndServeAgainAfterAFree) {
  Job job({.servers = 2, .pool_bytes = 8 * kMiB});
  RemoteSwap tier(job.transport());
  Status full;
  const std::vector<SlotRef> slots = ReserveAll(tier, 256 * kKiB, &full);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("--server-memory"), std::string::npos) << full.message();
  EXPECT_EQ(slots.size() * 256 * kKiB, 16 * kMiB);
  tier.Free(slots.back(), 256 * kKiB);
  EXPECT_TRUE(tier.Reserve(256 * kKiB).ok());
}

TEST(RemoteSwap, AFullServerIsNotAskedAtEveryReserve) {
  Job job({.pool_bytes = 4 * kMiB});
  RemoteSwap tier(job.transport());
  Status full;
  ReserveAll(tier, 256 * kKiB, &full);
  const auto begin = std::chrono::steady_clock::now();
  int asked = 0;
  for (int i = 0; i < 1000; ++i) {
    if (tier.TryReserve(256 * kKiB).status().code() == StatusCode::kMustAsk) ++asked;  // now it is going to ask
    EXPECT_FALSE(tier.Reserve(256 * kKiB).ok());
  }
  EXPECT_LE(asked, (std::chrono::steady_clock::now() - begin) / milliseconds(20) + 1);
}

TEST(RemoteSwap, EmptyLeasesGoBackToOtherClients) {
  Job job({.clients = 2, .pool_bytes = 16 * kMiB});
  RemoteSwap tier(job.transport(0), {.idle_lease = milliseconds(5)});
  Status full;
  for (const SlotRef slot : ReserveAll(tier, 256 * kKiB, &full)) tier.Free(slot, 256 * kKiB);
  for (int i = 0; i < 5000 && tier.stats().slot_bytes_capacity != 0; ++i) {
    tier.Upkeep();
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(tier.stats().slot_bytes_capacity, 0u);
  RemoteSwap other(job.transport(1));
  EXPECT_GT(ReserveAll(other, 256 * kKiB, &full).size() * 256 * kKiB, 8 * kMiB);
}

TEST(RemoteSwap, UpkeepHoldsALeaseReadyBeforeItIsNeeded) {
  Job job({});
  RemoteSwap tier(job.transport(), {.first_lease_bytes = 256 * kKiB});
  ASSERT_TRUE(tier.Reserve(200 * kKiB).ok());
  const uint64_t before = tier.stats().slot_bytes_capacity;
  for (int i = 0; i < 10; ++i) tier.Upkeep();
  EXPECT_GT(tier.stats().slot_bytes_capacity, before);
}

TEST(RemoteSwap, ALeaseOfAnotherClientCannotBeReturned) {
  Job job({.clients = 2, .pool_bytes = 16 * kMiB});
  RemoteSwap tier(job.transport(0));
  ASSERT_TRUE(tier.Reserve(64 * kKiB).ok());
  LeaseClient liar(job.transport(1));
  for (uint64_t lease = 1; lease < 100; ++lease) liar.Return(0, lease);
  job.transport(1).Receive();
  EXPECT_EQ(job.servers.server(0).leases().leases(), 1u);
}

// Also that of an answer which is still under way. It takes some ten looks, of a millisecond each on an idle machine and of ten
// on a busy one.
TEST(RemoteSwap, AllLeasesAreGivenBackAtTheEnd) {
  Job job({.servers = 3, .near = 1, .delay_max = 5});
  {
    RemoteSwap tier(job.transport(), {.last_answers = std::chrono::seconds(60)});
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(tier.Reserve(kMiB).ok());
    tier.Upkeep();
  }
  for (int i = 0; i < 20; ++i) job.transport().Receive();
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(job.servers.server(i).leases().leases(), 0u);
}

// ---- Everything at once ----

class RemoteSwapWithDeaths : public testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RemoteSwapWithDeaths, testing::Values(1u, 2u, 3u, 0u), testing::PrintToStringParamName());  // 0: a new one each run

TEST_P(RemoteSwapWithDeaths, WhatSurvivesIsWhatWasWritten) {
  const unsigned seed = GetParam() > 0 ? GetParam() : std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Job job({.seed = seed, .servers = 5, .pool_bytes = 4 * kMiB, .near = 1, .delay_max = 6, .lose_answers = 0.1});
  RemoteSwap tier(job.transport(), {.first_lease_bytes = 256 * kKiB, .lease_bytes_max = 512 * kKiB,
                                    .answer_timeout = milliseconds(2), .idle_lease = milliseconds(1)});
  struct Chunk {
    SlotRef slot;
    size_t bytes;
    uint64_t seed;
  };
  std::vector<Chunk> chunks;
  uint32_t dead = 1;  // 0 is near, and the last one lives
  for (uint64_t step = 1; step < 1500; ++step) {
    if (step % 400 == 0 && dead < 4) job.servers.Kill(dead++);
    if (step % 50 == 0) tier.Upkeep();
    const size_t which = chunks.empty() ? 0 : random() % chunks.size();
    if (chunks.empty() || random() % 3 == 0) {
      const size_t bytes = 1 + random() % (200 * kKiB);
      const Result<SlotRef> slot = tier.Reserve(bytes);
      if (!slot.ok()) continue;
      const StatusCode written = Write(tier, slot.value(), bytes, step);
      if (written == StatusCode::kOk) chunks.push_back({slot.value(), bytes, step});
      else tier.Free(slot.value(), bytes);
    } else if (random() % 3 == 0) {
      tier.Free(chunks[which].slot, chunks[which].bytes);
      chunks.erase(chunks.begin() + static_cast<long>(which));
    } else if (!tier.IsLost(chunks[which].slot, chunks[which].bytes)) {
      ASSERT_TRUE(ReadHolds(tier, chunks[which].slot, chunks[which].bytes, chunks[which].seed)) << "step " << step;
    }
  }
  for (const Chunk& chunk : chunks) tier.Free(chunk.slot, chunk.bytes);
  EXPECT_EQ(tier.stats().slot_bytes_used, 0u);
}

}  // namespace
}  // namespace ramspan
