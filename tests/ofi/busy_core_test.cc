// A core that client, server and others share: who waits for the network must sleep, or each message comes as late as the slices of all
// who spin.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "client/swap/remote_swap.h"
#include "client/transport/ofi_transport.h"
#include "tests/support/ofi_servers.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// This thread and those that it starts run on one core until the end.
class OnOneCore {
 public:
  OnOneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = CPU_SETSIZE - 1; core >= 0; --core) {
      if (!CPU_ISSET(core, &before_)) continue;
      CPU_SET(core, &one);
      break;
    }
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OnOneCore() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

class Spinners {
 public:
  explicit Spinners(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] {
        while (!end_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~Spinners() {
    end_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> end_{false};
  std::vector<std::thread> threads_;
};

// Each of the two waits for the other some times in a transfer. Spinning, each of these waits took the slices of the two that compute: 3 ms or more.
TEST(BusyCore, AMissDoesNotWaitForTheSlicesOfThoseThatCompute) {
  constexpr size_t kBytes = size_t{64} << 10;
  const OnOneCore on_one_core;
  const OfiServers servers({});
  const auto transport = OfiTransport::Open({.servers = servers.names(), .fabric = {}, .near = false}, TestSecret()).value();
  RemoteSwap tier(*transport);
  const SlotRef slot = tier.Reserve(kBytes).value();
  std::vector<char> buffer(kBytes, 'a');
  const auto move = [&](bool write) {
    IoRequest request{.slot = slot, .buffer = buffer.data(), .bytes = kBytes};
    IoRequest* one = &request;
    const auto begin = Clock::now();
    write ? tier.SubmitWrite({&one, 1}) : tier.SubmitRead({&one, 1});
    while (tier.Poll({&one, 1}, milliseconds(10)) == 0) {
    }
    EXPECT_EQ(request.result, StatusCode::kOk);
    return Clock::now() - begin;
  };
  move(true);
  std::vector<Clock::duration> reads;
  {
    const Spinners spinners(2);
    // The first ones find out how it is here.
    for (const auto until = Clock::now() + milliseconds(400); Clock::now() < until;) move(false);
    for (int i = 0; i < 60; ++i) reads.push_back(move(false));
  }
  std::nth_element(reads.begin(), reads.begin() + 30, reads.end());
  EXPECT_LT(reads[30], milliseconds(2)) << std::chrono::duration<double, std::micro>(reads[30]).count() << " us";
  EXPECT_EQ(buffer, std::vector<char>(kBytes, 'a'));
  tier.Free(slot, kBytes);
}

}  // namespace
}  // namespace ramspan
