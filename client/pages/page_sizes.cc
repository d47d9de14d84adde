// PageSpace, sixth part: sizes of blocks that adapt to their use (URSL's future work). A unit's block begins as the unit. Where faults come to one block after the other, a whole run of units becomes
// one large block, which moves as a huge page and comes by one fault; where they come here and there, a unit becomes blocks of one page, so that nothing is read for a page that nobody uses.
//
// What an area's blocks should be (page_judging.cc) is only a wish: a block changes its size when it is touched the next time (Adapt), because its data has to come then anyway. A wrong guess costs a copy.
//
// A change: all old blocks and all new ones are pinned in the engine; then, with the old blocks locked, what is at home moves to its frame, data is copied from frame to frame, and descriptors change
// hands. Where a block becomes several and swap holds it as it is, no data is touched: their slots are parts of its own (Engine::Cut). Whoever has seen the old ones finds that they have no chunk any more, and looks again. One thread at a time; who finds another one at it goes on with the blocks as they are. Whatever fails,
// nothing has happened, but that blocks have left their home, to which the next touch brings them.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "client/engine/engine.h"
#include "client/pages/page_space.h"
#include "common/checksum.h"
#include "common/huge_page.h"

namespace ramspan {
namespace {

constexpr uint32_t kAfterFailure = 64;  // faults, until sizes change again where that could not be done

constexpr uint64_t kAdvice = kAdvisedKeep | kAdvisedOnce | kAdvisedSequential | kAdvisedRandom;

}  // namespace

class PageSpace::Converting {
 public:
  // Not on a stack that is of such memory: it would leave with its blocks.
  explicit Converting(PageSpace* space) : space_(space), does_(!space->Owns(__builtin_frame_address(0)) && !space->converts_.exchange(true, std::memory_order_acquire)) {}
  ~Converting() {
    if (does_) space_->converts_.store(false, std::memory_order_release);
  }
  Converting(const Converting&) = delete;
  Converting& operator=(const Converting&) = delete;
  explicit operator bool() const { return does_; }

 private:
  PageSpace* const space_;
  const bool does_;
};

// A block that begins there is the first of what becomes one larger block with its first touch.
bool PageSpace::BeginsLarger(const Sized& block) const {
  const Size wanted = WantedAt(AreaOf(block.home), block.home);
  return block.bytes < sizes_[wanted] && OffsetOf(block.home) % sizes_[wanted] == 0;
}

// Before the block comes for a touch of `address`.
void PageSpace::Adapt(const void* address) {
  Area& area = AreaOf(address);
  const Size wanted = WantedAt(area, address);
  if (area.keeps.load(std::memory_order_relaxed)) return;
  if (wanted == kUnit && area.wanted.load(std::memory_order_relaxed) == kPage && At(address).bytes < unit_bytes_) return;  // those that are pages may stay so
  if (At(address).bytes == sizes_[wanted] || static_cast<int32_t>(FaultsNow() - area.not_before.load(std::memory_order_relaxed)) < 0) return;
  if (IsHeardOnly(At(address))) return;
  const Converting converting(this);
  if (!converting) return;
  const Sized one = At(address);
  bool done = true;
  if (one.bytes == sizes_[wanted]) {
    // Another thread has done it.
  } else if (one.bytes > unit_bytes_) {
    done = Resize(one.home, kLarge, kUnit) && (wanted != kPage || Resize(HomeOfUnit(UnitOf(address)), kUnit, kPage));
  } else if (one.bytes < unit_bytes_ && (wanted == kUnit || !MayBeLarge(address))) {
    char* const begin = HomeOfUnit(UnitOf(address));
    if (IsAnyInGrace(begin, unit_bytes_)) return;
    done = Resize(begin, kPage, kUnit);
  } else if (wanted == kPage) {
    done = Resize(one.home, kUnit, kPage);
  } else {
    if (!MayBeLarge(address)) return;  // at an edge of its allocation; others of its area may
    char* const begin = homes_.begin + (OffsetOf(address) & -sizes_[kLarge]);
    if (IsAnyInGrace(begin, sizes_[kLarge])) {
      if (char* const unit = HomeOfUnit(UnitOf(address)); one.bytes < unit_bytes_ && !IsAnyInGrace(unit, unit_bytes_)) Resize(unit, kPage, kUnit);
      return;
    }
    for (char* at = begin; done && at < begin + sizes_[kLarge]; at += unit_bytes_) done = At(at).bytes == unit_bytes_ || Resize(at, kPage, kUnit);
    done = done && Resize(begin, kUnit, kLarge);
  }
  if (!done && !is_restless_) area.not_before.store(FaultsNow() + kAfterFailure, std::memory_order_relaxed);
}

bool PageSpace::IsAnyInGrace(const char* begin, uint64_t bytes) const {
  for (const char* at = begin; at < begin + bytes; at = At(at).end()) {
    if (IsInGrace(BlockAt(at).shown_ns.load(std::memory_order_relaxed))) return true;
  }
  return false;
}

bool PageSpace::MayBeLarge(const void* address) const { return IsOneAllocation(homes_.begin + (OffsetOf(address) & -sizes_[kLarge]), sizes_[kLarge]); }

bool PageSpace::IsOneAllocation(const char* begin, uint64_t bytes) const {
  if (begin + bytes > homes_.begin + homes_.bytes) return false;
  for (size_t first = UnitOf(begin), u = first; u < first + bytes / unit_bytes_; ++u) {
    if (!IsUsed(u) || (u != first && OfUnit(u).bytes.load(std::memory_order_relaxed) != 0)) return false;
  }
  return true;
}

// From several to one, or from one to several; it begins at `begin`. False: nothing was done. REQUIRES: Converting.
bool PageSpace::Resize(char* begin, Size from, Size to) {
  const uint64_t bytes = std::max(sizes_[from], sizes_[to]);
  const size_t olds = bytes / sizes_[from], news = bytes / sizes_[to];
  std::fill_n(of_old_, olds, nullptr);
  std::fill_n(of_new_, news, nullptr);
  bool done = true, is_touched = false;
  for (size_t i = 0; i < olds; ++i) {
    olds_[i] = &BlockAt(begin + i * sizes_[from]);
    is_touched |= olds_[i]->chunk.load(std::memory_order_acquire) != nullptr;
  }
  // Descriptors first: they may have to wait for memory, and nothing is pinned yet.
  for (size_t i = 0; done && i < news; ++i) {
    done = ChargeBlock(&blocks_[NumberOf(OffsetOf(begin + i * sizes_[to]))]).ok();
    if (!done || !is_touched) continue;
    Result<Chunk*> made = engine_->Create(sizes_[to]);
    done = made.ok();
    if (!done) break;
    of_new_[i] = made.value();
    of_new_[i]->refs.store(UINT32_MAX, std::memory_order_relaxed);
    SetBits(of_new_[i], kPages);
  }
  size_t pinned_olds = 0, pinned_news = 0;
  for (; done && pinned_olds < olds; ++pinned_olds) {
    std::atomic<Chunk*>& place = olds_[pinned_olds]->chunk;
    Chunk* const chunk = place.load(std::memory_order_acquire);
    done = chunk == nullptr || (is_touched && engine_->AcquireCounted(chunk, false, Engine::WhenPinned::kReturn, &place).ok());
    if (!done) break;
    of_old_[pinned_olds] = chunk;
  }
  // What swap holds already stays there.
  const bool is_cut = done && is_touched && news > 1 && SumParts(olds_[0], of_old_[0], {of_new_, news}) && engine_->Cut(of_old_[0], {of_new_, news});
  for (; done && is_touched && !is_cut && pinned_news < news; ++pinned_news) {
    done = engine_->AcquireCounted(of_new_[pinned_news], true, Engine::WhenPinned::kReturn).ok();
    if (!done) break;
  }
  if (done) done = Exchange(begin, from, to, is_cut);
  if (is_cut && !done) SetBits(of_old_[0], kDirty);
  // What has no block now goes.
  for (size_t i = 0; i < news; ++i) {
    if (of_new_[i] == nullptr) continue;
    if (i < pinned_news) of_new_[i]->state.fetch_sub(kOneCountedPin, std::memory_order_release);
    if (!done || !is_used_[i]) FreeChunk(of_new_[i]);
  }
  for (size_t i = 0; i < pinned_olds; ++i) {
    if (of_old_[i] == nullptr) continue;
    of_old_[i]->state.fetch_sub(kOneCountedPin, std::memory_order_release);
    if (done) FreeChunk(of_old_[i]);
  }
  if (!done) return false;
  if (is_touched || sizes_[from] < sizes_[to]) (sizes_[from] < sizes_[to] ? merges_ : splits_).fetch_add(1, std::memory_order_relaxed);  // what is nothing any more is not split
  return true;
}

// Checksums of what will be each part's. With the lock: the frame has no pages where the block goes home. False: there is none (any more), it is zeros whatever its frame and slot hold, is changed, or
// at home.
bool PageSpace::SumParts(Block* block, const Chunk* chunk, std::span<Chunk* const> parts) {
  const Locked locked(block);
  if (chunk == nullptr || block->chunk.load(std::memory_order_relaxed) != chunk || block->blank || block->home || !Has(chunk, kHasSlot) || Has(chunk, kDirty)) return false;
  const uint64_t bytes = parts[0]->bytes;
  for (size_t i = 0; i < parts.size(); ++i) parts[i]->checksum = Checksum(static_cast<const std::byte*>(chunk->frame) + i * bytes, bytes);
  return true;
}

// With everything pinned. REQUIRES: as Resize.
bool PageSpace::Exchange(char* begin, Size from, Size to, bool is_cut) {
  const uint64_t old_bytes = sizes_[from], new_bytes = sizes_[to], bytes = std::max(old_bytes, new_bytes);
  const size_t olds = bytes / old_bytes, news = bytes / new_bytes;
  // Who waits for one of them while he has another one may keep somebody waiting who has that and waits for him: so it does not wait for long.
  size_t locked = 0;
  while (locked < olds && olds_[locked]->TryLock()) ++locked;
  bool done = locked == olds;
  for (size_t i = 0; done && i < olds; ++i) {
    const Block* const block = olds_[i];
    done = block->chunk.load(std::memory_order_relaxed) == of_old_[i] && !block->held && block->calls == 0 && !block->is_copied && !block->is_protected && !block->is_locked &&
           (!block->home || !IsInGrace(block->shown_ns.load(std::memory_order_relaxed)));
    done = done && !(is_cut && (block->home || Has(of_old_[i], kDirty)));  // who brings it home has made it changed before
  }
  for (size_t i = 0; done && i < olds; ++i) {
    Block* const block = olds_[i];
    if (!block->home) continue;
    done = MoveAway(begin + i * old_bytes, static_cast<std::byte*>(of_old_[i]->frame), old_bytes) == 0;
    if (!done) continue;
    block->home = false;
    moves_away_.fetch_add(1, std::memory_order_relaxed);
  }
  if (done) {
    const auto is_zeros = [&](size_t i) { return of_old_[i] == nullptr || olds_[i]->blank; };
    bool are_zeros = true;
    for (size_t i = 0; i < olds; ++i) are_zeros &= is_zeros(i);
    uint64_t touched = 0;
    for (size_t i = 0; i < olds; ++i) touched += of_old_[i] != nullptr ? old_bytes : 0;
    std::fill_n(is_used_, news, is_cut);
    for (size_t i = 0; i < news && !is_cut; ++i) {
      if (of_new_[i] == nullptr || are_zeros) continue;
      auto* const frame = static_cast<std::byte*>(of_new_[i]->frame);
      if (new_bytes >= kHugePageBytes) LeaveFrame(frame, new_bytes);  // what is copied there gets a huge page instead of those of the small frames that were there
      if (new_bytes > old_bytes) {
        for (size_t k = 0; k < olds; ++k) is_zeros(k) ? memset(frame + k * old_bytes, 0, old_bytes) : memcpy(frame + k * old_bytes, of_old_[k]->frame, old_bytes);
      } else {
        memcpy(frame, static_cast<const char*>(of_old_[0]->frame) + i * new_bytes, new_bytes);
      }
      if (IsZero(reinterpret_cast<const char*>(frame), new_bytes)) continue;  // as never touched
      is_used_[i] = true;
      SetBits(of_new_[i], kDirty);
    }
    uint64_t advice = 0;
    for (size_t k = 0; k < olds; ++k) advice |= of_old_[k] == nullptr ? 0 : of_old_[k]->state.load(std::memory_order_relaxed) & kAdvice;
    // Whoever finds an old descriptor without its chunk finds the new size, too.
    for (size_t i = 0; i < news; ++i) {
      Block& block = blocks_[NumberOf(OffsetOf(begin) + i * new_bytes)];
      block.home = block.blank = block.is_hidden = false;
      block.row.store(0, std::memory_order_relaxed);
      if (news > 1) block.shown_at.store(0, std::memory_order_relaxed);
      if (is_used_[i]) of_new_[i]->refs.store(static_cast<uint32_t>(&block - blocks_), std::memory_order_release);
      if (is_used_[i]) SetBits(of_new_[i], advice);
      if (is_used_[i]) touched -= new_bytes;
      if (&block != olds_[0] || is_used_[i]) block.chunk.store(is_used_[i] ? of_new_[i] : nullptr);
    }
    SetSizes(begin, bytes, to);
    for (size_t i = 0; i < olds; ++i) {
      if (of_old_[i] != nullptr) of_old_[i]->refs.store(UINT32_MAX, std::memory_order_release);
      if (i > 0 || !is_used_[0]) olds_[i]->chunk.store(nullptr);
    }
    touched_bytes_.fetch_sub(touched, std::memory_order_relaxed);
  }
  for (Block* const block : std::span(olds_, locked)) block->Unlock();
  return done;
}

// In the total order with the blocks' `chunk`.
void PageSpace::SetSizes(char* begin, uint64_t bytes, Size size) {
  for (size_t u = UnitOf(begin), end = UnitOf(begin + bytes - 1); u <= end; ++u) sizes_of_[u].store(size);
}

// False: it is as large as it was.
bool PageSpace::SplitLarge(char* address) {
  const Converting converting(this);
  const Sized one = At(address);
  return converting && one.bytes > unit_bytes_ && Resize(one.home, kLarge, kUnit);
}

// What nobody uses any more is to be units for the next ones. Large blocks of which other parts are used stay, until those go, too.
void PageSpace::ResetSizes(char* begin, char* end) {
  for (char *at = begin, *next; at < end; at = next) {
    const Sized one = At(at);
    next = std::max(one.end(), HomeOfUnit(UnitOf(at) + 1));
    const size_t area_first = UnitOf(at) & ~(kAreaBytes / unit_bytes_ - 1);
    if (!used_.Any(area_first, std::min(area_first + kAreaBytes / unit_bytes_, homes_.bytes / unit_bytes_))) AreaOf(at).keeps.store(false, std::memory_order_relaxed);
    if (one.bytes == unit_bytes_ || used_.Any(UnitOf(one.home), UnitOf(one.end() - 1) + 1)) continue;
    if (one.block->chunk.load() != nullptr && !DropChunk(one, true)) continue;
    const Converting converting(this);
    if (!converting || !IsStill(one)) continue;
    if (one.bytes > unit_bytes_) {
      Resize(one.home, kLarge, kUnit);
    } else {
      Resize(HomeOfUnit(UnitOf(at)), kPage, kUnit);
    }
  }
}

// An untouched block at `to` becomes as large as that at `from`, whose place it is to take.
void PageSpace::MatchSizes(char* from, char* to) {
  if (!adapts_) return;
  const Converting converting(this);
  const Sized one = At(from), there = At(to);
  if (!converting || one.bytes == there.bytes || one.home != from || there.bytes != unit_bytes_) return;
  if (one.bytes < unit_bytes_) {
    if (!IsFullOfDescriptors() && there.home == to && there.block->chunk.load() == nullptr) Resize(to, kUnit, kPage);
    return;
  }
  if (OffsetOf(to) % one.bytes != 0 || !IsOneAllocation(to, one.bytes)) return;
  for (const char* at = to; at < to + one.bytes; at += unit_bytes_) {
    if (At(at).bytes != unit_bytes_ || BlockAt(at).chunk.load() != nullptr) return;
  }
  Resize(to, kUnit, kLarge);
}

// Large blocks of which only a part is in the range: what is done with that is done with all of the block.
void PageSpace::SplitEdges(char* begin, char* end) {
  constexpr int kTries = 10;  // one that has just come stays for its grace
  for (char* const at : {begin, end - 1}) {
    for (int i = 0; i < kTries; ++i) {
      const Sized one = At(at);
      if (one.block->is_protected || one.block->is_locked) break;
      if (one.bytes <= unit_bytes_ || (one.home >= begin && one.end() <= end) || SplitLarge(at)) break;
      std::this_thread::sleep_for(kNap);
    }
  }
}

}  // namespace ramspan
