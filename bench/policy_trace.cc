#include "bench/policy_trace.h"

#include <algorithm>

#include "common/slot_ref.h"

namespace ramspan::bench {

uint32_t PolicyTrace::Create(uint64_t size) {
  const auto object = static_cast<uint32_t>(bytes.size());
  bytes.push_back(size);
  events.push_back({Kind::kCreate, false, 0, object});
  return object;
}

uint64_t PolicyTrace::touches() const {
  return static_cast<uint64_t>(std::count_if(events.begin(), events.end(), [](const Event& e) { return e.kind == Kind::kTouch; }));
}

uint64_t PolicyTrace::data_bytes() const {
  uint64_t now = 0, most = 0;
  for (const Event& event : events) {
    if (event.kind == Kind::kCreate) most = std::max(most, now += RoundUpToGranule(bytes[event.object]));
    if (event.kind == Kind::kFree) now -= RoundUpToGranule(bytes[event.object]);
  }
  return most;
}

uint64_t PolicyTrace::least_limit() const {
  const uint64_t largest = bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
  return (uint64_t{threads} + 1) * RoundUpToGranule(largest);
}

}  // namespace ramspan::bench
