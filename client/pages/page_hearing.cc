// PageSpace, seventh part: what policies hear of blocks that are at home, where the program uses them without a fault. A policy that foresees has to know that a block was used when it should be, or takes it for dead: sweeps over twice the
// memory limit would read all of the data each time instead of half of it. So a large block of which the policy wants to hear again (it has cleared kReferenced) moves back to its frame, and its next touch is a fault without a transfer. That
// is of some us, beside the 100 or more that its bytes take to be used once. Small blocks would have more faults than bytes.
//
// Not at once: a thread that goes through several arrays, and others beside it, are in some blocks each. It leaves home when some others have been heard of after it, and where such a block is touched again soon, that was too
// early, and twice as many have to come first. And not oftener than it can be worth: each block that came from swap pays for a few of such faults.
#include <algorithm>

#include "client/engine/engine.h"
#include "client/pages/page_space.h"

namespace ramspan {
namespace {

constexpr uint64_t kHeardLeastBytes = 512 << 10;
constexpr uint32_t kLateLeast = 8, kLateInMemory = 2;  // blocks that are heard of first: at least; at most this part of those that memory holds
constexpr int32_t kHeardAnArrival = 8;  // a fault of 5 to 20 us each, beside the 100 to 250 of a transfer; at an eighth of the data in swap, all that is in memory is heard of

}  // namespace

// After a use of the block was heard of. `was_hidden`: it was in memory, but not at home.
void PageSpace::NoteHeard(const Sized& block, bool was_hidden) {
  if ((block.bytes < kHeardLeastBytes && !is_restless_) || !userfault_.moves()) return;
  const auto most = static_cast<uint32_t>(std::min<uint64_t>(engine_->budget()->limit() / block.bytes / kLateInMemory, kHeardMost - 1));
  if (most < kLateLeast) return;
  if (!was_hidden) may_hide_.store(std::min(may_hide_.load(std::memory_order_relaxed) + kHeardAnArrival, static_cast<int32_t>(kHeardAnArrival * most)), std::memory_order_relaxed);
  uint32_t late = std::clamp(heard_late_.load(std::memory_order_relaxed), kLateLeast, most);
  const uint32_t place = heard_next_.fetch_add(1, std::memory_order_relaxed), before = block.block->heard_at.exchange(place, std::memory_order_relaxed);
  if (was_hidden && place - before <= 2 * late) {
    late = std::min(2 * late, most);
    heard_late_.store(late, std::memory_order_relaxed);
  }
  heard_[place % kHeardMost].store(static_cast<uint32_t>(block.block - blocks_), std::memory_order_relaxed);
  const uint32_t number = heard_[(place - late) % kHeardMost].exchange(0, std::memory_order_relaxed);
  if (number != 0) HideToHear(blocks_ + number, place - late);
}

// Unless it was heard of later, too, or has to stay.
void PageSpace::HideToHear(Block* block, uint32_t place) {
  if (block->heard_at.load(std::memory_order_relaxed) != place || may_hide_.load(std::memory_order_relaxed) <= 0 || !block->TryLock()) return;
  const Chunk* const chunk = block->chunk.load(std::memory_order_relaxed);
  const bool may = chunk != nullptr && block->home && !Has(chunk, kReferenced) && !HasCountedPins(chunk) && !block->held && block->calls == 0 && !block->is_copied &&
                   !IsInGrace(block->shown_ns.load(std::memory_order_relaxed));
  if (may && MoveAway(HomeOf(*block), static_cast<std::byte*>(chunk->frame), chunk->bytes) == 0) {
    block->home = false;
    moves_away_.fetch_add(1, std::memory_order_relaxed);
    may_hide_.fetch_sub(1, std::memory_order_relaxed);
  }
  block->Unlock();
}

}  // namespace ramspan
