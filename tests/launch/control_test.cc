#include "launch/control.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launch/run_folder.h"

namespace ramspan {
namespace {

class ControlTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::string> folder = MakeRunFolder(NameRunFolder(testing::TempDir()));
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    folder_ = folder.value();
    ControlServer::Handlers handlers;
    handlers.hello = [this](int rank, const std::string& host, bool local) {
      events_.push_back("hello " + std::to_string(rank) + " " + host + (local ? " local" : " remote"));
      server_->Send(rank, "go", pass_);
    };
    handlers.pid = [this](int rank, long pid) { events_.push_back("pid " + std::to_string(rank) + " " + std::to_string(pid)); };
    handlers.init = [this](int rank) { events_.push_back("init " + std::to_string(rank)); };
    handlers.end = [this](int rank, const RankEnd& end) {
      events_.push_back("end " + std::to_string(rank) + " " + std::to_string(end.code));
    };
    handlers.closed = [this](int rank) { events_.push_back("closed " + std::to_string(rank)); };
    Result<std::unique_ptr<ControlServer>> server = ControlServer::Listen(loop_, folder_, true, 2, handlers);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
  }
  void TearDown() override { RemoveRunFolder(folder_); }
  // Until so many events have come, and then what else has arrived.
  void ServeUntil(size_t events) {
    for (int i = 0; i < 200 && events_.size() < events; ++i) loop_.RunOnce(50);
    while (loop_.RunOnce(0) > 0) {
    }
  }
  void ServeUntilReadable(int fd) {
    pollfd ready{fd, POLLIN, 0};
    for (int i = 0; i < 1000 && poll(&ready, 1, 0) == 0; ++i) loop_.RunOnce(10);
    EXPECT_NE(ready.revents, 0) << "neither an answer nor the end";
  }
  std::string Secret() const { return server_->address().substr(server_->address().rfind(':') + 1); }

  EventLoop loop_;
  std::string folder_;
  std::unique_ptr<ControlServer> server_;
  std::vector<std::string> events_;
  int pass_ = -1;
};

TEST_F(ControlTest, AKeepersStoryArrivesInOrder) {
  UniqueFd keeper = ConnectToLauncher(folder_.c_str(), nullptr);
  ASSERT_TRUE(keeper);
  SendLine(keeper.get(), "hello - 1 alpha");
  SendLine(keeper.get(), "pid 77");
  SendLine(keeper.get(), "init");
  SendLine(keeper.get(), EndLine({7, 0, true, 123}));
  keeper.Reset();
  ServeUntil(5);
  EXPECT_EQ(events_, (std::vector<std::string>{"hello 1 alpha local", "pid 1 77", "init 1", "end 1 7", "closed 1"}));
}

TEST_F(ControlTest, OrdersAndADescriptorReachTheKeeper) {
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
  pass_ = pipe_fds[0];
  UniqueFd keeper = ConnectToLauncher(folder_.c_str(), nullptr);
  SendLine(keeper.get(), "hello - 0 alpha");
  ServeUntil(1);
  server_->Send(0, "kill");
  UniqueFd passed;
  EXPECT_EQ(ReceiveLine(keeper.get(), 1000, passed), "go");
  close(pipe_fds[0]);
  ASSERT_TRUE(passed);
  ASSERT_EQ(write(pipe_fds[1], "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(read(passed.get(), &byte, 1), 1);
  close(pipe_fds[1]);
  UniqueFd none;
  EXPECT_EQ(ReceiveLine(keeper.get(), 1000, none), "kill");
  EXPECT_FALSE(none);
  EXPECT_FALSE(ReceiveLine(keeper.get(), 10, none).has_value());
}

TEST_F(ControlTest, AnotherHostComesInByTcpWithTheSecret) {
  const UniqueFd keeper = ConnectToLauncher("/nowhere", server_->address().c_str());
  ASSERT_TRUE(keeper);
  SendLine(keeper.get(), "hello " + Secret() + " 0 beta");
  ServeUntil(1);
  // Else a host that lost its power is never missed. Of this process, the two ends of the connection:
  int ends = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer{};
    int probes = 0;
    socklen_t peer_length = sizeof peer, length = sizeof probes;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0 || peer.sin_family != AF_INET) continue;
    EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &probes, &length), 0);
    EXPECT_NE(probes, 0) << fd;
    ++ends;
  }
  EXPECT_EQ(ends, 2);
  EXPECT_EQ(events_, (std::vector<std::string>{"hello 0 beta remote"}));
}

TEST_F(ControlTest, WhoDoesNotKnowTheSecretIsTurnedAway) {
  for (const std::string& hello : {std::string("hello - 0 beta"), std::string("hello 1234 0 beta"), std::string("init"),
                                   std::string(5000, 'x'), "hello " + Secret() + " 2 beta"}) {
    const UniqueFd stranger = ConnectToLauncher(nullptr, server_->address().c_str());
    ASSERT_TRUE(stranger);
    SendLine(stranger.get(), hello);
    ServeUntilReadable(stranger.get());
    char byte = 0;
    EXPECT_LE(read(stranger.get(), &byte, 1), 0);
  }
  EXPECT_TRUE(events_.empty());
}

// 64 connections that said nothing filled the table for the rest of the job.
TEST_F(ControlTest, SilentStrangersDoNotKeepAKeeperOut) {
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(ConnectToLauncher(nullptr, server_->address().c_str()));
    ASSERT_TRUE(strangers.back());
    loop_.RunOnce(1000);
  }
  const UniqueFd keeper = ConnectToLauncher(nullptr, server_->address().c_str());
  ASSERT_TRUE(keeper);
  SendLine(keeper.get(), "hello " + Secret() + " 0 beta");
  ServeUntil(1);
  EXPECT_EQ(events_, (std::vector<std::string>{"hello 0 beta remote"}));
  EXPECT_LE(server_->strangers(), 100u);
}

TEST_F(ControlTest, AStrangerWhoStaysSilentIsTurnedAway) {
  const UniqueFd stranger = ConnectToLauncher(nullptr, server_->address().c_str());
  const UniqueFd local = ConnectToLauncher(folder_.c_str(), nullptr);
  for (int i = 0; i < 100 && server_->strangers() < 2; ++i) loop_.RunOnce(50);
  ASSERT_EQ(server_->strangers(), 2u);
  server_->OnTick(RunningNs() + 1'000'000'000);
  EXPECT_EQ(server_->strangers(), 2u);
  server_->OnTick(RunningNs() + 60'000'000'000);
  EXPECT_EQ(server_->strangers(), 1u);  // who came through the private folder is one of us, and may be slow
  pollfd ready{stranger.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 10'000), 1);  // the end comes over the network
  char byte = 0;
  EXPECT_EQ(recv(stranger.get(), &byte, 1, MSG_DONTWAIT), 0);
}

// Strangers may push a keeper out between its connection and its hello.
TEST_F(ControlTest, AKeeperThatWasTurnedAwayComesAgain) {
  UniqueFd rival = ConnectToLauncher(folder_.c_str(), nullptr);
  SendLine(rival.get(), "hello - 1 gamma");  // has the rank, so that whoever says the same is turned away
  ServeUntil(1);
  std::optional<std::string> answer;
  UniqueFd connection, passed;
  const std::string address = server_->address(), hello = "hello " + Secret() + " 1 beta";
  std::thread keeper([&] { answer = GreetLauncher(nullptr, address.c_str(), hello, connection, passed); });
  for (int i = 0; i < 400 && server_->strangers() == 0; ++i) loop_.RunOnce(50);
  for (int i = 0; i < 400 && server_->strangers() > 0; ++i) loop_.RunOnce(50);
  rival.Reset();
  for (int i = 0; i < 400 && events_.back() != "hello 1 beta remote"; ++i) loop_.RunOnce(50);
  keeper.join();
  EXPECT_EQ(answer, "go");
}

TEST_F(ControlTest, NonsenseClosesTheConnection) {
  const UniqueFd keeper = ConnectToLauncher(folder_.c_str(), nullptr);
  SendLine(keeper.get(), "hello - 0 alpha");
  SendLine(keeper.get(), "end 1000 0 0 0");
  ServeUntil(2);
  EXPECT_EQ(events_, (std::vector<std::string>{"hello 0 alpha local", "closed 0"}));
}

}  // namespace
}  // namespace ramspan
