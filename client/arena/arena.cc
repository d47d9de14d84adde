#include "client/arena/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "client/arena/fault_guard.h"
#include "common/check.h"
#include "common/slot_ref.h"

namespace ramspan {
namespace {
constexpr uint64_t kHuge = 2 << 20;
constexpr size_t kQuarantineMax = 4096;  // each may be a mapping of its own, of which the kernel allows 65530
}  // namespace

Arena::Arena(Budget* budget, bool guard) : budget_(budget), guard_(guard) {
  // Sixteen times the limit leaves a free run for any chunk that fits it; the limit may also be raised later.
  uint64_t want = std::max(std::bit_ceil(budget->limit()) * 16, uint64_t{64} << 30);
  for (; want >= budget->limit(); want /= 2) {
    void* range = mmap(nullptr, want, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) continue;
    base_ = static_cast<char*>(range);
    reserved_ = want;
    break;
  }
  RS_CHECK(base_ != nullptr, "cannot reserve addresses for a limit of %llu bytes (ulimit -v?)",
           static_cast<unsigned long long>(budget->limit()));
  // Small frames must not grow into huge pages behind our back: the budget is exact.
  madvise(base_, reserved_, MADV_NOHUGEPAGE);
  addresses_ = new BuddyAllocator(reserved_ / kSwapGranule);
  if (guard_) ExplainFaults(base_, reserved_);
}

Arena::~Arena() {
  delete addresses_;
  munmap(base_, reserved_);
}

int Arena::ClassOf(uint64_t bytes) { return std::bit_width(bytes / kSwapGranule - 1); }

uint64_t Arena::available() const {
  const uint64_t limit = budget_->frames_limit();
  return limit > in_use_ ? limit - in_use_ : 0;
}

void* Arena::TryTake(size_t exact) {
  const uint64_t bytes = RoundUpToGranule(exact);
  if (bytes > available()) return nullptr;
  if (committed() > budget_->frames_limit()) Trim(budget_->frames_limit());  // metadata has grown
  const int size_class = ClassOf(bytes);
  void* frame = TakeCached(size_class, bytes);
  if (frame == nullptr) {
    if (!MakeRoomFor(bytes)) return nullptr;
    auto unit = addresses_->Allocate(bytes / kSwapGranule);
    while (!unit && !quarantine_.empty()) {
      Release(quarantine_.front());
      quarantine_.pop_front();
      unit = addresses_->Allocate(bytes / kSwapGranule);
    }
    if (!unit) return nullptr;
    frame = base_ + *unit * kSwapGranule;
    if (bytes >= kHuge) madvise(frame, bytes & ~(kHuge - 1), MADV_HUGEPAGE);
  }
  in_use_ += bytes;
  CountPeak();
  return frame;
}

void Arena::CountPeak() { peak_ = std::max(peak_, committed() + budget_->metadata()); }

void* Arena::TakeCached(int size_class, uint64_t bytes) {
  auto& list = cache_[size_class];
  if (list.empty()) return nullptr;
  // Exact size first (the steady state of equal chunks); else resize the last one.
  auto it = std::find_if(list.rbegin(), list.rbegin() + std::min<size_t>(8, list.size()),
                         [&](const Cached& c) { return c.bytes == bytes; });
  Cached cached = list.back();
  if (it != list.rbegin() + std::min<size_t>(8, list.size())) {
    cached = *it;
    list.erase(std::next(it).base());
  } else {
    list.pop_back();
  }
  cached_ -= cached.bytes;
  if (cached.bytes == bytes) return base_ + cached.offset;
  // Another size of the same class: a fresh run of addresses keeps the buddy's trimmed tails consistent.
  GiveBack(cached.offset, cached.bytes);
  return nullptr;
}

bool Arena::MakeRoomFor(uint64_t bytes) {
  const uint64_t limit = budget_->frames_limit();
  for (int c = kClasses - 1; c >= 0 && committed() + bytes > limit; --c) {
    auto& list = cache_[c];
    while (!list.empty() && committed() + bytes > limit) {
      cached_ -= list.back().bytes;
      GiveBack(list.back().offset, list.back().bytes);
      list.pop_back();
    }
  }
  return committed() + bytes <= limit;
}

void Arena::Put(void* frame, size_t exact) {
  const uint64_t bytes = RoundUpToGranule(exact);
  RS_CHECK(in_use_ >= bytes, "frame of %zu bytes returned twice", exact);
  in_use_ -= bytes;
  const uint64_t offset = static_cast<uint64_t>(static_cast<char*>(frame) - base_);
  if (guard_) {
    Quarantine(offset, bytes);
    return;
  }
  if (in_use_ + cached_ + bytes > budget_->frames_limit()) {
    GiveBack(offset, bytes);  // the budget has shrunk
    return;
  }
  cached_ += bytes;
  cache_[ClassOf(bytes)].push_back({offset, bytes});
}

void Arena::Quarantine(uint64_t offset, uint64_t bytes) {
  madvise(base_ + offset, bytes, MADV_DONTNEED);
  mprotect(base_ + offset, bytes, PROT_NONE);
  quarantine_.push_back({offset, bytes});
  if (quarantine_.size() <= kQuarantineMax) return;
  Release(quarantine_.front());
  quarantine_.pop_front();
}

void Arena::Release(const Cached& quarantined) {
  mprotect(base_ + quarantined.offset, quarantined.bytes, PROT_READ | PROT_WRITE);
  GiveBack(quarantined.offset, quarantined.bytes);
}

void Arena::Trim(uint64_t target) {
  for (auto& list : cache_) {
    while (!list.empty() && committed() > target) {
      cached_ -= list.back().bytes;
      GiveBack(list.back().offset, list.back().bytes);
      list.pop_back();
    }
  }
}

void Arena::GiveBack(uint64_t offset, uint64_t bytes) {
  char* frame = base_ + offset;
  madvise(frame, bytes, MADV_DONTNEED);
  if (bytes >= kHuge) madvise(frame, bytes & ~(kHuge - 1), MADV_NOHUGEPAGE);
  addresses_->Free(offset / kSwapGranule, bytes / kSwapGranule);
}

}  // namespace ramspan
