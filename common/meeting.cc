#include "common/meeting.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "common/running_clock.h"

namespace ramspan {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTryAgainAfter{5};  // where others are before this one
constexpr milliseconds kLookEvery{100};  // the running clock counts half a second a look at most

// Waits until the socket is ready; false: the deadline has passed, or `until` is readable.
bool AwaitReady(int descriptor, short events, RunningClock* clock, RunningClock::time_point deadline, int until) {
  while (clock->Now() < deadline) {
    std::array<pollfd, 2> polled{{{.fd = descriptor, .events = events, .revents = 0}, {.fd = until, .events = POLLIN, .revents = 0}}};
    if (poll(polled.data(), polled.size(), static_cast<int>(kLookEvery.count())) > 0) return polled[1].revents == 0;
  }
  return false;
}

// False: `until` is readable.
bool Nap(milliseconds time, int until) {
  pollfd polled{.fd = until, .events = POLLIN, .revents = 0};
  return poll(&polled, 1, static_cast<int>(time.count())) <= 0;
}

// An address where nobody answers (behind a firewall, of another network) uses up an equal part of the time, and leaves the others theirs.
Result<Descriptor> ConnectToOneOf(std::span<const SocketAddress> addresses, RunningClock* clock, RunningClock::time_point deadline, int until) {
  Status last;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const RunningClock::time_point now = clock->Now(), end = now + (deadline - now) / static_cast<int64_t>(addresses.size() - i);
    Result<Descriptor> socket = StartConnect(addresses[i]);
    while (!socket.ok() && socket.status().code() == StatusCode::kAborted && clock->Now() < end && Nap(kTryAgainAfter, until)) {
      socket = StartConnect(addresses[i]);
    }
    if (!socket.ok()) last = socket.status();
    else last = AwaitReady(socket.value().number(), POLLOUT, clock, end, until) ? FinishConnect(socket.value()) : Unavailable("nobody answers");
    if (last.ok()) return socket;
  }
  return last;
}

Status AwaitFrame(Link& link, LinkFrame* frame, RunningClock* clock, RunningClock::time_point deadline, int until) {
  Descriptor none;
  for (;;) {
    link.Progress();
    if (link.Next(frame, &none)) return {};
    if (link.is_closed()) return link.why_closed();
    const short events = static_cast<short>(POLLIN | (link.wants_to_write() ? POLLOUT : 0));
    if (!AwaitReady(link.descriptor(), events, clock, deadline, until)) return Unavailable("it does not answer in time");
  }
}

}  // namespace

Result<Meeting> Meeting::With(const SocketPlace& place, const Secret& secret, milliseconds at_most, Handshake::Role role, int until) {
  const Result<std::vector<SocketAddress>> addresses = Resolve(place);
  if (!addresses.ok()) return addresses.status();
  return With(addresses.value(), secret, at_most, role, until);
}

Result<Meeting> Meeting::With(std::span<const SocketAddress> addresses, const Secret& secret, milliseconds at_most, Handshake::Role role, int until) {
  RunningClock clock;
  const RunningClock::time_point deadline = clock.Now() + at_most;
  Result<Descriptor> socket = ConnectToOneOf(addresses, &clock, deadline, until);
  if (!socket.ok()) return socket.status();
  Meeting meeting{.link = std::make_unique<Link>(std::move(socket).value(), role, secret), .introduction = {}};
  LinkFrame frame;
  if (Status received = AwaitFrame(*meeting.link, &frame, &clock, deadline, until); !received.ok()) return received;
  if (frame.kind != LinkFrame::Kind::kIntroduction) return FailedPrecondition("it does not introduce itself");
  meeting.introduction = frame.introduction;
  return meeting;
}

Status Meeting::Receive(LinkFrame* frame, milliseconds at_most) {
  RunningClock clock;
  const RunningClock::time_point deadline = clock.Now() + at_most;
  return AwaitFrame(*link, frame, &clock, deadline, /*until=*/-1);
}

std::string OwnLabel() {
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  return FrameText(std::string(program_invocation_short_name) + "[" + std::to_string(getpid()) + "]@" + host);
}

std::string OwnJob() {
  // Of batch systems; one allocation is one job to its neighbours, whatever it runs.
  constexpr const char* kNames[][2] = {{"SLURM_JOB_ID", "slurm "}, {"PBS_JOBID", "pbs "}, {"FLUX_JOB_ID", "flux "}, {"LSB_JOBID", "lsf "}, {"RAMSPAN_RUN_DIR", "run "}};
  for (const auto& [variable, kind] : kNames) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    std::string name = value;
    if (name[0] == '/') name = name.substr(name.rfind('/') + 1);  // the launcher's folder, made for this job
    return FrameText(kind + name);
  }
  return OwnLabel();
}

}  // namespace ramspan
