#include "rambrain/timer.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "common/raise.h"
#include "rambrain/exceptions.h"

namespace rambrain {

bool Timer::running = false;

namespace {
timer_t timer;
bool made = false;
}  // namespace

void Timer::startTimer(long seconds, long nanoseconds) {
  if (!made) {
    sigevent event = {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGUSR1;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) {
      Raise(incompleteSetupException(std::string("no timer can be made: ") + std::strerror(errno)));
    }
    made = true;
  }
  itimerspec times = {};
  times.it_value = times.it_interval = {seconds, nanoseconds};
  if (timer_settime(timer, 0, &times, nullptr) != 0) {
    Raise(incompleteSetupException(std::string("the timer cannot be set: ") + std::strerror(errno)));
  }
  running = seconds != 0 || nanoseconds != 0;
}

void Timer::stopTimer() {
  if (!running) return;
  const itimerspec never = {};
  timer_settime(timer, 0, &never, nullptr);
  running = false;
}

}  // namespace rambrain
