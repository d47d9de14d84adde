// A memory server with several progress threads: each client is one thread's, and needs no other to move its bytes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "client/swap/remote_swap.h"
#include "client/transport/ofi_transport.h"
#include "memserver/fabric_threads.h"
#include "tests/support/ofi_servers.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kBytes = size_t{64} << 10;

// A client with one chunk on the server.
class Client {
 public:
  explicit Client(const OfiServers& servers)
      : transport_(OfiTransport::Open({.servers = servers.names(), .fabric = {}, .near = false}, TestSecret()).value()),
        tier_(std::make_unique<RemoteSwap>(*transport_)), slot_(tier_->Reserve(kBytes).value()), buffer_(kBytes) {}
  ~Client() { tier_->Free(slot_, kBytes); }

  // To the server and back. False: not within the time.
  bool Travel(char letter, milliseconds patience = seconds(30)) {
    std::memset(buffer_.data(), letter, kBytes);
    if (!Move(true, patience)) return false;
    std::memset(buffer_.data(), ' ', kBytes);
    return Move(false, patience) && buffer_ == std::vector<char>(kBytes, letter);
  }
  // Waits for what a Travel has left behind.
  void Finish() {
    while (under_way_ && Poll(seconds(1))) {
    }
  }

 private:
  bool Move(bool write, milliseconds patience) {
    request_ = {.slot = slot_, .buffer = buffer_.data(), .bytes = kBytes};
    IoRequest* one = &request_;
    under_way_ = true;
    write ? tier_->SubmitWrite({&one, 1}) : tier_->SubmitRead({&one, 1});
    const auto end = std::chrono::steady_clock::now() + patience;
    while (under_way_ && std::chrono::steady_clock::now() < end) Poll(milliseconds(10));
    return !under_way_ && request_.result == StatusCode::kOk;
  }
  bool Poll(milliseconds wait) {
    IoRequest* done = nullptr;
    if (tier_->Poll({&done, 1}, wait) == 1) under_way_ = false;
    return true;
  }

  std::unique_ptr<OfiTransport> transport_;
  std::unique_ptr<RemoteSwap> tier_;
  const SlotRef slot_;
  std::vector<char> buffer_;
  IoRequest request_;
  bool under_way_ = false;
};

TEST(ServerThreads, AClientOfTheSecondThreadGoesOnWhileTheLoopStandsStill) {
  OfiServers servers({.threads = 2});
  Client first(servers), second(servers);
  EXPECT_TRUE(first.Travel('a') && second.Travel('b'));
  servers.Freeze(0, true);
  EXPECT_TRUE(second.Travel('c'));
  EXPECT_FALSE(first.Travel('d', milliseconds(300))) << "then this test shows nothing";
  servers.Freeze(0, false);
  first.Finish();
  EXPECT_TRUE(first.Travel('e') && second.Travel('f'));
}

TEST(ServerThreads, ManyClientsAtOnceMoveTheRightBytes) {
  OfiServers servers({.pool_bytes = 128 * kMiB, .threads = 3});
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&servers, &right, i] {
      Client client(servers);
      bool all = true;
      for (int turn = 0; turn < 20; ++turn) all = client.Travel(static_cast<char>('a' + (turn + i) % 26)) && all;
      right += all ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
}

TEST(ServerThreads, ClientsAreSpreadAndTheirPlacesUsedAgain) {
  const auto fabrics = FabricThreads::Open("127.0.0.1", {}, 3).value();
  EXPECT_EQ(fabrics->Join(), 0u);
  EXPECT_EQ(fabrics->Join(), 1u);
  EXPECT_EQ(fabrics->Join(), 2u);
  fabrics->Leave(1);
  EXPECT_EQ(fabrics->Join(), 1u);
  EXPECT_EQ(fabrics->Join(), 0u);
  EXPECT_NE(fabrics->endpoint(0).address(), fabrics->endpoint(1).address());
}

}  // namespace
}  // namespace ramspan
