#include "client/swap/lease_space.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/check.h"
#include "common/thread_scratch.h"

namespace ramspan {

class LeaseSpace::SilentToo {
 public:
  explicit SilentToo(LeaseSpace* space) : space_(*space) { Set(true); }
  ~SilentToo() { Set(false); }
  SilentToo(const SilentToo&) = delete;
  SilentToo& operator=(const SilentToo&) = delete;

 private:
  void Set(bool silent_too) {
    if (!space_.AnySilent()) return;
    space_.silent_too_ = silent_too;
    for (uint32_t i = 0; i < space_.leases_.size(); ++i) space_.Settle(i);
  }
  LeaseSpace& space_;
};

// Which leases give slots is said here alone, but for what OpenLeaving does.
void LeaseSpace::Settle(uint32_t lease) {
  const Held& held = leases_[lease];
  if (held.lease.bytes == 0) return;
  held.closed || (held.silent && !silent_too_) ? space_.CloseRegion(lease) : space_.OpenRegion(lease);
}

void LeaseSpace::SetSilent(uint32_t server, bool silent) {
  for (uint32_t i = 0; i < leases_.size(); ++i) {
    Held& held = leases_[i];
    if (held.lease.bytes == 0 || held.lease.server != server || std::exchange(held.silent, silent) == silent) continue;
    silent ? ++silent_ : --silent_;
    Settle(i);
  }
}

SlotRef LeaseSpace::ReserveSilent(size_t bytes) {
  const SilentToo opened(this);
  return Reserve(bytes);
}

bool LeaseSpace::Add(const Lease& lease) {
  if (leases_.size() == leases_.capacity()) leases_.reserve(2 * leases_.size() + 1);  // before there is a region of which nothing else is known
  const std::optional<uint32_t> index = space_.AddRegion(lease.bytes);
  if (!index) return false;
  if (leases_.size() <= *index) leases_.resize(*index + size_t{1});
  leases_[*index] = {.lease = lease};
  return true;
}

SlotRef LeaseSpace::Reserve(size_t bytes) {
  if (space_.free_bytes() < bytes) return {};
  ChoosePreferred(bytes);
  return space_.Reserve(bytes, preferred_);
}

// A scan, but only once a lease is full.
void LeaseSpace::ChoosePreferred(size_t bytes) {
  const bool still_there = preferred_ < leases_.size() && leases_[preferred_].lease.bytes != 0;
  if (still_there && space_.RegionFree(preferred_) >= bytes) return;
  preferred_ = 0;
  int best = std::numeric_limits<int>::max();
  for (uint32_t i = 0; i < leases_.size(); ++i) {
    const Lease& lease = leases_[i].lease;
    if (lease.bytes == 0 || lease.distance >= best || space_.RegionFree(i) < bytes) continue;
    best = lease.distance;
    preferred_ = i;
  }
}

void LeaseSpace::Free(SlotRef slot, size_t bytes) noexcept {
  // Where it is empty after this. In all others the mark is not set.
  space_.AnyExtentOf(slot, bytes, [this](const Extent& extent) { return leases_[extent.region].seen_empty = false; });
  space_.Free(slot, bytes);
}

SlotRef LeaseSpace::Exchange(std::span<const HeldSlot> given, size_t bytes, size_t* taken) {
  const SilentToo opened(this);  // what is exchanged there is there already
  const std::optional<size_t> in_open = space_.NeededOf(given, bytes);
  const std::optional<size_t> needed = in_open ? in_open : NeededWithLeaving(given, bytes);
  if (!needed) return {};
  space_.PrepareRow(bytes);  // while nothing is given back yet
  for (size_t i = 0; i < *needed; ++i) Free(given[i].slot, given[i].bytes);
  *taken = *needed;
  if (in_open) return Reserve(bytes);  // throws nothing, after PrepareRow
  const SlotRef slot = space_.ReserveRest(bytes, [this] { OpenLeaving(true); });
  OpenLeaving(false);
  return slot;
}

// So many of `given` make room for the slot, where it takes all that is free in the leases that stay, and of those that are to go back what
// was given up there: so no more is in them than before.
std::optional<size_t> LeaseSpace::NeededWithLeaving(std::span<const HeldSlot> given, size_t bytes) const {
  uint64_t there = space_.free_bytes();
  for (size_t n = 0; n < given.size(); ++n) {
    space_.AnyExtentOf(given[n].slot, RoundUpToGranule(given[n].bytes), [&](const Extent& one) {
      there += leases_[one.region].IsLost() ? 0 : one.bytes;
      return false;
    });
    if (there >= RoundUpToGranule(bytes)) return n + 1;
  }
  return std::nullopt;
}

// Lets leases that are to go back give slots, for the length of one call, and those of dead servers whose memory is of this host.
void LeaseSpace::OpenLeaving(bool open) {
  for (uint32_t i = 0; i < leases_.size(); ++i) {
    if (leases_[i].lease.bytes == 0 || !leases_[i].closed || leases_[i].IsLost()) continue;
    open ? space_.OpenRegion(i) : Settle(i);
  }
}

void LeaseSpace::Locate(SlotRef slot, size_t bytes, std::vector<RemotePiece>* pieces) const {
  std::vector<Extent>& extents = ThreadScratch<std::vector<Extent>, struct ExtentsTag>();
  extents.clear();
  space_.Resolve(slot, bytes, &extents);
  size_t left = bytes;
  for (const Extent& extent : extents) {
    const Lease& lease = leases_[extent.region].lease;
    const size_t n = std::min<size_t>(left, extent.bytes);
    RS_CHECK(extent.offset <= lease.bytes && n <= lease.bytes - extent.offset, "slot %llx reaches beyond its lease",
             static_cast<unsigned long long>(slot.bits));
    pieces->push_back({lease.server, lease.offset + extent.offset, n,
                       lease.mapped == nullptr ? nullptr : lease.mapped + extent.offset});
    left -= n;
  }
  RS_CHECK(left == 0, "slot %llx is shorter than its chunk", static_cast<unsigned long long>(slot.bits));
}

uint64_t LeaseSpace::CloseServer(uint32_t server, bool is_dead) {
  uint64_t lost = 0;
  for (uint32_t i = 0; i < leases_.size(); ++i) {
    if (leases_[i].lease.bytes == 0 || leases_[i].lease.server != server) continue;
    lost += space_.RegionUsed(i);
    leases_[i].closed = true;
    Settle(i);
    leases_[i].dead = leases_[i].dead || is_dead;
  }
  return lost;
}

void LeaseSpace::CloseSome(uint32_t server, uint64_t bytes) {
  uint64_t closed = 0;
  for (uint32_t i = 0; i < leases_.size(); ++i) {
    Held& held = leases_[i];
    if (held.lease.bytes == 0 || held.lease.server != server || held.dead || !held.closed) continue;
    held.closed = closed < bytes;
    if (held.closed) closed += held.lease.bytes;
    Settle(i);
  }
  while (closed < bytes) {
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < leases_.size(); ++i) {
      if (leases_[i].lease.bytes == 0 || leases_[i].lease.server != server || leases_[i].closed) continue;
      if (least == UINT32_MAX || space_.RegionUsed(i) < space_.RegionUsed(least)) least = i;
    }
    if (least == UINT32_MAX) return;
    leases_[least].closed = true;
    Settle(least);
    closed += leases_[least].lease.bytes;
  }
}

uint64_t LeaseSpace::leaving_bytes() const {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < leases_.size(); ++i) {
    if (leases_[i].lease.bytes != 0 && leases_[i].closed && !leases_[i].dead) bytes += space_.RegionUsed(i);
  }
  return bytes;
}

void LeaseSpace::AddTo(std::span<ServerStats> servers) const {
  for (uint32_t i = 0; i < leases_.size(); ++i) {
    const Held& held = leases_[i];
    if (held.lease.bytes == 0 || held.dead || held.lease.server >= servers.size()) continue;
    servers[held.lease.server].leased_bytes += held.lease.bytes;
    servers[held.lease.server].slot_bytes_used += space_.RegionUsed(i);
  }
}

bool LeaseSpace::IsLeaving(SlotRef slot, size_t bytes) const {
  return space_.AnyExtentOf(slot, bytes, [this](const Extent& one) { return IsLeaving(one); });
}

void LeaseSpace::TakeIdle(Time now, RunningClock::duration idle_for, uint64_t keep_free, std::vector<Lease>* idle) {
  const bool all_unused = space_.used_bytes() == 0;
  for (uint32_t i = 0; i < leases_.size(); ++i) {
    Held& held = leases_[i];
    if (held.lease.bytes == 0 || space_.RegionUsed(i) != 0) continue;
    if (!std::exchange(held.seen_empty, true)) held.empty_since = now;
    const bool spare = all_unused || space_.free_bytes() >= keep_free + held.lease.bytes;
    if (!held.closed && (!spare || now - held.empty_since < idle_for)) continue;
    // For all that may follow: what throws here has changed nothing, and nothing throws from here on.
    if (idle->size() == idle->capacity()) idle->reserve(leases_.size());
    space_.RemoveRegion(i);
    if (!held.dead || held.lease.mapped != nullptr) idle->push_back(held.lease);
    silent_ -= held.silent ? 1 : 0;
    held = {};
  }
}

}  // namespace ramspan
