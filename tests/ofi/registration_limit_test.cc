// Networks that have to know local buffers (FI_MR_LOCAL), in a process that may register few of them (ulimit -l): that is this process's
// trouble and no server's.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "client/transport/ofi_transport.h"
#include "tests/support/ofi_servers.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr auto kMovePatience = std::chrono::seconds(30);

class RegistrationLimit : public testing::Test {
 protected:
  RegistrationLimit() {
    transport_ = OfiTransport::Open({.servers = servers_.names(), .fabric = {.register_local = true, .local_bytes_max = kMiB}, .near = false}, TestSecret()).value();
    transport_->Send(0, {.type = WireType::kLeaseRequest, .sequence = 1, .bytes = 8 * kMiB, .minimum_bytes = 8 * kMiB});
    std::optional<ServerTransport::Control> answer;
    const auto end = std::chrono::steady_clock::now() + kMovePatience;
    while (!answer && std::chrono::steady_clock::now() < end) answer = transport_->Receive();
    RS_CHECK(answer.has_value(), "no %s", "lease");
    offset_ = Decode(answer->record).value().offset;
  }

  std::vector<StatusCode> Move(bool is_write, std::span<std::vector<char>> buffers) {
    std::vector<ServerTransport::Transfer> batch;
    std::vector<StatusCode> results(buffers.size(), StatusCode::kAborted);
    uint64_t at = offset_;
    for (size_t i = 0; i < buffers.size(); ++i) {
      batch.push_back({.is_write = is_write, .buffer = buffers[i].data(), .offset = at, .bytes = buffers[i].size(), .cookie = &results[i]});
      at += buffers[i].size();
    }
    transport_->Start(batch);
    std::vector<ServerTransport::Completion> done;
    const auto end = std::chrono::steady_clock::now() + kMovePatience;
    while (done.size() < buffers.size() && std::chrono::steady_clock::now() < end) transport_->Collect(&done);
    for (const auto& one : done) *static_cast<StatusCode*>(one.cookie) = one.result;
    return results;
  }
  bool IsAlive() const { return transport_->state(0) == ServerTransport::ServerState::kAlive; }

  OfiServers servers_{{}};
  std::unique_ptr<OfiTransport> transport_;
  uint64_t offset_ = 0;
};

TEST_F(RegistrationLimit, ATransferWhoseBufferCannotBeRegisteredFailsAloneAndTheServerLives) {
  std::vector<std::vector<char>> large(1, std::vector<char>(2 * kMiB, 'l')), small(1, std::vector<char>(kMiB / 2, 's'));
  EXPECT_EQ(Move(true, small)[0], StatusCode::kOk);
  EXPECT_EQ(Move(true, large)[0], StatusCode::kUnavailable);
  EXPECT_TRUE(IsAlive());
  std::vector<std::vector<char>> read(1, std::vector<char>(kMiB / 2));
  EXPECT_EQ(Move(false, read)[0], StatusCode::kOk);
  EXPECT_EQ(read, small) << "what was there is there";
}

TEST_F(RegistrationLimit, BuffersThatNobodyUsesMakeRoomAndABatchWaitsForItsOwnTransfers) {
  std::vector<std::vector<char>> buffers, read;
  for (char c = 'a'; c < 'i'; ++c) buffers.emplace_back(kMiB / 2, c);
  for (auto& buffer : buffers) EXPECT_EQ(Move(true, {&buffer, 1})[0], StatusCode::kOk) << "one after the other";
  read.assign(buffers.size(), std::vector<char>(kMiB / 2));
  for (const StatusCode result : Move(true, buffers)) EXPECT_EQ(result, StatusCode::kOk) << "four times the limit at once";
  for (const StatusCode result : Move(false, read)) EXPECT_EQ(result, StatusCode::kOk);
  EXPECT_EQ(read, buffers);
  EXPECT_TRUE(IsAlive());
}

class RegistrationLimitOfTwoServers : public testing::Test {
 protected:
  // Also what each server leases.
  void Open(uint64_t registered_bytes_max) {
    transport_ = OfiTransport::Open({.servers = servers_.names(), .fabric = {.register_local = true, .local_bytes_max = registered_bytes_max}, .near = false}, TestSecret()).value();
    for (uint32_t server = 0; server < 2; ++server) {
      transport_->Send(server, {.type = WireType::kLeaseRequest, .sequence = 1, .bytes = 8 * kMiB, .minimum_bytes = 8 * kMiB});
      std::optional<ServerTransport::Control> answer;
      for (const auto end = std::chrono::steady_clock::now() + kMovePatience; !answer && std::chrono::steady_clock::now() < end;) answer = transport_->Receive();
      ASSERT_TRUE(answer.has_value());
      offsets_[answer->server] = Decode(answer->record).value().offset;
    }
  }

  void Read(uint32_t server, std::vector<char>* buffer, void* cookie) {
    const ServerTransport::Transfer one{.server = server, .is_write = false, .buffer = buffer->data(), .offset = offsets_[server], .bytes = buffer->size(), .cookie = cookie};
    transport_->Start({&one, 1});
  }

  OfiServers servers_{{.servers = 2}};
  std::unique_ptr<ServerTransport> transport_;
  std::array<uint64_t, 2> offsets_{};
};

// The reads of the other server failed at once, three times in a row, and with them the program.
TEST_F(RegistrationLimitOfTwoServers, TransfersToOneWaitForThoseToTheOther) {
  constexpr size_t kBytes = kMiB / 2;
  ASSERT_NO_FATAL_FAILURE(Open(kMiB));
  std::vector<std::vector<char>> buffers(8, std::vector<char>(kBytes, 'x'));
  for (int round = 0; round < 20; ++round) {
    std::vector<StatusCode> results(buffers.size(), StatusCode::kAborted);
    std::vector<ServerTransport::Transfer> batch;
    for (size_t i = 0; i < buffers.size(); ++i) {
      const uint32_t server = i < 4 ? 0 : 1;  // the first one's hold all that may be registered
      batch.push_back({.server = server, .is_write = round == 0, .buffer = buffers[i].data(), .offset = offsets_[server] + i % 4 * kBytes, .bytes = kBytes, .cookie = &results[i]});
    }
    transport_->Start(batch);
    std::vector<ServerTransport::Completion> done;
    for (const auto end = std::chrono::steady_clock::now() + kMovePatience; done.size() < batch.size() && std::chrono::steady_clock::now() < end;) transport_->Collect(&done);
    ASSERT_EQ(done.size(), batch.size());
    for (const auto& one : done) ASSERT_EQ(one.result, StatusCode::kOk) << "round " << round;
  }
}

// A server that always had more to move took each registration as soon as one of its own transfers gave it back: the other one's reads failed
// after five seconds, three times in a row.
TEST_F(RegistrationLimitOfTwoServers, OneThatAlwaysHasMoreToMoveLeavesTheOtherItsTurn) {
  ASSERT_NO_FATAL_FAILURE(Open(kMiB));
  std::vector<std::vector<char>> busy(64, std::vector<char>(kMiB / 2, 'x')), others(3, std::vector<char>(kMiB / 2, 'y'));
  size_t next = 0, left = others.size();
  const auto begin = std::chrono::steady_clock::now();
  const auto since = [&] { return std::chrono::steady_clock::now() - begin; };
  for (int depth = 0; depth < 16; ++depth) Read(0, &busy[next++ % busy.size()], nullptr);
  for (bool begun = false; left > 0 && since() < kMovePatience;) {
    if (!begun && since() > std::chrono::milliseconds(200)) {
      for (auto& buffer : others) Read(1, &buffer, &buffer);
      begun = true;
    }
    std::vector<ServerTransport::Completion> done;
    transport_->Collect(&done);
    for (const auto& one : done) {
      ASSERT_EQ(one.result, StatusCode::kOk) << "of server " << one.server;
      if (one.server == 1) --left;
      if (one.server == 0) Read(0, &busy[next++ % busy.size()], nullptr);
    }
  }
  EXPECT_EQ(left, 0u);
}

// Where all that may be registered was being registered by another thread, or being closed, nobody seemed to use any: such transfers failed
// at once, one in five.
TEST_F(RegistrationLimitOfTwoServers, WhatAnotherThreadRegistersJustNowIsWaitedFor) {
  constexpr size_t kBytes = 64 * 1024;
  ASSERT_NO_FATAL_FAILURE(Open(kBytes));
  std::atomic<size_t> failed = 0, ended = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  std::mutex mutex;  // of `idle`: who collects hands on what is another thread's
  std::array<std::vector<std::vector<char>>, 2> buffers;
  std::array<std::vector<std::vector<char>*>, 2> idle;
  for (uint32_t server = 0; server < 2; ++server) {
    buffers[server].assign(4, std::vector<char>(kBytes, 'x'));
    for (auto& buffer : buffers[server]) idle[server].push_back(&buffer);
  }
  const auto collect = [&] {
    std::vector<ServerTransport::Completion> done;
    transport_->Collect(&done);
    const std::lock_guard lock(mutex);
    for (const auto& one : done) {
      idle[one.server].push_back(static_cast<std::vector<char>*>(one.cookie));
      ++ended;
      failed += one.result != StatusCode::kOk;
    }
  };
  const auto use = [&](uint32_t server) {
    while (std::chrono::steady_clock::now() < until) {
      std::vector<std::vector<char>*> mine;
      {
        const std::lock_guard lock(mutex);
        mine.swap(idle[server]);
      }
      for (std::vector<char>* const buffer : mine) Read(server, buffer, buffer);
      collect();
    }
  };
  std::thread first(use, 0), second(use, 1);
  first.join();
  second.join();
  const auto are_idle = [&] { return idle[0].size() == buffers[0].size() && idle[1].size() == buffers[1].size(); };
  for (const auto end = std::chrono::steady_clock::now() + kMovePatience; !are_idle() && std::chrono::steady_clock::now() < end;) collect();
  EXPECT_TRUE(are_idle());
  EXPECT_EQ(failed, 0u) << "of " << ended;
}

// Later servers would be met by a thread that loads libraries while the end of the process takes them apart: programs ended by SIGABRT.
TEST(OfiTransportAtTheEnd, NoServerJoinsAnyMore) {
  OfiServers servers({.servers = 2});
  const std::string both = servers.names(), first = both.substr(0, both.find(','));
  for (const bool ends : {true, false}) {
    const auto transport = OfiTransport::Open({.servers = first, .near = false}, TestSecret()).value();
    if (ends) transport->EndMeetings();
    ASSERT_TRUE(transport->UseServers(both).ok());
    const auto until = std::chrono::steady_clock::now() + (ends ? std::chrono::seconds(2) : kMovePatience);
    while (transport->servers() < 2 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(transport->servers(), ends ? 1u : 2u);
  }
}

}  // namespace
}  // namespace ramspan
