// UsageMeter: how fast one client moves bytes, from what it says that it has moved. Clients say so once a second, where they have moved
// something; what they say is believed as far as numbers go: it is for people, and for how many descriptors are kept for connections to come.
//
// Thread-safety: none. A value.
#pragma once

#include <chrono>
#include <optional>

#include "common/running_clock.h"
#include "common/service_order.h"

namespace ramspan {

class UsageMeter {
 public:
  using Time = RunningClock::time_point;
  static constexpr std::chrono::milliseconds kPeriod{1000};
  // What comes sooner was held up on its way, or by this server, and says nothing of a speed: the one before stays.
  static constexpr std::chrono::milliseconds kApart{500};
  static constexpr std::chrono::milliseconds kLasts{3000};  // then it moves nothing any more

  void Note(const ServiceUsage& told, Time now) {
    if (at_ && now - *at_ >= kApart) {
      // It had nothing to say for longer: what it has moved is of its last period.
      const double seconds = std::chrono::duration<double>(now - *at_ > kLasts ? Time::duration(kPeriod) : now - *at_).count();
      usage_.written_per_second = Rate(told.written_bytes, usage_.written_bytes, seconds);
      usage_.read_per_second = Rate(told.read_bytes, usage_.read_bytes, seconds);
    }
    usage_.written_bytes = told.written_bytes;
    usage_.read_bytes = told.read_bytes;
    at_ = now;
  }

  bool has_moved() const { return usage_.written_bytes > 0 || usage_.read_bytes > 0; }
  ServiceUsage UsageAt(Time now) const {
    ServiceUsage usage = usage_;
    if (!at_ || now - *at_ > kLasts) usage.written_per_second = usage.read_per_second = 0;
    return usage;
  }

 private:
  static uint64_t Rate(uint64_t after, uint64_t before, double seconds) { return after > before ? PerSecond(after - before, seconds) : 0; }

  ServiceUsage usage_;
  std::optional<Time> at_;  // when it was told last
};

}  // namespace ramspan
