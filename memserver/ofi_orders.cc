// Of OfiEndpoint: what it knows of its clients, what controllers (`ramspan ctl`) want, and what clients are told because of that.
#include <chrono>
#include <optional>
#include <utility>

#include "memserver/ofi_visitor.h"

namespace ramspan {
namespace {
// Clients say once a second what they have moved, if they have moved anything.
constexpr std::chrono::milliseconds kUsageLasts{3000};
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
  frame.report.label = report.label.substr(0, kFrameTextMax);
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
  ServiceUsage usage = visitor == nullptr ? ServiceUsage() : visitor->usage;
  if (visitor == nullptr || clock_.Now() - visitor->usage_at > kUsageLasts) usage.written_per_second = usage.read_per_second = 0;
  return usage;
}

std::string OfiEndpoint::LabelOf(uint32_t client) {
  const Visitor* visitor = ByNumber(client);
  return visitor == nullptr ? "" : visitor->label;
}

// What it says is believed as far as numbers go: it is for people, and nothing depends on it.
void OfiEndpoint::NoteUsage(Visitor& visitor, const ServiceUsage& told) {
  const RunningClock::time_point now = clock_.Now();
  const double seconds = std::chrono::duration<double>(now - visitor.usage_at).count();
  const auto rate = [seconds](uint64_t after, uint64_t before) {
    return after > before ? PerSecond(after - before, seconds) : 0;
  };
  const bool first = visitor.usage_at == RunningClock::time_point();
  visitor.usage = {.written_bytes = told.written_bytes,
                   .read_bytes = told.read_bytes,
                   .written_per_second = first ? 0 : rate(told.written_bytes, visitor.usage.written_bytes),
                   .read_per_second = first ? 0 : rate(told.read_bytes, visitor.usage.read_bytes)};
  visitor.usage_at = now;
}

}  // namespace ramspan
