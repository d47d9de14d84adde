// Announcer: says something again and again, as long as it lives: that a server is there. By a thread of its own, because a file system may
// block for long. Thread-safety: made and ended by one thread; the work is called by the announcer's.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "common/descriptor.h"
#include "common/status.h"

namespace ramspan {

class Announcer {
 public:
  struct Work {
    // Once, at first; may be empty. Both should end early when the descriptor becomes readable: the destructor waits for them.
    std::function<void(int until)> first;
    // A failure is logged when it is the first one or follows a success, and the announcer shall not end.
    std::function<Status(int until)> again;
  };
  // kUnavailable, kResourceExhausted: there is no descriptor, or no thread.
  static Result<std::unique_ptr<Announcer>> Start(Work work, std::chrono::milliseconds every);
  ~Announcer();
  Announcer(const Announcer&) = delete;
  Announcer& operator=(const Announcer&) = delete;

 private:
  Announcer(Work work, std::chrono::milliseconds every, Descriptor end) : work_(std::move(work)), every_(every), end_(std::move(end)) {}
  void Run();
  bool Ends(std::chrono::milliseconds at_most) const;  // waits

  const Work work_;
  const std::chrono::milliseconds every_;
  const Descriptor end_;  // an eventfd: the thread shall end
  std::thread thread_;
};

}  // namespace ramspan
