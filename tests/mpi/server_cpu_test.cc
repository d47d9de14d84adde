// What memory servers use of their cores, while clients transfer now and then and while they do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "client/swap/remote_swap.h"
#include "client/transport/mpi_entry.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Of the first server's own thread since it began: seconds on a core, and seconds ready to run without one.
struct Times {
  double run = 0, queued = 0;
};
Times OfServer() {
  const std::string pid = std::to_string(EnsureJoined().value()->servers()[0].pid);
  Times nanoseconds;
  std::ifstream("/proc/" + pid + "/task/" + pid + "/schedstat") >> nanoseconds.run >> nanoseconds.queued;
  return {nanoseconds.run * 1e-9, nanoseconds.queued * 1e-9};
}

// The share of a core that the server uses meanwhile, of the time for which it could have one. So it is 1 for a server that
// spins, however busy the machine is.
template <typename Work>
double ShareDuring(Work&& work) {
  const Times before = OfServer();
  const auto begin = Clock::now();
  work();
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  const Times after = OfServer();
  EXPECT_GT(after.run, before.run) << "the server's times cannot be read";
  return (after.run - before.run) / (elapsed - (after.queued - before.queued));
}

// The smallest of a few such shares, the first that is below `enough`. A server that does too much does so each time; what a busy or
// slow machine adds, it adds now and then.
template <typename Work>
double SmallestShare(double enough, Work&& work) {
  double smallest = 1;
  for (int i = 0; i < 6 && smallest >= enough; ++i) smallest = std::min(smallest, ShareDuring(work));
  return smallest;
}

class OneChunk {
 public:
  explicit OneChunk(RemoteSwap* tier) : tier_(tier), slot_(tier->Reserve(kBytes).value()), buffer_(kBytes) {}
  ~OneChunk() { tier_->Free(slot_, kBytes); }

  // To the server and back.
  void Travel(char letter) {
    std::memset(buffer_.data(), letter, kBytes);
    Move(true);
    std::memset(buffer_.data(), ' ', kBytes);
    Move(false);
    EXPECT_EQ(buffer_, std::vector<char>(kBytes, letter));
  }

 private:
  static constexpr size_t kBytes = 64 << 10;

  void Move(bool write) {
    IoRequest request{.slot = slot_, .buffer = buffer_.data(), .bytes = kBytes};
    IoRequest* one = &request;
    write ? tier_->SubmitWrite({&one, 1}) : tier_->SubmitRead({&one, 1});
    IoRequest* done = nullptr;
    while (tier_->Poll({&done, 1}, milliseconds(10)) == 0) {
    }
    EXPECT_EQ(request.result, StatusCode::kOk);
  }

  RemoteSwap* const tier_;
  const SlotRef slot_;
  std::vector<char> buffer_;
};

// It took all of a core while a client made one transfer in 20 ms, so it was behind others when the next one came.
TEST(ServerCpu, WaitsBetweenTransfersInsteadOfSpinning) {
  RemoteSwap tier(*JobTransport().value());
  OneChunk chunk(&tier);
  for (int i = 0; i < 5; ++i) chunk.Travel('a');  // connections are made
  const double share = SmallestShare(0.5, [&] {
    for (int i = 0; i < 25; ++i) {
      chunk.Travel(static_cast<char>('a' + i % 26));
      std::this_thread::sleep_for(milliseconds(10));  // less than the 25 ms for which the server believes in more
    }
  });
  EXPECT_LT(share, 0.5);
  RecordProperty("share", std::to_string(share));
}

TEST(ServerCpu, IsHardlyUsedWithoutTransfers) {
  RemoteSwap tier(*JobTransport().value());
  OneChunk(&tier).Travel('a');
  std::this_thread::sleep_for(milliseconds(300));
  const double share = SmallestShare(0.05, [] { std::this_thread::sleep_for(milliseconds(500)); });
  EXPECT_LT(share, 0.05);  // 0.01 at most on a machine with cold caches and nothing else to do
  RecordProperty("share", std::to_string(share));
}

}  // namespace
}  // namespace ramspan
