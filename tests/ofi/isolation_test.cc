// What a client may not do: reach memory that is not leased to it, keep what it gave back, find what another one left, or cost a server
// more than it may; and what a server may not do to a client.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <sstream>
#include <thread>

#include "client/swap/remote_swap.h"
#include "client/transport/ofi_transport.h"
#include "common/meeting.h"
#include "tests/support/eventually.h"
#include "tests/support/no_more_files.h"
#include "tests/support/ofi_servers.h"
#include "tests/support/refuse_system_call.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

std::string NamesOf(const std::vector<SocketPlace>& places) {
  std::string names;
  for (const SocketPlace& place : places) names += (names.empty() ? "" : ",") + place.text();
  return names;
}

// A client that keeps to no rules: it has the link, and an endpoint of its own.
class Rogue {
 public:
  explicit Rogue(const SocketPlace& place) : meeting_(Meeting::With(place, TestSecret(), kPatience).value()) {
    Introduction self{.instance = 1, .label = "rogue"};
    if (!meeting_.introduction.near) {
      endpoint_ = FabricEndpoint::Open(FabricDomain::OpenTowards(meeting_.introduction.fabric, {}).value()).value();
      peer_ = endpoint_->AddPeer(meeting_.introduction.fabric).value();
      self.fabric = endpoint_->address();
    }
    meeting_.link->Send({.kind = LinkFrame::Kind::kIntroduction, .introduction = self});
  }
  Link& link() { return *meeting_.link; }

  struct Grant {
    WireMessage message;
    LeaseAccess access;
    Descriptor file;
  };
  Grant Lease(uint64_t bytes) {
    Say({.type = WireType::kLeaseRequest, .sequence = ++sequence_, .bytes = bytes, .minimum_bytes = bytes});
    Grant grant;
    LinkFrame frame;
    EXPECT_TRUE(Eventually([&] {
      link().Progress();
      return link().Next(&frame, &grant.file);
    }));
    grant.message = Decode(frame.record).value();
    EXPECT_EQ(grant.message.type, WireType::kLeaseGrant);
    grant.access = frame.access;
    return grant;
  }
  void Say(const WireMessage& message) { link().Send({.kind = LinkFrame::Kind::kRecord, .record = Encode(message)}); }

  // Begins a write of more than sockets hold, while nobody takes it: it ends in the middle.
  void WriteHalf(std::span<std::byte> buffer, uint64_t key, uint64_t address) {
    const FabricTransfer transfer{.is_write = true, .local = buffer, .peer = peer_, .address = address, .key = key, .context = &half_context_};
    ASSERT_EQ(endpoint_->Post(transfer), FabricEndpoint::Posted::kYes);
    for (int i = 0; i < 100; ++i) ASSERT_FALSE(HalfHasEnded());
  }
  void AwaitPong() {
    link().Send({.kind = LinkFrame::Kind::kPing});
    LinkFrame frame;
    Descriptor none;
    ASSERT_TRUE(Eventually([&] {
      link().Progress();
      return link().Next(&frame, &none);
    }));
    ASSERT_EQ(frame.kind, LinkFrame::Kind::kPong);
  }
  bool HalfHasEnded() {
    std::array<FabricCompletion, 1> done;
    bool broken = false;
    return endpoint_->Poll(done, &broken) == 1 || broken;
  }

  // True: the bytes were moved.
  bool Move(bool is_write, std::span<std::byte> buffer, uint64_t key, uint64_t address) {
    alignas(16) std::array<std::byte, kFabricContextBytes> context;
    const FabricTransfer transfer{.is_write = is_write, .local = buffer, .peer = peer_, .address = address, .key = key, .context = &context};
    std::array<FabricCompletion, 1> done;
    bool broken = false, posted = false, failed = false, ended = false;
    EXPECT_TRUE(Eventually([&] {
      if (!posted) {
        const FabricEndpoint::Posted result = endpoint_->Post(transfer);
        posted = result == FabricEndpoint::Posted::kYes;
        failed = result == FabricEndpoint::Posted::kFailed;
      }
      if (endpoint_->Poll(done, &broken) == 1) ended = true;
      Say({.type = WireType::kActivity});
      return failed || ended || broken;
    }));
    return ended && done[0].ok;
  }

 private:
  Meeting meeting_;
  std::unique_ptr<FabricEndpoint> endpoint_;
  uint64_t peer_ = 0;
  uint32_t sequence_ = 0;
  alignas(16) std::array<std::byte, kFabricContextBytes> half_context_;
};

TEST(Isolation, AWrongKeyAndAWrongPlaceAreRefusedByTheFabric) {
  OfiServers servers({});
  std::vector<std::byte> bytes(4096, std::byte{3});
  const auto attempt = [&](auto change) {
    Rogue rogue(servers.places()[0]);  // a failed transfer may cost the connection
    const Rogue::Grant grant = rogue.Lease(kMiB);
    uint64_t key = grant.access.key, address = grant.access.address;
    EXPECT_TRUE(rogue.Move(true, bytes, key, address)) << "the right one";
    change(&key, &address);
    return rogue.Move(true, bytes, key, address) || rogue.Move(false, bytes, key, address);
  };
  EXPECT_FALSE(attempt([](uint64_t* key, uint64_t*) { *key ^= 1; }));
  EXPECT_FALSE(attempt([](uint64_t* key, uint64_t*) { *key = 0; }));
  EXPECT_FALSE(attempt([](uint64_t*, uint64_t* address) { *address += kMiB; }));
  EXPECT_FALSE(attempt([](uint64_t*, uint64_t* address) { *address += kMiB - 1000; }));
}

TEST(Isolation, AKeyOfALeaseThatWasGivenBackOpensNothing) {
  OfiServers servers({});
  Rogue rogue(servers.places()[0]);
  const Rogue::Grant grant = rogue.Lease(kMiB);
  std::vector<std::byte> bytes(4096, std::byte{3});
  ASSERT_TRUE(rogue.Move(true, bytes, grant.access.key, grant.access.address));
  rogue.Say({.type = WireType::kLeaseReturn, .lease = grant.message.lease});
  ASSERT_TRUE(Eventually([&] { return servers.leased_bytes(0) == 0; }));
  EXPECT_FALSE(rogue.Move(false, bytes, grant.access.key, grant.access.address));
}

TEST(Isolation, AWriteUnderWayWhenItsLeaseGoesReachesNobodyElsesLease) {
  constexpr uint64_t kBytes = 16 * kMiB;
  OfiServers servers({.pool_bytes = 8 * kBytes});
  Rogue honest(servers.places()[0]), rogue(servers.places()[0]);
  std::vector<std::byte> bytes(kBytes, std::byte{0x66}), small(4096);
  const Rogue::Grant first = rogue.Lease(kBytes);
  ASSERT_TRUE(rogue.Move(true, small, first.access.key, first.access.address)) << "so that there is a connection";
  servers.Freeze(0, true);
  rogue.WriteHalf(bytes, first.access.key, first.access.address);
  servers.Freeze(0, false);
  for (int i = 0; i < 50; ++i) rogue.AwaitPong();  // it takes what has been sent so far
  rogue.Say({.type = WireType::kLeaseReturn, .lease = first.message.lease});
  ASSERT_TRUE(Eventually([&] { return servers.leased_bytes(0) == 0; }));
  const Rogue::Grant second = honest.Lease(kBytes);
  ASSERT_EQ(second.message.offset, first.message.offset) << "the same place, or the test says nothing";
  EXPECT_TRUE(Eventually([&] {
    honest.Say({.type = WireType::kActivity});
    return rogue.HalfHasEnded();
  }));
  std::vector<std::byte> read(kBytes, std::byte{1});
  ASSERT_TRUE(honest.Move(false, read, second.access.key, second.access.address)) << "the server lives";
  EXPECT_TRUE(std::all_of(read.begin(), read.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Isolation, WhatAClientLeftIsZeroForTheNextOne) {
  OfiServers servers({.pool_bytes = 8 * kMiB});
  uint64_t place = 0;
  {
    Rogue first(servers.places()[0]);
    const Rogue::Grant grant = first.Lease(kMiB);
    place = grant.message.offset;
    std::vector<std::byte> bytes(kMiB, std::byte{0xee});
    ASSERT_TRUE(first.Move(true, bytes, grant.access.key, grant.access.address));
  }
  ASSERT_TRUE(Eventually([&] { return servers.leased_bytes(0) == 0; })) << "a client that is gone holds nothing";
  Rogue second(servers.places()[0]);
  const Rogue::Grant grant = second.Lease(kMiB);
  EXPECT_EQ(grant.message.offset, place) << "the same place, or the test says nothing";
  std::vector<std::byte> bytes(kMiB, std::byte{1});
  ASSERT_TRUE(second.Move(false, bytes, grant.access.key, grant.access.address));
  EXPECT_EQ(bytes, std::vector<std::byte>(kMiB));
}

TEST(Isolation, AMemoryFileIsOneClientsAloneSealedAndEmptyWhenItIsGivenBack) {
  OfiServers servers({.listen = ""});
  Rogue first(servers.places()[0]), second(servers.places()[0]);
  const Rogue::Grant one = first.Lease(kMiB), two = second.Lease(kMiB);
  struct stat of_one {}, of_two {};
  ASSERT_TRUE(fstat(one.file.number(), &of_one) == 0 && fstat(two.file.number(), &of_two) == 0);
  EXPECT_NE(of_one.st_ino, of_two.st_ino);
  EXPECT_EQ(of_one.st_size, ssize_t{kMiB});
  EXPECT_NE(ftruncate(one.file.number(), 4096), 0);
  EXPECT_NE(ftruncate(one.file.number(), 2 * kMiB), 0);
  auto* mapped = static_cast<std::byte*>(mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, one.file.number(), 0));
  ASSERT_NE(mapped, MAP_FAILED);
  mapped[77] = std::byte{1};
  EXPECT_GE(of_one.st_blocks * 512, ssize_t{kMiB}) << "all of it is there before it is granted";
  first.Say({.type = WireType::kLeaseReturn, .lease = one.message.lease});
  EXPECT_TRUE(Eventually([&] { return fstat(one.file.number(), &of_one) == 0 && of_one.st_blocks == 0; }));
  EXPECT_EQ(mapped[77], std::byte{0}) << "who keeps a mapping has nothing of the server's";
  munmap(mapped, kMiB);
}

// A client may have given the server up (it was stopped for too long) and goes on with what it has mapped: it trusts in these bytes.
TEST(Isolation, AMemoryFileStaysWithWhoMapsItWhenTheLinkEnds) {
  OfiServers servers({.listen = ""});
  Rogue::Grant grant;
  std::byte* mapped = nullptr;
  {
    Rogue client(servers.places()[0]);
    grant = client.Lease(kMiB);
    mapped = static_cast<std::byte*>(mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, grant.file.number(), 0));
    ASSERT_NE(mapped, MAP_FAILED);
    std::fill_n(mapped, kMiB, std::byte{7});
  }
  ASSERT_TRUE(Eventually([&] { return servers.leased_bytes(0) == 0; })) << "the server has seen the end of the link";
  EXPECT_TRUE(std::all_of(mapped, mapped + kMiB, [](std::byte b) { return b == std::byte{7}; }));
  Rogue next(servers.places()[0]);
  EXPECT_EQ(next.Lease(kMiB).message.offset, grant.message.offset) << "the same place of the pool";
  EXPECT_EQ(mapped[77], std::byte{7});
  munmap(mapped, kMiB);
}

TEST(Isolation, StrangersWhoSayNothingCostLittleAndAreInNobodysWay) {
  OfiServers servers({});
  std::vector<Descriptor> strangers;
  const SocketAddress address = Resolve(servers.places()[0]).value()[0];
  for (size_t i = 0; i < 2 * OfiEndpoint::kStrangersMax; ++i) {
    Result<Descriptor> stranger = StartConnect(address);
    ASSERT_TRUE(stranger.ok());
    strangers.push_back(std::move(stranger).value());
    if (i % 16 == 0) Rogue honest(servers.places()[0]);
  }
  Rogue honest(servers.places()[0]);
  EXPECT_EQ(honest.Lease(kMiB).message.bytes, kMiB);
  char byte;
  EXPECT_TRUE(Eventually([&] { return recv(strangers[0].number(), &byte, 1, MSG_DONTWAIT) == 0; })) << "the oldest one was sent away";
}

TEST(Isolation, AStrangerWhoDoesNotGetOnIsSentAwayInTime) {
  OfiServers servers({.greeting_max = std::chrono::milliseconds(200)});
  const Descriptor stranger = StartConnect(Resolve(servers.places()[0]).value()[0]).value();
  char byte;
  EXPECT_TRUE(Eventually([&] { return recv(stranger.number(), &byte, 1, MSG_DONTWAIT) == 0; }));
}

// The ranks of a large node come in one moment.
TEST(Isolation, WhoFindsTheQueueOfAUnixSocketFullWaitsForItsTurn) {
  const std::string name = "@ramspan-test-" + std::to_string(getpid());
  const SocketAddress address = Resolve(ParseSocketPlace(name).value()).value()[0];
  const Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ASSERT_EQ(bind(listener.number(), reinterpret_cast<const sockaddr*>(&address.storage), address.length), 0);
  ASSERT_EQ(listen(listener.number(), 0), 0);
  std::vector<Descriptor> before;
  for (Result<Descriptor> one = StartConnect(address); one.ok(); one = StartConnect(address)) before.push_back(std::move(one).value());
  std::atomic<bool> over{false};
  Status met;
  std::thread late([&] {
    met = Meeting::With(ParseSocketPlace(name).value(), TestSecret(), kPatience).status();
    over = true;
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (!over && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_FALSE(over) << met.message();
  while (!over) Accept(listener);  // and closed at once
  late.join();
  EXPECT_THAT(met.message(), testing::Not(testing::HasSubstr("temporarily unavailable"))) << "it was accepted in the end, and closed";
}

// The first address that a name has may be of a network that is not there. It used up all of the time.
TEST(Isolation, AServerIsMetByItsSecondAddressWhereNobodyAnswersAtTheFirst) {
  OfiServers servers({});
  SocketAddress silent;
  const Descriptor listener = Listen(ParseSocketPlace("127.0.0.1:0").value(), &silent).value();
  ASSERT_EQ(listen(listener.number(), 0), 0);
  const Descriptor first = StartConnect(silent).value();  // fills its queue, and the kernel answers nobody else
  pollfd connected{.fd = first.number(), .events = POLLOUT, .revents = 0};
  ASSERT_EQ(poll(&connected, 1, 10'000), 1);
  const std::vector<SocketAddress> addresses = {silent, Resolve(servers.places()[0]).value()[0]};
  const Result<Meeting> met = Meeting::With(addresses, TestSecret(), std::chrono::milliseconds(4000));
  ASSERT_TRUE(met.ok()) << met.status().message();
  EXPECT_EQ(met.value().introduction.instance, servers.endpoint(0).instance());
}

// Two places that differ, and one process behind them: only its introduction tells.
TEST(Isolation, AServerWithTwoNamesIsMetOnce) {
  OfiServers servers({});
  char local[32];
  std::snprintf(local, sizeof local, "@ramspan-%016llx", static_cast<unsigned long long>(servers.endpoint(0).instance()));
  auto transport = OfiTransport::Open({.servers = servers.names() + "," + local}, TestSecret()).value();
  EXPECT_EQ(transport->servers(), 1u);
  EXPECT_EQ(transport->places_missing(), 0u);
}

// The other place takes the connection and says nothing, for as long as the transport waits there.
TEST(Isolation, AnAnswerIsTakenWhileAnotherPlaceIsLookedFor) {
  OfiServers servers({.servers = 1, .listen = ""});
  const std::string name = "@ramspan-test-silent-" + std::to_string(getpid());
  SocketAddress bound;
  const Descriptor silent = Listen(ParseSocketPlace(name).value(), &bound).value();
  const std::vector<SocketPlace> places = {servers.places()[0], ParseSocketPlace(name).value()};
  auto transport = OfiTransport::Open({.servers = NamesOf(places), .connect_max = std::chrono::milliseconds(500)}, TestSecret()).value();
  bool meanwhile = false;
  // On a loaded machine the wait there may be over before the answer has come, but not each time.
  for (uint32_t round = 1; round <= 10 && !meanwhile; ++round) {
    while (Accept(silent)) {}
    Descriptor seeks;
    ASSERT_TRUE(Eventually([&] { return static_cast<bool>(seeks = Accept(silent)); })) << "it is being looked for";
    transport->Send(0, {.type = WireType::kLeaseRequest, .sequence = round, .bytes = kMiB, .minimum_bytes = kMiB});
    ASSERT_TRUE(Eventually([&] { return transport->Receive().has_value(); }));
    char greeting[4096];
    ssize_t n = 0;
    while ((n = recv(seeks.number(), greeting, sizeof greeting, MSG_DONTWAIT)) > 0) {}
    meanwhile = n < 0 && errno == EAGAIN;  // 0: it has been given up
  }
  EXPECT_TRUE(meanwhile) << "answers came only once nobody was looked for any more";
}

// Of memory files that are mapped here.
uint64_t MappedHere() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssShmem:")) return std::stoull(line.substr(std::strlen("RssShmem:"))) * kKiB;
  }
  return 0;
}

// It stayed until the program's end, beside what the host's next server lent.
TEST(Isolation, TheMemoryOfADeadServerOfThisHostGoesWithTheLastSlot) {
  constexpr size_t kBytes = 16 * kMiB;
  OfiServers servers({.pool_bytes = 64 * kMiB, .listen = ""});
  const auto transport = OfiTransport::Open({.servers = servers.names()}, TestSecret()).value();
  RemoteSwap tier(*transport, {.first_lease_bytes = kBytes, .lease_bytes_max = kBytes});
  const SlotRef slot = tier.Reserve(kBytes).value();
  std::vector<std::byte> bytes(kBytes);
  IoRequest write;
  write.slot = slot;
  write.buffer = bytes.data();
  write.bytes = kBytes;
  IoRequest* request = &write;
  tier.SubmitWrite({&request, 1});
  ASSERT_EQ(tier.Poll({&request, 1}, std::chrono::microseconds(0)), 1u);
  servers.Kill(0);
  ASSERT_TRUE(Eventually([&] {
    tier.Upkeep();
    return transport->state(0) == ServerTransport::ServerState::kDead;
  }));
  tier.Upkeep();
  const uint64_t mapped = MappedHere();
  ASSERT_GE(mapped, kBytes) << "what was written is not lost";
  tier.Free(slot, kBytes);
  tier.Upkeep();
  EXPECT_LE(MappedHere(), mapped - kBytes);
}

// The thread that looked for it took two seconds more, four with a name of this host.
TEST(Isolation, AProgramsEndDoesNotWaitForAServerThatDoesNotAnswer) {
  OfiServers servers({.servers = 1, .listen = ""});
  const std::string name = "@ramspan-test-stopped-" + std::to_string(getpid());
  SocketAddress bound;
  const Descriptor stopped = Listen(ParseSocketPlace(name).value(), &bound).value();
  auto transport = OfiTransport::Open({.servers = servers.names() + "," + name, .connect_max = std::chrono::milliseconds(100)}, TestSecret()).value();
  while (Accept(stopped)) {}
  Descriptor seeks;
  ASSERT_TRUE(Eventually([&] { return static_cast<bool>(seeks = Accept(stopped)); })) << "it is being looked for";
  const auto begin = std::chrono::steady_clock::now();
  transport.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1000));
}

TEST(Isolation, AServerThatDoesNotAnswerIsGivenUp) {
  OfiServers servers({});
  auto transport = OfiTransport::Open({.servers = servers.names(), .near = false, .silence_max = std::chrono::milliseconds(1000)}, TestSecret()).value();
  servers.Freeze(0, true);
  EXPECT_TRUE(Eventually([&] { return transport->state(0) == ServerTransport::ServerState::kDead; }));
}

// The child closes its copies of the links; what it opens afterwards may get their numbers.
TEST(Isolation, AForkedChildsChildKeepsTheFilesThatItInherits) {
  OfiServers servers({.listen = ""});
  auto transport = OfiTransport::Open({.servers = servers.names()}, TestSecret()).value();
  const pid_t child = fork();
  if (child == 0) {
    int ends[2];
    if (pipe(ends) != 0) _exit(9);
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(fcntl(ends[0], F_GETFD) < 0 || fcntl(ends[1], F_GETFD) < 0 ? 1 : 0);
    int status = 0;
    _exit(waitpid(grandchild, &status, 0) == grandchild && WIFEXITED(status) ? WEXITSTATUS(status) : 8);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Isolation, AClientThatBreaksTheRulesIsSentAwayAndOthersDoNotNotice) {
  OfiServers servers({});
  Rogue honest(servers.places()[0]);
  const Rogue::Grant grant = honest.Lease(kMiB);
  for (int breach = 0; breach < 2; ++breach) {
    Rogue rogue(servers.places()[0]);
    rogue.Lease(kMiB);
    if (breach == 0) rogue.link().Send({.kind = LinkFrame::Kind::kIntroduction});
    if (breach == 1) {
      ASSERT_GT(send(rogue.link().descriptor(), "zzzzzzzz", 8, MSG_NOSIGNAL), 0);
    }
    EXPECT_TRUE(Eventually([&] {
      LinkFrame frame;
      Descriptor none;
      rogue.link().Progress();
      rogue.link().Next(&frame, &none);
      return rogue.link().is_closed();
    }));
  }
  std::vector<std::byte> bytes(4096, std::byte{3});
  EXPECT_TRUE(honest.Move(true, bytes, grant.access.key, grant.access.address));
  EXPECT_TRUE(Eventually([&] { return servers.leased_bytes(0) == kMiB; })) << "of the honest one";
}

// ---- What others may cost ----

size_t CountLines(const std::string& text, const std::string& with) {
  std::istringstream lines(text);
  size_t count = 0;
  for (std::string line; std::getline(lines, line);) count += line.find(with) != std::string::npos ? 1 : 0;
  return count;
}

TEST(Isolation, WhatStrangersCauseIsToldAtOnceAndThenOnceInAWhileWithItsNumber) {
  Seldom seldom;
  RunningClock::time_point now{};
  EXPECT_EQ(seldom.Note(now), 1u);
  for (int i = 0; i < 41; ++i) EXPECT_EQ(seldom.Note(now), 0u);
  now += Seldom::kEvery;
  EXPECT_EQ(seldom.Note(now), 42u);
  EXPECT_EQ(seldom.Note(now), 0u);
  EXPECT_EQ(seldom.Note(now + 2 * Seldom::kEvery), 2u);
}

// Each was a line: gigabytes of log an hour.
TEST(Isolation, StrangersWhoSayWhatTheyLikeFillNobodysLog) {
  constexpr size_t kStrangers = 100;
  OfiServers servers({.listen = ""});
  const SocketAddress address = Resolve(servers.places()[0]).value()[0];
  testing::internal::CaptureStderr();
  for (size_t i = 0; i < kStrangers; ++i) {
    const Descriptor stranger = StartConnect(address).value();
    const std::string junk(40, 'x');
    ASSERT_EQ(send(stranger.number(), junk.data(), junk.size(), MSG_NOSIGNAL), ssize_t{40});
    char taken[4096];
    ASSERT_TRUE(Eventually([&] {
      const ssize_t n = recv(stranger.number(), taken, sizeof taken, MSG_DONTWAIT);
      return n == 0 || (n < 0 && errno != EAGAIN);
    })) << "he is sent away";
  }
  const size_t lines = CountLines(testing::internal::GetCapturedStderr(), "away");
  EXPECT_GE(lines, 1u);
  EXPECT_LT(lines, kStrangers / 4) << "one in ten seconds";
}

// The other end was told that the connection had been reset, and asked whether the key file was the same. And the second one was not sent away:
// the first one had the spare descriptor's number when it was to be taken again.
TEST(Isolation, WhoIsSentAwayForWantOfDescriptorsHearsIt) {
  for (const bool near : {true, false}) {
    OfiServers servers({.listen = near ? "" : "127.0.0.1:0"});
    const SocketAddress address = Resolve(servers.places()[0]).value()[0];
    for (const bool speaks_first : {true, false}) {
      SCOPED_TRACE(testing::Message() << "near " << near << ", the client speaks first " << speaks_first);
      servers.Freeze(0, true);
      Link link(StartConnect(address).value(), Handshake::Role::kClient, TestSecret());
      const NoMoreFiles none;
      if (speaks_first) link.Progress();
      servers.Freeze(0, false);
      pollfd polled{.fd = link.descriptor(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(poll(&polled, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())), 1);
      EXPECT_TRUE(Eventually([&] { return link.Progress(), link.is_closed(); }));
      EXPECT_EQ(link.why_closed().code(), StatusCode::kUnavailable) << "it may have some later";
      EXPECT_THAT(link.why_closed().message(), testing::HasSubstr("it has no descriptors left for clients: raise its limit (ulimit -n)"));
    }
  }
}

// A client that has come; its number at the server.
std::unique_ptr<Rogue> Join(OfiEndpoint* server, std::optional<uint32_t>* number) {
  std::optional<Endpoint::Message> message;
  auto joins = std::async(std::launch::async, [place = ParseSocketPlace(server->place()).value()] { return std::make_unique<Rogue>(place); });
  EXPECT_TRUE(Eventually([&] { return server->Poll(&message).ok() && (*number = server->NextArrival()).has_value(); }));
  return joins.get();
}

// Each was a line: 64 in a minute, by one client.
TEST(Isolation, LeasesThatCannotBeHandedOverForWantOfDescriptorsAreToldOnceInAWhile) {
  const auto server = OfiEndpoint::Open({.pool_bytes = 8 * kMiB, .listen = "", .socket = "", .fabric = {}}, TestSecret()).value();
  std::optional<uint32_t> number;
  const std::unique_ptr<Rogue> client = Join(server.get(), &number);
  ASSERT_TRUE(number.has_value());
  ASSERT_TRUE(server->Provide(*number, {.id = 1, .offset = 0, .bytes = kMiB, .client = *number}));
  testing::internal::CaptureStderr();
  {
    const NoMoreFiles none;
    for (int i = 0; i < 64; ++i) EXPECT_FALSE(server->Answer(*number, {.type = WireType::kLeaseGrant, .lease = 1, .offset = 0, .bytes = kMiB}));
  }
  EXPECT_EQ(CountLines(testing::internal::GetCapturedStderr(), "refuses a lease: no descriptor left"), 1u);
}

// Another thread took the descriptor that was kept to send away who waits: he stayed, and each look at him was a line in the log.
TEST(Isolation, AServerThatCanSendNobodyAwayWaitsUntilItCan) {
  OfiServers servers({.listen = ""});
  const SocketAddress address = Resolve(servers.places()[0]).value()[0];
  servers.Freeze(0, true);
  const Descriptor waits = StartConnect(address).value();
  testing::internal::CaptureStderr();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};  // not even the one that it keeps
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  servers.Freeze(0, false);
  const std::clock_t begin = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const std::clock_t used = std::clock() - begin;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(used, CLOCKS_PER_SEC / 5) << "and it does not spin";
  Rogue late(servers.places()[0]);
  EXPECT_EQ(late.Lease(kMiB).message.bytes, kMiB);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountLines(said, "has no descriptors left for clients: raise its limit (ulimit -n)"), 1u) << said.substr(0, 1000);
}

// Other processes of the user may take all that the kernel lets him watch. It was taken for a bug, and the server ended with all that it held.
TEST(IsolationDeathTest, AClientThatCannotBeWatchedIsSentAwayAndTheServerLives) {
  const auto serve = [] {
    const auto server = OfiEndpoint::Open({.pool_bytes = kMiB, .listen = "", .socket = "", .fabric = {}}, TestSecret()).value();
    const SocketAddress address = Resolve(ParseSocketPlace(server->place()).value()).value()[0];
    const Descriptor client = StartConnect(address).value();
    if (!RefuseSystemCall(__NR_epoll_ctl, ENOSPC)) _exit(77);
    char byte;
    const bool sent_away = Eventually([&] {
      std::optional<Endpoint::Message> message;
      return !server->Poll(&message).ok() || recv(client.number(), &byte, 1, MSG_DONTWAIT) == 0;
    });
    _exit(sent_away ? 0 : 1);
  };
  EXPECT_EXIT(serve(), [](int status) { return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77); }, "No space left on device|^$");
}

// Each word to it waited in a queue of the link's. When that was full, the link was closed, and the server lent anew what the client still had.
TEST(Isolation, ASuspendedClientIsKeptAndHearsWhatWasSaidLastWhenItGoesOn) {
  constexpr uint64_t kWords = 5000;
  const auto server = OfiEndpoint::Open({.pool_bytes = 8 * kMiB, .listen = "", .socket = "", .fabric = {}}, TestSecret()).value();
  std::optional<uint32_t> number;
  std::optional<Endpoint::Message> message;
  const std::unique_ptr<Rogue> client = Join(server.get(), &number);
  ASSERT_TRUE(number.has_value());
  for (uint64_t word = 1; word <= kWords; ++word) {
    server->AskBack(*number, word);
    server->TellDraining(word % 2 == 0);
  }
  ASSERT_TRUE(server->Poll(&message).ok());
  EXPECT_FALSE(server->NextDeath().has_value());
  uint64_t give_back = 0;
  bool draining = false;
  EXPECT_TRUE(Eventually([&] {
    LinkFrame frame;
    Descriptor none;
    client->link().Progress();
    while (client->link().Next(&frame, &none)) {
      if (frame.kind == LinkFrame::Kind::kGiveBack) give_back = frame.bytes;
      if (frame.kind == LinkFrame::Kind::kDraining) draining = frame.draining;
    }
    return !server->Poll(&message).ok() || client->link().is_closed() || (give_back == kWords && draining);
  }));
  EXPECT_EQ(give_back, kWords);
  EXPECT_TRUE(draining);
}

// ---- Key files ----

TEST(KeyFile, OneThatDoesNotExistIsMadeForItsOwnerAloneAndStays) {
  const std::string path = testing::TempDir() + "ramspan-key-" + std::to_string(getpid());
  const Result<Secret> made = Secret::FromFileOrNew(path), again = Secret::FromFileOrNew(path), read = Secret::FromFile(path);
  ASSERT_TRUE(made.ok() && again.ok() && read.ok());
  EXPECT_TRUE(std::equal(made.value().bytes().begin(), made.value().bytes().end(), again.value().bytes().begin()));
  EXPECT_TRUE(std::equal(made.value().bytes().begin(), made.value().bytes().end(), read.value().bytes().begin()));
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  unlink(path.c_str());
}

TEST(KeyFile, AShortSecretIsRefusedAndWhiteSpaceAtTheEndDoesNotCount) {
  const auto secret = [](const std::string& text) { return Secret::From(std::as_bytes(std::span(text))); };
  EXPECT_FALSE(secret("fifteen bytes..  \n").ok());
  const Result<Secret> one = secret("sixteen bytes .."), other = secret("sixteen bytes ..\r\n");
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_TRUE(std::equal(one.value().bytes().begin(), one.value().bytes().end(), other.value().bytes().begin()));
}

TEST(KeyFile, AnInheritedDescriptorWillDo) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_GT(write(ends[1], "a secret that came by a pipe\n", 29), 0);
  close(ends[1]);
  EXPECT_TRUE(Secret::FromFile("/dev/fd/" + std::to_string(ends[0])).ok());
  close(ends[0]);
}

// ---- Places ----

TEST(Places, AreHostsWithPortsOrPaths) {
  const Result<std::vector<SocketPlace>> places = ParseSocketPlaces("node7:7117, [fd00::1]:80,/run/ramspan.sock,@name");
  ASSERT_TRUE(places.ok());
  std::vector<std::string> texts;
  for (const SocketPlace& place : places.value()) texts.push_back(place.text());
  EXPECT_THAT(texts, testing::ElementsAre("node7:7117", "[fd00::1]:80", "/run/ramspan.sock", "@name"));
  for (const char* wrong : {"", "node7", ":7117", "node7:", "node7:65536", "node7:-1", "fd00::1:80", "a:1,,b:2", "a:1,", "/", "a b:1"}) {
    EXPECT_FALSE(ParseSocketPlaces(wrong).ok()) << wrong;
  }
}

// Each of them took the other's socket, which was not listened at yet or had come after its look, for the dead one's: both served, and one could be found by nobody.
TEST(Places, OfTwoServersThatFindADeadOnesSocketOneTakesIt) {
  std::string folder = testing::TempDir() + "ramspan-dead-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const SocketPlace place = ParseSocketPlace(folder + "/socket").value();
  const SocketAddress address = Resolve(place).value()[0];
  SocketAddress bound;
  Listen(place, &bound).value().Close();  // as if it had been killed
  // This test is the one that has looked first.
  Descriptor locked(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(flock(locked.number(), LOCK_EX), 0);
  auto other = std::async(std::launch::async, [&] { return Listen(place, &bound); });
  EXPECT_EQ(other.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout) << "it waits for its turn";
  ASSERT_EQ(unlink(place.path.c_str()), 0);
  const Descriptor ours(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ASSERT_EQ(bind(ours.number(), reinterpret_cast<const sockaddr*>(&address.storage), address.length), 0);
  ASSERT_EQ(listen(ours.number(), 1), 0);
  locked.Close();
  EXPECT_THAT(other.get().status().message(), testing::HasSubstr("another process listens there"));
  EXPECT_TRUE(StartConnect(address).ok());
  EXPECT_TRUE(Accept(ours)) << "it is found there";
  std::filesystem::remove_all(folder);
}

// It was sought for ever, without a word.
TEST(Isolation, AServerThatIsOneMoreThanAProgramCanMeetIsSaidToBeOnce) {
  OfiServers servers({.servers = 2});
  const auto transport = OfiTransport::Open({.servers = servers.places()[0].text(), .servers_max = 1}, TestSecret()).value();
  const Descriptor said(memfd_create("said", MFD_CLOEXEC)), standard_error(dup(STDERR_FILENO));
  ASSERT_GE(dup2(said.number(), STDERR_FILENO), 0);
  const auto text = [&] {
    std::string all(4096, 0);
    all.resize(static_cast<size_t>(std::max<ssize_t>(pread(said.number(), all.data(), all.size(), 0), 0)));
    return all;
  };
  EXPECT_TRUE(transport->UseServers(servers.names()).ok());
  EXPECT_TRUE(Eventually([&] { return text().find("can meet no more") != std::string::npos; }));
  dup2(standard_error.number(), STDERR_FILENO);
  EXPECT_THAT(text(), testing::HasSubstr("memory server " + servers.places()[1].text() + ": this program has met 1 memory servers"));
  EXPECT_EQ(transport->servers(), 1u);
}

// It was left for good: who connected by the new name found that it was there, and nobody took back that it was to be left.
TEST(Isolation, AServerThatIsNamedByAnotherOfItsNamesIsNotLeft) {
  OfiServers servers({.servers = 3});
  const std::vector<SocketPlace> places = servers.places();
  char other_name[32];
  std::snprintf(other_name, sizeof other_name, "@ramspan-%016llx", static_cast<unsigned long long>(servers.endpoint(0).instance()));
  OfiOptions options{.servers = places[0].text()};
  const auto transport = OfiTransport::Open(options, TestSecret()).value();
  bool was_left = false;
  const auto meets = [&](const std::string& names, uint32_t count) {
    ASSERT_TRUE(transport->UseServers(names).ok());
    EXPECT_TRUE(Eventually([&] {
      was_left = was_left || transport->state(0) != ServerTransport::ServerState::kAlive;
      return transport->servers() == count;
    }));
  };
  meets(other_name + ("," + places[1].text()), 2);
  meets(other_name + ("," + places[1].text() + "," + places[2].text()), 3);
  EXPECT_FALSE(was_left);
}

// Where this process listens for TCP connections: "127.0.0.1" and so on.
std::set<std::string> ListensAt() {
  std::set<std::string> inodes, hosts;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    const std::string what = std::filesystem::read_symlink(file, closed).string();
    if (what.rfind("socket:[", 0) == 0) inodes.insert(what.substr(8, what.size() - 9));
  }
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line, skip, local, state, inode;
    for (std::getline(lines, line); std::getline(lines, line);) {
      std::istringstream words(line);
      words >> skip >> local >> skip >> state;
      for (int i = 0; i < 5; ++i) words >> skip;
      words >> inode;
      if (state != "0A" || !inodes.contains(inode)) continue;
      const std::string host = local.substr(0, local.find(':'));
      hosts.insert(host.size() == 8 ? std::to_string(std::stoul(host.substr(6, 2), nullptr, 16)) + "." + std::to_string(std::stoul(host.substr(4, 2), nullptr, 16)) + "." +
                                          std::to_string(std::stoul(host.substr(2, 2), nullptr, 16)) + "." + std::to_string(std::stoul(host.substr(0, 2), nullptr, 16))
                                    : host);
    }
  }
  return hosts;
}

// The links' sockets, and those of libfabric, of which each endpoint has one: the client's is where its packets to the server begin.
TEST(Isolation, ServersListenWhereTheyWereToldToAndClientsWhereTheyReachThem) {
  OfiServers servers({.listen = "127.0.0.2:0"});
  EXPECT_THAT(ListensAt(), testing::ElementsAre("127.0.0.2"));
  auto transport = OfiTransport::Open({.servers = servers.names(), .near = false}, TestSecret()).value();
  transport->Send(0, {.type = WireType::kLeaseRequest, .sequence = 1, .bytes = kMiB, .minimum_bytes = kMiB});
  std::optional<ServerTransport::Control> answer;
  ASSERT_TRUE(Eventually([&] { return (answer = transport->Receive()).has_value(); }));
  std::vector<std::byte> bytes(4096);
  const ServerTransport::Transfer transfer{.is_write = true, .buffer = bytes.data(), .offset = Decode(answer->record).value().offset, .bytes = bytes.size(), .cookie = &bytes};
  transport->Start({&transfer, 1});
  std::vector<ServerTransport::Completion> done;
  ASSERT_TRUE(Eventually([&] {
    transport->Collect(&done);
    return !done.empty();
  }));
  EXPECT_EQ(done[0].result, StatusCode::kOk);
  std::set<std::string> hosts = ListensAt();
  hosts.erase("127.0.0.2");
  EXPECT_THAT(hosts, testing::AnyOf(testing::ElementsAre("127.0.0.1"), testing::IsEmpty())) << "nowhere else";
}

}  // namespace
}  // namespace ramspan
