// The server's loop over an endpoint that does what it is told.
#include "memserver/server_loop.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "tests/support/sizes.h"

namespace ramspan {
namespace {

class ScriptedEndpoint final : public Endpoint {
 public:
  std::string label() const override { return "rank 7"; }
  uint64_t pool_bytes() const override { return 8 * kMiB; }
  uint32_t clients() const override { return 2; }
  std::span<std::byte> pool() override { return {pool_.get(), 8 * kMiB}; }
  bool needs_polling() const override { return true; }
  Status Poll(std::optional<Message>* message) override {
    if (on_poll) on_poll();
    if (broken) return Unavailable("the network is gone");
    message->reset();
    if (script.empty()) return {};
    last_ = script.front();
    script.pop_front();
    *message = {last_.first, last_.second};
    return {};
  }
  Arrival Wait(std::chrono::microseconds timeout) override { return on_wait ? on_wait(timeout) : Arrival::kUnknown; }
  void Progress() override {}
  bool Answer(uint32_t client, const WireMessage& message) override {
    if (refuse_answers > 0) return --refuse_answers, false;
    answers.push_back({client, message});
    return true;
  }
  std::optional<uint32_t> NextDeath() override {
    if (deaths.empty() || !script.empty()) return std::nullopt;
    const uint32_t dead = deaths.front();
    deaths.pop_front();
    return dead;
  }

  void Say(uint32_t client, const WireMessage& message) {
    const WireRecord record = Encode(message);
    script.push_back({client, {record.begin(), record.end()}});
  }
  void AskFor(uint32_t client, uint64_t bytes) {
    Say(client, {.type = WireType::kLeaseRequest, .sequence = ++sequence_, .bytes = bytes, .minimum_bytes = bytes});
  }
  // Client 0 announces transfers again and again, as clients do; after 20 s of that the loop is ended.
  void KeepTransfersAnnounced() {
    const auto now = std::chrono::steady_clock::now();
    if (now - announced_ < std::chrono::milliseconds(10)) return;
    announced_ = now;
    if (begin_ == decltype(now)()) begin_ = now;
    now - begin_ > std::chrono::seconds(20) ? SayByeForAll() : Say(0, {.type = WireType::kActivity});
  }
  void SayByeForAll() {
    SayBye(0);
    SayBye(1);
  }
  void SayBye(uint32_t client, bool together = true) {
    Say(client, {.type = WireType::kBye, .flags = together ? kByeTogether : 0});
  }

  std::deque<std::pair<uint32_t, std::vector<std::byte>>> script;
  std::deque<uint32_t> deaths;
  std::function<void()> on_poll;
  std::function<Arrival(std::chrono::microseconds)> on_wait;
  std::vector<std::pair<uint32_t, WireMessage>> answers;
  int refuse_answers = 0;
  bool broken = false;

 private:
  struct Freed {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Freed> pool_{static_cast<std::byte*>(std::aligned_alloc(4096, 8 * kMiB))};
  std::pair<uint32_t, std::vector<std::byte>> last_;
  uint32_t sequence_ = 0;
  std::chrono::steady_clock::time_point begin_{}, announced_{};
};

TEST(ServerLoop, ServesUntilAllHaveSaidBye) {
  ScriptedEndpoint endpoint;
  endpoint.AskFor(0, kMiB);
  endpoint.SayBye(0);
  endpoint.SayBye(1);
  const Result<bool> together = Serve(endpoint);
  ASSERT_TRUE(together.ok());
  EXPECT_TRUE(together.value());
  ASSERT_EQ(endpoint.answers.size(), 1u);
  EXPECT_EQ(endpoint.answers[0].second.type, WireType::kLeaseGrant);
}

// Grants were dropped while 16 answers were unsent, and stayed leased until the end of the job.
TEST(ServerLoop, WhatAClientDoesNotTakeIsNotLeasedToIt) {
  ScriptedEndpoint endpoint;
  endpoint.refuse_answers = 20;
  for (int i = 0; i < 20; ++i) endpoint.AskFor(0, kMiB);
  for (int i = 0; i < 7; ++i) endpoint.AskFor(1, kMiB);
  endpoint.SayBye(0);
  endpoint.SayBye(1);
  ASSERT_TRUE(Serve(endpoint).ok());
  ASSERT_EQ(endpoint.answers.size(), 7u);
  for (const auto& [client, answer] : endpoint.answers) EXPECT_EQ(answer.type, WireType::kLeaseGrant);
}

TEST(ServerLoop, AClientThatDiesIsNotWaitedFor) {
  ScriptedEndpoint endpoint;
  endpoint.SayBye(0, false);
  endpoint.deaths = {1, 1, 99};
  const Result<bool> together = Serve(endpoint);
  ASSERT_TRUE(together.ok());
  EXPECT_FALSE(together.value());
}

TEST(ServerLoop, ByesThatContradictEachOtherAreAnError) {
  ScriptedEndpoint endpoint;
  endpoint.SayBye(0);
  endpoint.SayBye(1, false);
  EXPECT_EQ(Serve(endpoint).status().code(), StatusCode::kFailedPrecondition);
}

TEST(ServerLoop, ALostTransportEndsIt) {
  ScriptedEndpoint endpoint;
  endpoint.broken = true;
  EXPECT_EQ(Serve(endpoint).status().code(), StatusCode::kUnavailable);
}

TEST(ServerLoop, RecordsOfAnyLengthAndStrangersAreIgnored) {
  ScriptedEndpoint endpoint;
  for (const size_t length : {0, 1, 63, 65, 4096}) endpoint.script.push_back({0, std::vector<std::byte>(length)});
  endpoint.AskFor(5, kMiB);
  endpoint.SayBye(5);
  endpoint.SayBye(0);
  endpoint.SayBye(1);
  EXPECT_TRUE(Serve(endpoint).value());
  EXPECT_TRUE(endpoint.answers.empty());
}

// Beside a program that needs the cores it spun for as long as transfers were announced, and was late with those that came.
TEST(ServerLoop, WaitsForArrivalsWhereTransfersAreAnnouncedAndNothingComes) {
  ScriptedEndpoint endpoint;
  int waits = 0, polls = 0;
  endpoint.on_poll = [&] {
    ++polls;
    endpoint.KeepTransfersAnnounced();
  };
  endpoint.on_wait = [&](std::chrono::microseconds timeout) {
    EXPECT_LE(timeout, std::chrono::milliseconds(1));  // MPI may need progress of which nothing tells
    if (timeout.count() == 0) return Endpoint::Arrival::kNone;
    EXPECT_GE(polls, 64) << "a transfer needs many polls";
    polls = 0;
    if (++waits == 5) endpoint.SayByeForAll();
    return Endpoint::Arrival::kNone;
  };
  EXPECT_TRUE(Serve(endpoint).value());
  EXPECT_GE(waits, 5);
}

TEST(ServerLoop, WhatCannotBeWaitedForIsPolled) {
  ScriptedEndpoint endpoint;
  int polls = 0, asked = 0;
  endpoint.on_poll = [&] {
    endpoint.KeepTransfersAnnounced();
    if (++polls == 10000) endpoint.SayByeForAll();
  };
  endpoint.on_wait = [&](std::chrono::microseconds) {
    ++asked;
    return Endpoint::Arrival::kUnknown;
  };
  EXPECT_TRUE(Serve(endpoint).value());
  EXPECT_GT(asked, 0);
}

}  // namespace
}  // namespace ramspan
