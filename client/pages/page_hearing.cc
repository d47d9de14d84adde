// PageSpace, seventh part: what policies hear of blocks that are at home, where the program uses them without a fault. A policy that foresees has to know that a block was used when it should be, or takes it for dead: sweeps over twice the
// memory limit would read all of the data each time instead of half of it. So a huge page of which the policy wants to hear again (it has cleared kReferenced) moves back to its frame, and its next touch is a fault without a transfer. That
// is of some us, beside the 100 or more that its bytes take to be used once. Smaller blocks are moved page by page, and would have more faults than bytes.
//
// Not at once: a thread that goes through several arrays, and others beside it, are in some blocks each; and not oftener than it can be worth (heard_ring.h).
#include <algorithm>
#include <utility>

#include "client/engine/engine.h"
#include "client/pages/page_space.h"
#include "common/huge_page.h"

namespace ramspan {
namespace {

constexpr uint64_t kLateInMemory = 2;  // blocks are due when at most this part of those that memory holds have been heard of after them

}  // namespace

bool PageSpace::IsHeardOf(uint64_t bytes) const { return bytes >= kHugePageBytes || is_restless_; }

// After the block has come home.
void PageSpace::NoteHeard(const Sized& block, Came came) {
  if (!IsHeardOf(block.bytes) || !userfault_.moves() || came == Came::kWasThere) return;
  const auto most = static_cast<uint32_t>(std::min<uint64_t>(engine_->budget()->limit() / block.bytes / kLateInMemory, HeardRing::kMost));
  if (most < HeardRing::kLateLeast) return;
  uint32_t place = 0;
  const uint32_t number = heard_.Note(static_cast<uint32_t>(block.block - blocks_), &block.block->heard_at,
                                      came == Came::kHeard ? HeardRing::Came::kToBeHeard : HeardRing::Came::kFromSwap, most, &place);
  if (number == UINT32_MAX) return;
  Block* const due = blocks_ + number;
  if (due->heard_at.load(std::memory_order_relaxed) != place || !due->TryLockOnce()) return;  // heard of later, too; or somebody has it
  if (!IsInGrace(due->shown_ns.load(std::memory_order_relaxed))) HideToHear(due);
  due->Unlock();
}

// Where the policy wants to hear of it, and nobody needs it at home. REQUIRES: locked.
void PageSpace::HideToHear(Block* block) {
  const Chunk* const chunk = block->chunk.load(std::memory_order_relaxed);
  if (chunk == nullptr || !IsHeardOf(chunk->bytes) || Has(chunk, kReferenced) || !block->home || block->is_copied || HasToStay(block, chunk) || !heard_.MayHide()) return;
  NoteHidden(HomeOf(*block));
  if (forks_.load() != 0) return;  // in the total order with the table of what is hidden: a fork sees this one, or this one sees the fork
  if (!LeaveHome(block, chunk)) return;
  block->is_hidden = true;
  heard_.CountHidden();
}

// Its size is to be changed when it comes from swap: its use was in order here, too.
bool PageSpace::IsHeardOnly(const Sized& block) const {
  if (block.bytes <= unit_bytes_ || !block.block->TryLockOnce()) return false;
  const bool is = block.block->is_hidden && block.block->chunk.load(std::memory_order_relaxed) != nullptr;
  block.block->Unlock();
  return is;
}

void PageSpace::NoteHidden(const char* home) { hidden_.Set(OffsetOf(home) / kAreaBytes, OffsetOf(home) / kAreaBytes + 1, true); }

// Blocks that are heard of, area by area in which one was hidden. `f` says of each whether its area is to be looked at again next time.
template <typename F>
void PageSpace::ForEachInHidden(F f) {
  if (heard_.IsUnused()) return;
  const size_t areas = (used_end_.load(std::memory_order_relaxed) * unit_bytes_ + kAreaBytes - 1) / kAreaBytes;
  for (size_t area = 0; area < areas; ++area) {
    if (area % 64 == 0 && hidden_.AreNone64(area)) area += 63;
    if (area >= areas || !hidden_[area]) continue;
    bool again = false;
    for (char *at = homes_.begin + area * kAreaBytes, *const end = std::min(at + kAreaBytes, homes_.begin + homes_.bytes); at < end;) {
      const Sized one = At(at);
      at = one.end();
      if (IsHeardOf(one.bytes) && one.block->chunk.load(std::memory_order_relaxed) != nullptr) again |= f(one.block);  // descriptors of what was never touched take no memory
    }
    if (!again) hidden_.Clear(area, area + 1);
  }
}

// Who has such a block's lock has its frame, too: an eviction takes it by that (Hide), and all else that needs it has made it no longer hidden. One that another thread has for long stays: it costs the child its pages.
// REQUIRES: CountForks has counted this fork, so that none is hidden meanwhile.
void PageSpace::ShowHidden() {
  ForEachInHidden([this](Block* block) {
    if (!block->TryLock()) return true;
    Chunk* const chunk = block->chunk.load(std::memory_order_relaxed);
    if (chunk != nullptr && block->is_hidden && !block->home) {
      Show(block, chunk, HomeOf(*block));
      block->was_hidden = true;
    }
    const bool again = block->was_hidden;
    block->Unlock();
    return again;
  });
}

void PageSpace::HideShown() {
  if (forks_.load() != 0) return;
  ForEachInHidden([this](Block* block) {
    if (!block->TryLockOnce()) return true;
    if (std::exchange(block->was_hidden, false)) HideToHear(block);
    block->Unlock();
    return true;  // others may be hidden meanwhile
  });
}

}  // namespace ramspan
