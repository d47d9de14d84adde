#include "launch/event_loop.h"

#include <poll.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "common/check.h"

namespace ramspan {

int EventLoop::RunOnce(int timeout_ms) {
  std::vector<pollfd> fds;
  for (const auto& [fd, entry] : watched_) fds.push_back({fd, entry.events, 0});
  const int ready = poll(fds.data(), fds.size(), timeout_ms);
  RS_CHECK(ready >= 0 || errno == EINTR, "poll: %s", std::strerror(errno));
  if (ready <= 0) return 0;
  for (const pollfd& one : fds) {
    if (one.revents == 0) continue;
    const auto found = watched_.find(one.fd);
    if (found == watched_.end()) continue;  // an earlier callback has unwatched it
    const Callback callback = found->second.callback;  // a copy: it may unwatch itself
    callback(one.revents);
  }
  return ready;
}

}  // namespace ramspan
