// Of OfiTransport: how servers are met, at the start and by the thread that seeks them later.
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "client/transport/ofi_transport.h"
#include "common/log.h"
#include "common/meeting.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;

// Folders are looked into so often; whether somebody is missing is looked at every half second (client/transport/seek_rounds.h).
constexpr milliseconds kLookIntoFoldersEvery{3000}, kMissedEvery{500};
// A server that answers over TCP and not on its own host in that time is used over the network.
constexpr milliseconds kNearMax{2000};
constexpr milliseconds kEndPatience{10'000};

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

// Libraries take themselves apart at the end, also under a thread that is loading providers: that ended programs by SIGABRT.
void OfiTransport::EndMeetings() noexcept {
  meets_no_more_.store(true);
  for (const auto begin = std::chrono::steady_clock::now(); is_meeting_.load() && std::chrono::steady_clock::now() - begin < kEndPatience;) {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

}  // namespace ramspan
