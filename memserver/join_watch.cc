#include "memserver/join_watch.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "common/own_thread.h"
#include "common/running_clock.h"

namespace ramspan {

JoinWatch::JoinWatch(std::chrono::seconds patience, std::function<void()> tell) : patience_(patience), tell_(std::move(tell)) {
  try {
    thread_ = StartOwnThread([this] { Run(); });
  } catch (const std::system_error&) {
  }
}

JoinWatch::~JoinWatch() {
  {
    MutexLock lock(mutex_);
    has_ended_ = true;
    ended_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void JoinWatch::Run() {
  constexpr std::chrono::milliseconds kLook{100};  // at the clock
  const RunningClock::time_point until = RunningClock::ProcessNow() + patience_;
  {
    MutexLock lock(mutex_);
    while (!has_ended_ && RunningClock::ProcessNow() < until) ended_.WaitFor(mutex_, kLook);
    if (has_ended_) return;
  }
  tell_();
}

}  // namespace ramspan
