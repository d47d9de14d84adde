// Of OfiEndpoint: what it knows of its clients, what controllers (`ramspan ctl`) want, and what clients are told because of that.
#include <chrono>
#include <optional>
#include <utility>

#include "memserver/ofi_visitor.h"

namespace ramspan {

namespace {
constexpr std::chrono::milliseconds kTellAliveEvery{1000};
}  // namespace

// A controller stays as long as a client may take to arrive, and is none.
bool OfiEndpoint::TakeOrder(Visitor& visitor, const LinkFrame& frame) {
  if (frame.kind != LinkFrame::Kind::kOrder) {
    visitor.link.Close(FailedPrecondition("it came to give orders, and says something else"));
    return false;
  }
  orders_.push_back({.from = visitor.id, .command = frame.order});
  return true;
}

std::optional<Endpoint::Order> OfiEndpoint::NextOrder() {
  if (orders_.empty()) return std::nullopt;
  const Order order = orders_.front();
  orders_.pop_front();
  return order;
}

Endpoint::Reported OfiEndpoint::Report(uint64_t from, const ServiceReport& report) {
  const auto found = visitors_.find(from);
  if (found == visitors_.end()) return Reported::kGone;
  if (!found->second->link.has_room()) return Reported::kLater;
  LinkFrame frame{.kind = LinkFrame::Kind::kReport};
  frame.report = report;
  frame.report.label = FrameText(report.label);
  const bool sent = found->second->link.Send(frame);
  Visit(*found->second);
  return sent ? Reported::kSent : Reported::kGone;
}

void OfiEndpoint::TellDraining(bool draining) {
  draining_ = draining;
  for (auto& [id, visitor] : visitors_) {
    if (!visitor->introduced_itself) continue;
    visitor->draining = draining;
    Visit(*visitor);
  }
}

// While a lease's memory is made nobody looks at the sockets, and a host that is short of memory takes a minute for one: clients would take this
// server for dead.
void OfiEndpoint::TellAlive() {
  // Not by the running clock, which does not count the time in which the sockets are not looked at: greetings wait in them.
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_at_sockets_ < kTellAliveEvery) return;
  looked_at_sockets_ = now;
  for (auto& [id, visitor] : visitors_) {
    if (!visitor->introduced_itself || visitor->link.wants_to_write()) continue;
    visitor->link.Send({.kind = LinkFrame::Kind::kPong});
    Visit(*visitor);  // it may have been found dead by this, and epoll tells of a closed socket no more
  }
}

void OfiEndpoint::AskBack(uint32_t client, uint64_t bytes) {
  Visitor* visitor = ByNumber(client);
  if (visitor == nullptr) return;
  visitor->give_back = bytes;
  Visit(*visitor);
}

void OfiEndpoint::TellNews(Visitor& visitor) {
  if (visitor.link.wants_to_write()) return;
  if (visitor.draining) visitor.link.Send({.kind = LinkFrame::Kind::kDraining, .draining = *std::exchange(visitor.draining, std::nullopt)});
  if (visitor.give_back) visitor.link.Send({.kind = LinkFrame::Kind::kGiveBack, .bytes = *std::exchange(visitor.give_back, std::nullopt)});
}

std::string OfiEndpoint::JobOf(uint32_t client) {
  const Visitor* visitor = ByNumber(client);
  return visitor == nullptr ? "" : visitor->job;
}

ServiceUsage OfiEndpoint::UsageOf(uint32_t client) {
  const Visitor* visitor = ByNumber(client);
  return visitor == nullptr ? ServiceUsage() : visitor->usage.UsageAt(clock_.Now());
}

std::string OfiEndpoint::LabelOf(uint32_t client) {
  const Visitor* visitor = ByNumber(client);
  return visitor == nullptr ? "" : visitor->label;
}

}  // namespace ramspan
