#include "memserver/ofi_endpoint.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/log.h"
#include "memserver/ofi_visitor.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;

// A look at the sockets is a system call; transfers do not need it.
constexpr unsigned kPollsPerLookAtSockets = 32;
constexpr int kEventsAtOnce = 64;
// Frames that are no message for the server's loop (pings), without letting the loop do anything else.
constexpr int kFramesAtOnce = 64;

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
  if (Status watched = Watch(wake_.number(), kWakeId); !watched.ok()) return watched;
  instance_ = RandomNumber();
  next_id_ = kFirstVisitorId;
  memory_ = std::make_unique<LeaseMemory>(options_.pool_bytes, [this] {
    Progress();
    TellAlive();
  });
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

Result<SocketPlace> OfiEndpoint::PlaceToListen(const std::string& where, bool near) {
  Result<SocketPlace> place = ParseSocketPlace(where);
  if (!place.ok()) {
    return InvalidArgument(near ? "--socket " + where + ": write the /path of a Unix socket" : "--listen " + where + ": write HOST:PORT or [IPV6]:PORT (port 0: any free one)");
  }
  if (place.value().is_local() != near) {
    return InvalidArgument(near ? where + ": not the /path of a Unix socket (--socket)" : where + ": not HOST:PORT (--listen)");
  }
  return place;
}

Status OfiEndpoint::AddListener(const std::string& where, bool near, SocketAddress* bound) {
  const Result<SocketPlace> place = PlaceToListen(where, near);
  if (!place.ok()) return place.status();
  Result<Descriptor> listener = Listen(place.value(), bound);
  if (!listener.ok()) return listener.status();
  if (bound->host() == "0.0.0.0" || bound->host() == "::" || bound->host() == "::ffff:0.0.0.0") {
    return InvalidArgument("--listen " + where + " would be open to all networks; name the address of one interface of this host");
  }
  if (Status watched = Watch(listener.value().number(), kListenerId + listeners_.size()); !watched.ok()) return watched;
  listeners_.push_back({std::move(listener).value(), near});
  return {};
}

Status OfiEndpoint::OpenFabric(const std::string& host) {
  Result<std::unique_ptr<FabricThreads>> opened = FabricThreads::Open(host, options_.fabric, options_.threads);
  if (!opened.ok()) return opened.status();
  fabrics_ = std::move(opened).value();
  fabric_ = &fabrics_->endpoint(0);
  return fabric_->wait_descriptor() >= 0 ? Watch(fabric_->wait_descriptor(), kFabricId) : Status();
}

Status OfiEndpoint::Watch(int descriptor, uint64_t id) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
  if (epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) == 0) return {};
  const int error = errno;
  return Unavailable(std::string("the kernel watches no more sockets: ") + std::strerror(error) + (error == ENOSPC ? " (fs.epoll.max_user_watches)" : ""));
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
  memory_->FreeSome();
  if (polls_++ % kPollsPerLookAtSockets == 0) {
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
  const bool has_work = !ready_.empty() || memory_->has_dropped() || (fabric_ && can_wait && !fabric_->MayWait());
  const bool some = LookAtSockets(can_wait && !has_work ? static_cast<int>(std::chrono::ceil<milliseconds>(timeout).count()) : 0) || has_work;
  LookForLateOnes();
  return some ? Arrival::kSome : can_wait ? Arrival::kNone : Arrival::kUnknown;
}

bool OfiEndpoint::LookAtSockets(int wait_ms) {
  std::array<epoll_event, kEventsAtOnce> events;
  const int n = epoll_wait(epoll_.number(), events.data(), kEventsAtOnce, wait_ms);
  looked_at_sockets_ = std::chrono::steady_clock::now();
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
  if (visitor == nullptr || (message.type == WireType::kSpare && visitor->link.wants_to_write())) return false;
  LinkFrame frame{.kind = LinkFrame::Kind::kRecord, .record = Encode(message)};
  int descriptor = -1;
  if (message.type == WireType::kLeaseGrant) {
    frame.kind = LinkFrame::Kind::kGrant;
    const Provided& provided = provided_.at(message.lease);
    frame.access = {provided.region.key(), provided.region.address(), visitor->near};
    if (visitor->near) descriptor = memory_->shared_descriptor(message.offset);
  }
  const bool sent = visitor->link.Send(frame, descriptor);
  if (!sent && descriptor >= 0 && !visitor->link.is_closed()) {
    NoteRefusal(ResourceExhausted("no descriptor left to hand it to a client of this host: raise the limit of open files (ulimit -n)"));
    const WireMessage full{.type = WireType::kFull, .sequence = message.sequence, .flags = static_cast<uint32_t>(FullReason::kNoMemory)};
    visitor->link.Send({.kind = LinkFrame::Kind::kRecord, .record = Encode(full)});
  }
  Visit(*visitor);
  return sent;
}

bool OfiEndpoint::Provide(uint32_t client, const Lease& lease) {
  const Visitor* visitor = ByNumber(client);
  if (visitor == nullptr) return false;
  Provided provided{.client = client, .region = {}};
  if (visitor->near) {
    // Some are of leases that are on their way out.
    for (; !HasDescriptorForALease() && memory_->has_dropped(); Progress()) memory_->FreeSome();
    if (!HasDescriptorForALease()) return NoteRefusal(ResourceExhausted("no descriptor left for a client of this host: raise the limit of open files (ulimit -n)"));
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

// Clients ask again and again.
bool OfiEndpoint::NoteRefusal(const Status& why) {
  if (const uint64_t times = refused_.Note(clock_.Now()); times > 0) {
    LogWarning("memory server %s refuses a lease: %s%s", place_.c_str(), why.message().c_str(), Seldom::Times(times).c_str());
  }
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

}  // namespace ramspan
