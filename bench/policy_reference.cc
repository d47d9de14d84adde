#include "bench/policy_reference.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "common/slot_ref.h"
#include "common/units.h"

namespace ramspan::bench {
namespace {

// For each event, which one touches the same object next; as many as there are events where none does.
std::vector<uint64_t> NextTouches(const PolicyTrace& trace) {
  std::vector<uint64_t> next(trace.events.size(), trace.events.size());
  std::vector<uint64_t> later(trace.bytes.size(), trace.events.size());
  for (size_t i = trace.events.size(); i-- > 0;) {
    if (trace.events[i].kind != PolicyTrace::Kind::kTouch) continue;
    next[i] = later[trace.events[i].object];
    later[trace.events[i].object] = i;
  }
  return next;
}

// Memory whose chunks stand in an order: the first that nobody holds leaves.
class OrderedMemory {
 public:
  OrderedMemory(const PolicyTrace& trace, uint64_t limit) : trace_(trace), limit_(limit), objects_(trace.bytes.size()), held_(trace.threads, kNobody) {}

  void Touch(const PolicyTrace::Event& event, uint64_t place) {
    Object& object = objects_[event.object];
    held_[event.thread] = event.object;
    ++traffic_.touches;
    if (object.resident) {
      order_.erase({object.place, event.object});
    } else {
      BringIn(event.object);
    }
    object.dirty |= event.write;
    object.place = place;
    order_.insert({place, event.object});
  }

  void Free(uint32_t id) {
    std::replace(held_.begin(), held_.end(), id, kNobody);
    if (objects_[id].resident) Drop(id);
  }

  const PolicyTraffic& traffic() const { return traffic_; }

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;
  struct Object {
    bool resident = false, dirty = false, has_slot = false;
    uint64_t place = 0;
  };

  void BringIn(uint32_t id) {
    const uint64_t bytes = trace_.bytes[id];
    while (used_ + RoundUpToGranule(bytes) > limit_) SendOneAway();
    used_ += RoundUpToGranule(bytes);
    objects_[id].resident = true;
    ++traffic_.faults;
    if (!objects_[id].has_slot) return;
    ++traffic_.misses;
    traffic_.missed_bytes += bytes;
    traffic_.bytes_in += bytes;
  }

  void SendOneAway() {
    const auto victim = std::find_if(order_.begin(), order_.end(), [&](const auto& one) { return std::find(held_.begin(), held_.end(), one.second) == held_.end(); });
    if (victim == order_.end()) throw std::runtime_error("a limit of " + FormatBytes(limit_) + " is too little for what the threads hold");
    const uint32_t id = victim->second;
    Object& object = objects_[id];
    if (object.dirty) {
      object.has_slot = true;
      traffic_.bytes_out += trace_.bytes[id];
    }
    ++traffic_.evictions;
    Drop(id);
  }

  void Drop(uint32_t id) {
    order_.erase({objects_[id].place, id});
    objects_[id].resident = objects_[id].dirty = false;
    used_ -= RoundUpToGranule(trace_.bytes[id]);
  }

  const PolicyTrace& trace_;
  const uint64_t limit_;
  std::vector<Object> objects_;
  std::vector<uint32_t> held_;  // by thread
  std::set<std::pair<uint64_t, uint32_t>> order_;  // of those in memory: place, object
  uint64_t used_ = 0;
  PolicyTraffic traffic_;
};

}  // namespace

PolicyTraffic ReplayReference(const PolicyTrace& trace, uint64_t limit, Reference reference, bool steady) {
  const std::vector<uint64_t> next = reference == Reference::kMin ? NextTouches(trace) : std::vector<uint64_t>();
  OrderedMemory memory(trace, limit);
  const uint64_t half = trace.touches() / 2;
  PolicyTraffic first;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const PolicyTrace::Event& event = trace.events[i];
    if (event.kind == PolicyTrace::Kind::kFree) memory.Free(event.object);
    if (event.kind != PolicyTrace::Kind::kTouch) continue;
    if (steady && memory.traffic().touches == half) first = memory.traffic();
    memory.Touch(event, reference == Reference::kMin ? trace.events.size() - next[i] : i);
  }
  return memory.traffic() - first;
}

}  // namespace ramspan::bench
