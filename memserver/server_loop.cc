#include "memserver/server_loop.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
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
// While clients transfer, the loop looks after so many polls whether more has arrived. A look costs a system call; rarer ones
// find nothing within a stream of transfers, because the polls have dealt with it.
constexpr unsigned kPollsPerLook = 16;
// Where the endpoint cannot tell, so many polls come before the core is offered to others. The same number without an
// arrival come before a wait: a transfer needs many polls.
constexpr unsigned kPollsPerYield = 64;
// The loop spins this long after the last arrival and then waits for the next one. Waking up costs a transfer 30 us and more,
// and a program computes between its transfers: with 300 us sweeps on an idle machine were 9 % slower, with 100 us 26 %.
constexpr microseconds kSpinAfterArrival{1000};
// The longest wait then. Progress that MPI owes somebody without an arrival (which the endpoint may not see) comes this late.
constexpr microseconds kWaitMax{1000};
constexpr microseconds kSleepMin{50}, kSleepMaxNear{4000}, kSleepMaxFar{1000};
constexpr std::chrono::milliseconds kLogEvery{200};
// A service is woken by what comes, and looks by itself only for clients that are late.
constexpr microseconds kSleepService{100'000};

class Loop {
 public:
  explicit Loop(Endpoint& endpoint)
      : endpoint_(endpoint),
        pages_(endpoint.pool(), [this](nanoseconds took) { LetTransfersCatchUp(took); }),
        server_({.pool_bytes = endpoint.pool_bytes(),
                 .clients = endpoint.clients(),
                 .label = endpoint.label(),
                 .provide = [this](const Lease& lease) { return Provide(lease); },
                 .reclaim = [this](const Lease& lease) { endpoint_.Reclaim(lease); },
                 .ask_back = AskBackOf(endpoint),
                 // One that has no room for messages now is asked the next time.
                 .ask_for_spare = [this](uint32_t client) { static_cast<void>(endpoint_.Answer(client, {.type = WireType::kSpare})); }}),
        sleep_max_(endpoint.needs_polling() ? kSleepMaxFar : kSleepMaxNear) {}

  Result<bool> Run() {
    MemServer::Clock::time_point last_message = clock_.Now();
    last_arrival_ = last_message;
    microseconds sleep = kSleepMin;
    std::optional<Endpoint::Message> message;
    while (endpoint_.is_service() ? !endpoint_.ShouldEnd() && !stopped_ && !HasDrained() : !server_.Done()) {
      const MemServer::Clock::time_point now = clock_.Now();
      if (Status polled = endpoint_.Poll(&message); !polled.ok()) return polled;
      while (const std::optional<uint32_t> dead = endpoint_.NextDeath()) server_.NoteDeath(*dead);
      while (const std::optional<uint32_t> come = endpoint_.NextArrival()) server_.NoteArrival(*come, endpoint_.JobOf(*come));
      while (const std::optional<Endpoint::Order> order = endpoint_.NextOrder()) Obey(*order, now);
      SendReports();
      server_.Upkeep(now);
      if (now - last_log_ > kLogEvery) {
        last_log_ = now;
        LogWhatWasKept();
      }
      if (message) {
        Answer(*message, now);
        last_message = last_arrival_ = now;
        sleep = kSleepMin;
      } else if (server_.RmaIsActive(now) || now - last_message < kSpinAfterMessage) {
        if (++polls_ % kPollsPerLook == 0) PauseWhileActive(now);
        sleep = kSleepMin;
      } else if (!pages_.PopulateAhead()) {
        const bool waits = endpoint_.is_service();
        const Endpoint::Arrival arrival = waits ? endpoint_.Wait(kSleepService) : Endpoint::Arrival::kUnknown;
        if (arrival == Endpoint::Arrival::kSome) last_message = last_arrival_ = clock_.Now();
        if (arrival == Endpoint::Arrival::kUnknown) std::this_thread::sleep_for(sleep);
        sleep = std::min(sleep * 2, sleep_max_);
      }
    }
    if (endpoint_.is_service()) return true;
    server_.Finish();
    return server_.LeaveTogether();
  }

 private:
  // What a controller is told: of all clients, then of all quotas, where it has asked for a list; and at the end of the server.
  struct Reports {
    bool of_all = false;
    uint32_t next_client = 0;
    std::string last_quota;  // of the job that was told of last; none has an empty name
  };

  // A server that spun on a busy machine would use up its share of the core, and be late with what comes then. One that has
  // waited gets the core as soon as something comes.
  void PauseWhileActive(MemServer::Clock::time_point now) {
    const bool spins = now - last_arrival_ < kSpinAfterArrival || polls_ < kPollsPerYield;
    switch (endpoint_.Wait(spins ? microseconds(0) : kWaitMax)) {
      case Endpoint::Arrival::kSome:
        last_arrival_ = clock_.Now();
        polls_ = 0;
        break;
      case Endpoint::Arrival::kNone:
        if (!spins) polls_ = 0;
        break;
      case Endpoint::Arrival::kUnknown:
        // Not at each look: where the cores are busy a yield costs a time slice.
        if (polls_ % kPollsPerYield == 0) sched_yield();
        break;
    }
  }

  void Answer(const Endpoint::Message& message, MemServer::Clock::time_point now) {
    const std::optional<WireMessage> answer = server_.Handle(message.client, message.record, now);
    if (answer && !endpoint_.Answer(message.client, *answer)) server_.Withdraw(message.client, *answer);
  }

  // Nobody has anything here any more, and nobody will.
  bool HasDrained() const { return server_.is_draining() && server_.leases().leases() == 0; }

  void Obey(const Endpoint::Order& order, MemServer::Clock::time_point now) {
    switch (order.command.order) {
      case ServiceOrder::kList:
      case ServiceOrder::kLook: break;
      case ServiceOrder::kStop: stopped_ = true; break;
      case ServiceOrder::kShrink: server_.SetLent(order.command.bytes, now); break;
      case ServiceOrder::kQuota: server_.SetQuota(order.command.job, order.command.bytes, now); break;
      case ServiceOrder::kNoOwnQuota: server_.SetQuota(order.command.job, std::nullopt, now); break;
      case ServiceOrder::kDrain:
      case ServiceOrder::kUndrain:
        server_.SetDraining(order.command.order == ServiceOrder::kDrain);
        endpoint_.TellDraining(server_.is_draining());
    }
    reports_[order.from] = {.of_all = order.command.order == ServiceOrder::kList};
  }

  // What controllers are still to be told, as far as they take it: a list of thousands of clients is more than a socket holds.
  void SendReports() {
    for (auto one = reports_.begin(); one != reports_.end();) one = HasHeardAll(one->first, &one->second) ? reports_.erase(one) : std::next(one);
  }

  // True: nothing is left to tell, or nobody to be told.
  bool HasHeardAll(uint64_t from, Reports* reports) {
    Endpoint::Reported reported = Endpoint::Reported::kSent;
    if (reports->of_all) reported = ReportClients(from, reports);
    if (reports->of_all && reported == Endpoint::Reported::kSent) reported = ReportQuotas(from, reports);
    if (reported == Endpoint::Reported::kSent) reported = endpoint_.Report(from, OwnReport());
    return reported != Endpoint::Reported::kLater;
  }

  Endpoint::Reported ReportClients(uint64_t from, Reports* reports) {
    for (uint32_t& client = reports->next_client; client < server_.sessions(); ++client) {
      if (!IsHere(client)) continue;
      if (const Endpoint::Reported reported = endpoint_.Report(from, ReportOf(client)); reported != Endpoint::Reported::kSent) return reported;
    }
    return Endpoint::Reported::kSent;
  }

  Endpoint::Reported ReportQuotas(uint64_t from, Reports* reports) {
    const std::map<std::string, uint64_t>& quotas = server_.leases().own_quotas();
    for (auto one = quotas.upper_bound(reports->last_quota); one != quotas.end(); ++one) {
      const ServiceReport report{.of = ServiceReport::Of::kQuota, .quota_bytes = one->second, .label = "", .job = one->first};
      if (const Endpoint::Reported reported = endpoint_.Report(from, report); reported != Endpoint::Reported::kSent) return reported;
      reports->last_quota = one->first;
    }
    return Endpoint::Reported::kSent;
  }

  bool IsHere(uint32_t client) const {
    const SessionState state = server_.session(client).state();
    return state != SessionState::kGone && state != SessionState::kDraining;
  }

  ServiceReport ReportOf(uint32_t client) {
    const LeaseTable& leases = server_.leases();
    return {.held_bytes = leases.HeldBy(client), .quota_bytes = leases.QuotaOf(client), .usage = endpoint_.UsageOf(client),
            .label = endpoint_.LabelOf(client), .job = endpoint_.JobOf(client)};
  }

  ServiceReport OwnReport() {
    ServiceReport all{.of = ServiceReport::Of::kServer, .lent_bytes = server_.leases().lent_bytes(), .quota_bytes = server_.leases().quota(), .draining = server_.is_draining(), .label = endpoint_.label()};
    for (uint32_t client = 0; client < server_.sessions(); ++client) {
      if (!IsHere(client)) continue;
      all.held_bytes += server_.leases().HeldBy(client);
      all.usage += endpoint_.UsageOf(client);
      ++all.clients;
    }
    return all;
  }

  static std::function<void(uint32_t, uint64_t)> AskBackOf(Endpoint& endpoint) {
    if (!endpoint.is_service()) return nullptr;
    // Transfers go on between many that are told at once.
    return [&endpoint](uint32_t client, uint64_t bytes) {
      endpoint.AskBack(client, bytes);
      endpoint.Progress();
    };
  }

  bool Provide(const Lease& lease) {
    if (endpoint_.pool().empty()) return endpoint_.Provide(lease.client, lease);  // which says why not
    if (pages_.Populate(lease.offset, lease.bytes) && endpoint_.Provide(lease.client, lease)) return true;
    LogWarning("memory server %s: no memory for a lease of %llu MiB: let it lend less", endpoint_.label().c_str(),
               static_cast<unsigned long long>(lease.bytes >> 20));
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
  bool stopped_ = false;  // by an order
  std::map<uint64_t, Reports> reports_;  // by controller who waits for an answer
  MemServer::Clock::time_point last_arrival_{}, last_log_{};
  unsigned polls_ = 0;  // since the last arrival or wait
};

}  // namespace

Result<bool> Serve(Endpoint& endpoint) {
  LogWithoutWaiting();  // clients would take it for dead
  Result<bool> served = Loop(endpoint).Run();
  LogWhatWasKept();
  return served;
}

}  // namespace ramspan
