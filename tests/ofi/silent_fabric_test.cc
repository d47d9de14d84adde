// Memory servers that fall silent. One answers on its link, but moves nothing: the fabric behind the address that it tells is never polled, and
// only the watch over what is in flight can tell. Another one takes nothing from its link.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <new>
#include <thread>

#include "client/transport/ofi_transport.h"
#include "tests/support/eventually.h"
#include "tests/support/heap_watch.h"
#include "tests/support/ofi_servers.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

class DeafServer {
 public:
  DeafServer() : fabric_(FabricEndpoint::Open(FabricDomain::OpenAt("127.0.0.1", {}).value()).value()) {
    SocketAddress bound;
    listener_ = Listen(ParseSocketPlace("127.0.0.1:0").value(), &bound).value();
    place_ = "127.0.0.1:" + std::to_string(bound.port());
    thread_ = std::thread([this] { Serve(); });
  }
  ~DeafServer() {
    ends_ = true;
    thread_.join();
  }
  const std::string& place() const { return place_; }

 private:
  void Serve() {
    while (!ends_) {
      Descriptor socket = Accept(listener_);
      if (!socket) {
        std::this_thread::yield();
        continue;
      }
      Link link(std::move(socket), Handshake::Role::kServer, TestSecret());
      for (bool greeted = false; !ends_ && !link.is_closed(); std::this_thread::yield()) {
        link.Progress();
        if (link.is_trusted() && !greeted) {
          greeted = link.Send({.kind = LinkFrame::Kind::kIntroduction, .introduction = {.instance = 5, .capacity_bytes = 32 * kMiB, .fabric = fabric_->address(), .label = "deaf"}});
        }
        LinkFrame frame;
        Descriptor none;
        while (link.Next(&frame, &none)) Answer(&link, frame);
      }
    }
  }
  static void Answer(Link* link, const LinkFrame& frame) {
    if (frame.kind == LinkFrame::Kind::kPing) link->Send({.kind = LinkFrame::Kind::kPong});
    if (frame.kind != LinkFrame::Kind::kRecord) return;
    const WireMessage request = Decode(frame.record).value();
    if (request.type != WireType::kLeaseRequest) return;
    const WireMessage grant{.type = WireType::kLeaseGrant, .sequence = request.sequence, .lease = 1, .offset = 0, .bytes = kMiB};
    link->Send({.kind = LinkFrame::Kind::kGrant, .record = Encode(grant), .access = {.key = 1, .address = 0}});
  }

  std::unique_ptr<FabricEndpoint> fabric_;
  Descriptor listener_;
  std::string place_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

TEST(SilentFabric, AServerThatAnswersButMovesNothingIsGivenUp) {
  DeafServer server;
  auto transport = OfiTransport::Open({.servers = server.place(), .near = false, .silence_max = std::chrono::milliseconds(1500)}, TestSecret()).value();
  transport->Send(0, {.type = WireType::kLeaseRequest, .sequence = 1, .bytes = kMiB, .minimum_bytes = kMiB});
  ASSERT_TRUE(Eventually([&] { return transport->Receive().has_value(); }));
  std::vector<std::byte> bytes(4096);
  int cookie = 0;
  const ServerTransport::Transfer transfer{.server = 0, .is_write = true, .buffer = bytes.data(), .offset = 0, .bytes = bytes.size(), .cookie = &cookie};
  testing::internal::CaptureStderr();
  transport->Start({&transfer, 1});
  std::vector<ServerTransport::Completion> done;
  EXPECT_TRUE(Eventually([&] {
    transport->Collect(&done);
    return !done.empty();
  }));
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].result, StatusCode::kUnavailable);
  EXPECT_EQ(transport->state(0), ServerTransport::ServerState::kDead);
  EXPECT_NE(said.find("it has moved nothing for 1 s"), std::string::npos) << said;
}

// Of this host. Greets one client, and takes nothing after that.
class MuteServer {
 public:
  MuteServer() {
    SocketAddress bound;
    listener_ = Listen(ParseSocketPlace(place_).value(), &bound).value();
    thread_ = std::thread([this] { Greet(); });
  }
  ~MuteServer() {
    ends_ = true;
    thread_.join();
  }
  const std::string& place() const { return place_; }

 private:
  void Greet() {
    Descriptor socket;
    while (!ends_ && !(socket = Accept(listener_))) std::this_thread::yield();
    if (!socket) return;
    link_ = std::make_unique<Link>(std::move(socket), Handshake::Role::kServer, TestSecret());
    for (; !ends_ && !link_->is_closed() && !link_->is_trusted(); std::this_thread::yield()) link_->Progress();
    link_->Send({.kind = LinkFrame::Kind::kIntroduction, .introduction = {.instance = 5, .capacity_bytes = 32 * kMiB, .near = true, .label = "mute"}});
  }

  const std::string place_ = "@ramspan-mute-test-" + std::to_string(getpid());
  Descriptor listener_;
  std::unique_ptr<Link> link_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// The link is ended by a Send, and the peer's socket stays as it is: the thread of the links hears of that from nobody else. (A peer that
// hangs up wakes that thread, which then nearly always comes before the Send.)
TEST(SilentServer, ADeathThatASendNoticesIsSeenAtOnce) {
  MuteServer server;
  auto transport = OfiTransport::Open({.servers = server.place(), .silence_max = std::chrono::hours(1)}, TestSecret()).value();
  testing::internal::CaptureStderr();
  constexpr int kMoreThanAreKept = 20'000;  // what a socket takes, and 256 frames more
  for (int i = 0; i < kMoreThanAreKept; ++i) transport->Send(0, {.type = WireType::kActivity});
  EXPECT_TRUE(Eventually([&] { return transport->state(0) == ServerTransport::ServerState::kDead; }));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("it does not take what is sent to it"), std::string::npos) << said;
}

// The bye needed a place to wait in: std::bad_alloc in a destructor ends the program.
TEST(SilentServer, IsLeftWithoutHeap) {
  MuteServer server;
  auto transport = OfiTransport::Open({.servers = server.place(), .silence_max = std::chrono::hours(1)}, TestSecret()).value();
  for (bool full = false; !full;) {
    const EndingHeap none(0);
    try {
      transport->Send(0, {.type = WireType::kActivity});
    } catch (const std::bad_alloc&) {
      full = true;
    }
  }
  const EndingHeap none(0);
  transport.reset();
}

}  // namespace
}  // namespace ramspan
