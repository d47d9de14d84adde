#include "memserver/controller.h"

#include <thread>
#include <utility>

#include "common/meeting.h"
#include "common/units.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;

// Nobody listens for a moment where a server is started again; so he is asked twice.
constexpr milliseconds kSecondLookAfter{100};

bool IsDesertedForGood(const SocketPlace& place, milliseconds at_most) {
  if (!IsDeserted(place, at_most)) return false;
  std::this_thread::sleep_for(kSecondLookAfter);
  return IsDeserted(place, at_most);
}

}  // namespace

Result<ServerAnswer> Ask(const SocketPlace& place, const Secret& secret, const ServiceCommand& command, milliseconds at_most) {
  Result<Meeting> met = Meeting::With(place, secret, at_most, Handshake::Role::kController);
  if (!met.ok()) return met.status();
  Meeting meeting = std::move(met).value();
  LinkFrame order{.kind = LinkFrame::Kind::kOrder};
  order.order = command;
  if (!meeting.link->Send(order)) return meeting.link->why_closed();
  ServerAnswer answer{.instance = meeting.introduction.instance, .reports = {}};
  while (answer.reports.empty() || answer.reports.back().of != ServiceReport::Of::kServer) {
    LinkFrame frame;
    if (Status received = meeting.Receive(&frame, at_most); !received.ok()) return received;
    if (frame.kind != LinkFrame::Kind::kReport) return FailedPrecondition("it answers with something else");
    answer.reports.push_back(frame.report);
  }
  return answer;
}

Status AwaitEnd(const SocketPlace& place, const Secret& secret, const EndWaiting& waiting, const std::function<void(const std::string&)>& tell) {
  const std::string name = place.text();
  uint64_t instance = waiting.instance;
  uint64_t left = UINT64_MAX;
  auto heard = std::chrono::steady_clock::now();
  int silent_looks = 0;
  for (int looks = 0;; std::this_thread::sleep_for(waiting.look_every)) {
    const Result<ServerAnswer> answer = Ask(place, secret, {.order = ServiceOrder::kLook, .bytes = 0, .job = ""}, waiting.answer_max);
    if (answer.ok() ? instance != 0 && answer.value().instance != instance : IsDesertedForGood(place, waiting.answer_max)) {
      tell(name + " has ended");
      return {};
    }
    const auto now = std::chrono::steady_clock::now();
    if (!answer.ok()) {
      if (now - heard > waiting.silent_max) {
        return Unavailable("it does not answer (" + answer.status().message() + "), and whether it has ended is not known: look on its host whether `ramspan server` runs");
      }
      // Once is what a server does whose end has begun.
      if (++silent_looks == 2) tell(name + " does not answer now: " + answer.status().message());
      continue;
    }
    instance = answer.value().instance;
    heard = now;
    silent_looks = 0;
    const ServiceReport& server = answer.value().reports.back();
    if (!server.draining) return FailedPrecondition("it drains no more: somebody told it to lend again");
    looks = server.held_bytes < left ? 0 : looks + 1;
    if (looks == 0) tell(name + " drains: " + FormatBytes(server.held_bytes) + " to go");
    if (looks == waiting.looks_without_progress) {
      tell(name + ": nothing has moved for " + std::to_string(looks) + " looks. Its clients have no other place: start another server, let them swap to files "
           "(swap = auto) or make room there; or `ramspan ctl undrain`");
    }
    left = server.held_bytes;
  }
}

}  // namespace ramspan
