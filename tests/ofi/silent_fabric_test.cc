// Memory servers that fall silent, and those that only seem to. One answers on its link, but moves nothing: the fabric behind the address that it
// tells is never polled, and only the watch over what is in flight can tell. Others are behind a slow wire, or nobody looks what they have
// moved. Another one takes nothing from its link.
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <thread>

#include "client/transport/ofi_transport.h"
#include "tests/support/eventually.h"
#include "tests/support/heap_watch.h"
#include "tests/support/ofi_servers.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

std::unique_ptr<FabricEndpoint> OpenFabric() { return FabricEndpoint::Open(FabricDomain::OpenAt("127.0.0.1", {}).value()).value(); }

// Answers on its link, and leaves the fabric to the test.
class PlayedServer {
 public:
  PlayedServer(const FabricAddress& fabric, const LeaseAccess& access) : fabric_(fabric), access_(access) {
    SocketAddress bound;
    listener_ = Listen(ParseSocketPlace("127.0.0.1:0").value(), &bound).value();
    place_ = "127.0.0.1:" + std::to_string(bound.port());
    thread_ = std::thread([this] { Serve(); });
  }
  ~PlayedServer() {
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
      for (bool greeted = false; !ends_ && !link.is_closed(); std::this_thread::sleep_for(std::chrono::microseconds(100))) {
        link.Progress();
        if (link.is_trusted() && !greeted) {
          greeted = link.Send({.kind = LinkFrame::Kind::kIntroduction, .introduction = {.instance = 5, .capacity_bytes = 32 * kMiB, .fabric = fabric_, .label = "played"}});
        }
        LinkFrame frame;
        Descriptor none;
        while (link.Next(&frame, &none)) Answer(&link, frame);
      }
    }
  }
  void Answer(Link* link, const LinkFrame& frame) const {
    if (frame.kind == LinkFrame::Kind::kPing) link->Send({.kind = LinkFrame::Kind::kPong});
    if (frame.kind != LinkFrame::Kind::kRecord) return;
    const WireMessage request = Decode(frame.record).value();
    if (request.type != WireType::kLeaseRequest) return;
    const WireMessage grant{.type = WireType::kLeaseGrant, .sequence = request.sequence, .lease = 1, .offset = 0, .bytes = request.bytes};
    link->Send({.kind = LinkFrame::Kind::kGrant, .record = Encode(grant), .access = access_});
  }

  const FabricAddress fabric_;
  const LeaseAccess access_;
  Descriptor listener_;
  std::string place_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

std::unique_ptr<OfiTransport> OpenImpatient(const std::string& names) {
  return OfiTransport::Open({.servers = names, .near = false, .silence_max = std::chrono::milliseconds(1500)}, TestSecret()).value();
}

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// One write of a whole lease.
class OneWrite {
 public:
  OneWrite(OfiTransport& transport, size_t bytes) : transport_(transport), bytes_(bytes) {
    transport.Send(0, {.type = WireType::kLeaseRequest, .sequence = 1, .bytes = bytes, .minimum_bytes = bytes});
    std::optional<ServerTransport::Control> answer;
    const bool answered = Eventually([&] { return (answer = transport.Receive()).has_value(); });
    const WireMessage grant = answered ? Decode(answer->record).value() : WireMessage{};
    RS_CHECK(grant.type == WireType::kLeaseGrant, "no lease of %zu bytes", bytes);
    const ServerTransport::Transfer transfer{.server = 0, .is_write = true, .buffer = bytes_.data(), .offset = grant.offset, .bytes = bytes, .cookie = this};
    transport.Start({&transfer, 1});
  }
  StatusCode Await() {
    std::vector<ServerTransport::Completion> done;
    const bool ended = Eventually([&] {
      transport_.Collect(&done);
      return !done.empty();
    });
    RS_CHECK(ended, "a write of %zu bytes does not end", bytes_.size());
    return done[0].result;
  }

 private:
  OfiTransport& transport_;
  std::vector<std::byte> bytes_;
};

TEST(SilentFabric, AServerThatAnswersButMovesNothingIsGivenUp) {
  const std::unique_ptr<FabricEndpoint> fabric = OpenFabric();
  const PlayedServer server(fabric->address(), {.key = 1});
  const auto transport = OpenImpatient(server.place());
  testing::internal::CaptureStderr();
  EXPECT_EQ(OneWrite(*transport, 64 * kKiB).Await(), StatusCode::kUnavailable);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(transport->state(0), ServerTransport::ServerState::kDead);
  EXPECT_NE(said.find("it has moved nothing for 1 s"), std::string::npos) << said;
}

// Nobody was given up any more once the process had begun to end: a static managedPtr's destructor waited for ever.
TEST(SilentFabric, AServerThatMovesNothingIsGivenUpAtTheEndOfTheProcessToo) {
  const std::unique_ptr<FabricEndpoint> fabric = OpenFabric();
  const PlayedServer server(fabric->address(), {.key = 1});
  const auto transport = OpenImpatient(server.place());
  transport->EndMeetings();
  EXPECT_EQ(OneWrite(*transport, 64 * kKiB).Await(), StatusCode::kUnavailable);
  OfiServers others({.pool_bytes = 64 * kMiB});
  const auto to_others = OpenImpatient(others.names());
  to_others->EndMeetings();
  OneWrite write(*to_others, 8 * kMiB);
  std::this_thread::sleep_for(std::chrono::milliseconds(3000));
  EXPECT_EQ(to_others->state(0), ServerTransport::ServerState::kAlive) << "nobody has collected";
  EXPECT_EQ(write.Await(), StatusCode::kOk);
}

// Only who collected saw what had moved: a program that computed for longer than that lost the server, and all that was there.
TEST(SilentFabric, TransfersThatNobodyCollectsAreNotSilent) {
  OfiServers servers({.pool_bytes = 64 * kMiB});
  const auto transport = OpenImpatient(servers.names());
  OneWrite write(*transport, 8 * kMiB);
  std::this_thread::sleep_for(std::chrono::milliseconds(3000));
  EXPECT_EQ(transport->state(0), ServerTransport::ServerState::kAlive);
  EXPECT_EQ(write.Await(), StatusCode::kOk);
}

// To the fabric of a server, for one client, whose bytes arrive no faster than this.
class SlowWire {
 public:
  SlowWire(const FabricAddress& to, int64_t bytes_per_ms) : to_(to), bytes_per_ms_(bytes_per_ms) {
    listener_ = Listen(ParseSocketPlace("127.0.0.1:0").value(), &bound_).value();
    thread_ = std::thread([this] { Forward(); });
  }
  ~SlowWire() {
    ends_ = true;
    thread_.join();
  }
  FabricAddress address() const {
    FabricAddress here = to_;
    std::memcpy(here.bytes.data(), &bound_.storage, here.bytes.size());
    return here;
  }

 private:
  void Forward() {
    Descriptor client;
    while (!ends_ && !(client = Accept(listener_))) std::this_thread::yield();
    if (ends_) return;
    SocketAddress there;
    there.length = static_cast<socklen_t>(to_.bytes.size());
    std::memcpy(&there.storage, to_.bytes.data(), to_.bytes.size());
    const Descriptor server = StartConnect(there).value();
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t sent = 0; !ends_; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count();
      while (const int64_t copied = Copy(client, server, since * bytes_per_ms_ - sent)) sent += copied;
      while (Copy(server, client, kMiB) > 0) {}
    }
  }
  // Bytes; 0: there are none now.
  int64_t Copy(const Descriptor& from, const Descriptor& to, int64_t bytes_max) {
    const ssize_t n = recv(from.number(), buffer_.data(), static_cast<size_t>(std::min<int64_t>(bytes_max, std::ssize(buffer_))), MSG_DONTWAIT);
    for (ssize_t sent = 0; sent < n && !ends_;) {
      const ssize_t one = send(to.number(), buffer_.data() + sent, static_cast<size_t>(n - sent), MSG_NOSIGNAL);
      if (one > 0) sent += one;
      else if (errno != EAGAIN) return 0;
      else std::this_thread::yield();
    }
    return std::max<ssize_t>(0, n);
  }

  const FabricAddress to_;
  const int64_t bytes_per_ms_;
  SocketAddress bound_;
  Descriptor listener_;
  std::array<std::byte, 64 * kKiB> buffer_{};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// A part of a transfer was 64 MiB long, and its end the only progress that was seen: where clients shared a wire that was too slow for it, all of them
// gave up the server in the same moment.
TEST(SilentFabric, AWireOnWhichATransferTakesLongIsNotSilent) {
  constexpr size_t kBytes = 16 * kMiB;
  constexpr int64_t kBytesPerMs = 4'000;  // 4.2 s
  const std::unique_ptr<FabricEndpoint> fabric = OpenFabric();
  std::vector<std::byte> memory(kBytes);
  const FabricRegion region = FabricRegion::ForPeer(*fabric, memory).value();
  std::atomic<bool> ends{false};
  std::thread serves([&] {
    std::array<FabricCompletion, 16> none;
    for (bool broken = false; !ends; std::this_thread::sleep_for(std::chrono::milliseconds(1))) fabric->Poll(none, &broken);
  });
  StatusCode result = StatusCode::kOk;
  double waited = 0;
  {
    const SlowWire wire(fabric->address(), kBytesPerMs);
    const PlayedServer server(wire.address(), {.key = region.key(), .address = region.address()});
    const auto transport = OpenImpatient(server.place());
    OneWrite write(*transport, kBytes);
    const double begin = ThreadSeconds();
    result = write.Await();
    waited = ThreadSeconds() - begin;
  }
  ends = true;
  serves.join();
  EXPECT_EQ(result, StatusCode::kOk);
  EXPECT_LT(waited, 1.0) << "s of CPU time for 4 s of waiting: with nothing to do, it slept";
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
