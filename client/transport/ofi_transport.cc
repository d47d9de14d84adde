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
#include "common/meeting.h"
#include "common/own_thread.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;

// Looks often enough for the running clock, which counts half a second a look at most.
constexpr milliseconds kLookEvery{200};
constexpr milliseconds kPingEvery{1000};
// Folders are looked into so often; whether somebody is missing is looked at every half second (client/transport/seek_rounds.h).
constexpr milliseconds kLookIntoFoldersEvery{3000}, kMissedEvery{500};
constexpr milliseconds kLeaveAfter{2000};
constexpr milliseconds kEndPatience{10'000};
// A server that answers over TCP and not on its own host in that time is used over the network.
constexpr milliseconds kNearMax{2000};
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

void Signal(const Descriptor& event) {
  const uint64_t one = 1;
  static_cast<void>(!write(event.number(), &one, sizeof one));  // full: it is signalled
}

Descriptor NewEvent() { return Descriptor(BeyondPrograms(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))); }

void Forget(const Descriptor& event) {
  uint64_t count = 0;
  static_cast<void>(!read(event.number(), &count, sizeof count));
}

class MeetingEnds {
 public:
  explicit MeetingEnds(std::atomic<bool>* is_meeting) : is_meeting_(is_meeting) {}
  ~MeetingEnds() { is_meeting_->store(false); }
  MeetingEnds(const MeetingEnds&) = delete;
  MeetingEnds& operator=(const MeetingEnds&) = delete;

 private:
  std::atomic<bool>* const is_meeting_;
};

}  // namespace

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

// Libraries take themselves apart at the end, also under a thread that is loading providers: that ended programs by SIGABRT.
void OfiTransport::EndMeetings() noexcept {
  meets_no_more_.store(true);
  for (const auto begin = std::chrono::steady_clock::now(); is_meeting_.load() && std::chrono::steady_clock::now() - begin < kEndPatience;) {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

// ---- Connecting ----

// UINT32_MAX: it is none of those that are there.
uint32_t OfiTransport::NumberOf(uint64_t instance) const {
  for (uint32_t i = 0; i < servers(); ++i) {
    if (servers_[i]->instance() == instance && !servers_[i]->is_dead()) return i;
  }
  return UINT32_MAX;
}

Status OfiTransport::Connect(Sought* sought, milliseconds at_most) {
  const uint32_t number = servers();
  if (number == std::min(options_.servers_max, kServersMax)) {
    return ResourceExhausted("this program has met " + std::to_string(number) + " memory servers since its start, and can meet no more: start it again to use those that are new");
  }
  const MeetingEnds ends(&is_meeting_);  // behind what a meeting in vain has opened
  Result<std::unique_ptr<OfiServer>> met = Meet(sought->place, at_most);
  if (!met.ok()) return met.status();
  if (const uint32_t known = NumberOf(met.value()->instance()); known != UINT32_MAX) {  // it has two names
    sought->number = known;
    return {};
  }
  sought->number = number;
  servers_[number] = std::move(met).value();
  count_.store(number + 1, std::memory_order_release);
  Signal(joined_);
  LogInfo("memory server %s: %llu MiB, %s", servers_[number]->description().label.c_str(),
          static_cast<unsigned long long>(servers_[number]->description().capacity_bytes >> 20),
          servers_[number]->description().mapped != nullptr ? "on this host" : "over the network");
  return {};
}

Result<std::unique_ptr<OfiServer>> OfiTransport::Meet(const SocketPlace& place, milliseconds at_most) {
  Result<Meeting> met = Meeting::With(place, secret_, at_most, Handshake::Role::kClient, ended_.number());
  if (!met.ok()) return met.status();
  Meeting meeting = std::move(met).value();
  if (options_.near && !meeting.introduction.near && !meeting.introduction.local_name.empty()) {
    // It may be on this host. A name without a file is found in this network namespace only, so its owner is; and that it is the
    // same server, it proves as before.
    const Result<SocketPlace> local = ParseSocketPlace(meeting.introduction.local_name);
    if (local.ok() && local.value().is_local()) {
      Result<Meeting> nearer = Meeting::With(local.value(), secret_, std::min(at_most, kNearMax), Handshake::Role::kClient, ended_.number());
      if (nearer.ok() && nearer.value().introduction.instance == meeting.introduction.instance) meeting = std::move(nearer).value();
    }
  }
  Introduction self{.instance = self_, .label = OwnLabel(), .job = OwnJob()};
  std::unique_ptr<OfiLane> lane;
  if (!meeting.introduction.near) {
    Result<std::unique_ptr<OfiLane>> opened = OpenLane(meeting.introduction, &self.fabric);
    if (!opened.ok()) return opened.status();
    lane = std::move(opened).value();
  }
  if (!meeting.link->Send({.kind = LinkFrame::Kind::kIntroduction, .introduction = self})) return meeting.link->why_closed();
  return OfiServer::Make(servers(), place.text(), std::move(meeting.link), meeting.introduction, std::move(lane));
}

Result<std::unique_ptr<OfiLane>> OfiTransport::OpenLane(const Introduction& introduction, FabricAddress* here) {
  if (introduction.fabric.bytes.empty()) return InvalidArgument("it can be used on its own host only (it was started without --listen)");
  is_meeting_.store(true);
  if (meets_no_more_.load()) return Unavailable("this process ends");
  FillStandardStreams();  // or libfabric's sockets may be what the program prints to
  Result<std::shared_ptr<FabricDomain>> opened = FabricDomain::OpenTowards(introduction.fabric, options_.fabric);
  if (!opened.ok()) return opened.status();
  std::shared_ptr<OfiRegistrations> network;
  for (const auto& known : networks()) {
    if (known->domain().IsSame(*opened.value())) network = known;
  }
  if (network == nullptr) {  // at most one for each server
    const uint32_t count = network_count_.load(std::memory_order_relaxed);
    networks_[count] = network = std::make_shared<OfiRegistrations>(opened.value());
    network_count_.store(count + 1, std::memory_order_release);
  }
  Result<std::unique_ptr<FabricEndpoint>> endpoint = FabricEndpoint::Open(network->domain().shared_from_this());
  if (!endpoint.ok()) return endpoint.status();
  const Result<uint64_t> peer = endpoint.value()->AddPeer(introduction.fabric);
  if (!peer.ok()) return peer.status();
  if (Status kept = endpoint.value()->KeepAddresses(); !kept.ok()) return kept;
  *here = endpoint.value()->address();
  return std::make_unique<OfiLane>(std::move(endpoint).value(), peer.value(), std::move(network), servers());
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
      watched.last_end = now;  // who waits for a transfer collects it; the network's library may be at its end
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

// ---- The thread that seeks ----

void OfiTransport::Seek() {
  pthread_setname_np(pthread_self(), "ramspan-seek");
  while (!ends_.load(std::memory_order_relaxed)) {
    std::array<pollfd, 2> polled = {{{.fd = ended_.number(), .events = POLLIN, .revents = 0}, {.fd = news_.number(), .events = POLLIN, .revents = 0}}};
    poll(polled.data(), polled.size(), static_cast<int>(kMissedEvery.count()));
    Forget(news_);
    const auto round = [this] {
      Follow();
      SeekMissing();
      LeaveUnwanted();
      return true;
    };
    if (!WithinHeap(round, false)) NapWithoutHeap();
  }
}

// Who is named now: others may be named, servers write themselves down in folders and take themselves away.
void OfiTransport::Follow() {
  const auto now = std::chrono::steady_clock::now();
  const bool news = places_.is_news() || follows_;
  if (!news && (now < next_look_ || !places_.has_folders())) return;
  next_look_ = now + kLookIntoFoldersEvery;
  follows_ = true;  // where the heap has no more, it is done again
  Want(places_.Look());
  std::erase_if(sought_, [this](const Sought& one) { return !one.wanted && (one.number == UINT32_MAX || servers_[one.number]->is_dead()); });
  follows_ = false;
}

void OfiTransport::Want(const std::vector<OfiPlaces::Place>& places) {
  const auto is_at = [](const OfiPlaces::Place& place) { return [&place](const Sought& one) { return one.place.text() == place.place.text(); }; };
  for (Sought& sought : sought_) {
    sought.wanted = std::any_of(places.begin(), places.end(), [&](const OfiPlaces::Place& place) { return is_at(place)(sought); });
  }
  for (const OfiPlaces::Place& place : places) {
    if (std::none_of(sought_.begin(), sought_.end(), is_at(place))) sought_.push_back({.place = place.place, .in_folder = place.in_folder});
  }
}

bool OfiTransport::IsMissing(const Sought& sought) const {
  return sought.wanted && (sought.number == UINT32_MAX || servers_[sought.number]->is_dead());
}

void OfiTransport::SeekMissing() {
  seek_rounds_.Go({.places = sought_.size(),
                   .turn = [this](size_t place) -> SeekRounds::Turn& { return sought_[place].turn; },
                   .is_missing = [this](size_t place) { return IsMissing(sought_[place]); },
                   .attempt = [this](size_t place) { SeekAt(&sought_[place]); },
                   .is_over = [this] { return ends_.load(std::memory_order_relaxed) || places_.is_news(); },
                   .now = std::chrono::steady_clock::now});
}

// In vain, mostly, and then it says nothing. But that there is no use in seeking is said, once.
void OfiTransport::SeekAt(Sought* sought) {
  const Status met = Connect(sought, SeekRounds::kTryMax);
  if (met.code() != StatusCode::kResourceExhausted || std::exchange(said_no_more_, true)) return;
  LogWarning("memory server %s: %s", sought->place.text().c_str(), met.message().c_str());
}

// A server may be named by another one of its names now, which is known when all new names have been tried.
void OfiTransport::LeaveUnwanted() {
  if (places_.is_news() || follows_) return;  // the next round knows better
  const bool all_tried = std::all_of(sought_.begin(), sought_.end(), [this](const Sought& one) { return !IsMissing(one) || one.turn.was_tried; });
  for (uint32_t i = 0; i < servers(); ++i) {
    const bool wanted = std::any_of(sought_.begin(), sought_.end(), [i](const Sought& one) { return one.wanted && one.number == i; });
    if (wanted || all_tried) servers_[i]->SetLeft(!wanted);
  }
}

}  // namespace ramspan
