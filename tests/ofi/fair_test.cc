// Several clients at one server: who asks for much does not keep the others waiting. How memory is shared among them, tests of the lease table say.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "client/swap/remote_swap.h"
#include "client/transport/ofi_transport.h"
#include "common/meeting.h"
#include "tests/support/eventually.h"
#include "tests/support/ofi_servers.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

// A client of another host that keeps so many transfers under way, each of so many bytes.
class Mover {
 public:
  Mover(const OfiServers& servers, size_t depth, size_t bytes)
      : transport_(OfiTransport::Open({.servers = servers.names(), .fabric = {}, .near = false}, TestSecret()).value()), tier_(*transport_), requests_(depth), buffer_(bytes) {
    for (IoRequest& request : requests_) request = {.slot = tier_.Reserve(bytes).value(), .buffer = buffer_.data(), .bytes = bytes};
  }
  void Begin() {
    for (IoRequest& request : requests_) Submit(&request);
  }
  // Begins each anew that has ended. How many those were.
  size_t Move() {
    std::array<IoRequest*, 32> done;
    const size_t n = tier_.Poll(done, std::chrono::milliseconds(1));
    for (IoRequest* request : std::span(done.data(), n)) {
      wrong_ += request->result != StatusCode::kOk;
      Submit(request);
    }
    return n;
  }
  void End() {
    std::array<IoRequest*, 32> done;
    for (size_t left = requests_.size(); left > 0;) left -= tier_.Poll(done, std::chrono::milliseconds(1));
    EXPECT_EQ(wrong_, 0u);
  }

 private:
  void Submit(IoRequest* request) { tier_.SubmitWrite({&request, 1}); }

  std::unique_ptr<OfiTransport> transport_;
  RemoteSwap tier_;
  std::vector<IoRequest> requests_;
  std::vector<char> buffer_;  // of all of them
  size_t wrong_ = 0;
};

TEST(Fairness, WhoMovesALittleIsServedBesideWhoMovesAsMuchAsItCan) {
  constexpr size_t kDepth = 32, kSteps = 30;
  OfiServers servers({.pool_bytes = 64 * kMiB});
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> of_hog{0};
  std::thread hog_thread([&] {
    Mover hog(servers, kDepth, 256 * kKiB);
    for (hog.Begin(); !stop;) of_hog += hog.Move();
    hog.End();
  });
  Mover modest(servers, 1, 64 * kKiB);
  EXPECT_TRUE(Eventually([&] { return of_hog > 2 * kDepth; }));
  modest.Begin();
  const uint64_t before = of_hog;
  // What the hog has under way goes first, then it is the other one's turn. Threads that have no core now make it more, so this says only
  // that nobody waits for hundreds of those turns.
  size_t steps = 0;
  while (steps < kSteps && (of_hog - before) / kDepth < 32 * kSteps) steps += modest.Move();
  std::printf("%zu transfers of 64 KiB beside %zu of 256 KiB, %zu of which are under way at a time\n", steps, static_cast<size_t>(of_hog - before), kDepth);
  EXPECT_GE(steps, kSteps);
  stop = true;
  hog_thread.join();
  modest.End();
}

// A rank that came first held leases ahead of its need, and the next one of its job ended by OutOfSwap beside room for it.
TEST(Fairness, ARankGetsWhatAnotherOneOfItsJobHoldsAndDoesNotUse) {
  constexpr size_t kSlot = 256 * kKiB;
  OfiServers servers({.pool_bytes = 64 * kMiB});
  const auto open = [&] { return OfiTransport::Open({.servers = servers.names(), .fabric = {}, .near = false}, TestSecret()).value(); };
  const auto first_transport = open();
  RemoteSwap first(*first_transport, {.is_all = true});
  for (size_t bytes = 0; bytes < 40 * kMiB; bytes += kSlot) ASSERT_TRUE(first.Reserve(kSlot).ok());
  const auto holds = [&] { return first.stats().slot_bytes_capacity; };
  EXPECT_TRUE(Eventually([&] {
    first.Upkeep();
    return holds() >= 48 * kMiB;
  })) << holds();
  const auto second_transport = open();
  RemoteSwap second(*second_transport, {.is_all = true});
  std::atomic<bool> stop{false};
  const auto mover_of = [&stop](RemoteSwap* tier) {
    return std::thread([tier, &stop] {
      for (; !stop; std::this_thread::sleep_for(std::chrono::milliseconds(1))) tier->Upkeep();
    });
  };
  std::thread mover = mover_of(&first), others = mover_of(&second);  // which asks ahead of need in vain
  size_t bytes = 0;
  const auto take = [&] { return second.Reserve(kSlot).ok() || (second.MakeRoom(kSlot, SwapTier::Patience::kWait).ok() && second.Reserve(kSlot).ok()); };
  while (bytes < 20 * kMiB && take()) bytes += kSlot;
  EXPECT_EQ(bytes, 20 * kMiB);
  stop = true;
  mover.join();
  others.join();
  EXPECT_GE(holds(), 40 * kMiB);
}

// Of another job, and below its share: what it does not use is nobody's right.
TEST(Fairness, WhatNobodyUsesComesBackBeforeAnybodyIsRefused) {
  constexpr size_t kSlot = 256 * kKiB;
  OfiServers servers({.pool_bytes = 64 * kMiB});
  const auto open = [&] { return OfiTransport::Open({.servers = servers.names(), .fabric = {}, .near = false}, TestSecret()).value(); };
  const auto idle_transport = open(), transport = open();
  RemoteSwap idle(*idle_transport, {.is_all = true}), tier(*transport, {.is_all = true});
  for (size_t bytes = 0; bytes < 15 * kMiB; bytes += kSlot) ASSERT_TRUE(idle.Reserve(kSlot).ok());
  EXPECT_TRUE(Eventually([&] {
    idle.Upkeep();
    return idle.stats().slot_bytes_capacity > 20 * kMiB;
  }));
  std::atomic<bool> stop{false};
  std::thread mover([&] {
    for (; !stop; std::this_thread::sleep_for(std::chrono::milliseconds(1))) idle.Upkeep();
  });
  size_t bytes = 0;
  while (bytes < 47 * kMiB && (tier.Reserve(kSlot).ok() || (tier.MakeRoom(kSlot, SwapTier::Patience::kWait).ok() && tier.Reserve(kSlot).ok()))) bytes += kSlot;
  EXPECT_EQ(bytes, 47 * kMiB);
  const auto begin = std::chrono::steady_clock::now();
  while (bytes < 64 * kMiB && tier.MakeRoom(kSlot, SwapTier::Patience::kWait).ok() && tier.Reserve(kSlot).ok()) bytes += kSlot;
  EXPECT_LT(bytes, 50 * kMiB);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << "who holds what it uses gives nothing: that is soon known";
  stop = true;
  mover.join();
}

// It asked for twice as much each time, whatever it got, and held half of that ahead of its need.
TEST(Fairness, WhoGetsSmallLeasesHoldsLittleAheadOfItsNeed) {
  OfiServers servers({.pool_bytes = 32 * kMiB});  // leases of at most 8 MiB
  const auto transport = OfiTransport::Open({.servers = servers.names(), .fabric = {}, .near = false}, TestSecret()).value();
  RemoteSwap tier(*transport, {.first_lease_bytes = kMiB, .is_all = true});
  for (size_t bytes = 0; bytes < 18 * kMiB; bytes += kMiB) {
    ASSERT_TRUE(tier.Reserve(kMiB).ok());
    for (int i = 0; i < 20; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(1))) tier.Upkeep();
  }
  EXPECT_LE(tier.stats().slot_bytes_capacity, 28 * kMiB);
}

// A client that keeps to no rules: it asks for many leases before it has heard of the first.
class Greedy {
 public:
  explicit Greedy(const SocketPlace& place) : meeting_(Meeting::With(place, TestSecret(), kPatience).value()) {
    endpoint_ = FabricEndpoint::Open(FabricDomain::OpenTowards(meeting_.introduction.fabric, {}).value()).value();
    Introduction self{.instance = 1, .label = "greedy"};
    self.fabric = endpoint_->address();
    meeting_.link->Send({.kind = LinkFrame::Kind::kIntroduction, .introduction = self});
    meeting_.link->Send({.kind = LinkFrame::Kind::kPing});
    AwaitFrame();
  }
  void Ask(int leases, uint64_t bytes) {
    for (int i = 0; i < leases; ++i) {
      const WireMessage request{.type = WireType::kLeaseRequest, .sequence = ++sequence_, .bytes = bytes, .minimum_bytes = bytes};
      EXPECT_TRUE(meeting_.link->Send({.kind = LinkFrame::Kind::kRecord, .record = Encode(request)}));
    }
    meeting_.link->Progress();
  }
  // The number of the next lease that is granted: servers count them.
  uint64_t NextLease() {
    const WireMessage grant = Decode(AwaitFrame().record).value();
    EXPECT_EQ(grant.type, WireType::kLeaseGrant);
    return grant.lease;
  }

 private:
  LinkFrame AwaitFrame() {
    LinkFrame frame;
    Descriptor none;
    EXPECT_TRUE(Eventually([&] {
      meeting_.link->Progress();
      return meeting_.link->Next(&frame, &none);
    }));
    return frame;
  }

  Meeting meeting_;
  std::unique_ptr<FabricEndpoint> endpoint_;
  uint32_t sequence_ = 0;
};

// Each large lease takes the server 10 ms and more, for memory that has to be made.
TEST(Fairness, ManyRequestsOfOneClientAreServedInTurnWithTheOthers) {
  constexpr int kMany = 24;
  OfiServers servers({.pool_bytes = (kMany + 8) * 4 * kMiB});
  Greedy hog(servers.places()[0]), modest(servers.places()[0]);
  servers.Freeze(0, true);
  hog.Ask(kMany, 4 * kMiB);
  modest.Ask(1, kMiB);
  servers.Freeze(0, false);
  const uint64_t first = hog.NextLease(), others = modest.NextLease();
  EXPECT_LE(others, first + 2) << "leases that came before";
  for (int i = 1; i < kMany; ++i) hog.NextLease();
}

}  // namespace
}  // namespace ramspan
