// RemoteSwap where a server stands still: it is not dead, answers nothing and moves nothing. What others hold and lend is there all the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/swap/remote_swap.h"
#include "client/swap/tiered_swap.h"
#include "tests/support/ends_or_else.h"
#include "tests/support/fake_tier.h"
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
    // Until there is none: on a busy machine an answer may be late once. (With room left nobody looked a thousand times below, and the test waited for ever.)
    for (int failed = 0; failed < 10;) failed = other->Reserve(256 * kKiB).ok() ? 0 : failed + 1;
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

// Two far servers, one of which stands still in the middle of a write, and files.
class SilentServerAndFiles : public testing::Test {
 protected:
  static constexpr size_t kBytes = 256 * kKiB;

  SilentServerAndFiles() : servers_({.servers = 2, .pool_bytes = 2 * kMiB}), transport_(servers_.Connect(0)) {
    std::vector<std::unique_ptr<SwapTier>> tiers;
    tiers.push_back(std::make_unique<RemoteSwap>(*transport_, kSmallLeases));
    tiers.push_back(std::make_unique<FakeTier>(FakeTierOptions{.capacity_bytes = 4 * kBytes, .full_asks = true, .synchronous = true, .name = "file"}));
    swap_ = std::make_unique<TieredSwap>(std::move(tiers));
    slot_ = swap_->Reserve(kBytes).value();
    silent_ = servers_.server(0).leases().leases() == 1 ? 0 : 1;
    servers_.Freeze(silent_, true);
    buffer_.reset(static_cast<std::byte*>(std::aligned_alloc(kSwapGranule, kBytes)));
    request_ = {.slot = slot_, .buffer = buffer_.get(), .bytes = kBytes};
    IoRequest* const batch[] = {&request_};
    swap_->SubmitWrite(batch);
    EndsOrElse([this] { return Poll(), swap_->StandsStill(slot_, kBytes); });
  }
  ~SilentServerAndFiles() override { GoOn(); }

  void Poll() {
    IoRequest* done[1];
    is_done_ = is_done_ || swap_->Poll(done, std::chrono::microseconds(100)) == 1;
  }
  void GoOn() {
    servers_.Freeze(silent_, false);
    EndsOrElse([this] { return Poll(), is_done_; });
  }
  uint64_t UsedOf(uint32_t server) const { return swap_->servers()[server].slot_bytes_used; }
  // As the engine does. 's': of the silent server; 'o': of the other one; 'f': of the files; '-': none, or somebody has to be waited for.
  char WhereNextIs() {
    const uint64_t silent = UsedOf(silent_), other = UsedOf(1 - silent_);
    for (int told = 0; told < 16; ++told) {
      const Result<SlotRef> slot = swap_->TryReserve(kBytes);
      if (slot.ok()) return UsedOf(silent_) > silent ? 's' : UsedOf(1 - silent_) > other ? 'o' : 'f';
      if (slot.status().code() != StatusCode::kMustAsk || !swap_->MakeRoom(kBytes, SwapTier::Patience::kAsk).ok()) return '-';
    }
    return '?';
  }

  LocalServers servers_;
  std::unique_ptr<ServerTransport> transport_;
  std::unique_ptr<TieredSwap> swap_;
  SlotRef slot_;
  uint32_t silent_ = 0;
  struct Freed {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Freed> buffer_;
  IoRequest request_;
  bool is_done_ = false;
};

// All that left went where room was held, and waited there.
TEST_F(SilentServerAndFiles, ItsRoomIsTheLastChoice) {
  const ServerStats silent = swap_->servers()[silent_];
  const std::string held((silent.leased_bytes - silent.slot_bytes_used) / kBytes, 's');
  ASSERT_FALSE(held.empty());
  std::string where;
  const Meanwhile work([&] {
    while (where.find(held) == std::string::npos && where.size() < 40) where += WhereNextIs();
    const size_t files = where.find('f');
    ASSERT_NE(files, std::string::npos) << where;
    EXPECT_GE(files, 4u) << where << ": a lease of the other server comes before files";
    EXPECT_EQ(where, std::string(files, 'o') + "ffff" + held);
  });
}

TEST_F(SilentServerAndFiles, WhatIsThereShouldMoveUntilItGoesOn) {
  EXPECT_TRUE(swap_->ShouldMove(slot_, kBytes));
  EXPECT_FALSE(swap_->StandsStill(SlotRef{}, kBytes)) << "the other one is there";
  const SlotRef elsewhere = swap_->Reserve(kBytes).value();
  EXPECT_FALSE(swap_->StandsStill(elsewhere, kBytes));
  EXPECT_FALSE(swap_->ShouldMove(elsewhere, kBytes));
  GoOn();
  EndsOrElse([this] { return !swap_->StandsStill(slot_, kBytes); });
  EXPECT_FALSE(swap_->ShouldMove(slot_, kBytes));
  EXPECT_EQ(WhereNextIs(), 'o') << "the lease that had room last";
}

// The slots of chunks in memory were of no use to others that had to leave.
TEST_F(SilentServerAndFiles, OneSlotThereTakesThePlaceOfOthers) {
  GoOn();
  EndsOrElse([this] { return !swap_->StandsStill(slot_, kBytes); });
  const SlotRef other = swap_->Reserve(kBytes).value();
  ASSERT_EQ(UsedOf(silent_), 2 * kBytes);
  servers_.Freeze(silent_, true);
  is_done_ = false;
  request_.slot = slot_;
  IoRequest* const batch[] = {&request_};
  swap_->SubmitWrite(batch);
  EndsOrElse([this] { return Poll(), swap_->StandsStill(slot_, kBytes); });
  const HeldSlot given[] = {{other, kBytes}};
  size_t taken = 0;
  const SlotRef slot = swap_->TryExchange(given, kBytes, &taken);
  EXPECT_TRUE(slot);
  swap_->Free(slot, kBytes);
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

// A network that was gone for 10 s ended programs without other swap: servers were full, they said. Also who comes when the server counts as full already, for
// another one's question was not answered; as in a program, where swap is asked for what comes soon first.
TEST(SilentServer, WhoHasNoOtherSwapWaitsUntilItGoesOn) {
  for (const uint32_t near : {0u, 1u}) {
    SCOPED_TRACE(near);
    LocalServers servers({.near = near});
    const std::unique_ptr<ServerTransport> transport = servers.Connect(0);
    std::vector<std::unique_ptr<SwapTier>> tiers;
    tiers.push_back(std::make_unique<RemoteSwap>(*transport, WithoutOtherSwap({.answer_timeout = milliseconds(1000)})));
    TieredSwap swap(std::move(tiers));
    servers.Freeze(0, true);
    EXPECT_FALSE(swap.MakeRoom(4096, SwapTier::Patience::kAsk).ok());
    std::thread thaw([&] {
      std::this_thread::sleep_for(milliseconds(500));
      servers.Freeze(0, false);
    });
    EXPECT_TRUE(swap.MakeRoom(4096, SwapTier::Patience::kWait).ok());
    EXPECT_TRUE(swap.Reserve(4096).ok());
    thaw.join();
  }
}

TEST(SilentServer, WhoWaitedForItInVainHearsThatItDidNotAnswer) {
  LocalServers servers({});
  const std::unique_ptr<ServerTransport> transport = servers.Connect(0);
  RemoteSwapOptions options = WithoutOtherSwap({.answer_timeout = milliseconds(300)});
  options.silence_most = milliseconds(900);
  RemoteSwap tier(*transport, options);
  servers.Freeze(0, true);
  const Status status = tier.Reserve(4096).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("1 of them did not answer in time"), std::string::npos) << status.message();
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
