// `ramspan ctl` and a server: lists of more clients than a socket takes at once, and what is taken for a server's end.
#include "memserver/controller.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "memserver/ofi_endpoint.h"
#include "memserver/server_loop.h"
#include "tests/support/ofi_servers.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kAnswerPatience{60'000};

// A server with a real endpoint and real links to who asks, which does nothing while it is frozen. Its clients are invented: thousands of
// processes are more than a test has.
class Crowd final : public Endpoint {
 public:
  explicit Crowd(uint32_t clients)
      : clients_(clients), real_(OfiEndpoint::Open({.pool_bytes = uint64_t{1} << 30, .listen = "", .socket = "", .fabric = {}, .threads = 1}, TestSecret()).value()),
        place_(ParseSocketPlace(real_->place()).value()), thread_([this] { End(); }) {}
  ~Crowd() override {
    frozen_ = false;
    if (thread_.joinable()) Stop();
  }
  const SocketPlace& place() const { return place_; }
  void Freeze(bool frozen) { frozen_ = frozen; }
  void SayThatItDrains() { says_that_it_drains_ = true; }
  void Stop() {
    ends_ = true;
    thread_.join();
  }

  std::string label() const override { return real_->label(); }
  uint32_t clients() const override { return 0; }
  uint64_t pool_bytes() const override { return real_->pool_bytes(); }
  bool is_service() const override { return true; }
  bool ShouldEnd() const override { return ends_; }
  bool needs_polling() const override { return real_->needs_polling(); }
  Status Poll(std::optional<Message>* message) override {
    while (frozen_) std::this_thread::yield();
    return real_->Poll(message);
  }
  void Progress() override { real_->Progress(); }
  Arrival Wait(std::chrono::microseconds) override { return real_->Wait(std::chrono::microseconds(1000)); }
  bool Answer(uint32_t client, const WireMessage& message) override { return real_->Answer(client, message); }
  std::optional<uint32_t> NextArrival() override { return come_ < clients_ ? std::optional(come_++) : std::nullopt; }
  std::string LabelOf(uint32_t client) override { return "client " + std::to_string(client); }
  std::optional<Order> NextOrder() override { return real_->NextOrder(); }
  Reported Report(uint64_t from, const ServiceReport& report) override {
    ServiceReport told = report;
    if (report.of == ServiceReport::Of::kServer && says_that_it_drains_) told.draining = true, told.held_bytes = uint64_t{5} << 20;
    return real_->Report(from, told);
  }

 private:
  void End() {
    EXPECT_TRUE(Serve(*this).ok());
    real_.reset();
  }

  const uint32_t clients_;
  std::unique_ptr<OfiEndpoint> real_;
  const SocketPlace place_;
  uint32_t come_ = 0;
  std::atomic<bool> frozen_{false}, ends_{false}, says_that_it_drains_{false};  // publish nothing but themselves
  std::thread thread_;
};

ServiceCommand Order(ServiceOrder order) { return {.order = order, .bytes = 0, .job = ""}; }

// A client may say that it has moved any number of bytes, and the second time at once: a double beyond all numbers became one.
TEST(Controller, ASpeedBeyondAllNumbersIsTheLargest) {
  EXPECT_EQ(PerSecond(1000, 0.5), 2000u);
  EXPECT_EQ(PerSecond(UINT64_MAX, 1e-6), UINT64_MAX);
  EXPECT_EQ(PerSecond(UINT64_MAX, 1), UINT64_MAX);
  EXPECT_EQ(PerSecond(5, 0), 0u);
  EXPECT_EQ(PerSecond(5, -1), 0u);
}

// With 600 and more the server closed the link: it sent all of it in one go.
TEST(Controller, AListOfThousandsOfClientsArrivesWhole) {
  constexpr uint32_t kClients = 3000;
  Crowd server(kClients);
  const Result<ServerAnswer> answer = Ask(server.place(), TestSecret(), Order(ServiceOrder::kList), kAnswerPatience);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  const std::vector<ServiceReport>& reports = answer.value().reports;
  ASSERT_EQ(reports.size(), kClients + 1);
  for (uint32_t i = 0; i < kClients; ++i) ASSERT_EQ(reports[i].label, "client " + std::to_string(i));
  EXPECT_EQ(reports.back().clients, kClients);
}

// They were seen beside clients that were there: who looked why the next job gets nothing found no quota.
TEST(Controller, AListHasTheQuotasAlsoOfJobsThatAreNotThere) {
  Crowd server(1);
  const auto set = [&](const char* job, uint64_t bytes) {
    EXPECT_TRUE(Ask(server.place(), TestSecret(), {.order = ServiceOrder::kQuota, .bytes = bytes, .job = job}, kAnswerPatience).ok());
  };
  const auto list = [&] { return Ask(server.place(), TestSecret(), Order(ServiceOrder::kList), kAnswerPatience).value().reports; };
  EXPECT_EQ(list().back().quota_bytes, UINT64_MAX) << "none";
  set("", 9 << 20);
  set("slurm 7", 0);
  set("slurm 8", UINT64_MAX);
  const std::vector<ServiceReport> reports = list();
  ASSERT_EQ(reports.size(), 4u);
  EXPECT_EQ(reports[0].of, ServiceReport::Of::kClient);
  for (const size_t i : {1, 2}) EXPECT_EQ(reports[i].of, ServiceReport::Of::kQuota);
  EXPECT_EQ(reports[1].job, "slurm 7");
  EXPECT_EQ(reports[1].quota_bytes, 0u);
  EXPECT_EQ(reports[2].job, "slurm 8");
  EXPECT_EQ(reports[2].quota_bytes, UINT64_MAX);
  EXPECT_EQ(reports[3].of, ServiceReport::Of::kServer);
  EXPECT_EQ(reports[3].quota_bytes, uint64_t{9} << 20);
}

TEST(Controller, ALookIsAnsweredByTheServersReportAlone) {
  Crowd server(7);
  const Result<ServerAnswer> answer = Ask(server.place(), TestSecret(), Order(ServiceOrder::kLook), kAnswerPatience);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  ASSERT_EQ(answer.value().reports.size(), 1u);
  EXPECT_EQ(answer.value().reports[0].clients, 7u);
  EXPECT_FALSE(answer.value().reports[0].draining);
}

// It said "has ended" and its status was 0 for each question without an answer: who believes that switches off a host that holds data.
TEST(Controller, AServerThatDoesNotAnswerHasNotEnded) {
  Crowd server(0);
  server.SayThatItDrains();
  bool was_silent = false, was_stopped = false;
  std::string told;
  const EndWaiting waiting{.look_every = milliseconds(1), .answer_max = milliseconds(100), .silent_max = kAnswerPatience, .looks_without_progress = 1 << 30};
  const Status ended = AwaitEnd(server.place(), TestSecret(), waiting, [&](const std::string& line) {
    told += line + "\n";
    if (line.find(" drains: 5 MiB to go") != std::string::npos && !was_silent) server.Freeze(was_silent = true);
    if (line.find(" does not answer now: ") == std::string::npos || !was_silent || was_stopped) return;
    was_stopped = true;
    server.Freeze(false);
    server.Stop();
  });
  EXPECT_TRUE(ended.ok()) << ended.ToString();
  EXPECT_TRUE(was_stopped) << told;
  EXPECT_THAT(told, HasSubstr(server.place().text() + " has ended\n"));
}

TEST(Controller, NobodyWaitsForEverForAServerThatDoesNotAnswer) {
  Crowd server(0);
  server.Freeze(true);
  std::string told;
  const Status ended = AwaitEnd(server.place(), TestSecret(), {.look_every = milliseconds(1), .answer_max = milliseconds(10), .silent_max = milliseconds(20)},
                                [&](const std::string& line) { told += line; });
  EXPECT_EQ(ended.code(), StatusCode::kUnavailable);
  EXPECT_THAT(ended.message(), HasSubstr("whether it has ended is not known"));
  EXPECT_THAT(told, testing::Not(HasSubstr("has ended")));
}

TEST(Controller, NobodyWaitsForTheEndOfAServerThatLendsAgain) {
  Crowd server(0);
  EXPECT_EQ(AwaitEnd(server.place(), TestSecret(), {}, [](const std::string&) {}).code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace ramspan
