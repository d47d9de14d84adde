#include "client/front/pin_gate.h"

#include <algorithm>
#include <thread>

namespace ramspan {

namespace {
// How late a thread may go on that waits at the gate; more often would take CPU time from those that it waits for.
constexpr auto kLookEvery = std::chrono::microseconds(200);

int64_t Now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
}  // namespace

constinit PinGate PinGate::gate_;

void PinGate::Look(const void* who, Duration waited, uint64_t bytes) {
  if (waited < kPatience) return;
  const int64_t now = Now();
  if (const void* none = nullptr; who_.load(std::memory_order_relaxed) != who) {
    if (!who_.compare_exchange_strong(none, who, std::memory_order_acq_rel)) return;
    open_until_.store(0, std::memory_order_relaxed);
    next_.store(kFirst.count(), std::memory_order_relaxed);
  }
  const int64_t shut_until = shut_until_.load(std::memory_order_relaxed);
  if (shut_until != 0 ? now < shut_until : now < open_until_.load(std::memory_order_relaxed)) return;
  const int64_t next = next_.load(std::memory_order_relaxed);
  if (shut_until == 0) {
    needed_.store(bytes, std::memory_order_relaxed);
    shut_until_.store(now + next, std::memory_order_relaxed);
    return;
  }
  const int64_t longer = std::min<int64_t>(2 * next, kLongest.count());
  shut_until_.store(0, std::memory_order_relaxed);
  open_until_.store(now + kRest * longer, std::memory_order_relaxed);
  next_.store(longer, std::memory_order_relaxed);
}

void PinGate::End(const void* who) {
  if (who_.load(std::memory_order_relaxed) != who) return;
  shut_until_.store(0, std::memory_order_relaxed);
  who_.store(nullptr, std::memory_order_release);  // the next one's stores come after these
}

void PinGate::Pass() const {
  for (;;) {
    const int64_t shut_until = shut_until_.load(std::memory_order_relaxed);
    if (shut_until == 0 || Now() >= shut_until) return;  // who shut it may have no core just now
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace ramspan
