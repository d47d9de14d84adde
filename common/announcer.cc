#include "common/announcer.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "common/limit_of_threads.h"
#include "common/log.h"
#include "common/own_thread.h"

namespace ramspan {

Result<std::unique_ptr<Announcer>> Announcer::Start(Work work, std::chrono::milliseconds every) {
  Descriptor end(eventfd(0, EFD_CLOEXEC));
  if (!end) return Unavailable(std::string("no descriptor: ") + std::strerror(errno));
  auto announcer = std::unique_ptr<Announcer>(new Announcer(std::move(work), every, std::move(end)));
  Announcer* const raw = announcer.get();
  try {
    raw->thread_ = StartOwnThread([raw] { raw->Run(); });
  } catch (const std::system_error& error) {
    return ResourceExhausted(std::string("no thread for the rendezvous: ") + error.what() + "; " + LimitOfThreads());
  }
  return announcer;
}

Announcer::~Announcer() {
  const uint64_t one = 1;
  static_cast<void>(!write(end_.number(), &one, sizeof one));
  if (thread_.joinable()) thread_.join();
}

bool Announcer::Ends(std::chrono::milliseconds at_most) const {
  pollfd end{.fd = end_.number(), .events = POLLIN, .revents = 0};
  return poll(&end, 1, static_cast<int>(at_most.count())) > 0;
}

// Without heap a turn is left out; what leaves this thread would end the server.
void Announcer::Run() {
  if (work_.first) WithinHeap([this] { return work_.first(end_.number()), 0; }, 0);
  bool failing = false;
  while (!Ends(every_)) {
    const Status said = WithinHeap([this] { return work_.again(end_.number()); }, OutOfHeap());
    const bool cut_short = !said.ok() && Ends(std::chrono::milliseconds(0));
    if (!said.ok() && !failing && !cut_short) LogWarning("%s; clients that are new will not find this server", said.c_str());
    failing = !said.ok();
  }
}

}  // namespace ramspan
