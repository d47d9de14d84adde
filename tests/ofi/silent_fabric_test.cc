// A memory server that answers on its link, but moves nothing: the fabric behind the address that it tells is never polled. Only the
// watch over what is in flight can tell.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "client/transport/ofi_transport.h"
#include "tests/support/eventually.h"
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

}  // namespace
}  // namespace ramspan
