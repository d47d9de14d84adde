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

OfiRegistrations::Region OfiRegistrations::Find(std::span<std::byte> buffer) {
  const auto begin = reinterpret_cast<uintptr_t>(buffer.data());
  const uintptr_t end = begin + buffer.size();
  std::optional<UnderWay> making;
  {
    MutexLock lock(mutex_);
    auto after = by_begin_.upper_bound(begin);
    if (after != by_begin_.begin() && std::prev(after)->second.end >= end) {
      Registered& found = std::prev(after)->second;
      found.used = true;
      return found.region;
    }
    if (by_begin_.size() >= count_max_) ForgetIdleLocked(kMakeRoom, 0);
    making.emplace(this);
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

OfiRegistrations::Region OfiRegistrations::FindInTurn(std::span<std::byte> buffer, Asker* asker) {
  const auto find = [&] { return WithinHeap([&] { return Find(buffer); }, Region(OutOfHeap())); };
  const auto wait = [&]() RS_REQUIRES(mutex_) {
    if (asker->holds) {
      LeaveLineLocked(asker);
    } else if (!std::exchange(asker->waits, true)) {
      Asker** last = &first_;
      while (*last != nullptr) last = &(*last)->next;
      *last = asker;
    }
    return Status(StatusCode::kUnavailable, StaticText("transfers hold all registrations"));
  };
  {
    MutexLock lock(mutex_);
    if (first_ != nullptr && first_ != asker) return wait();
  }
  Region found = find();
  if (!found.ok()) {
    uint64_t begun;
    {
      MutexLock lock(mutex_);
      if (IsBusy()) return wait();
      begun = begun_;
    }
    // Nobody holds any now, but somebody may have when the first try failed. The second one is the answer if nothing else was made or closed meanwhile.
    found = find();
    MutexLock lock(mutex_);
    if (!found.ok() && (IsBusy() || begun_ != begun + 1)) return wait();
  }
  LeaveLine(asker);
  return found;
}

void OfiRegistrations::LeaveLine(Asker* asker) {
  MutexLock lock(mutex_);
  LeaveLineLocked(asker);
}

void OfiRegistrations::LeaveLineLocked(Asker* asker) {
  if (!std::exchange(asker->waits, false)) return;
  Asker** one = &first_;
  while (*one != asker) one = &(*one)->next;
  *one = std::exchange(asker->next, nullptr);
}

// Whether a transfer uses any, also one that has been forgotten, or one is made or closed: there may be room for others soon.
bool OfiRegistrations::IsBusy() const {
  const auto in_use = [](const auto& one) { return one.second.region.use_count() > 1; };
  return under_way_ > 0 || std::any_of(by_begin_.begin(), by_begin_.end(), in_use) || std::any_of(forgotten_.begin(), forgotten_.end(), in_use);
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
  std::optional<UnderWay> closing;
  std::multimap<uintptr_t, Registered> closed;  // by its end, without the mutex, and before `closing` ends
  MutexLock lock(mutex_);
  for (auto one = forgotten_.begin(); one != forgotten_.end();) {
    const auto next = std::next(one);
    // Nobody finds it any more, so a count of one stays.
    if (one->second.region.use_count() == 1) {
      if (!closing) closing.emplace(this);
      closed.insert(forgotten_.extract(one));
    }
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
