// EventLoop: calls back when file descriptors are ready (poll(2)). The launcher and each rank's keeper are one such
// loop, single-threaded, so nothing in launch/ needs a lock.
//
// Thread-safety: none. Ownership: the callers own their descriptors and unwatch them before they close them.
#pragma once

#include <functional>
#include <map>

namespace ramspan {

class EventLoop {
 public:
  // The callback gets poll's revents (POLLERR and POLLHUP come unasked). Watching a descriptor again replaces.
  using Callback = std::function<void(short)>;
  void Watch(int fd, short events, Callback callback) { watched_[fd] = {events, std::move(callback)}; }
  void Unwatch(int fd) { watched_.erase(fd); }

  // Waits up to timeout_ms (-1: for ever) and serves what is ready. Callbacks may watch and unwatch anything.
  // Returns how many were served.
  int RunOnce(int timeout_ms);

 private:
  struct Entry {
    short events;
    Callback callback;
  };
  std::map<int, Entry> watched_;
};

}  // namespace ramspan
