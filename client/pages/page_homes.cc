// PageSpace, fifth part: homes that are given to the program, and come back: allocations, parts of them, and blocks that get another home.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "client/engine/engine.h"
#include "client/pages/page_space.h"
#include "common/log.h"

namespace ramspan {

void* PageSpace::Allocate(size_t bytes, size_t alignment) {
  if (bytes > homes_.bytes || alignment > alignment_) return nullptr;
  const uint64_t count = UnitsFor(bytes);
  const uint64_t aligned = std::max(count, alignment / unit_bytes_);
  std::optional<uint64_t> first;
  {
    MutexLock lock(mutex_);
    first = free_blocks_->Allocate(aligned);
    if (first && aligned > count) free_blocks_->Free(*first + count, aligned - count);
  }
  if (!first) return nullptr;
  if (!ChargeBlock(&OfUnit(*first)).ok() || !ChargeBlock(&OfUnit(*first + count - 1)).ok()) {
    MutexLock lock(mutex_);
    free_blocks_->Free(*first, count);
    return nullptr;
  }
  SetUsed(*first, bytes);
  return HomeOfUnit(*first);
}

// Touches descriptors of the first unit and of the last one only: the others' are to take no memory before they are used.
void PageSpace::SetUsed(size_t first, size_t bytes) {
  const size_t last = first + UnitsFor(bytes) - 1;
  OfUnit(first).bytes.store(bytes, std::memory_order_relaxed);
  const size_t tail = std::max<size_t>(1, bytes - (last - first) * unit_bytes_);
  OfUnit(last).tail.store(static_cast<uint32_t>(tail < unit_bytes_ ? tail : 0), std::memory_order_relaxed);
  NoteTaken(HomeOfUnit(first), bytes);
  MarkUsed(first, last + 1, true);
}

// Pages of units that are used are so again, or nobody's.
void PageSpace::NoteTaken(const char* begin, size_t bytes) {
  if (gives_back_.load(std::memory_order_relaxed) && bytes > 0) given_back_.Clear(PageOf(begin), PageOf(begin + bytes - 1) + 1);
}

// Of one unit, whatever was there has gone already. Units go with the last of their pages, in whatever order, and by whichever threads, these are given back: whether that is now.
bool PageSpace::IsLastGivenBack(const char* begin, size_t bytes) {
  const size_t unit = UnitOf(begin);
  gives_back_.store(true, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  const uint64_t used = UsedBytes(unit);
  if (used == 0) return false;
  given_back_.Set(PageOf(begin), PageOf(begin + bytes - 1) + 1, true);
  if (!given_back_.All(PageOf(HomeOfUnit(unit)), PageOf(HomeOfUnit(unit) + used - 1) + 1)) return false;
  MarkUsed(unit, unit + 1, false);  // nobody else frees it
  return true;
}

void PageSpace::MarkUsed(size_t first, size_t end, bool used) {
  used_.Set(first, end, used);
  uint64_t last = used_end_.load(std::memory_order_relaxed);
  while (used && last < end && !used_end_.compare_exchange_weak(last, end, std::memory_order_relaxed)) {
  }
}

void PageSpace::Free(void* begin) {
  const size_t first = UnitOf(begin);
  const uint64_t bytes = OfUnit(first).bytes.load(std::memory_order_relaxed);
  if (HomeOfUnit(first) != begin || !IsUsed(first) || bytes == 0) {
    EndForTheProgram("frees %p, which was not allocated, or was freed before, or is in the middle of an allocation", begin);
  }
  FreeUnits(first, first + UnitsFor(bytes));
}

// A thread that comes for a block late, after another one has served the same touch, makes no chunk of it any more (used_).
void PageSpace::FreeUnits(size_t first, size_t end) {
  MarkUsed(first, end, false);
  const bool is_plain = LeavePlain(HomeOfUnit(first), (end - first) * unit_bytes_);  // nobody else uses it
  NoteTaken(HomeOfUnit(first), (end - first) * unit_bytes_);
  for (size_t u = first; u < end; ++u) {
    Block& unit = OfUnit(u);
    if (unit.tail.load(std::memory_order_relaxed) != 0) unit.tail.store(0, std::memory_order_relaxed);
    if (unit.bytes.load(std::memory_order_relaxed) != 0) unit.bytes.store(0, std::memory_order_relaxed);
  }
  if (!DropChunks(HomeOfUnit(first), HomeOfUnit(end))) return;
  if (!is_plain) return LogWarning("memory of %zu KiB that is swapped by pages was given back and is not used again: its protection cannot be changed (sysctl vm.max_map_count)", static_cast<size_t>((end - first) * unit_bytes_) >> 10);
  if (adapts_) ResetSizes(HomeOfUnit(first), HomeOfUnit(end));
  MutexLock lock(mutex_);
  free_blocks_->Free(first, end - first);
}

// Pages that are the program's no more, or others'. False: the kernel does not let all of them be plain.
bool PageSpace::LeavePlain(char* begin, size_t bytes) {
  bool all = true;
  for (char *at = begin, *const end = begin + bytes, *next; at < end; at = next) {
    const Sized one = At(at);
    next = std::min(end, one.end());
    if (one.block->is_protected) all &= Protect(at, static_cast<size_t>(next - at), PROT_READ | PROT_WRITE) == 0;
    if (one.block->is_locked) Unlock(at, static_cast<size_t>(next - at));
  }
  return all;
}

void* PageSpace::Reallocate(void* begin, size_t bytes) {
  const size_t before = BytesOf(begin), first = UnitOf(begin), count = UnitsFor(before), needed = UnitsFor(bytes);
  auto* const from = static_cast<char*>(begin);
  if (bytes > before) {  // something else may have been there
    NoteTaken(from + before, count * unit_bytes_ - before);
    DropChunks(from + before, from + count * unit_bytes_);
  }
  if (needed <= count) {
    if (needed < count) FreeUnits(first + needed, first + count);
    SetUsed(first, bytes);
    return begin;
  }
  auto* const larger = static_cast<char*>(Allocate(bytes, unit_bytes_));
  if (larger == nullptr) return nullptr;
  for (size_t at = 0, end = count * unit_bytes_; at < end;) {
    uint64_t done = 0;
    MatchSizes(from + at, larger + at);
    if (!Rehome(from + at, larger + at, end - at, &done)) {
      // A device holds its pages, or they have another protection, or it is of another size there.
      const Sized one = At(from + at);
      done = std::min<uint64_t>(static_cast<uint64_t>(one.end() - (from + at)), end - at);
      static_cast<void>(LeavePlain(from + at, done));
      memcpy(larger + at, from + at, done);
      if (one.home == from + at && one.bytes <= done) DropChunk(one);
    }
    at += done;
  }
  Free(begin);
  return larger;
}

// The block that begins at `from`, if it is of not more than `most` bytes; `bytes`: how many. Also where an eviction is under way: who looks for the chunk's block finds the one or the other (TakeAway). False: nothing was done.
bool PageSpace::Rehome(char* from, char* to, uint64_t most, uint64_t* bytes) {
  const Sized before = At(from), after = At(to);
  if (before.block->chunk.load() == nullptr && IsStill(before)) return *bytes = std::min(most, static_cast<uint64_t>(before.end() - from)), true;
  if (before.bytes > most || before.bytes != after.bytes || before.home != from || after.home != to || !ChargeBlock(after.block).ok()) return false;
  const Locked first(std::min(before.block, after.block)), second(std::max(before.block, after.block));
  if (At(from).bytes != before.bytes || At(to).bytes != after.bytes) return false;
  *bytes = before.bytes;
  Block &old = *before.block, &now = *after.block;
  Chunk* const chunk = old.chunk.load(std::memory_order_relaxed);
  if (chunk == nullptr) return true;
  if (old.held || old.calls > 0 || old.is_copied || now.chunk.load(std::memory_order_relaxed) != nullptr) return false;
  if (old.home && (!userfault_.moves() || userfault_.Move(to, from, before.bytes, Userfault::MayBeShared::kNo) != 0)) return false;
  now.home = old.home.exchange(false);
  now.blank = std::exchange(old.blank, false);
  now.is_hidden = std::exchange(old.is_hidden, false);
  if (now.is_hidden) NoteHidden(to);
  now.shown_ns.store(old.shown_ns.load(std::memory_order_relaxed), std::memory_order_relaxed);
  now.shown_at.store(old.shown_at.load(std::memory_order_relaxed), std::memory_order_relaxed);
  chunk->refs.store(static_cast<uint32_t>(&now - blocks_), std::memory_order_release);
  now.chunk.store(chunk, std::memory_order_release);
  old.chunk.store(nullptr, std::memory_order_release);
  return true;
}

void PageSpace::Release(void* begin, size_t bytes) {
  const auto offset = OffsetOf(begin);
  size_t free_first = 0, free_end = 0;  // units that go as a whole
  const auto free_them = [&] {
    if (free_end > free_first) FreeUnits(free_first, free_end);
    free_end = free_first = 0;
  };
  for (size_t at = offset, end = offset + bytes, next; at < end; at = next) {
    const size_t u = at / unit_bytes_, from = at % unit_bytes_;
    next = std::min(end, (u + 1) * unit_bytes_);
    const size_t to = from + (next - at);
    const uint64_t used = UsedBytes(u);
    if (used != 0 && from == 0 && to >= used) {
      if (free_end != u) free_them();
      if (free_end == 0) free_first = u;
      free_end = u + 1;
      continue;
    }
    free_them();
    if (used == 0) continue;
    char* const part = homes_.begin + at;
    static_cast<void>(LeavePlain(part, next - at));
    static_cast<void>(DropChunks(part, part + (next - at)));
    if (IsLastGivenBack(part, next - at)) FreeUnits(u, u + 1);
  }
  free_them();
}

bool PageSpace::IsUsed(const void* begin, size_t bytes) const {
  const auto* const last = static_cast<const char*>(begin) + (bytes == 0 ? 0 : bytes - 1);
  if (!Owns(begin) || !Owns(last)) return false;
  for (size_t u = UnitOf(begin); u <= UnitOf(last); ++u) {
    if (!IsUsed(u)) return false;
  }
  return true;
}

size_t PageSpace::UsedBytesFrom(const void* begin, size_t bytes, bool* are_protected) const {
  const auto at = OffsetOf(begin);
  bytes = std::min(bytes, homes_.bytes - at);
  size_t end = at;
  *are_protected = false;
  for (; end < at + bytes && IsUsed(end / unit_bytes_); end = (end / unit_bytes_ + 1) * unit_bytes_) {
    char* const unit = homes_.begin + end / unit_bytes_ * unit_bytes_;
    for (const char* one = unit; !*are_protected && one < unit + unit_bytes_; one = At(one).end()) *are_protected = BlockAt(one).is_protected.load(std::memory_order_relaxed);
  }
  return std::min(bytes, end - std::min(end, at));
}

// With the mutex by which units go: another thread may be giving the rest of one back just now.
bool PageSpace::TakeAgain(void* begin, size_t bytes) {
  auto* const first = static_cast<char*>(begin);
  MutexLock lock(mutex_);
  if (bytes == 0 || !IsUsed(begin, bytes)) return false;
  NoteTaken(first, bytes);
  // Also behind what was asked for: the unit goes without what is between.
  const size_t unit = UnitOf(first + bytes - 1);
  const uint64_t end = OffsetOf(first + bytes - 1) % unit_bytes_ + 1, used = UsedBytes(unit);
  if (used >= end) return true;
  const char* const gap = HomeOfUnit(unit) + (used + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (gap < first) {
    gives_back_.store(true, std::memory_order_relaxed);
    given_back_.Set(PageOf(gap), PageOf(first), true);
  }
  OfUnit(unit).tail.store(end < unit_bytes_ ? static_cast<uint32_t>(end) : 0, std::memory_order_relaxed);
  return true;
}

void PageSpace::Discard(void* begin, size_t bytes) {
  DropChunks(static_cast<char*>(begin), static_cast<char*>(begin) + bytes);
}

// What is there of whole blocks; zeros in what is there of others. Sizes may change meanwhile: then it looks again. False: not all are zeros, because memory or swap is full, or the data is lost.
bool PageSpace::DropChunks(char* begin, char* end) {
  const char* waits_at = nullptr;
  Clock::time_point since;
  bool all = true, told = false;
  for (char *at = begin, *next; at < end; at = next) {
    const Sized one = At(at);
    next = std::min(end, one.end());
    if (one.block->chunk.load() == nullptr) {
      if (!IsStill(one)) next = at;
      continue;
    }
    const bool is_whole = at == one.home && next == one.end();
    if (is_whole && !(ComesWithRights() && one.block->is_protected)) {  // where it would come as a mapping that is not protected it stays
      if (!DropChunk(one)) next = at;
    } else if (!is_whole && one.bytes > unit_bytes_ && SplitLarge(at)) {
      next = at;
    } else if (!is_whole && one.bytes > unit_bytes_ && !IsUsed(UnitOf(at))) {
      const Status status = ClearFreed(one, at, next);
      if (!status.ok() && std::exchange(waits_at, at) != at) since = Clock::now();
      if (!status.ok() && PassesByItself(status) && MayWaitOn(status, since, &told)) {
        next = at;
        std::this_thread::sleep_for(kNap);
      } else if (!status.ok()) {
        LogWarning("memory of %zu KiB that is swapped by pages was given back and is not used again: it cannot be cleared: %s", static_cast<size_t>(next - at) >> 10, status.c_str());
        all = false;
      }
    } else {
      next = Clear(at, next);
    }
  }
  return all;
}

// Of units that nobody may touch any more (OfFreeBlock). kAborted: another thread changes the block: again. As Bring otherwise. What is at home stays there: it may be held.
Status PageSpace::ClearFreed(const Sized& one, char* begin, char* end) {
  const Status again(StatusCode::kAborted, StaticText("another thread changes the block"));
  Chunk* const chunk = one.block->chunk.load();
  const auto clear = [&](bool has_frame) {
    const Locked locked(one.block);
    Block* const block = one.block;
    if (block->chunk.load(std::memory_order_relaxed) != chunk || !IsStill(one) || block->is_copied) return again;
    if (block->blank) return Status();
    if (block->home) return userfault_.Empty(begin, static_cast<size_t>(end - begin)) == 0 ? Status() : again;
    if (!has_frame) return again;
    memset(static_cast<std::byte*>(chunk->frame) + (begin - one.home), 0, static_cast<size_t>(end - begin));
    SetBits(chunk, kDirty);
    return Status();
  };
  if (chunk == nullptr) return IsStill(one) ? Status() : again;
  if (clear(false).ok()) return Status();
  Status status = engine_->AcquireCounted(chunk, true, Engine::WhenPinned::kReturn, &one.block->chunk);
  if (!status.ok()) return status;
  status = clear(true);
  chunk->state.fetch_sub(kOneCountedPin, std::memory_order_release);
  return status;
}

// In one block; where what has been done ends. Where pages may not be written to they are zeros because they are not there: a fault finds none, and the block at home (Show).
char* PageSpace::Clear(char* begin, char* end) {
  {
    const LockedAt one(this, begin);
    end = std::min(end, one.end());
    if (one.block->is_protected) {
      char* const page = begin + -reinterpret_cast<uintptr_t>(begin) % kPageBytes;
      if (one.block->home && page < end) static_cast<void>(userfault_.Empty(page, static_cast<size_t>(end - page) / kPageBytes * kPageBytes));
      return end;
    }
  }
  memset(begin, 0, static_cast<size_t>(end - begin));
  return end;
}

}  // namespace ramspan
