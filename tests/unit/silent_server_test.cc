// RemoteSwap where a server stands still: it is not dead, answers nothing and moves nothing. What others hold and lend is there all the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "client/swap/remote_swap.h"
#include "tests/support/ends_or_else.h"
#include "tests/support/forwarding_transport.h"
#include "tests/support/local_transport.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;

// Nobody here is saved by it.
constexpr milliseconds kNever = std::chrono::hours(1);
constexpr RemoteSwapOptions kSmallLeases{.first_lease_bytes = kMiB, .lease_bytes_max = kMiB, .answer_timeout = kNever};

RemoteSwapOptions WithoutOtherSwap(RemoteSwapOptions options) {
  options.is_all = true;
  return options;
}

// What has ended when the scope does, or the test says that it hangs.
class Meanwhile {
 public:
  explicit Meanwhile(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          work();
          done_ = true;
        }) {}
  ~Meanwhile() {
    EndsOrElse([this] { return done_.load(); });
    thread_.join();
  }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

 private:
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// Has something happen when answers have been looked for so many times.
class LookedAtTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  std::optional<Control> Receive() override {
    if (++looks_ == act_at) act();
    return ForwardingTransport::Receive();
  }
  int looks() const { return looks_; }
  std::function<void()> act;
  std::atomic<int> act_at{-1};

 private:
  std::atomic<int> looks_{0};
};

// As the engine does: without a wait, and where that says that somebody has to be asked, by MakeRoom. How often it was told so for one slot.
int TimesTold(SwapTier* tier, size_t bytes) {
  for (int times = 0;; ++times) {
    const Result<SlotRef> slot = tier->TryReserve(bytes);
    if (slot.ok()) return times;
    EXPECT_EQ(slot.status().code(), StatusCode::kMustAsk);
    if (times == 16) return times;
    EXPECT_TRUE(tier->MakeRoom(bytes, SwapTier::Patience::kWait).ok());
  }
}

// TryReserve said that the near server had to be asked, MakeRoom that there was room on the far one, and so on: for ever.
TEST(SilentServer, WhoIsToldToAskAndHasAskedFindsRoom) {
  for (const uint32_t near : {0u, 1u, 2u}) {
    for (const bool mover : {false, true}) {
      LocalServers servers({.servers = 2, .pool_bytes = 16 * kMiB, .near = near});
      const std::unique_ptr<ServerTransport> transport = servers.Connect(0);
      RemoteSwap tier(*transport, kSmallLeases);
      servers.Freeze(0, true);
      const Meanwhile work([&] {
        for (int i = 0; i < 100; ++i) {
          EXPECT_LE(TimesTold(&tier, 64 * kKiB), 1) << "slot " << i << ", near " << near;
          if (mover) tier.Upkeep();
        }
      });
    }
  }
}

// The same where the silent one had been in use.
TEST(SilentServer, WhatItHadLentIsNoReasonToWaitForMoreOfIt) {
  LocalServers servers({.servers = 2, .pool_bytes = 64 * kMiB, .near = 1});
  const std::unique_ptr<ServerTransport> transport = servers.Connect(0);
  RemoteSwap tier(*transport, kSmallLeases);
  {
    const Meanwhile work([&] {
      for (int i = 0; i < 100; ++i) {
        if (i == 10) servers.Freeze(0, true);
        EXPECT_LE(TimesTold(&tier, 256 * kKiB), 1) << "slot " << i;
      }
    });
  }
  EXPECT_GE(servers.server(1).leases().leases(), 20u);
}

// The wait was for the silent near server, and the far one's lease lay there.
TEST(SilentServer, AGrantOfEitherSideEndsTheWait) {
  for (const uint32_t near : {0u, 1u}) {
    LocalServers servers({.servers = 2, .pool_bytes = 8 * kMiB, .near = near});
    LookedAtTransport transport(servers.Connect(0));
    RemoteSwap tier(transport, kSmallLeases);
    for (const uint32_t one : {0u, 1u}) servers.Freeze(one, true);
    transport.act = [&] { servers.Freeze(1, false); };
    transport.act_at = 1000;  // both have been asked, and neither has answered for a while
    const Meanwhile work([&] { EXPECT_TRUE(tier.Reserve(256 * kKiB).ok()); });
  }
}

// Who waited for an answer had the asking role, which everybody needed who found nothing on the near side.
TEST(SilentServer, WhoWaitsForItsAnswerKeepsNobodyFromRoomThatIsHeld) {
  LocalServers servers({.servers = 2, .pool_bytes = 2 * kMiB, .near = 1});
  LookedAtTransport transport(servers.Connect(0));
  RemoteSwap tier(transport, kSmallLeases);
  servers.Freeze(0, true);
  ASSERT_TRUE(tier.Reserve(256 * kKiB).ok());
  const Meanwhile large([&] { EXPECT_TRUE(tier.Reserve(2 * kMiB).ok()) << "when the silent one goes on"; });
  const int before = transport.looks();
  EndsOrElse([&] { return transport.looks() > before + 100; });
  {
    const Meanwhile small([&] { EXPECT_TRUE(tier.Reserve(64 * kKiB).ok()); });
  }
  servers.Freeze(0, false);
}

// Nobody asked the healthy one again, which had been full when the wait began.
TEST(SilentServer, RoomThatOthersGiveBackMeanwhileIsFound) {
  for (const uint32_t near : {0u, 1u}) {
    LocalServers servers({.servers = 2, .clients = 2, .pool_bytes = 2 * kMiB, .near = near});
    const std::unique_ptr<ServerTransport> theirs = servers.Connect(1);
    LookedAtTransport transport(servers.Connect(0));
    servers.Freeze(0, true);
    auto other = std::make_unique<RemoteSwap>(*theirs, RemoteSwapOptions{.first_lease_bytes = kMiB, .lease_bytes_max = kMiB, .answer_timeout = milliseconds(20)});
    while (other->Reserve(256 * kKiB).ok()) {
    }
    RemoteSwap tier(transport, WithoutOtherSwap(kSmallLeases));
    const Meanwhile work([&] { EXPECT_TRUE(tier.Reserve(kMiB).ok()); });  // more than is kept for who comes
    EndsOrElse([&] { return transport.looks() > 1000; });
    other.reset();
    theirs->Receive();
  }
}

// `ctl shrink` of one server got nothing back while another one stood still: Upkeep had to wait for who waited.
TEST(SilentServer, WhoWaitsForItsAnswerKeepsNoOtherFromBeingGivenBackItsMemory) {
  LocalServers servers({.servers = 2, .pool_bytes = 2 * kMiB});
  LookedAtTransport transport(servers.Connect(0));
  RemoteSwap tier(transport, kSmallLeases);
  servers.Freeze(0, true);
  const Result<SlotRef> slot = tier.Reserve(256 * kKiB);
  ASSERT_TRUE(slot.ok());
  const Meanwhile large([&] { EXPECT_TRUE(tier.Reserve(2 * kMiB).ok()) << "when the silent one goes on"; });
  const int before = transport.looks();
  EndsOrElse([&] { return transport.looks() > before + 100; });
  servers.AskBack(1, 2 * kMiB);
  EndsOrElse([&] { return tier.Upkeep(), tier.HasLeaving(); });
  EXPECT_TRUE(tier.IsLeaving(slot.value(), 256 * kKiB));
  servers.Freeze(0, false);
}

// It was waited for each time that it might be asked again.
TEST(SilentServer, WhoDoesNotAnswerIsWaitedForOnceWhereOthersLend) {
  LocalServers servers({.servers = 2, .pool_bytes = 64 * kMiB, .near = 1});
  LookedAtTransport transport(servers.Connect(0));
  RemoteSwap tier(transport, {.first_lease_bytes = kMiB, .lease_bytes_max = kMiB, .answer_timeout = milliseconds(300)});
  servers.Freeze(0, true);
  ASSERT_TRUE(tier.Reserve(256 * kKiB).ok());
  int told = 0, most_looks = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < milliseconds(900)) {  // it counts as full, and as one to be asked again
    const int before = transport.looks();
    told += TimesTold(&tier, kMiB / 2) > 0 ? 1 : 0;
    most_looks = std::max(most_looks, transport.looks() - before);
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_GT(told, 0);
  EXPECT_LT(most_looks, 50);
}

// A program that was suspended itself.
TEST(SilentServer, WhoHasNotRunForAWhileFindsNobodySilentForThat) {
  LocalServers servers({.servers = 2, .pool_bytes = 16 * kMiB});
  const std::unique_ptr<ServerTransport> transport = servers.Connect(0);
  RemoteSwap tier(*transport, kSmallLeases);
  ASSERT_TRUE(tier.Reserve(kMiB).ok());
  const uint32_t other = servers.server(0).leases().leases() == 0 ? 0 : 1;  // it has more room, and is asked ahead of need
  servers.Freeze(other, true);
  tier.Upkeep();
  std::this_thread::sleep_for(milliseconds(300));
  for (int i = 0; i < 3; ++i) tier.Upkeep();
  EXPECT_EQ(servers.server(1 - other).leases().leases(), 1u);
}

// It was waited for in full by each who came.
TEST(SilentServer, WhoHasNotAnsweredInTimeCountsAsFull) {
  LocalServers servers({});
  const std::unique_ptr<ServerTransport> transport = servers.Connect(0);
  RemoteSwap tier(*transport, {.answer_timeout = milliseconds(400)});
  servers.Freeze(0, true);
  EXPECT_EQ(tier.TryReserve(4096).status().code(), StatusCode::kMustAsk);
  EXPECT_EQ(tier.Reserve(4096).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(tier.TryReserve(4096).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace ramspan
