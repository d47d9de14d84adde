// RemoteIo: what moves while servers stand still, and what becomes of requests that wait for a place when servers die or the heap ends.
#include "client/swap/remote_io.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "tests/support/forwarding_transport.h"
#include "tests/support/local_transport.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr size_t kBlock = 4 * kKiB, kMany = 3 * RemoteIo::kInFlightMax;

// Counts what is with the transport below, and refuses to begin anything where it is told so.
class CountingTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void Start(std::span<const Transfer> batch) override {
    if (heap_ends) throw std::bad_alloc();
    for (const Transfer& transfer : batch) {
      size_t& now = under_way[{transfer.server, transfer.is_write}];
      most = std::max(most, ++now);
      is_write_[{transfer.cookie, transfer.server}] = transfer.is_write;
    }
    ForwardingTransport::Start(batch);
  }
  bool Collect(std::vector<Completion>* done) override {
    const size_t before = done->size();
    const bool any = ForwardingTransport::Collect(done);
    for (size_t i = before; i < done->size(); ++i) {
      const Completion& one = (*done)[i];
      --under_way[{one.server, is_write_[{one.cookie, one.server}]}];
    }
    return any;
  }
  bool heap_ends = false;
  size_t most = 0;  // to one server in one direction
  std::map<std::pair<uint32_t, bool>, size_t> under_way;

 private:
  std::map<std::pair<void*, uint32_t>, bool> is_write_;
};

// Requests over two far servers, each with places of its own there.
class RemoteIoTest : public testing::Test {
 protected:
  struct One {
    IoRequest io;
    std::vector<RemotePiece> pieces;
    std::vector<std::byte> bytes;
    bool done = false;
  };

  // A piece on each of `where`, in that order.
  One* Make(std::vector<uint32_t> where) {
    One& one = all_.emplace_back();
    for (const uint32_t server : where) {
      one.pieces.push_back({.server = server, .offset = offset_, .bytes = kBlock, .mapped = nullptr});
      offset_ += kBlock;
    }
    for (size_t i = 0; i < where.size(); ++i) one.bytes.insert(one.bytes.end(), kBlock, std::byte(all_.size() + i));  // no piece is like its neighbour
    one.io = {.buffer = one.bytes.data(), .bytes = one.bytes.size(), .cookie = &one};
    return &one;
  }
  One* Submit(One* one, bool is_write) {
    one->done = false;
    one->io.is_write = is_write;
    one->io.result = StatusCode::kOk;
    io_.Submit(&one->io);
    return one;
  }
  std::vector<One*> SubmitMany(const std::vector<uint32_t>& where, bool is_write) {
    std::vector<One*> many;
    for (size_t i = 0; i < kMany; ++i) many.push_back(Submit(Make(where), is_write));
    return many;
  }
  // Enough steps for all that can move.
  void Settle() {
    for (int step = 0; step < 1000; ++step) {
      io_.Collect();
      IoRequest* done[16];
      bool in_flight = false;
      for (size_t n; (n = io_.TakeDone(done, &in_flight)) > 0;) {
        for (size_t i = 0; i < n; ++i) {
          One* const one = static_cast<One*>(done[i]->cookie);
          EXPECT_FALSE(one->done) << "twice";
          one->done = true;
        }
      }
    }
  }
  static size_t Done(const std::vector<One*>& many, StatusCode result) {
    return static_cast<size_t>(std::count_if(many.begin(), many.end(), [result](const One* one) { return one->done && one->io.result == result; }));
  }

  LocalServers servers_{{.servers = 2, .delay_max = 3}};
  CountingTransport transport_{servers_.Connect(0)};
  bool locate_fails_ = false;
  RemoteIo io_{transport_, [this](const IoRequest& request, std::vector<RemotePiece>* pieces) {
                 if (locate_fails_) throw std::bad_alloc();
                 *pieces = static_cast<const One*>(request.cookie)->pieces;
               }};
  std::deque<One> all_;
  uint64_t offset_ = 0;
};

TEST_F(RemoteIoTest, AServerThatStandsStillKeepsNobodyFromAnother) {
  servers_.Freeze(1, true);
  const std::vector<One*> stuck = SubmitMany({1}, true);
  const std::vector<One*> written = SubmitMany({0}, true);
  Settle();
  EXPECT_EQ(Done(written, StatusCode::kOk), kMany);
  for (One* one : written) Submit(one, false);
  Settle();
  EXPECT_EQ(Done(written, StatusCode::kOk), kMany);
  EXPECT_EQ(Done(stuck, StatusCode::kOk), 0u);
  EXPECT_EQ(transport_.most, RemoteIo::kInFlightMax);
  servers_.Freeze(1, false);
  Settle();
  EXPECT_EQ(Done(stuck, StatusCode::kOk), kMany);
  EXPECT_EQ(transport_.most, RemoteIo::kInFlightMax);
}

TEST_F(RemoteIoTest, ReadsAreBegunWhileTheSameServerTakesNoMoreWrites) {
  servers_.Freeze(1, true);
  SubmitMany({1}, true);
  const One* const read = Submit(Make({1}), false);
  EXPECT_EQ((transport_.under_way[{1, false}]), 1u);
  servers_.Freeze(1, false);
  Settle();
  EXPECT_TRUE(read->done);
}

// What is on both waits for both, and holds no place that others need meanwhile.
TEST_F(RemoteIoTest, WhatIsOnTwoServersTakesNoPlacesFromWhatIsOnOne) {
  servers_.Freeze(1, true);
  const std::vector<One*> both = SubmitMany({0, 1, 0}, true);
  const std::vector<One*> written = SubmitMany({0}, true);
  Settle();
  EXPECT_EQ(Done(written, StatusCode::kOk), kMany);
  EXPECT_EQ(Done(both, StatusCode::kOk), 0u);
  servers_.Freeze(1, false);
  Settle();
  ASSERT_EQ(Done(both, StatusCode::kOk), kMany);
  EXPECT_LE(transport_.most, RemoteIo::kInFlightMax);
  const std::vector<std::byte> bytes = both.back()->bytes;
  std::fill(both.back()->bytes.begin(), both.back()->bytes.end(), std::byte(0));
  Submit(both.back(), false);
  Settle();
  EXPECT_EQ(both.back()->bytes, bytes);
}

TEST_F(RemoteIoTest, WhatWaitsForAPlaceEndsWhenItsServerDies) {
  servers_.Freeze(1, true);
  const std::vector<One*> written = SubmitMany({1}, true), read = SubmitMany({1}, false);
  servers_.Kill(1);
  Settle();
  EXPECT_EQ(Done(written, StatusCode::kUnavailable), kMany);
  EXPECT_EQ(Done(read, StatusCode::kDataLoss), kMany);
}

// It may have no more when a request's turn comes, and again when there is some the others go on.
TEST_F(RemoteIoTest, WhatWaitsForAPlaceEndsWhereTheHeapHasNoMoreForIt) {
  for (bool* const ends : {&locate_fails_, &transport_.heap_ends}) {
    servers_.Freeze(1, true);
    const std::vector<One*> many = SubmitMany({1, 0}, true);
    *ends = true;
    servers_.Freeze(1, false);
    Settle();
    EXPECT_EQ(Done(many, StatusCode::kFailedPrecondition) + Done(many, StatusCode::kOk), kMany);
    EXPECT_GE(Done(many, StatusCode::kFailedPrecondition), kMany - 2 * RemoteIo::kInFlightMax);
    *ends = false;
    for (One* one : many) Submit(one, true);
    Settle();
    EXPECT_EQ(Done(many, StatusCode::kOk), kMany) << "places were lost";
  }
}

// What this process copied itself counted as if the server had to move it: who asked one that stood still waited 10 ns for each byte.
TEST(RemoteIo, CopiesToANearServerNeedNoPatience) {
  LocalServers servers({.servers = 1, .near = 1});
  const auto transport = servers.Connect(0);
  std::vector<std::byte> pool(kMiB), buffer(kMiB);
  RemoteIo io(*transport, [&](const IoRequest&, std::vector<RemotePiece>* pieces) { *pieces = {{.server = 0, .offset = 0, .bytes = pool.size(), .mapped = pool.data()}}; });
  IoRequest request{.buffer = buffer.data(), .bytes = buffer.size()};
  request.is_write = true;
  io.Submit(&request);
  IoRequest* done[1];
  bool failed = false;
  ASSERT_EQ(io.TakeDone(done, &failed), 1u);
  EXPECT_EQ(io.LookAt(0).patience.count(), 0);
}

}  // namespace
}  // namespace ramspan
