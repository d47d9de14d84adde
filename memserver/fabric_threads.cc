#include "memserver/fabric_threads.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <system_error>

#include "common/limit_of_threads.h"
#include "common/own_thread.h"

namespace ramspan {
namespace {

// As the server's loop does (server_loop.cc): waking up costs a transfer 30 us and more, and a program computes between its transfers.
constexpr std::chrono::microseconds kSpinAfterArrival{1000};
// A look at the descriptor is a system call; transfers need many polls and no look.
constexpr unsigned kPollsPerLookAtWakes = 16;
constexpr int kWaitMs = 100, kBlindWaitMs = 1;

}  // namespace

Result<std::unique_ptr<FabricThreads>> FabricThreads::Open(const std::string& host, const FabricOptions& options, int threads) {
  auto all = std::unique_ptr<FabricThreads>(new FabricThreads);
  all->wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  for (int i = 0; i < threads; ++i) {
    auto lane = std::make_unique<Lane>();
    Result<std::shared_ptr<FabricDomain>> domain = FabricDomain::OpenAt(host, options);
    if (!domain.ok()) return domain.status();
    lane->domain = std::move(domain).value();
    Result<std::unique_ptr<FabricEndpoint>> endpoint = FabricEndpoint::Open(lane->domain);
    if (!endpoint.ok()) return endpoint.status();
    lane->endpoint = std::move(endpoint).value();
    if (i > 0) {
      try {
        lane->thread = StartOwnThread([raw = all.get(), served = lane->endpoint.get()] { raw->Run(served); });
      } catch (const std::system_error& error) {
        return ResourceExhausted(std::string("no thread for transfers: ") + error.what() + "; ask for fewer (--threads); " + LimitOfThreads());
      }
    }
    all->lanes_.push_back(std::move(lane));
  }
  return all;
}

FabricThreads::~FabricThreads() {
  ends_.store(true, std::memory_order_relaxed);
  const uint64_t one = 1;
  static_cast<void>(!write(wake_.number(), &one, sizeof one));
  for (const auto& lane : lanes_) {
    if (lane->thread.joinable()) lane->thread.join();
  }
}

size_t FabricThreads::Join() {
  const auto least = std::min_element(lanes_.begin(), lanes_.end(), [](const auto& a, const auto& b) { return a->clients < b->clients; });
  ++(*least)->clients;
  return static_cast<size_t>(least - lanes_.begin());
}

void FabricThreads::Run(FabricEndpoint* endpoint) const {
  pthread_setname_np(pthread_self(), "ramspan-serve");
  std::array<FabricCompletion, 16> done;  // a server begins no transfers: only the provider's own
  auto spins_until = std::chrono::steady_clock::now();
  while (!ends_.load(std::memory_order_relaxed)) {
    bool broken = false;
    for (unsigned i = 0; i < kPollsPerLookAtWakes; ++i) endpoint->Poll(done, &broken);
    std::array<pollfd, 2> polled = {{{.fd = wake_.number(), .events = POLLIN, .revents = 0},
                                     {.fd = endpoint->wait_descriptor(), .events = POLLIN, .revents = 0}}};
    const bool blind = endpoint->wait_descriptor() < 0;
    const bool rests = std::chrono::steady_clock::now() >= spins_until && (blind || endpoint->MayWait());
    poll(polled.data(), polled.size(), !rests ? 0 : blind ? kBlindWaitMs : kWaitMs);
    if (polled[1].revents != 0) spins_until = std::chrono::steady_clock::now() + kSpinAfterArrival;
  }
}

}  // namespace ramspan
