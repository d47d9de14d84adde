#include "memserver/ofi_endpoint.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/log.h"
#include "memserver/ofi_visitor.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;

// A look at the sockets is a system call; transfers do not need it.
constexpr unsigned kPollsPerLook = 32;
constexpr milliseconds kLateOnesEvery{100};
constexpr int kEventsAtOnce = 64;
constexpr int kAcceptsAtOnce = 64;  // then those who are there have their turn
// Frames that are no message for the server's loop (pings), without letting the loop do anything else.
constexpr int kFramesAtOnce = 64;
// The ranks of a node come in one moment, and a server that makes a large lease takes half a second until it looks: who has just
// come is not sent away for others.
constexpr milliseconds kStrangerMin{1000};
// Ids of what epoll watches that is no visitor; visitors follow.
constexpr uint64_t kWakeId = 0, kFabricId = 1, kListenerId = 2, kFirstVisitorId = 16;

uint64_t RandomNumber() {
  uint64_t number = 0;
  RS_CHECK(getrandom(&number, sizeof number, 0) == sizeof number, "the system has no random %s", "numbers");
  return number | 1;
}

std::string Hex(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

}  // namespace

// ---- Opening ----

Result<std::unique_ptr<OfiEndpoint>> OfiEndpoint::Open(const OfiEndpointOptions& options, const Secret& secret) {
  auto endpoint = std::unique_ptr<OfiEndpoint>(new OfiEndpoint(options, secret));
  if (Status made = endpoint->Make(); !made.ok()) return made;
  return endpoint;
}

OfiEndpoint::OfiEndpoint(const OfiEndpointOptions& options, const Secret& secret) : options_(options), secret_(secret) {}

OfiEndpoint::~OfiEndpoint() {
  provided_.clear();
}

Status OfiEndpoint::Make() {
  epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  spare_ = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!epoll_ || !wake_) return Unavailable(std::string("no descriptors: ") + std::strerror(errno));
  Watch(wake_.number(), kWakeId);
  instance_ = RandomNumber();
  next_id_ = kFirstVisitorId;
  memory_ = std::make_unique<LeaseMemory>(options_.pool_bytes, [this] { Progress(); });
  local_name_ = "@ramspan-" + Hex(instance_);
  place_ = options_.socket.empty() ? local_name_ : options_.socket;
  SocketAddress bound;
  if (!options_.listen.empty()) {
    if (Status made = AddListener(options_.listen, false, &bound); !made.ok()) return made;
    place_ = SocketPlace{.host = bound.host(), .port = std::to_string(bound.port()), .path = ""}.text();
    if (Status made = OpenFabric(bound.host()); !made.ok()) return made;
  }
  if (Status made = AddListener(local_name_, true, &bound); !made.ok()) return made;
  if (options_.socket.empty()) return {};
  Status made = AddListener(options_.socket, true, &bound);
  if (made.ok()) socket_file_ = SocketFile(options_.socket);
  return made;
}

Status OfiEndpoint::AddListener(const std::string& where, bool near, SocketAddress* bound) {
  const Result<SocketPlace> place = ParseSocketPlace(where);
  if (!place.ok()) return place.status();
  if (place.value().is_local() != near) {
    return InvalidArgument(near ? where + ": not the /path of a Unix socket (--socket)" : where + ": not HOST:PORT (--listen)");
  }
  Result<Descriptor> listener = Listen(place.value(), bound);
  if (!listener.ok()) return listener.status();
  if (bound->host() == "0.0.0.0" || bound->host() == "::") {
    return InvalidArgument("--listen " + where + " would be open to all networks; name the address of one interface of this host");
  }
  Watch(listener.value().number(), kListenerId + listeners_.size());
  listeners_.push_back({std::move(listener).value(), near});
  return {};
}

Status OfiEndpoint::OpenFabric(const std::string& host) {
  Result<std::unique_ptr<FabricThreads>> opened = FabricThreads::Open(host, options_.fabric, options_.threads);
  if (!opened.ok()) return opened.status();
  fabrics_ = std::move(opened).value();
  fabric_ = &fabrics_->endpoint(0);
  if (fabric_->wait_descriptor() >= 0) Watch(fabric_->wait_descriptor(), kFabricId);
  return {};
}

void OfiEndpoint::Watch(int descriptor, uint64_t id) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
  RS_CHECK(epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) == 0, "epoll: %s", std::strerror(errno));
}

void OfiEndpoint::End() {
  ends_.store(true, std::memory_order_relaxed);
  const uint64_t one = 1;
  static_cast<void>(!write(wake_.number(), &one, sizeof one));  // full: it is awake
}

// ---- The loop's calls ----

void OfiEndpoint::Progress() {
  if (!fabric_) return;
  std::array<FabricCompletion, 16> done;  // a server begins no transfers: only the provider's own
  bool broken = false;
  fabric_->Poll(done, &broken);
}

Status OfiEndpoint::Poll(std::optional<Message>* message) {
  message->reset();
  free_numbers_.insert(free_numbers_.end(), told_dead_.begin(), told_dead_.end());
  told_dead_.clear();
  Progress();
  if (polls_++ % kPollsPerLook == 0) {
    LookAtSockets(0);
    LookForLateOnes();
  }
  for (int frames = 0; frames < kFramesAtOnce && !ready_.empty(); ++frames) {
    const auto found = visitors_.find(ready_.front());
    ready_.pop_front();
    if (found == visitors_.end()) continue;
    Visitor& visitor = *found->second;
    visitor.is_ready = false;
    Message next;
    const bool has_one = TakeFrame(visitor, &next);
    if (visitor.link.is_closed()) {
      Leave(visitor.id);
      continue;
    }
    if (!has_one) continue;
    // There may be more; the others come first.
    visitor.is_ready = true;
    ready_.push_back(visitor.id);
    if (next.record.empty()) continue;
    *message = next;
    break;
  }
  return {};
}

Endpoint::Arrival OfiEndpoint::Wait(std::chrono::microseconds timeout) {
  const bool can_wait = !fabric_ || fabric_->wait_descriptor() >= 0;
  const bool has_work = !ready_.empty() || (fabric_ && can_wait && !fabric_->MayWait());
  const bool some = LookAtSockets(can_wait && !has_work ? static_cast<int>(std::chrono::ceil<milliseconds>(timeout).count()) : 0) || has_work;
  LookForLateOnes();
  return some ? Arrival::kSome : can_wait ? Arrival::kNone : Arrival::kUnknown;
}

bool OfiEndpoint::LookAtSockets(int wait_ms) {
  std::array<epoll_event, kEventsAtOnce> events;
  const int n = epoll_wait(epoll_.number(), events.data(), kEventsAtOnce, wait_ms);
  for (int i = 0; i < n; ++i) {
    const uint64_t id = events[static_cast<size_t>(i)].data.u64;
    if (id == kWakeId || id == kFabricId) continue;
    if (id < kFirstVisitorId) {
      AcceptFrom(listeners_[id - kListenerId]);
    } else if (const auto found = visitors_.find(id); found != visitors_.end()) {
      Visit(*found->second);
    }
  }
  return n > 0;
}

bool OfiEndpoint::Answer(uint32_t client, const WireMessage& message) {
  Visitor* visitor = ByNumber(client);
  if (visitor == nullptr) return false;
  Frame frame{.kind = Frame::Kind::kRecord, .record = Encode(message)};
  int descriptor = -1;
  if (message.type == WireType::kLeaseGrant) {
    frame.kind = Frame::Kind::kGrant;
    const Provided& provided = provided_.at(message.lease);
    frame.access = {provided.region.key(), provided.region.address(), visitor->near};
    if (visitor->near) descriptor = memory_->shared_descriptor(message.offset);
  }
  const bool sent = visitor->link.Send(frame, descriptor);
  if (!sent && descriptor >= 0 && !visitor->link.is_closed()) {
    LogWarning("memory server %s has too many open files to hand over a lease: raise its limit (ulimit -n)", place_.c_str());
    const WireMessage full{.type = WireType::kFull, .sequence = message.sequence, .flags = static_cast<uint32_t>(FullReason::kNoMemory)};
    visitor->link.Send({.kind = Frame::Kind::kRecord, .record = Encode(full)});
  }
  Visit(*visitor);
  return sent;
}

bool OfiEndpoint::Provide(uint32_t client, const Lease& lease) {
  const Visitor* visitor = ByNumber(client);
  if (visitor == nullptr) return false;
  Provided provided{.client = client, .region = {}};
  if (visitor->near) {
    if (Status made = memory_->MakeShared(lease.offset, lease.bytes); !made.ok()) return NoteRefusal(made);
  } else {
    if (Status made = memory_->MakePrivate(lease.offset, lease.bytes); !made.ok()) return NoteRefusal(made);
    Result<FabricRegion> region = FabricRegion::ForPeer(fabrics_->endpoint(visitor->fabric), memory_->private_memory(lease.offset));
    if (!region.ok()) {
      memory_->Drop(lease.offset);
      return NoteRefusal(region.status());
    }
    provided.region = std::move(region).value();
  }
  provided_.emplace(lease.id, std::move(provided));
  return true;
}

// Clients ask again and again: the first refusal is told, then each one whose number has doubled.
bool OfiEndpoint::NoteRefusal(const Status& why) {
  if (std::has_single_bit(++refusals_)) LogWarning("memory server %s refuses a lease: %s", place_.c_str(), why.message().c_str());
  return false;
}

void OfiEndpoint::Reclaim(const Lease& lease) {
  provided_.erase(lease.id);  // the way first, then the memory
  // A client of this host whose link has ended need not have ended itself: it may have given up this server, which was stopped for
  // too long. It goes on with what it has mapped, so that stays as it is. Who gives a lease back does not use it any more.
  ByNumber(lease.client) == nullptr ? memory_->Leave(lease.offset) : memory_->Drop(lease.offset);
}

std::optional<uint32_t> OfiEndpoint::NextArrival() {
  if (arrivals_.empty()) return std::nullopt;
  const uint32_t client = arrivals_.front();
  arrivals_.pop_front();
  return client;
}

std::optional<uint32_t> OfiEndpoint::NextDeath() {
  // Its arrival has to be told before.
  if (deaths_.empty() || std::find(arrivals_.begin(), arrivals_.end(), deaths_.front()) != arrivals_.end()) return std::nullopt;
  const uint32_t client = deaths_.front();
  deaths_.pop_front();
  told_dead_.push_back(client);
  return client;
}

// ---- Visitors ----

void OfiEndpoint::AcceptFrom(const Listener& listener) {
  for (int i = 0; i < kAcceptsAtOnce && AcceptOne(listener); ++i) {}
}

bool OfiEndpoint::AcceptOne(const Listener& listener) {
  Descriptor socket = Accept(listener.socket);
  if (!socket && (errno == EMFILE || errno == ENFILE)) {
    // The one who waits would be reported for ever: it is let in and sent away.
    spare_.Close();
    Accept(listener.socket);
    spare_ = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
    LogWarning("memory server %s has no descriptors left for clients: raise its limit (ulimit -n)", place_.c_str());
  }
  if (!socket) return false;
  const uint64_t id = next_id_++;
  Watch(socket.number(), id);
  auto visitor = std::make_unique<Visitor>(id, std::move(socket), secret_, listener.near);
  visitor->greeting_ends = clock_.Now() + options_.greeting_max;
  visitors_.emplace(id, std::move(visitor));
  DropExtraStrangers();
  return true;
}

void OfiEndpoint::DropExtraStrangers() {
  size_t strangers = 0;
  uint64_t oldest = 0;
  for (const auto& [id, visitor] : visitors_) {
    if (visitor->link.is_trusted()) continue;
    if (strangers++ == 0) oldest = id;
  }
  if (strangers <= kStrangersMax) return;
  const bool is_new = clock_.Now() < visitors_.at(oldest)->greeting_ends - options_.greeting_max + kStrangerMin;
  if (!is_new || strangers > kNewStrangersMax) Leave(oldest);
}

// Lets its socket get on, and sees to it that what comes is looked at.
void OfiEndpoint::Visit(Visitor& visitor) {
  visitor.link.Progress();
  if (visitor.link.is_trusted() && !visitor.greeted) Greet(visitor);
  if (!visitor.is_ready) {
    visitor.is_ready = true;
    ready_.push_back(visitor.id);
  }
  if (visitor.link.is_closed() || visitor.waits_to_write == visitor.link.wants_to_write()) return;
  visitor.waits_to_write = visitor.link.wants_to_write();
  epoll_event event{.events = EPOLLIN | (visitor.waits_to_write ? uint32_t{EPOLLOUT} : 0u), .data = {.u64 = visitor.id}};
  epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, visitor.link.descriptor(), &event);
}

// False: it has none now. A frame that is no message for the server's loop leaves `message` empty.
bool OfiEndpoint::TakeFrame(Visitor& visitor, Message* message) {
  Frame frame;
  Descriptor none;
  if (!visitor.link.Next(&frame, &none)) return false;
  if (visitor.link.peer_role() == Handshake::Role::kController) return TakeOrder(visitor, frame);
  const bool is_introduction = frame.kind == Frame::Kind::kIntroduction;
  if (is_introduction == visitor.introduced_itself) {
    visitor.link.Close(FailedPrecondition(is_introduction ? "it introduces itself twice" : "it does not introduce itself"));
    return false;
  }
  if (is_introduction) Welcome(visitor, frame.introduction);
  if (frame.kind == Frame::Kind::kUsage) NoteUsage(visitor, frame.usage);
  if (frame.kind == Frame::Kind::kPing) visitor.link.Send({.kind = Frame::Kind::kPong});
  if (frame.kind == Frame::Kind::kRecord) {
    last_ = frame.record;
    *message = {visitor.client, last_};
  }
  return true;
}

// The server says first how it is reached, because the client's own address depends on it.
void OfiEndpoint::Greet(Visitor& visitor) {
  visitor.greeted = true;
  visitor.greeting_ends = clock_.Now() + kArrivalMax;
  Frame frame{.kind = Frame::Kind::kIntroduction};
  frame.introduction = {.instance = instance_, .capacity_bytes = memory_->bytes(), .near = visitor.near, .local_name = local_name_, .label = place_.substr(0, kFrameTextMax)};
  if (!visitor.near) {
    visitor.fabric = fabrics_->Join();
    frame.introduction.fabric = fabrics_->endpoint(visitor.fabric).address();
  }
  visitor.link.Send(frame);
}

void OfiEndpoint::Welcome(Visitor& visitor, const Introduction& introduction) {
  if (!visitor.near) {
    const Result<uint64_t> peer = fabrics_->endpoint(visitor.fabric).AddPeer(introduction.fabric);
    if (!peer.ok()) {
      LogWarning("memory server %s sends \"%s\" away: %s", place_.c_str(), introduction.label.c_str(), peer.status().message().c_str());
      return visitor.link.Close(peer.status());
    }
    visitor.peer = peer.value();
  }
  visitor.introduced_itself = true;
  visitor.label = introduction.label;
  visitor.job = introduction.job;
  if (free_numbers_.empty()) {
    visitor.client = static_cast<uint32_t>(visitor_of_client_.size());
    visitor_of_client_.push_back(0);
  } else {
    visitor.client = free_numbers_.back();
    free_numbers_.pop_back();
  }
  visitor_of_client_[visitor.client] = visitor.id;
  arrivals_.push_back(visitor.client);
  if (draining_) visitor.link.Send({.kind = Frame::Kind::kDraining, .draining = true});
}

void OfiEndpoint::LookForLateOnes() {
  const RunningClock::time_point now = clock_.Now();
  if (now < next_look_) return;
  next_look_ = now + kLateOnesEvery;
  DropExtraStrangers();  // who was new
  std::vector<uint64_t> late;
  for (const auto& [id, visitor] : visitors_) {
    if (!visitor->introduced_itself && now > visitor->greeting_ends) late.push_back(id);
  }
  for (const uint64_t id : late) Leave(id);
}

void OfiEndpoint::Leave(uint64_t id) {
  const auto found = visitors_.find(id);
  if (found == visitors_.end()) return;
  const Visitor& visitor = *found->second;
  if (visitor.link.why_closed().code() == StatusCode::kFailedPrecondition) {
    LogWarning("memory server %s sends a client away%s%s: %s", place_.c_str(), visitor.label.empty() ? "" : ", ",
               visitor.label.c_str(), visitor.link.why_closed().message().c_str());
  }
  if (visitor.greeted && !visitor.near) fabrics_->Leave(visitor.fabric);
  if (visitor.introduced_itself) {
    if (!visitor.near) fabrics_->endpoint(visitor.fabric).RemovePeer(visitor.peer);
    visitor_of_client_[visitor.client] = 0;
    deaths_.push_back(visitor.client);
  }
  visitors_.erase(found);
}

OfiEndpoint::Visitor* OfiEndpoint::ByNumber(uint32_t client) {
  if (client >= visitor_of_client_.size()) return nullptr;
  const auto found = visitors_.find(visitor_of_client_[client]);
  return found == visitors_.end() ? nullptr : found->second.get();
}

}  // namespace ramspan
