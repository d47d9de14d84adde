// Of OfiEndpoint: who comes to its sockets, from the first byte on until he leaves: strangers, who have a bounded time and number, then
// clients and controllers.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "common/log.h"
#include "memserver/ofi_visitor.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLateOnesEvery{100};
constexpr int kAcceptsAtOnce = 64;  // then those who are there have their turn
// The ranks of a node come in one moment, and a server that makes a large lease takes half a second until it looks: who has just
// come is not sent away for others.
constexpr milliseconds kStrangerMin{1000};
constexpr const char* kNoDescriptors = "it has no descriptors left for clients: raise its limit (ulimit -n)";

void SayThatThereAreNone(const Descriptor& socket) {
  const auto words = Handshake::SentAway();
  send(socket.number(), words.data(), words.size(), MSG_DONTWAIT | MSG_NOSIGNAL);  // a wish: he may have gone
}

// Whether so many descriptors can still be opened. Opens none, because the network's threads may want one in this moment. New ones have the lowest
// numbers that are free, so from the end only few are looked at unless they are nearly used up.
bool DescriptorsAreFree(size_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  for (rlim_t end = limit.rlim_cur; count > 0 && end > 0; --end) {
    if (fcntl(static_cast<int>(end - 1), F_GETFD) < 0) --count;
  }
  return count == 0;
}

}  // namespace

void OfiEndpoint::AcceptFrom(Listener& listener) {
  for (int i = 0; i < kAcceptsAtOnce && AcceptOne(listener); ++i) {}
}

bool OfiEndpoint::AcceptOne(Listener& listener) {
  Descriptor socket = Accept(listener.socket);
  if (!socket) {
    if (errno != EAGAIN) SendOneAway(listener);
    return false;
  }
  const size_t needed = ConnectionsToCome() + (listener.near ? 0 : kDescriptorsOfAConnection);
  for (; !DescriptorsAreFree(needed) && memory_->has_dropped(); Progress()) memory_->FreeSome();  // as Provide
  if (!DescriptorsAreFree(needed)) {
    NoteUnheard(kNoDescriptors);
    SayThatThereAreNone(socket);
    return true;
  }
  const uint64_t id = next_id_++;
  if (const Status watched = Watch(socket.number(), id); !watched.ok()) {
    NoteUnheard(watched.message());
    return true;
  }
  auto visitor = std::make_unique<Visitor>(id, std::move(socket), secret_, listener.near);
  visitor->greeting_ends = clock_.Now() + options_.greeting_max;
  visitors_.emplace(id, std::move(visitor));
  DropExtraStrangers();
  return true;
}

// This process cannot take in the one who waits, and he would be reported for ever: he is let in by the spare descriptor and sent away.
// Where that fails, too (another thread has taken the descriptor, the kernel has no memory), the listener rests.
void OfiEndpoint::SendOneAway(Listener& listener) {
  const bool no_descriptors = errno == EMFILE || errno == ENFILE;
  NoteUnheard(no_descriptors ? kNoDescriptors : std::strerror(errno));
  spare_.Close();
  Descriptor unheard = Accept(listener.socket);
  const bool waits = !unheard && errno != EAGAIN;
  if (unheard && no_descriptors) SayThatThereAreNone(unheard);
  unheard.Close();  // it has the spare one's number, and there is no other
  spare_ = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (waits) SetResting(listener, true);
}

// The descriptors that the provider will open for clients who are here: nobody tells of a connection but the client, once it has moved bytes by it.
// Whoever has not proved anything yet may be a client.
size_t OfiEndpoint::ConnectionsToCome() const {
  size_t count = 0;
  for (const auto& [id, visitor] : visitors_) {
    const bool moves_nothing = visitor->link.is_trusted() && visitor->link.peer_role() == Handshake::Role::kController;
    if (!visitor->near && !moves_nothing && !visitor->usage.has_moved()) count += kDescriptorsOfAConnection;
  }
  return count;
}

// A lease of a client of this host is a file: those that are there do not lose theirs for it.
bool OfiEndpoint::HasDescriptorForALease() const { return DescriptorsAreFree(ConnectionsToCome() + 1); }

void OfiEndpoint::SetResting(Listener& listener, bool rests) {
  epoll_event event{.events = rests ? 0u : uint32_t{EPOLLIN}, .data = {.u64 = kListenerId + static_cast<uint64_t>(&listener - listeners_.data())}};
  epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, listener.socket.number(), &event);
  listener.rests = rests;
}

void OfiEndpoint::NoteUnheard(const std::string& why) {
  if (const uint64_t times = unheard_.Note(clock_.Now()); times > 0) {
    LogWarning("memory server %s sends somebody away unheard: %s%s", place_.c_str(), why.c_str(), Seldom::Times(times).c_str());
  }
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
  TellNews(visitor);
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
  LinkFrame frame;
  Descriptor none;
  if (!visitor.link.Next(&frame, &none)) return false;
  if (visitor.link.peer_role() == Handshake::Role::kController) return TakeOrder(visitor, frame);
  const bool is_introduction = frame.kind == LinkFrame::Kind::kIntroduction;
  if (is_introduction == visitor.introduced_itself) {
    visitor.link.Close(FailedPrecondition(is_introduction ? "it introduces itself twice" : "it does not introduce itself"));
    return false;
  }
  if (is_introduction) Welcome(visitor, frame.introduction);
  if (frame.kind == LinkFrame::Kind::kUsage) visitor.usage.Note(frame.usage, clock_.Now());
  if (frame.kind == LinkFrame::Kind::kPing) visitor.link.Send({.kind = LinkFrame::Kind::kPong});
  if (frame.kind == LinkFrame::Kind::kRecord) {
    last_ = frame.record;
    *message = {visitor.client, last_};
  }
  return true;
}

// The server says first how it is reached, because the client's own address depends on it.
void OfiEndpoint::Greet(Visitor& visitor) {
  visitor.greeted = true;
  visitor.greeting_ends = clock_.Now() + kArrivalMax;
  LinkFrame frame{.kind = LinkFrame::Kind::kIntroduction};
  frame.introduction = {.instance = instance_, .capacity_bytes = memory_->bytes(), .near = visitor.near, .local_name = local_name_, .label = FrameText(place_)};
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
      if (const uint64_t times = known_sent_away_.Note(clock_.Now()); times > 0) {
        LogWarning("memory server %s sends \"%s\" away: %s%s", place_.c_str(), introduction.label.c_str(), peer.status().message().c_str(), Seldom::Times(times).c_str());
      }
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
  if (draining_) visitor.draining = true;
  TellNews(visitor);
}

void OfiEndpoint::LookForLateOnes() {
  const RunningClock::time_point now = clock_.Now();
  if (now < next_look_) return;
  next_look_ = now + kLateOnesEvery;
  for (Listener& listener : listeners_) {
    if (listener.rests) SetResting(listener, false);
  }
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
    // Anybody may come and say something wrong; who knows the secret is no stranger, and is not to be hidden by those. He comes again and again, too.
    if (const uint64_t times = (visitor.greeted ? known_sent_away_ : sent_away_).Note(clock_.Now()); times > 0) {
      LogWarning("memory server %s sends a client away%s%s: %s%s", place_.c_str(), visitor.label.empty() ? "" : ", ", visitor.label.c_str(),
                 visitor.link.why_closed().message().c_str(), Seldom::Times(times).c_str());
    }
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
