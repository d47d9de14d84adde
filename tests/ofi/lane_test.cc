// The order in which transfers enter the network.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "client/transport/ofi_lane.h"
#include "tests/support/eventually.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

class Lane : public testing::Test {
 protected:
  static constexpr size_t kWrites = 16;

  explicit Lane(const FabricOptions& options = {}) : theirs_(kWrites * kMiB), ours_(kWrites * kMiB) {
    region_ = FabricRegion::ForPeer(*peer_, theirs_).value();
    const auto domain = FabricDomain::OpenTowards(peer_->address(), options).value();
    auto endpoint = FabricEndpoint::Open(domain).value();
    const uint64_t number = endpoint->AddPeer(peer_->address()).value();
    lane_ = std::make_unique<OfiLane>(std::move(endpoint), number, registrations_ = std::make_shared<OfiRegistrations>(domain), 0);
  }

  void Start(bool is_write, size_t at, size_t bytes, void* cookie) {
    lane_->Start({.server = 0, .is_write = is_write, .buffer = ours_.data() + at, .offset = at, .bytes = bytes, .cookie = cookie}, region_.key(), region_.address() + at);
  }
  // Of those that were started, in the order in which they ended.
  std::vector<ServerTransport::Completion> EndOf(size_t count) {
    std::vector<ServerTransport::Completion> all;
    EXPECT_TRUE(Eventually([&] {
      std::array<FabricCompletion, 16> done;
      bool broken = false;
      peer_->Poll(done, &broken);
      lane_->Collect(&all);
      return all.size() >= count;
    }));
    return all;
  }

  std::unique_ptr<FabricEndpoint> peer_ = FabricEndpoint::Open(FabricDomain::OpenAt("127.0.0.1", {}).value()).value();
  std::vector<std::byte> theirs_, ours_;
  FabricRegion region_;
  std::shared_ptr<OfiRegistrations> registrations_;
  std::unique_ptr<OfiLane> lane_;
};

// It waited until the bytes of all writes had left before it: with a batch of 16 MiB, 13 ms on a wire of 10 Gbit/s.
TEST_F(Lane, AReadDoesNotWaitForTheWritesThatWereStartedBeforeIt) {
  int read = 0;
  Start(true, 0, kMiB, nullptr);  // connects
  ASSERT_EQ(EndOf(1).size(), 1u);
  for (size_t i = 1; i < kWrites; ++i) Start(true, i * kMiB, kMiB, nullptr);
  Start(false, 0, 4096, &read);
  const std::vector<ServerTransport::Completion> ended = EndOf(kWrites);
  ASSERT_EQ(ended.size(), kWrites);
  const auto at = std::find_if(ended.begin(), ended.end(), [&](const auto& one) { return one.cookie == &read; });
  EXPECT_LE(at - ended.begin(), 3) << "ended before the read";
}

TEST_F(Lane, MovesWhatIsLongerThanAPartAndWhatIsEmpty) {
  for (size_t i = 0; i < ours_.size(); ++i) ours_[i] = static_cast<std::byte>(i * 7 + i / kMiB);
  const std::vector<std::byte> before = ours_;
  const size_t odd = 5 * kMiB + 12345;
  Start(true, 0, odd, nullptr);
  Start(true, odd, ours_.size() - odd, nullptr);
  Start(true, 0, 0, nullptr);
  ASSERT_EQ(EndOf(3).size(), 3u);
  EXPECT_EQ(theirs_, before);
  std::fill(ours_.begin(), ours_.end(), std::byte{});
  Start(false, odd, ours_.size() - odd, nullptr);
  Start(false, 0, odd, nullptr);
  const auto ended = EndOf(2);
  EXPECT_TRUE(std::all_of(ended.begin(), ended.end(), [](const auto& one) { return one.result == StatusCode::kOk; }));
  EXPECT_EQ(ours_, before);
  EXPECT_EQ(lane_->look().in_flight, 0u);
}

// Also those of which a part is in the network and the rest waits.
TEST_F(Lane, EachTransferOfALaneThatFailsEndsOnce) {
  Start(true, 0, kMiB, nullptr);
  ASSERT_EQ(EndOf(1).size(), 1u);
  std::array<int, kWrites> cookies{};
  for (size_t i = 0; i < kWrites; i += 2) {
    Start(true, i * kMiB, 2 * kMiB, &cookies[i]);
    Start(false, i * kMiB, 2 * kMiB, &cookies[i + 1]);
  }
  lane_->Fail();
  std::vector<ServerTransport::Completion> ended;
  lane_->Collect(&ended);
  lane_->Collect(&ended);
  EXPECT_EQ(ended.size(), kWrites);
  for (const auto& one : ended) ++*static_cast<int*>(one.cookie);
  EXPECT_EQ(std::count(cookies.begin(), cookies.end(), 1), static_cast<ptrdiff_t>(kWrites));
  EXPECT_EQ(lane_->look().in_flight, 0u);
}

// Reads of more parts than the network takes, always: no part was ever left for it.
TEST_F(Lane, AWriteEndsBesideReadsWithoutAnEnd) {
  int write = 0;
  Start(true, 0, 4096, nullptr);
  ASSERT_EQ(EndOf(1).size(), 1u);
  constexpr size_t kReads = 300;  // parts
  for (size_t i = 0; i < kReads; ++i) Start(false, kMiB, 256 << 10, nullptr);
  Start(true, 0, 4096, &write);
  size_t reads = 0;
  for (bool written = false; !written && reads < 4 * kReads;) {
    for (const auto& one : EndOf(1)) {
      written = written || one.cookie == &write;
      if (one.cookie == nullptr) ++reads, Start(false, kMiB, 256 << 10, nullptr);
    }
  }
  EXPECT_LT(reads, 2 * kReads);
}

// A write that waited for its next part held its registration, and the read that came before it in the line failed for good.
class LaneOfFewRegistrations : public Lane {
 protected:
  LaneOfFewRegistrations() : Lane({.register_local = true, .local_bytes_max = 4 * kMiB}) {}
};

TEST_F(LaneOfFewRegistrations, AReadWaitsForTheRegistrationOfAWriteThatHasBegun) {
  Start(true, 0, 4096, nullptr);
  ASSERT_EQ(EndOf(1).size(), 1u);
  Start(true, 0, 4 * kMiB, nullptr);
  Start(false, 4 * kMiB, 512 << 10, nullptr);
  for (const auto& one : EndOf(2)) EXPECT_EQ(one.result, StatusCode::kOk);
}

// Whose own transfers hold what there is waits for those, and not first in the line: where its server had fallen silent, nobody else moved any more.
TEST_F(LaneOfFewRegistrations, WhoHoldsSomeTakesNoPlaceInTheLine) {
  const auto held = registrations_->Find(std::span(ours_).first(2560 << 10)).value();
  OfiRegistrations::Asker silent{.holds = true}, other;
  EXPECT_EQ(registrations_->FindInTurn(std::span(ours_).subspan(4 * kMiB, 2560 << 10), &silent).status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(registrations_->FindInTurn(std::span(ours_).subspan(8 * kMiB, 64 << 10), &other).ok());
  silent.holds = false;
  EXPECT_EQ(registrations_->FindInTurn(std::span(ours_).subspan(4 * kMiB, 2560 << 10), &silent).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(registrations_->FindInTurn(std::span(ours_).subspan(8 * kMiB, 64 << 10), &other).status().code(), StatusCode::kUnavailable) << "it comes after the first";
  registrations_->LeaveLine(&silent);
  EXPECT_TRUE(registrations_->FindInTurn(std::span(ours_).subspan(8 * kMiB, 64 << 10), &other).ok());
}

// As such a lane asks: 2.5 MiB of 4 are in the network, towards a peer that moves nothing, and as much does not fit beside them. What is small does.
TEST_F(LaneOfFewRegistrations, ALaneWhosePeerMovesNothingKeepsNobodyFromWhatIsFree) {
  Start(true, 0, 4096, nullptr);
  ASSERT_EQ(EndOf(1).size(), 1u);
  Start(false, 0, 2560 << 10, nullptr);
  Start(false, 4 * kMiB, 2560 << 10, nullptr);
  OfiRegistrations::Asker other;
  EXPECT_TRUE(registrations_->FindInTurn(std::span(ours_).subspan(8 * kMiB, 64 << 10), &other).ok());
  const auto ended = EndOf(2);  // from here on it moves
  ASSERT_EQ(ended.size(), 2u);
  for (const auto& one : ended) EXPECT_EQ(one.result, StatusCode::kOk);
}

// Each of them waited five seconds of its own; and a lane that has given up is in nobody's way.
TEST_F(LaneOfFewRegistrations, WhatWaitsInVainFailsAtOnceAndComesBetweenNobodyLater) {
  Start(true, 0, 4096, nullptr);
  ASSERT_EQ(EndOf(1).size(), 1u);
  std::shared_ptr<const FabricRegion> others = registrations_->Find(std::span(ours_).first(4 * kMiB)).value();
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < 3; ++i) Start(false, 8 * kMiB + i * 4096, 4096, nullptr);
  const auto failed = EndOf(3);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const auto& one : failed) EXPECT_EQ(one.result, StatusCode::kUnavailable);
  EXPECT_GE(seconds, 5);
  EXPECT_LT(seconds, 9);
  others.reset();
  OfiRegistrations::Asker other;
  EXPECT_TRUE(registrations_->FindInTurn(std::span(ours_).subspan(8 * kMiB, 4096), &other).ok());
  Start(false, 8 * kMiB, 4096, nullptr);
  const auto ended = EndOf(1);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].result, StatusCode::kOk);
}

}  // namespace
}  // namespace ramspan
