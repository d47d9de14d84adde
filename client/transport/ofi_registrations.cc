#include "client/transport/ofi_registrations.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace ramspan {
namespace {

// How many make room at a time: a look over the table for one alone would be most of the cost.
constexpr size_t kMakeRoom = 32;
// So many are passed over because they were used lately; then they have to go. Bounds what is done under the mutex.
constexpr size_t kSparedMax = 256;

}  // namespace

Result<std::shared_ptr<const FabricRegion>> OfiRegistrations::Find(std::span<std::byte> buffer) {
  const auto begin = reinterpret_cast<uintptr_t>(buffer.data());
  const uintptr_t end = begin + buffer.size();
  {
    MutexLock lock(mutex_);
    auto after = by_begin_.upper_bound(begin);
    if (after != by_begin_.begin() && std::prev(after)->second.end >= end) {
      Registered& found = std::prev(after)->second;
      found.used = true;
      return found.region;
    }
    if (by_begin_.size() >= count_max_) ForgetIdleLocked(kMakeRoom, 0);
  }
  CloseForgotten();  // what was pinned for others, before more is
  Result<FabricRegion> made = FabricRegion::ForLocal(domain_, buffer);
  // The limit of locked memory, or the adapter's own: others make room, and come again when they are used.
  for (const size_t count : {kMakeRoom, SIZE_MAX}) {
    if (made.ok()) break;
    ForgetIdle(count, buffer.size());
    made = FabricRegion::ForLocal(domain_, buffer);
  }
  if (!made.ok()) return made.status();
  auto region = std::make_shared<const FabricRegion>(std::move(made).value());
  MutexLock lock(mutex_);
  // Frames of other sizes were here before; transfers that still use those keep them alive.
  ForgetOverlapping(begin, end);
  by_begin_[begin] = {.end = end, .region = region};
  statistics_.bytes += end - begin;
  ++statistics_.made;
  return std::shared_ptr<const FabricRegion>(region);
}

// Closes them, too.
void OfiRegistrations::ForgetIdle(size_t count, uint64_t bytes) {
  {
    MutexLock lock(mutex_);
    ForgetIdleLocked(count, bytes);
  }
  CloseForgotten();
}

// So many, and so many bytes, of those that no transfer uses; first those that were not found since the hand came by last.
void OfiRegistrations::ForgetIdleLocked(size_t count, uint64_t bytes) {
  size_t spared = 0;
  uint64_t sum = 0;
  auto one = by_begin_.lower_bound(hand_);
  for (size_t looks = 2 * by_begin_.size(), gone = 0; looks > 0 && (gone < count || sum < bytes); --looks) {
    if (one == by_begin_.end()) one = by_begin_.begin();
    if (one == by_begin_.end()) break;
    const bool in_use = one->second.region.use_count() > 1;
    if (in_use || (std::exchange(one->second.used, false) && ++spared <= kSparedMax)) {
      ++one;
      continue;
    }
    sum += one->second.end - one->first;
    ++gone;
    one = ForgetOne(one);
  }
  hand_ = one == by_begin_.end() ? 0 : one->first;
}

OfiRegistrations::ByBegin::iterator OfiRegistrations::ForgetOne(ByBegin::iterator one) {
  statistics_.bytes -= one->second.end - one->first;
  const auto next = std::next(one);
  forgotten_.insert(by_begin_.extract(one));
  return next;
}

bool OfiRegistrations::HasInUse() const {
  MutexLock lock(mutex_);
  const auto in_use = [](const auto& one) { return one.second.region.use_count() > 1; };
  return std::any_of(by_begin_.begin(), by_begin_.end(), in_use) || std::any_of(forgotten_.begin(), forgotten_.end(), in_use);
}

void OfiRegistrations::ForgetOverlapping(uintptr_t begin, uintptr_t end) {
  auto one = by_begin_.lower_bound(begin);
  if (one != by_begin_.begin() && std::prev(one)->second.end > begin) --one;
  while (one != by_begin_.end() && one->first < end) one = ForgetOne(one);
}

void OfiRegistrations::Forget(std::span<std::byte> memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  MutexLock lock(mutex_);
  ForgetOverlapping(begin, begin + memory.size());
}

void OfiRegistrations::CloseForgotten() {
  std::multimap<uintptr_t, Registered> closed;  // by its end, without the mutex
  MutexLock lock(mutex_);
  for (auto one = forgotten_.begin(); one != forgotten_.end();) {
    const auto next = std::next(one);
    // Nobody finds it any more, so a count of one stays.
    if (one->second.region.use_count() == 1) closed.insert(forgotten_.extract(one));
    one = next;
  }
}

OfiRegistrations::Statistics OfiRegistrations::statistics() const {
  MutexLock lock(mutex_);
  Statistics now = statistics_;
  now.count = by_begin_.size();
  return now;
}

}  // namespace ramspan
