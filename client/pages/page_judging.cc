// PageSpace, eighth part: of which size an area's blocks should be. Judged by area (32 MiB), by two things that cost nothing to see:
// - whether a fault's neighbours came within the last kNear faults (fewer, where blocks are few): what is used in order is one large block soon;
// - how many pages of a unit are used at one time. Units that are watched, one of kWatchedOf, come in pages where others of their area are units: so many pages for each time that one of them is visited. Who uses one page of each unit, one unit after the other (compilers, interpreters, columns of a matrix), would have large blocks by the former.
// Large blocks become units from time to time, to see how full these are. Each time that an area turns out to have been right, the next guess needs four times the evidence.
#include <algorithm>

#include "client/engine/engine.h"
#include "client/pages/page_space.h"

namespace ramspan {
namespace {

constexpr uint32_t kNear = 64, kNearLeast = 4;  // faults: at most, at least
constexpr int kGrow = 16;            // so many more faults with a neighbour than without
constexpr uint8_t kRowOfSweep = 32;  // pages that came one after the other: a record of several is shorter, and where all are used at random there is no such row
constexpr int kSweepWeighs = 4, kSureOfSparse = 512;
constexpr int kShrinkUnit = 32, kShrinkLarge = 8;  // more without one than with, where it has not been wrong before
constexpr uint8_t kRowOfUnits = 2;    // and one beside those
constexpr int kFarOfUnits = 8;      // what one unit without a neighbour takes of what was for large blocks
constexpr int kSureOfLarge = 4;      // where faults are few, so that it is soon seen when they come here and there
constexpr int kFailuresMost = 6, kFailureWeighs = 2;  // each doubles what the next guess needs
constexpr uint64_t kLargestInLimit = 16;  // large blocks are at most this part of it, also where it is lower than at the start
// Of the limit: beyond it no more blocks become pages. Frames give way to descriptors up to 7/8, and small limits are soon full of what each block has anyway.
constexpr uint64_t kDescriptorsInLimit = 4, kDescriptorsInSmallLimit = 12, kDescriptorsAloneInSmallLimit = 5, kSmallLimit = 16 << 20;

constexpr size_t kWatchedOf = 64;
constexpr uint32_t kVisits = 6;                        // of watched units, until it is said how full they are; as often again for each failure
constexpr uint32_t kUnitsOfTrial = 2048;               // that came: where none of them is watched a trial ends without a verdict. Five times what kVisits take, for watched units stay where others go; as often again for each failure, as visits
constexpr uint32_t kUnitsOfTrialMost = 30'000;          // less than what is counted
constexpr uint32_t kSparsePages = 4, kDensePages = 7;  // a visit, of 16: a unit costs as much as four pages, a large block as much as half of its units
// Large blocks that came, until it is tried how full their units are; each trial in which they were right makes it four times as many. Few trials: in one, policies lose what they know of the area, and a quarter of it comes in units.
constexpr uint16_t kLargesUntilTrial = 1024;
constexpr uint8_t kTrialsMost = 2;
constexpr int kManyPages = 5;                          // of a unit, came lately: units may be right
constexpr uint64_t kPartUsedAnew = 16;

}  // namespace

// Descriptors of pages are not to take what the first touch of other blocks needs.
bool PageSpace::IsFullOfDescriptors() const {
  const uint64_t limit = engine_->budget()->limit();
  const uint64_t in_small = has_limit_alone_ ? kDescriptorsAloneInSmallLimit : kDescriptorsInSmallLimit;
  return engine_->budget()->metadata() > limit / (limit < kSmallLimit ? in_small : kDescriptorsInLimit);
}

// As far as it can be.
PageSpace::Size PageSpace::Wanted(const Area& area) const {
  const auto wanted = static_cast<Size>(area.wanted.load(std::memory_order_relaxed));
  if (wanted == kLarge && sizes_[kLarge] > engine_->budget()->limit() / kLargestInLimit) return kUnit;  // the limit has been lowered
  return wanted == kPage && IsFullOfDescriptors() ? kUnit : wanted;
}

// One of kWatchedOf; not always the same one of each row.
bool PageSpace::IsWatched(size_t unit) const { return unit % kWatchedOf == unit / kWatchedOf * 29 % kWatchedOf; }

PageSpace::Size PageSpace::WantedAt(const Area& area, const void* address) const {
  const Size wanted = Wanted(area);
  const bool watches = wanted == kUnit && area.wanted.load(std::memory_order_relaxed) == kUnit && !is_restless_ && IsWatched(UnitOf(address)) && !IsFullOfDescriptors();
  return watches ? kPage : wanted;
}

// With whatever came with it. Counts only, of several threads: what is lost of them does not matter. Not where pages have no room for descriptors: then no unit is watched.
void PageSpace::CountArrival(const Sized& block) {
  Area& area = AreaOf(block.home);
  const uint8_t wanted = area.wanted.load(std::memory_order_relaxed);
  const auto count = [](std::atomic<uint16_t>* counter) {
    if (counter->load(std::memory_order_relaxed) < UINT16_MAX / 2) counter->fetch_add(1, std::memory_order_relaxed);
  };
  if (sizes_[kPage] == unit_bytes_ || IsFullOfDescriptors()) return;
  if (wanted == kLarge && block.bytes > unit_bytes_) count(&area.larges);
  if (wanted != kUnit) return;
  if (block.bytes == unit_bytes_) count(&area.units);
  if (block.bytes == unit_bytes_ || !IsWatched(UnitOf(block.home))) return;
  count(&area.pages);
  if (PagesThatCame(block.home, FaultsNow()) <= 1) count(&area.visits);  // itself
}

PageSpace::Fullness PageSpace::FullnessOf(const Area& area) const {
  const uint32_t visits = area.visits.load(std::memory_order_relaxed), pages = area.pages.load(std::memory_order_relaxed);
  if (visits < kVisits << area.failures.load(std::memory_order_relaxed)) return kUnknown;
  return pages < kSparsePages * visits ? kSparse : pages < kDensePages * visits ? kHalf : kDense;
}

// Of a unit, within the time in which a part of memory is used anew.
int PageSpace::PagesThatCame(const void* address, uint32_t now) const {
  const auto lately = static_cast<uint32_t>(std::clamp<uint64_t>(engine_->budget()->limit() / sizes_[kPage] / kPartUsedAnew, kNear, UINT16_MAX));
  int came = 0;
  const char* const begin = HomeOfUnit(UnitOf(address));
  for (const char* at = begin; at < begin + unit_bytes_; at += sizes_[kPage]) came += CameNear(at, now, lately);
  return came;
}

// What has been seen was of the size before.
void PageSpace::Turn(Area* area, Size next) {
  area->score.store(0, std::memory_order_relaxed);
  area->units.store(0, std::memory_order_relaxed);
  area->pages.store(0, std::memory_order_relaxed);
  area->visits.store(0, std::memory_order_relaxed);
  area->larges.store(0, std::memory_order_relaxed);
  area->on_trial.store(false, std::memory_order_relaxed);
  area->is_doubted.store(false, std::memory_order_relaxed);
  area->wanted.store(next, std::memory_order_relaxed);
}

// Units until it is known how full they are.
void PageSpace::Try(Area* area) {
  Turn(area, kUnit);
  area->on_trial.store(true, std::memory_order_relaxed);
}

// After it has come.
void PageSpace::Judge(const Sized& block, Came came) {
  Area& area = AreaOf(block.home);
  if (area.begun.load(std::memory_order_relaxed) == 0 && area.begun.exchange(1, std::memory_order_relaxed) == 0 && OffsetOf(block.home) >= kAreaBytes) {
    area.wanted.store(AreaOf(block.home - kAreaBytes).wanted.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  // Pages that are more than descriptors have room for may stay so, and are seen to be used in order, too.
  const bool is_page = block.bytes < unit_bytes_ && area.wanted.load(std::memory_order_relaxed) == kPage;
  Size wanted = is_page ? kPage : Wanted(area);
  if (wanted == kLarge && block.bytes == unit_bytes_ && !MayBeLarge(block.home)) wanted = kUnit;  // what cannot be larger
  if (is_restless_) {
    const uint32_t lot = FaultsNow() * 2654435761U >> 16;
    if (lot % 4 == 0) area.wanted.store(static_cast<uint8_t>(lot / 4 % kSizes), std::memory_order_relaxed);
    return;
  }
  CountArrival(block);
  if (block.bytes == unit_bytes_ && wanted == kUnit && came == Came::kFromSwap && area.wanted.load(std::memory_order_relaxed) == kPage) cramped_.fetch_add(1, std::memory_order_relaxed);
  if (block.bytes != sizes_[wanted]) return;
  if (wanted == kPage && came != Came::kFromSwap) return;  // first touches, which programs make in order, tell nothing of what is read
  const Fullness full = FullnessOf(area);
  if (wanted == kLarge && !IsFullOfDescriptors() && area.larges.load(std::memory_order_relaxed) >= kLargesUntilTrial << 2 * area.trials.load(std::memory_order_relaxed)) {
    return Try(&area);
  }
  // Where no unit can be watched just now it waits, and what came beside units counts alone.
  const bool on_trial = area.on_trial.load(std::memory_order_relaxed) && !IsFullOfDescriptors();
  const bool in_vain = full == kUnknown && area.units.load(std::memory_order_relaxed) >= std::min(kUnitsOfTrial << area.failures.load(std::memory_order_relaxed), kUnitsOfTrialMost);
  if (on_trial && (full == kDense || full == kHalf || in_vain)) {
    area.on_trial.store(false, std::memory_order_relaxed);
    // Full units alone are no reason to be large: records of some units, here and there, fill them, too.
    if (area.score.load(std::memory_order_relaxed) >= kGrow / 2 && (full == kDense || (in_vain && !area.is_doubted.load(std::memory_order_relaxed)))) {
      area.trials.store(std::min<uint8_t>(area.trials.load(std::memory_order_relaxed) + 1, kTrialsMost), std::memory_order_relaxed);
      return Turn(&area, kLarge);
    }
  }
  if (wanted == kUnit && full == kSparse) {
    area.trials.store(0, std::memory_order_relaxed);  // what they said does not hold any more
    Turn(&area, kPage);
    return area.score.store(-kSureOfSparse, std::memory_order_relaxed);
  }
  if (area.visits.load(std::memory_order_relaxed) >= 4 * kVisits << area.failures.load(std::memory_order_relaxed)) {  // what the program does now counts
    area.visits.store(area.visits.load(std::memory_order_relaxed) / 2, std::memory_order_relaxed);
    area.pages.store(area.pages.load(std::memory_order_relaxed) / 2, std::memory_order_relaxed);
  }
  const uint32_t now = FaultsNow();
  // Where blocks are few, one beside it came lately by chance: of blocks that are touched anywhere, this one's neighbours in one case of six.
  const auto near = static_cast<uint32_t>(std::clamp<uint64_t>(touched_bytes() / block.bytes / 12, kNearLeast, kNear));
  // A row passes over what is at home: what jumps have left in memory lies in the way of a sweep.
  const bool is_near = wanted == kPage ? PagesThatCame(block.home, now) >= kManyPages
                                       : (wanted == kUnit && block.block->row.load(std::memory_order_relaxed) >= kRowOfUnits) || (block.home > homes_.begin && CameNear(block.home - 1, now, near)) || (block.end() < homes_.begin + homes_.bytes && CameNear(block.end(), now, near));
  const bool sweeps = wanted == kPage && block.block->row.load(std::memory_order_relaxed) >= kRowOfSweep;
  const int weight = sweeps ? kSweepWeighs : is_near ? 1 : -1;
  const int before = area.score.load(std::memory_order_relaxed), failures = area.failures.load(std::memory_order_relaxed);
  // A large block costs as much as half of its units: runs that are shorter than a third of it are not to make it large, however many there are.
  const int score = wanted == kUnit && !is_near && before > 0 ? std::max(before - kFarOfUnits, -1) : before + weight;
  Size next = wanted;
  if (score >= kGrow) next = wanted == kPage ? kUnit : kLarge;
  // Units that were found full tell that it was right to be large: it needs as much more until it is none again.
  const int needed = wanted == kLarge ? std::min(kShrinkLarge << (failures + 2 * area.trials.load(std::memory_order_relaxed)), kShrinkUnit << kFailuresMost) : kShrinkUnit << failures;
  if (score <= -needed) next = wanted == kLarge ? kUnit : kPage;
  // How full units are counts more than what came beside them; and where only small allocations are, none becomes large.
  if (next == kLarge && wanted == kUnit && !MayBeLarge(block.home)) next = kUnit;
  if (next == kPage && wanted == kUnit && area.wanted.load(std::memory_order_relaxed) == kPage) next = kUnit;  // as it is already, but for descriptors
  if (wanted == kUnit && (on_trial || (next == kLarge && (full == kSparse || full == kHalf)) || (next == kPage && full == kDense))) next = kUnit;
  if (sizes_[next] == sizes_[wanted]) {
    area.score.store(static_cast<int16_t>(std::clamp(score, wanted == kPage ? -kSureOfSparse : -(kShrinkUnit << kFailuresMost), wanted == kLarge ? kSureOfLarge : kGrow)), std::memory_order_relaxed);
    return;
  }
  if (sizes_[next] > sizes_[wanted] && wanted == kPage) area.failures.store(static_cast<uint8_t>(std::min(failures + kFailureWeighs, kFailuresMost)), std::memory_order_relaxed);
  // It has been large for a short time only, and not rightly: how full its units are must be known before it is again.
  if (wanted == kLarge && area.larges.load(std::memory_order_relaxed) < kLargesUntilTrial / 2) {
    Try(&area);
    return area.is_doubted.store(true, std::memory_order_relaxed);
  }
  Turn(&area, next);
}

void PageSpace::ExpectUse(const void* begin, size_t bytes, bool is_random) {
  if (!adapts_) return;
  for (uint64_t at = OffsetOf(begin), end = at + std::min<uint64_t>(bytes, homes_.bytes - at), next; at < end; at = next) {
    next = std::min(end, (at / kAreaBytes + 1) * kAreaBytes);
    if (next - at < kAreaBytes / 2) continue;
    Area& area = areas_[at / kAreaBytes];
    area.begun.store(1, std::memory_order_relaxed);
    Turn(&area, is_random ? kPage : kLarge);
  }
}

bool PageSpace::CameNear(const void* address, uint32_t now, uint32_t near) const {
  const uint32_t shown = BlockAt(address).shown_at.load(std::memory_order_relaxed);
  return shown != 0 && now - shown <= near;
}

}  // namespace ramspan
