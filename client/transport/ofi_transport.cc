#include "client/transport/ofi_transport.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/cancel_disabled.h"
#include "common/contention.h"
#include "common/descriptor.h"
#include "common/limit_of_threads.h"
#include "common/log.h"
#include "common/own_thread.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;

// Looks often enough for the running clock, which counts half a second a look at most.
constexpr milliseconds kLookEvery{200};
constexpr milliseconds kCollectedLately{1000};
constexpr milliseconds kPingEvery{1000};
constexpr milliseconds kLeaveAfter{2000};
// What a transfer of 64 KiB takes and more: who collects waits here, not asleep.
constexpr std::chrono::microseconds kCollectSpin{300};
constexpr unsigned kPollsPerYield = 16;
// On a core that others want, too: what a read of 64 KiB takes where its server has another core. Sleeping at once made it a third longer.
constexpr std::chrono::microseconds kSpinBeforeSleep{50};
// Where no transfer has ended for so long (a server that is stopped, a cable that is out, one of many MiB), its core is of more use to others.
// Longer than what 512 KiB take that share a wire of 10 Gbit/s with ten others.
constexpr std::chrono::milliseconds kSpinWithoutNews{5};
constexpr timespec kSleepMax{.tv_sec = 0, .tv_nsec = 1'000'000};

uint32_t RandomNumber() {
  uint32_t number = 0;
  RS_CHECK(getrandom(&number, sizeof number, 0) == sizeof number, "the system has no random %s", "numbers");
  return number;
}

// A child that the program forks has copies of all sockets: servers would not see the end of the parent.
std::atomic<OfiTransport*> of_this_process{nullptr};

Descriptor NewEvent() { return Descriptor(BeyondPrograms(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))); }

}  // namespace

void OfiTransport::Signal(const Descriptor& event) {
  const uint64_t one = 1;
  static_cast<void>(!write(event.number(), &one, sizeof one));  // full: it is signalled
}

void OfiTransport::Forget(const Descriptor& event) {
  uint64_t count = 0;
  static_cast<void>(!read(event.number(), &count, sizeof count));
}

OfiTransport::OfiTransport(const OfiOptions& options, const Secret& secret)
    : options_(options), secret_(secret), self_(RandomNumber()), ended_(NewEvent()), joined_(NewEvent()), news_(NewEvent()) {
}

Result<std::unique_ptr<OfiTransport>> OfiTransport::Open(const OfiOptions& options, const Secret& secret) {
  auto transport = std::unique_ptr<OfiTransport>(new OfiTransport(options, secret));
  Result<OfiPlaces::Names> named = OfiPlaces::Parse(options.servers);
  if (!named.ok()) return named.status();
  transport->places_.Use(std::move(named).value());
  transport->Want(transport->places_.Look());
  Status last = Unavailable("no memory server is found (servers)");
  for (Sought& sought : transport->sought_) {
    Status met = transport->Connect(&sought, sought.in_folder ? SeekRounds::kTryMax : options.connect_max);
    if (met.ok()) continue;
    last = Unavailable("memory server " + sought.place.text() + " cannot be used: " + met.message());
    LogWarning("%s", last.message().c_str());
  }
  // Where a folder is looked into there may be servers later.
  if (transport->servers() == 0 && !transport->places_.has_folders()) return last;
  OfiTransport* const raw = transport.get();
  try {
    raw->links_ = StartOwnThread([raw] { raw->KeepLinks(); });
    raw->seeker_ = StartOwnThread([raw] { raw->Seek(); });
  } catch (const std::system_error& error) {
    return ResourceExhausted(std::string("no thread for the memory servers' links: ") + error.what() + "; " + LimitOfThreads());
  }
  static const bool registered = pthread_atfork(nullptr, nullptr, [] {
    const CancelDisabled uncancelled;  // fork is no cancellation point
    // Once: the child's own children have nothing of the parent's any more.
    const OfiTransport* parents = of_this_process.exchange(nullptr, std::memory_order_relaxed);
    for (uint32_t i = 0; parents != nullptr && i < parents->servers(); ++i) parents->servers_[i]->CloseInForkedChild();
  }) == 0;
  static_cast<void>(registered);
  of_this_process.store(raw, std::memory_order_relaxed);
  return transport;
}

OfiTransport::~OfiTransport() {
  OfiTransport* self = this;
  of_this_process.compare_exchange_strong(self, nullptr);
  ends_.store(true, std::memory_order_relaxed);
  Signal(ended_);
  if (seeker_.joinable()) seeker_.join();
  if (links_.joinable()) links_.join();
  // Without it they see that the link ends.
  for (uint32_t i = 0; i < servers(); ++i) WithinHeap([&] { return servers_[i]->Send({.type = WireType::kBye}), true; }, false);
}

// ---- The port ----

void OfiTransport::Start(std::span<const Transfer> batch) {
  last_news_.store(std::chrono::steady_clock::now(), std::memory_order_relaxed);
  for (const Transfer& transfer : batch) servers_[transfer.server]->Start(transfer);
}

bool OfiTransport::Collect(std::vector<Completion>* done) {
  const size_t before = done->size();
  const auto begin = std::chrono::steady_clock::now();
  for (unsigned polls = 1;; ++polls) {
    bool any = false;
    // In turns: what the network may register goes to who is asked first.
    const uint32_t count = servers(), first = collect_next_.fetch_add(1, std::memory_order_relaxed);
    for (uint32_t i = 0; i < count; ++i) {
      OfiServer& server = *servers_[(first + i) % count];
      if (!server.Collect(done)) continue;
      any = true;
      server.Announce();
    }
    if (done->size() > before) last_news_.store(std::chrono::steady_clock::now(), std::memory_order_relaxed);
    if (done->size() > before || !any) return any;
    // Not at each poll: where the cores are busy a yield costs a time slice.
    if (polls % kPollsPerYield != 0) continue;
    const auto now = std::chrono::steady_clock::now();
    if (now - begin > kCollectSpin) return true;
    // Static TLS, as all of a module that is loaded (tests/house/static_tls.sh): the first use of another kind takes heap.
    static thread_local constinit Contention contention __attribute__((tls_model("initial-exec")));
    const bool contended = contention.Look(now, Contention::LossesOfThisThread);
    if (now - last_news_.load(std::memory_order_relaxed) > kSpinWithoutNews || (contended && now - begin > kSpinBeforeSleep)) {
      SleepUntilArrival();
    } else if (!contended) {
      sched_yield();
    }
  }
}

// Of any server's transfers. Or shortly: others may have taken what this thread waits for.
void OfiTransport::SleepUntilArrival() {
  std::array<pollfd, kServersMax> polled;
  std::array<uint32_t, kServersMax> whose;
  nfds_t n = 0;
  bool awake = false, blind = false;
  for (uint32_t i = 0; i < servers() && !awake && !blind; ++i) {
    const int descriptor = servers_[i]->BeginSleep();
    awake = descriptor == OfiLane::kAwake;
    blind = descriptor == OfiLane::kBlind;
    if (descriptor < 0) continue;
    whose[n] = i;
    polled[n++] = {.fd = descriptor, .events = POLLIN, .revents = 0};
  }
  if (!awake && !blind) ppoll(polled.data(), n, &kSleepMax, nullptr);
  for (nfds_t i = 0; i < n; ++i) servers_[whose[i]]->EndSleep();
  if (blind) sched_yield();
}

std::optional<ServerTransport::Control> OfiTransport::Receive() {
  const uint32_t count = servers();
  const uint32_t first = receive_next_.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t number = (first + i) % count;
    if (const std::optional<WireRecord> record = servers_[number]->Receive()) return Control{number, *record};
  }
  return std::nullopt;
}

Result<std::function<void()>> OfiTransport::PrepareServers(const std::string& names) {
  Result<OfiPlaces::Names> parsed = OfiPlaces::Parse(names);
  if (!parsed.ok()) return parsed.status();
  return std::function<void()>([this, next = std::make_shared<OfiPlaces::Names>(std::move(parsed).value())] {
    places_.Use(std::move(*next));
    Signal(news_);
  });
}

void OfiTransport::ForgetMemory(std::span<std::byte> memory) noexcept {
  for (const auto& network : networks()) network->Forget(memory);
}

void OfiTransport::Upkeep() {
  for (const auto& network : networks()) network->CloseForgotten();
}

size_t OfiTransport::places_missing() const {
  return static_cast<size_t>(std::count_if(sought_.begin(), sought_.end(), [](const Sought& sought) { return sought.number == UINT32_MAX; }));
}

ServerTransport::Registered OfiTransport::registered() const {
  Registered sum;
  for (const auto& network : networks()) {
    const OfiRegistrations::Statistics one = network->statistics();
    sum.buffers += one.count;
    sum.bytes += one.bytes;
    sum.metadata_bytes += one.count * OfiRegistrations::kMetadataBytes;
  }
  return sum;
}

// ---- The thread of the links ----

void OfiTransport::KeepLinks() {
  pthread_setname_np(pthread_self(), "ramspan-links");
  while (!ends_.load(std::memory_order_relaxed)) {
    const auto look = [this] {
      WaitForLinks();
      Judge(clock_.Now());
      return true;
    };
    if (!WithinHeap(look, false)) NapWithoutHeap();
  }
}

// What a round of this thread or of the other one would have done, the next one does. Without it a std::bad_alloc there would end the
// program; without the nap, a core would be spent on trying.
void OfiTransport::NapWithoutHeap() const {
  pollfd polled{.fd = ended_.number(), .events = POLLIN, .revents = 0};
  poll(&polled, 1, static_cast<int>(kLookEvery.count()));
}

void OfiTransport::WaitForLinks() {
  constexpr nfds_t kEvents = 2;
  std::array<pollfd, kServersMax + kEvents> polled;
  std::array<uint32_t, kServersMax + kEvents> whose;
  nfds_t n = 0;
  polled[n++] = {.fd = ended_.number(), .events = POLLIN, .revents = 0};
  polled[n++] = {.fd = joined_.number(), .events = POLLIN, .revents = 0};
  for (uint32_t i = 0; i < servers(); ++i) {
    bool wants_to_write = false;
    const int descriptor = servers_[i]->descriptor(&wants_to_write);
    if (descriptor < 0) {
      // A Send has found that the link has ended, and nobody has drawn the conclusion yet.
      if (!servers_[i]->is_dead()) servers_[i]->Progress();
      continue;
    }
    whose[n] = i;
    polled[n++] = {.fd = descriptor, .events = static_cast<short>(POLLIN | (wants_to_write ? POLLOUT : 0)), .revents = 0};
  }
  if (poll(polled.data(), n, static_cast<int>(kLookEvery.count())) <= 0) return;
  Forget(joined_);
  for (nfds_t i = kEvents; i < n; ++i) {
    if (polled[i].revents != 0) servers_[whose[i]]->Progress();
  }
}

// Who has gone silent, and where nothing moves.
void OfiTransport::Judge(RunningClock::time_point now) {
  while (watched_count_ < servers()) watched_[watched_count_++] = {.last_arrival = now, .last_end = now, .last_ping = now, .wanted = now};
  for (uint32_t i = 0; i < servers(); ++i) {
    OfiServer& server = *servers_[i];
    Watched& watched = watched_[i];
    if (server.is_dead()) {
      server.Bury("its transfers fail");
      continue;
    }
    if (const uint64_t arrivals = server.arrivals(); arrivals != watched.arrivals) {
      watched.arrivals = arrivals;
      watched.last_arrival = now;
    }
    if (!server.is_left()) watched.wanted = now;
    OfiLane::Look look = server.lane_look();
    if (meets_no_more_.load(std::memory_order_relaxed)) {
      // The network's library may be at its end, so nobody watches. Who waits for a transfer collects it; where nobody does, what has moved is not seen.
      // Looks may follow each other at once, and who collects may have no core for a while.
      if (look.is_collected || look.collected != watched.collected) watched.last_collected = now;
      watched.collected = look.collected;
      if (now - watched.last_collected > kCollectedLately) watched.last_end = now;
    } else if (look.in_flight > 0 && look.ended == watched.ended) {
      // Perhaps nobody has collected: who began these transfers may compute, or be held up by something else.
      server.WatchTransfers();
      look = server.lane_look();
    }
    if (look.in_flight == 0 || look.ended != watched.ended) {
      watched.ended = look.ended;
      watched.last_end = now;
    }
    // What was there has moved. A grant may still be under way when it is left, so not at once.
    if (server.is_left() && look.in_flight == 0 && now - watched.wanted > kLeaveAfter && server.HoldsNothing()) {
      server.Send({.type = WireType::kBye});
      server.Bury("this program does not use it any more");
      continue;
    }
    if (now - watched.last_ping >= kPingEvery) {
      watched.last_ping = now;
      server.Ping();
    }
    const auto seconds = [](auto time) { return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s"; };
    if (now - watched.last_arrival > options_.silence_max) server.Bury("it has not answered for " + seconds(now - watched.last_arrival));
    if (now - watched.last_end > options_.silence_max) server.Bury("it has moved nothing for " + seconds(now - watched.last_end));
  }
}

}  // namespace ramspan
