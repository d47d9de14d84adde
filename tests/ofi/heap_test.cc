// The threads of the OFI transport find no heap: what leaves a thread's function ends the program. And links, on which nothing may be
// lost half way.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "client/transport/ofi_transport.h"
#include "common/descriptor.h"
#include "common/link.h"
#include "common/socket_address.h"
#include "tests/support/eventually.h"
#include "tests/support/heap_watch.h"
#include "tests/support/ofi_servers.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

class ThreadsWithoutHeap : public testing::TestWithParam<bool> {};

// Meanwhile a server has answered, another one has died, and a third one is named: each is heard of as soon as there is heap again.
TEST_P(ThreadsWithoutHeap, DoAllLater) {
  OfiServers servers({.servers = 3});
  const std::vector<SocketPlace> places = servers.places();
  const auto transport = OfiTransport::Open({.servers = places[0].text() + "," + places[1].text(), .fabric = {}, .near = GetParam()}, TestSecret()).value();
  ASSERT_EQ(transport->servers(), 2u);
  {
    const HeaplessThreads none("ramspan-");
    const auto refused = [](const char* thread) { return HeaplessThreads::refused(thread); };
    const uint64_t links = refused("ramspan-links"), seek = refused("ramspan-seek");
    transport->Send(0, {.type = WireType::kLeaseRequest, .sequence = 1, .bytes = kMiB, .minimum_bytes = kMiB});
    ASSERT_TRUE(Eventually([&] { return servers.leased_bytes(0) == kMiB; }));
    servers.Kill(1);
    ASSERT_TRUE(transport->UseServers(places[0].text() + "," + places[2].text()).ok());
    EXPECT_TRUE(Eventually([&] { return refused("ramspan-links") > links + 1 && refused("ramspan-seek") > seek + 1; }));
    EXPECT_EQ(transport->servers(), 2u) << "then this test shows nothing";
  }
  std::optional<ServerTransport::Control> answer;
  EXPECT_TRUE(Eventually([&] { return (answer = transport->Receive()).has_value(); })) << "a grant that was lost";
  EXPECT_EQ(Decode(answer->record).value().type, WireType::kLeaseGrant);
  EXPECT_TRUE(Eventually([&] { return transport->state(1) == ServerTransport::ServerState::kDead; }));
  EXPECT_TRUE(Eventually([&] { return transport->servers() == 3; }));
  EXPECT_EQ(transport->state(0), ServerTransport::ServerState::kAlive);
  EXPECT_EQ(transport->state(2), ServerTransport::ServerState::kAlive);
}

INSTANTIATE_TEST_SUITE_P(Paths, ThreadsWithoutHeap, testing::Values(true, false), [](const auto& info) { return std::string(info.param ? "Near" : "Far"); });

// Of a dead server's connection, by a destructor. Numeric addresses of more than 15 characters were compared as strings.
TEST(HangUpWithoutHeap, EndsTheConnection) {
  const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), client(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in here{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof here;
  ASSERT_EQ(bind(listener.number(), reinterpret_cast<sockaddr*>(&here), length), 0);
  ASSERT_EQ(listen(listener.number(), 1), 0);
  ASSERT_EQ(getsockname(listener.number(), reinterpret_cast<sockaddr*>(&here), &length), 0);
  sockaddr_in6 mapped{.sin6_family = AF_INET6, .sin6_port = here.sin_port};
  ASSERT_EQ(inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr), 1);
  if (!client || connect(client.number(), reinterpret_cast<const sockaddr*>(&mapped), sizeof mapped) != 0) GTEST_SKIP() << "no IPv6 here";
  SocketAddress peer;
  peer.length = sizeof peer.storage;
  ASSERT_EQ(getpeername(client.number(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.length), 0);
  const auto hang_up = [&] {
    const EndingHeap none(0);
    return HangUp(peer);
  };
  EXPECT_TRUE(hang_up());
  char byte = 0;
  EXPECT_EQ(recv(client.number(), &byte, 1, 0), 0);
}

// What a far server has lent, or nothing where it did not answer.
std::optional<WireMessage> Lease(ServerTransport& transport) {
  transport.Send(0, {.type = WireType::kLeaseRequest, .sequence = 1, .bytes = kMiB, .minimum_bytes = kMiB});
  std::optional<ServerTransport::Control> answer;
  if (!Eventually([&] { return (answer = transport.Receive()).has_value(); })) return std::nullopt;
  return Decode(answer->record).value();
}

// A server's first transfers open sockets, which are to be closed in programs that this one starts; finding them takes heap. std::bad_alloc
// came from there after the network had the transfer: nothing was ever posted again, and nothing under way ever ended.
TEST(LaneWithoutHeap, WhatTheNetworkHasTakenEndsAndTheServerStays) {
  OfiServers servers({.servers = 1});
  constexpr int kGivenMax = 300;  // allocations of a first transfer
  int given = 0, begun = 0;
  std::vector<ServerTransport::Completion> done;
  done.reserve(16);
  for (bool refused = true; refused && given < kGivenMax; ++given) {
    SCOPED_TRACE(std::to_string(given) + " allocations are granted");
    const auto transport = OfiTransport::Open({.servers = servers.places()[0].text(), .fabric = {}, .near = false}, TestSecret()).value();
    const std::optional<WireMessage> lease = Lease(*transport);
    ASSERT_TRUE(lease.has_value());
    std::vector<char> bytes(4096, 'x');
    char cookie = 0;
    const ServerTransport::Transfer write{.server = 0, .is_write = true, .buffer = bytes.data(), .offset = lease->offset, .bytes = bytes.size(), .cookie = &cookie};
    const auto collect = [&] { return WithinHeap([&] { return transport->Collect(&done), true; }, false); };
    done.clear();
    bool started = false;
    {
      const EndingHeap ending(given);
      started = WithinHeap([&] { return transport->Start({&write, 1}), true; }, false);
      for (int i = 0; i < 1000 && started && done.empty(); ++i) collect();  // until it is connected, mostly
      refused = EndingHeap::refused();
    }
    begun += started && refused;
    if (!started) {
      EXPECT_TRUE(done.empty()) << "what was not begun has ended";
      transport->Start({&write, 1});
    }
    ASSERT_TRUE(Eventually([&] { return collect(), !done.empty(); })) << (started ? "it was begun" : "it is begun again");
    EXPECT_EQ(done[0].result, StatusCode::kOk);
    EXPECT_EQ(transport->state(0), ServerTransport::ServerState::kAlive);
  }
  EXPECT_LT(given, kGivenMax);
  EXPECT_GT(begun, 2) << "then this test shows nothing";
}

}  // namespace
}  // namespace ramspan
