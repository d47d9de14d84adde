#include "memserver/server_loop.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "common/log.h"
#include "memserver/pool_pages.h"
#include "memserver/server.h"

namespace ramspan {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// After a message the loop spins this long: requests come in groups.
constexpr microseconds kSpinAfterMessage{200};
constexpr unsigned kPollsPerYield = 64;
constexpr microseconds kSleepMin{50}, kSleepMaxNear{4000}, kSleepMaxFar{1000};

class Loop {
 public:
  explicit Loop(Endpoint& endpoint)
      : endpoint_(endpoint),
        pages_(endpoint.pool(), [this](nanoseconds took) { LetTransfersCatchUp(took); }),
        server_({.pool_bytes = endpoint.pool().size(),
                 .clients = endpoint.clients(),
                 .rank = endpoint.name(),
                 .populate = [this](uint64_t at, uint64_t bytes) { return Populate(at, bytes); }}),
        sleep_max_(endpoint.needs_polling() ? kSleepMaxFar : kSleepMaxNear) {}

  Result<bool> Run() {
    MemServer::Clock::time_point last_message = clock_.Now();
    microseconds sleep = kSleepMin;
    unsigned polls = 0;
    std::optional<Endpoint::Message> message;
    while (!server_.Done()) {
      const MemServer::Clock::time_point now = clock_.Now();
      if (Status polled = endpoint_.Poll(&message); !polled.ok()) return polled;
      while (const std::optional<uint32_t> dead = endpoint_.NextDeath()) server_.NoteDeath(*dead);
      if (message) {
        Answer(*message, now);
        last_message = now;
        sleep = kSleepMin;
      } else if (server_.RmaIsActive(now) || now - last_message < kSpinAfterMessage) {
        // Not at each poll: where the cores are busy a yield costs a time slice, and a transfer needs many polls.
        if (++polls % kPollsPerYield == 0) sched_yield();
        sleep = kSleepMin;
      } else if (!pages_.PopulateAhead()) {
        std::this_thread::sleep_for(sleep);
        sleep = std::min(sleep * 2, sleep_max_);
      }
    }
    server_.Finish();
    return server_.LeaveTogether();
  }

 private:
  void Answer(const Endpoint::Message& message, MemServer::Clock::time_point now) {
    const std::optional<WireMessage> answer = server_.Handle(message.client, message.record, now);
    if (answer && !endpoint_.Answer(message.client, *answer)) server_.Withdraw(message.client, *answer);
  }

  bool Populate(uint64_t offset, uint64_t bytes) {
    if (pages_.Populate(offset, bytes)) return true;
    LogWarning("memory server rank %d: no memory for a lease of %llu MiB: lower --server-memory", endpoint_.name(),
               static_cast<unsigned long long>(bytes >> 20));
    return false;
  }

  // Transfers of other clients stood still, and need many polls to go on: half of the time is theirs.
  void LetTransfersCatchUp(nanoseconds took) {
    const MemServer::Clock::time_point begin = clock_.Now();
    do {
      endpoint_.Progress();
    } while (server_.RmaIsActive(begin) && clock_.Now() - begin < took);
  }

  Endpoint& endpoint_;
  MemServer::Clock clock_;
  PoolPages pages_;
  MemServer server_;
  const microseconds sleep_max_;
};

}  // namespace

Result<bool> ServeUntilBye(Endpoint& endpoint) { return Loop(endpoint).Run(); }

}  // namespace ramspan
