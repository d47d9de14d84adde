#include "client/transport/ofi_registrations.h"

#include <utility>

namespace ramspan {

Result<std::shared_ptr<const FabricRegion>> OfiRegistrations::Find(std::span<std::byte> buffer) {
  const auto begin = reinterpret_cast<uintptr_t>(buffer.data());
  const uintptr_t end = begin + buffer.size();
  {
    MutexLock lock(mutex_);
    auto after = by_begin_.upper_bound(begin);
    if (after != by_begin_.begin() && std::prev(after)->second.end >= end) return std::prev(after)->second.region;
  }
  Result<FabricRegion> made = FabricRegion::ForLocal(domain_, buffer);
  // The limit of locked memory, or the adapter's own: others make room, and come again when they are used.
  if (!made.ok() && ForgetIdle()) made = FabricRegion::ForLocal(domain_, buffer);
  if (!made.ok()) return made.status();
  auto region = std::make_shared<const FabricRegion>(std::move(made).value());
  MutexLock lock(mutex_);
  // Frames of other sizes were here before; transfers that still use those keep them alive.
  ForgetOverlapping(begin, end);
  if (by_begin_.size() >= kCountMax) ForgetIdleLocked();
  by_begin_[begin] = {end, region};
  statistics_.bytes += end - begin;
  ++statistics_.made;
  return std::shared_ptr<const FabricRegion>(region);
}

bool OfiRegistrations::ForgetIdle() {
  MutexLock lock(mutex_);
  return ForgetIdleLocked();
}

// True: there were some.
bool OfiRegistrations::ForgetIdleLocked() {
  const size_t forgotten = std::erase_if(by_begin_, [](const auto& one) { return one.second.region.use_count() == 1; });
  statistics_.bytes = 0;
  for (const auto& [from, one] : by_begin_) statistics_.bytes += one.end - from;
  return forgotten > 0;
}

void OfiRegistrations::ForgetOverlapping(uintptr_t begin, uintptr_t end) {
  auto one = by_begin_.lower_bound(begin);
  if (one != by_begin_.begin() && std::prev(one)->second.end > begin) --one;
  while (one != by_begin_.end() && one->first < end) {
    statistics_.bytes -= one->second.end - one->first;
    one = by_begin_.erase(one);
  }
}

void OfiRegistrations::Forget(std::span<std::byte> memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  MutexLock lock(mutex_);
  ForgetOverlapping(begin, begin + memory.size());
}

OfiRegistrations::Statistics OfiRegistrations::statistics() const {
  MutexLock lock(mutex_);
  Statistics now = statistics_;
  now.count = by_begin_.size();
  return now;
}

}  // namespace ramspan
