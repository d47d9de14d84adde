#include "client/arena/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "client/arena/fault_guard.h"
#include "common/check.h"
#include "common/huge_page.h"
#include "common/reserve_addresses.h"
#include "common/slot_ref.h"
#include "common/status.h"

namespace ramspan {
namespace {
constexpr size_t kQuarantineMax = 4096;  // each may be a mapping of its own, of which the kernel allows 65530
// How many cached frames of a class are looked at for one of exactly the right size: each look is a cache miss.
constexpr int kLooks = 8;
constexpr int kIdleLooks = 64;  // at frames of a class that stay, because each shares a huge page with others
constexpr uint64_t kIdlePiece = 4 << 20;  // goes at once: a third of a millisecond
constexpr uint64_t kSmallCut = 256 << 10;    // what is left of a region is less than that: an eighth
constexpr uint64_t kLeastRegions = 16;       // A region is committed as a whole: a small limit would notice.
}  // namespace

Arena::Arena(Budget* budget, const ArenaOptions& options) : budget_(budget), guard_(options.guard), before_pages_go_(options.before_pages_go) {
  // Sixteen times the limit leaves a free run for any chunk that fits it; the limit may also be raised later.
  const uint64_t want = options.addresses > 0 ? options.addresses
                                              : std::max(std::bit_ceil(budget->limit()) * 16, uint64_t{64} << 30);
  const AddressRange range = ReserveAddresses(want, budget->limit());
  base_ = range.begin;
  range_bytes_ = range.bytes;
  if (base_ == nullptr) throw std::bad_alloc();
  // Small frames must not grow into huge pages behind our back: the budget is exact.
  madvise(base_, range_bytes_, MADV_NOHUGEPAGE);
  try {
    huge_pages_ = !guard_ && reinterpret_cast<uintptr_t>(base_) % kHugePageBytes == 0;
    huge_.resize((range_bytes_ + kHugePageBytes - 1) / kHugePageBytes);
    addresses_ = new BuddyAllocator(range_bytes_ / kSwapGranule);
  } catch (const std::bad_alloc&) {
    munmap(base_, range_bytes_);
    throw;
  }
  if (guard_) ExplainFaults(base_, range_bytes_);
}

Arena::~Arena() {
  delete addresses_;
  if (before_pages_go_) before_pages_go_({reinterpret_cast<std::byte*>(base_), range_bytes_});
  munmap(base_, range_bytes_);
}

int Arena::ClassOf(uint64_t bytes) {
  const uint64_t granules = bytes / kSwapGranule;
  if (granules <= kExactClasses) return static_cast<int>(granules) - 1;
  return kExactClasses + std::bit_width((granules - 1) / kExactClasses) - 1;
}

uint64_t Arena::available() const {
  const uint64_t limit = budget_->frames_limit();
  const uint64_t taken = in_use_ + reserved_;
  return limit > taken ? limit - taken : 0;
}

Reservation Arena::TryReserve(size_t exact) {
  const uint64_t bytes = RoundUpToGranule(exact);
  if (bytes > available()) return {};
  reserved_ += bytes;
  return Reservation(this, bytes);
}

Frame Arena::TryTake(size_t exact) {
  const uint64_t bytes = RoundUpToGranule(exact);
  if (bytes > available()) return {};
  return TakeRun(exact, bytes);
}

Frame Arena::TryTake(size_t exact, Reservation* reservation) {
  const uint64_t bytes = RoundUpToGranule(exact);
  RS_CHECK(reservation->bytes() == bytes, "a frame of %zu bytes from a reservation of %llu", exact,
           static_cast<unsigned long long>(reservation->bytes()));
  reserved_ -= bytes;
  Frame frame = TakeRun(exact, bytes);
  if (frame) {
    reservation->bytes_ = 0;
  } else {
    reserved_ += bytes;
  }
  return frame;
}

Frame Arena::TakeRun(size_t exact, uint64_t bytes) {
  if (committed() > budget_->frames_limit()) Trim(budget_->frames_limit());  // metadata has grown
  void* at = TakeCached(ClassOf(bytes), bytes);
  if (at == nullptr) at = CutRegion(bytes);
  if (at == nullptr && in_use_ + cached_ + bytes > budget_->frames_limit()) at = CutCached(bytes);
  if (at == nullptr) {
    if (!MakeRoomFor(bytes)) return {};
    auto unit = addresses_->Allocate(bytes / kSwapGranule);
    // Cached frames, of whatever size, hold addresses, too: the run may be among them.
    while (!unit && GiveBackOne()) unit = addresses_->Allocate(bytes / kSwapGranule);
    if (!unit) return {};
    at = base_ + *unit * kSwapGranule;
    if (bytes >= kHugePageBytes) {
      huge_[*unit * kSwapGranule / kHugePageBytes] = Huge::kNo;  // nothing else is left in it
      madvise(at, bytes & ~(kHugePageBytes - 1), MADV_HUGEPAGE);
    }
  }
  idle_ = std::min(idle_, cached_);
  in_use_ += bytes;
  CountPeak();
  return Frame(this, at, exact);
}

void Arena::CountPeak() { peak_ = std::max(peak_, committed() + budget_->metadata()); }

void* Arena::TakeCached(int size_class, uint64_t bytes) {
  Cached** list = &cache_[size_class];
  if (*list == nullptr) return nullptr;
  // Exact size first (the steady state of equal chunks); else the last one makes way.
  Cached** link = list;
  for (int look = 0; look < kLooks && *link != nullptr; ++look, link = &(*link)->next) {
    Cached* found = *link;
    if (found->bytes != bytes) continue;
    *link = found->next;
    cached_ -= bytes;
    return found;
  }
  // Another size of the same class: a fresh run of addresses keeps the buddy's trimmed tails consistent.
  DropFirst(list);
  return nullptr;
}

// The end of a larger cached frame, with its pages; the rest stays cached. Instead, all of its pages would go back to the kernel. Not of frames
// with huge pages, which have to stay aligned to those.
void* Arena::CutCached(uint64_t bytes) {
  CloseRegions();
  for (int c = ClassOf(kHugePageBytes); c > ClassOf(bytes); --c) {
    Cached* const frame = cache_[c];
    if (frame == nullptr || frame->bytes >= kHugePageBytes) continue;
    cache_[c] = frame->next;
    cached_ -= bytes;
    frame->bytes -= bytes;
    Cached*& rest = cache_[ClassOf(frame->bytes)];
    frame->next = std::exchange(rest, frame);
    return reinterpret_cast<char*>(frame) + frame->bytes;
  }
  return nullptr;
}

// The next bytes of a region that is being cut, or of a new one. Of sizes that leave much of it over there are none.
void* Arena::CutRegion(uint64_t bytes) {
  const bool small = bytes <= kSmallCut;
  if (!small && bytes != kHugePageBytes / 4 && bytes != kHugePageBytes / 2) return nullptr;
  Region& region = small ? small_ : large_;
  if (region.bytes < bytes && !Open(&region)) return nullptr;
  cached_ -= bytes;
  region.bytes -= bytes;
  return std::exchange(region.at, region.at + bytes);
}

bool Arena::Open(Region* region) {
  const uint64_t limit = budget_->frames_limit();
  if (!huge_pages_ || limit < kLeastRegions * kHugePageBytes || in_use_ + cached_ + kHugePageBytes > limit) return false;
  const auto unit = addresses_->Allocate(kHugePageBytes / kSwapGranule);
  if (!unit) return false;
  Close(region);
  *region = {base_ + *unit * kSwapGranule, kHugePageBytes};
  cached_ += kHugePageBytes;
  huge_[static_cast<size_t>(region->at - base_) / kHugePageBytes] = Huge::kWhole;
  madvise(region->at, kHugePageBytes, MADV_HUGEPAGE);
  return true;
}

// What is left of it is a cached frame as any other.
void Arena::Close(Region* region) {
  if (region->bytes == 0) return;
  Cached*& list = cache_[ClassOf(region->bytes)];
  list = new (region->at) Cached{list, region->bytes};
  region->bytes = 0;
}

void Arena::CloseRegions() {
  Close(&small_);
  Close(&large_);
}

// Before a frame of the region goes back to the kernel. MADV_NOHUGEPAGE: or the kernel would fill the hole, which the budget no longer counts.
// MADV_COLD of a part splits a huge page; without it the kernel keeps all of its memory until it is short of memory itself. It cannot split what a forked child
// shares, or a device holds: so it is asked again with the next frame.
void Arena::LeaveHugePage(size_t region, void* frame) {
  if (huge_[region] == Huge::kWhole) madvise(base_ + region * kHugePageBytes, kHugePageBytes, MADV_NOHUGEPAGE);
  madvise(frame, kSwapGranule, MADV_COLD);
  huge_[region] = Huge::kParts;
}

void Arena::LeaveHugePages() {
  huge_pages_ = false;
  for (size_t region = 0; region < huge_.size(); ++region) {
    if (huge_[region] != Huge::kNo) LeaveHugePage(region, base_ + region * kHugePageBytes);
  }
}

void Arena::DropFirst(Cached** list) {
  Cached* first = *list;
  *list = first->next;
  cached_ -= first->bytes;
  GiveBack(first, first->bytes);
}

bool Arena::MakeRoomFor(uint64_t bytes) {
  const uint64_t limit = budget_->frames_limit();
  for (int c = kClasses - 1; c >= 0 && in_use_ + cached_ + bytes > limit; --c) {
    while (cache_[c] != nullptr && in_use_ + cached_ + bytes > limit) DropFirst(&cache_[c]);
  }
  return in_use_ + cached_ + bytes <= limit;
}

// One frame that nobody uses gives its addresses back, a large one if there is any. False: there was none.
bool Arena::GiveBackOne() {
  CloseRegions();
  const auto list = std::find_if(cache_.rbegin(), cache_.rend(), [](const Cached* first) { return first != nullptr; });
  if (list != cache_.rend()) {
    DropFirst(&*list);
    return true;
  }
  if (quarantine_.empty()) return false;
  ReleaseOldest();
  return true;
}

void Arena::Put(void* frame, size_t exact) {
  const uint64_t bytes = RoundUpToGranule(exact);
  RS_CHECK(in_use_ >= bytes, "frame of %zu bytes returned twice", exact);
  in_use_ -= bytes;
  if (guard_) {
    Quarantine(frame, bytes);
    return;
  }
  if (in_use_ + cached_ + bytes > budget_->frames_limit()) {
    GiveBack(frame, bytes);  // the budget has shrunk
    return;
  }
  cached_ += bytes;
  Cached*& list = cache_[ClassOf(bytes)];
  list = new (frame) Cached{list, bytes};
}

void Arena::Quarantine(void* frame, uint64_t bytes) {
  DropPages(frame, bytes);
  // Without heap for its place it is used again at once, and who still points there is not found out.
  if (!WithinHeap([&] { return quarantine_.push_back({frame, bytes}), true; }, false)) return GiveBack(frame, bytes);
  mprotect(frame, bytes, PROT_NONE);
  if (quarantine_.size() > kQuarantineMax) ReleaseOldest();
}

void Arena::ReleaseOldest() {
  const auto [frame, bytes] = quarantine_.front();
  quarantine_.pop_front();
  mprotect(frame, bytes, PROT_READ | PROT_WRITE);
  GiveBack(frame, bytes);
}

void Arena::Trim(uint64_t target) {
  if (in_use_ + cached_ > target) CloseRegions();
  for (Cached*& list : cache_) {
    while (list != nullptr && in_use_ + cached_ > target) DropFirst(&list);
  }
}

uint64_t Arena::TrimSome(uint64_t most) {
  const uint64_t before = cached_;
  for (auto list = cache_.rbegin(); list != cache_.rend(); ++list) {
    Cached** link = &*list;
    for (int passed = 0; *link != nullptr && passed < kIdleLooks && before - cached_ < kIdlePiece;) {
      if (before - cached_ + (*link)->bytes > most) break;  // a smaller one may do
      if (huge_[static_cast<size_t>(reinterpret_cast<char*>(*link) - base_) / kHugePageBytes] == Huge::kWhole) {
        ++passed;
        link = &(*link)->next;
      } else {
        DropFirst(link);
      }
    }
  }
  return before - cached_;
}

uint64_t Arena::TrimOneBetween(uint64_t least, uint64_t most) {
  const uint64_t before = cached_;
  for (auto list = cache_.rbegin(); list != cache_.rend() && before == cached_; ++list) {
    if (*list != nullptr && (*list)->bytes > least && (*list)->bytes <= most) DropFirst(&*list);
  }
  return before - cached_;
}

void Arena::DropPages(void* frame, uint64_t bytes) {
  if (before_pages_go_) before_pages_go_({static_cast<std::byte*>(frame), bytes});
  const size_t region = static_cast<size_t>(static_cast<char*>(frame) - base_) / kHugePageBytes;
  if (huge_[region] != Huge::kNo) LeaveHugePage(region, frame);  // a frame that was cut from one lies in it whole
  madvise(frame, bytes, MADV_DONTNEED);
}

void Arena::GiveBack(void* frame, uint64_t bytes) {
  DropPages(frame, bytes);
  if (bytes >= kHugePageBytes) madvise(frame, bytes & ~(kHugePageBytes - 1), MADV_NOHUGEPAGE);
  addresses_->Free(static_cast<uint64_t>(static_cast<char*>(frame) - base_) / kSwapGranule, bytes / kSwapGranule);
}

}  // namespace ramspan
