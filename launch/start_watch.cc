#include "launch/start_watch.h"

#include "common/running_clock.h"

namespace ramspan {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kProbeAfter = 2 * kSecond;  // a keeper takes milliseconds; half of this would probe a loaded machine
constexpr int64_t kTellAfter = 20 * kSecond;  // batch systems and ssh take seconds, a password takes its typist
constexpr int64_t kGiveUpAfter = 60 * kSecond;

bool Passed(int64_t before, int64_t after, int64_t mark) { return before < mark && after >= mark; }

}  // namespace

StartWatch::Advice StartWatch::OnTick(int heard, int64_t now_ns) {
  using std::chrono::nanoseconds;
  const int64_t step = last_ns_ == 0 ? 0 : RunningClock::Step(nanoseconds(last_ns_), nanoseconds(now_ns)).count();
  last_ns_ = now_ns;
  if (heard != heard_ || heard >= expected_) {
    heard_ = heard;
    waited_ns_ = 0;
    return Advice::kNone;
  }
  const int64_t before = waited_ns_;
  waited_ns_ += step;
  if (!several_hosts_ && Passed(before, waited_ns_, kGiveUpAfter)) return Advice::kGiveUp;
  if (Passed(before, waited_ns_, kTellAfter)) return Advice::kTell;
  // Again and again: whether it fails depends on what other processes of the user do.
  const bool probe = waited_ns_ / kProbeAfter != before / kProbeAfter;
  return probe && !several_hosts_ ? Advice::kProbe : Advice::kNone;
}

}  // namespace ramspan
