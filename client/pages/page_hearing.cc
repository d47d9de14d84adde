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

// After the block has come home.
void PageSpace::NoteHeard(const Sized& block, Came came) {
  if ((block.bytes < kHugePageBytes && !is_restless_) || !userfault_.moves() || came == Came::kWasThere) return;
  const auto most = static_cast<uint32_t>(std::min<uint64_t>(engine_->budget()->limit() / block.bytes / kLateInMemory, kHeardMost - 1));
  if (most < kLateLeast) return;
  uint32_t late = std::clamp(heard_late_.load(std::memory_order_relaxed), kLateLeast, most);
  const uint32_t place = heard_next_.fetch_add(1, std::memory_order_relaxed), before = block.block->heard_at.exchange(place, std::memory_order_relaxed);
  const bool is_early = came == Came::kHeard && place - before <= 2 * late;
  if (came == Came::kFromSwap && may_hide_.load(std::memory_order_relaxed) < static_cast<int32_t>(kHeardAnArrival * most)) may_hide_.fetch_add(kHeardAnArrival, std::memory_order_relaxed);
  if (is_early && may_hide_.load(std::memory_order_relaxed) > 0) may_hide_.fetch_sub(kHeardAnArrival, std::memory_order_relaxed);
  const uint32_t decays = place % kLateDecays == 0 ? 1 : 0;
  late = is_early ? std::min(2 * late, most) : std::max(late - decays, kLateLeast);
  heard_late_.store(late, std::memory_order_relaxed);
  heard_[place % kHeardMost].store(static_cast<uint32_t>(block.block - blocks_) + 1, std::memory_order_relaxed);
  const uint32_t number = heard_[(place - late) % kHeardMost].exchange(0, std::memory_order_relaxed);
  if (number != 0) HideToHear(blocks_ + number - 1, place - late);
}

// Unless it was heard of later, too, or has to stay.
void PageSpace::HideToHear(Block* block, uint32_t place) {
  if (block->heard_at.load(std::memory_order_relaxed) != place || may_hide_.load(std::memory_order_relaxed) <= 0 || !block->TryLockOnce()) return;
  const Chunk* const chunk = block->chunk.load(std::memory_order_relaxed);
  const bool may = chunk != nullptr && (chunk->bytes >= kHugePageBytes || is_restless_) && forks_.load(std::memory_order_relaxed) == 0 && block->home && !Has(chunk, kReferenced) && !HasCountedPins(chunk) && !block->held && block->calls == 0 && !block->is_copied &&
                   !IsInGrace(block->shown_ns.load(std::memory_order_relaxed));
  if (may) {
    may_hide_.fetch_sub(1, std::memory_order_relaxed);
    const bool done = MoveAway(HomeOf(*block), static_cast<std::byte*>(chunk->frame), chunk->bytes) == 0;
    if (done) block->home = false;
    block->is_hidden = done;
    (done ? moves_away_ : stuck_).fetch_add(1, std::memory_order_relaxed);
  }
  block->Unlock();
}

// Its size is to be changed when it comes from swap: its use was in order here, too.
bool PageSpace::IsHeardOnly(const Sized& block) const {
  if (block.bytes <= unit_bytes_ || !block.block->TryLockOnce()) return false;
  const bool is = block.block->is_hidden && block.block->chunk.load(std::memory_order_relaxed) != nullptr;
  block.block->Unlock();
  return is;
}

// Who has such a block's lock has its frame, too: an eviction takes it by that (Hide), and all else that needs it has made it no longer hidden. One that another thread has for long stays: it costs the child its pages.
void PageSpace::ShowHidden() {
  if (heard_next_.load(std::memory_order_relaxed) == 0) return;
  for (char *at = homes_.begin, *const end = HomeOfUnit(used_end_.load(std::memory_order_relaxed)); at < end;) {
    const Sized one = At(at);
    at = is_restless_ ? one.end() : std::max(one.end(), HomeOfUnit(UnitOf(at) + 1));
    if (one.bytes < kHugePageBytes && !is_restless_) continue;
    if (!one.block->TryLock()) continue;
    Chunk* const chunk = one.block->chunk.load(std::memory_order_relaxed);
    if (chunk != nullptr && one.block->is_hidden && !one.block->home) Show(one.block, chunk, one.home);
    one.block->Unlock();
  }
}

}  // namespace ramspan
