// PageSpace, seventh part: what policies hear of blocks that are at home, where the program uses them without a fault. A policy that foresees has to know that a block was used when it should be, or takes it for dead: sweeps over twice the
// memory limit would read all of the data each time instead of half of it. So a huge page of which the policy wants to hear again (it has cleared kReferenced) moves back to its frame, and its next touch is a fault without a transfer. That
// is of some us, beside the 100 or more that its bytes take to be used once. Smaller blocks are moved page by page, and would have more faults than bytes.
//
// Not at once: a thread that goes through several arrays, and others beside it, are in some blocks each. It leaves home when some others have been heard of after it, and where such a block is touched again soon, that was too
// early, and twice as many have to come first. And not oftener than it can be worth: each block that came from swap pays for a few of such faults, and one that was too early costs as many.
#include <algorithm>

#include "client/engine/engine.h"
#include "client/pages/page_space.h"
#include "common/huge_page.h"

namespace ramspan {
namespace {

constexpr uint32_t kLateLeast = 8, kLateInMemory = 2;  // blocks that are heard of first: at least; at most this part of those that memory holds
constexpr uint32_t kLateDecays = 16;                   // by one, with each so many that were heard of
constexpr int32_t kHeardAnArrival = 8;  // a fault of 5 to 20 us each, beside the 100 to 250 of a transfer; at an eighth of the data in swap, all that is in memory is heard of

}  // namespace

bool PageSpace::IsHeardOf(uint64_t bytes) const { return bytes >= kHugePageBytes || is_restless_; }

// After the block has come home.
void PageSpace::NoteHeard(const Sized& block, Came came) {
  if (!IsHeardOf(block.bytes) || !userfault_.moves() || came == Came::kWasThere) return;
  const auto most = static_cast<uint32_t>(std::min<uint64_t>(engine_->budget()->limit() / block.bytes / kLateInMemory, kHeardMost - 1));
  if (most < kLateLeast) return;
  const uint32_t place = heard_next_.fetch_add(1, std::memory_order_relaxed), before = block.block->heard_at.exchange(place, std::memory_order_relaxed);
  const uint32_t late = std::clamp(heard_late_.load(std::memory_order_relaxed), kLateLeast, most);
  const bool is_early = came == Came::kHeard && place - before <= 2 * late;
  PayForHearing(came, is_early, static_cast<int32_t>(kHeardAnArrival * most));
  const uint32_t decays = place % kLateDecays == 0 ? 1 : 0, later = is_early ? std::min(2 * late, most) : std::max(late - decays, kLateLeast);
  heard_late_.store(later, std::memory_order_relaxed);
  heard_[place % kHeardMost].store(NumberHeard(block.block), std::memory_order_relaxed);
  HideIfDue(place - later);
}

void PageSpace::PayForHearing(Came came, bool is_early, int32_t most) {
  const int32_t left = may_hide_.load(std::memory_order_relaxed);
  if (came == Came::kFromSwap && left < most) may_hide_.fetch_add(kHeardAnArrival, std::memory_order_relaxed);
  if (is_early && left > 0) may_hide_.fetch_sub(kHeardAnArrival, std::memory_order_relaxed);
}

// The block that was heard of at that place, unless it was heard of later, too.
void PageSpace::HideIfDue(uint32_t place) {
  const uint32_t number = heard_[place % kHeardMost].exchange(0, std::memory_order_relaxed);
  if (number == 0) return;
  Block* const block = blocks_ + number - 1;
  if (block->heard_at.load(std::memory_order_relaxed) != place || !block->TryLockOnce()) return;
  if (!IsInGrace(block->shown_ns.load(std::memory_order_relaxed))) HideToHear(block);
  block->Unlock();
}

// Where the policy wants to hear of it, and nobody needs it at home. REQUIRES: locked.
void PageSpace::HideToHear(Block* block) {
  const Chunk* const chunk = block->chunk.load(std::memory_order_relaxed);
  if (chunk == nullptr || !IsHeardOf(chunk->bytes) || Has(chunk, kReferenced) || !block->home || block->is_copied || HasToStay(block, chunk) || may_hide_.load(std::memory_order_relaxed) <= 0) return;
  NoteHidden(HomeOf(*block));
  if (forks_.load() != 0) return;  // in the total order with the table of what is hidden: a fork sees this one, or this one sees the fork
  if (!LeaveHome(block, chunk)) return;
  block->is_hidden = true;
  may_hide_.fetch_sub(1, std::memory_order_relaxed);
}

// Its size is to be changed when it comes from swap: its use was in order here, too.
bool PageSpace::IsHeardOnly(const Sized& block) const {
  if (block.bytes <= unit_bytes_ || !block.block->TryLockOnce()) return false;
  const bool is = block.block->is_hidden && block.block->chunk.load(std::memory_order_relaxed) != nullptr;
  block.block->Unlock();
  return is;
}

void PageSpace::NoteHidden(const char* home) { hidden_.Set(OffsetOf(home) / kAreaBytes, OffsetOf(home) / kAreaBytes + 1, true); }

// Blocks that are heard of, in areas in which one was hidden. `f` gets the number of the area, too.
template <typename F>
void PageSpace::ForEachInHidden(F f) {
  if (heard_next_.load(std::memory_order_relaxed) == 0) return;
  const size_t areas = (used_end_.load(std::memory_order_relaxed) * unit_bytes_ + kAreaBytes - 1) / kAreaBytes;
  for (size_t area = 0; area < areas; ++area) {
    if (area % 64 == 0 && hidden_.AreNone64(area)) area += 63;
    if (area >= areas || !hidden_[area]) continue;
    for (char *at = homes_.begin + area * kAreaBytes, *const end = std::min(at + kAreaBytes, homes_.begin + homes_.bytes); at < end;) {
      const Sized one = At(at);
      at = one.end();
      if (IsHeardOf(one.bytes) && one.block->chunk.load(std::memory_order_relaxed) != nullptr) f(one, area);  // descriptors of what was never touched take no memory
    }
  }
}

// Who has such a block's lock has its frame, too: an eviction takes it by that (Hide), and all else that needs it has made it no longer hidden. One that another thread has for long stays: it costs the child its pages.
void PageSpace::ShowHidden() {
  ForEachInHidden([this, before = SIZE_MAX](const Sized& one, size_t area) mutable {
    if (area != before) hidden_.Clear(area, area + 1);
    before = area;
    if (!one.block->TryLock()) return NoteHidden(one.home);
    Chunk* const chunk = one.block->chunk.load(std::memory_order_relaxed);
    if (chunk != nullptr && one.block->is_hidden && !one.block->home) {
      Show(one.block, chunk, one.home);
      NoteHidden(one.home);  // to be so again
    }
    one.block->Unlock();
  });
}

void PageSpace::HideShown() {
  if (forks_.load() != 0) return;
  ForEachInHidden([this](const Sized& one, size_t) {
    if (!one.block->TryLockOnce()) return;
    HideToHear(one.block);
    one.block->Unlock();
  });
}

}  // namespace ramspan
