// PageSpace, third part: what keeps blocks at home. Pages that the program has made so that it may not use them as others (mprotect), and those that it has locked (mlock). Both
// are known page by page, and a block stays as long as one of its pages is either.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "client/engine/engine.h"
#include "client/pages/page_space.h"

namespace ramspan {

// REQUIRES: locked.
void PageSpace::CountHeld(const Sized& one) {
  Block* const block = one.block;
  const bool holds = block->home && (block->is_protected || block->is_locked);
  if (std::exchange(block->held, holds) == holds) return;
  holds ? held_.fetch_add(one.bytes, std::memory_order_relaxed) : held_.fetch_sub(one.bytes, std::memory_order_relaxed);
}

uint64_t PageSpace::HeldMost() const { return engine_->budget()->limit() / 2; }

// Whether all blocks of the range may be held, beside those that are.
bool PageSpace::MayHold(const char* begin, size_t bytes, bool untouched_too) const {
  uint64_t more = 0;
  for (const char *at = begin, *const end = begin + bytes, *next; at < end; at = next) {
    const Sized seen = At(at);
    next = seen.end();
    if (!untouched_too && seen.block->chunk.load(std::memory_order_acquire) == nullptr) continue;
    const LockedAt one(this, at);
    next = one.end();
    more += one.block->held ? 0 : one.bytes;
  }
  // Descriptors may have taken most of the limit: what is held has to leave some frames to others all the same.
  return more == 0 || held_.load(std::memory_order_relaxed) + more <= std::min(HeldMost(), engine_->budget()->frames_limit() * 2 / 3);
}

Status PageSpace::Lock(void* begin, size_t bytes, bool untouched_too) {
  auto* const first = static_cast<char*>(begin);
  SplitEdges(first, first + bytes);
  if (!MayHold(first, bytes, untouched_too)) return Status(StatusCode::kResourceExhausted, StaticText("what is locked or protected would be more than half of the memory limit, or two thirds of what descriptors leave of it"));
  for (char *at = first, *const end = first + bytes, *next; at < end; at = next) {
    next = at;
    KeepSizes(at);  // may be the top of a stack
    if (Status status = ChargeBlock(&BlockAt(at)); !status.ok()) return status;
    {
      const LockedAt one(this, at);
      if (one.block->home || (!untouched_too && one.block->chunk.load(std::memory_order_relaxed) == nullptr)) {  // that comes with its lock (Show)
        next = std::min(end, one.end());
        locks_.Set(PageOf(at), PageOf(next - 1) + 1, true);
        one.block->is_locked = true;
        CountHeld(one);
      }
    }
    if (next != at) continue;
    if (Status status = Bring(at); !status.ok()) return status;
  }
  return Status();
}

void PageSpace::Unlock(void* begin, size_t bytes) {
  // As munlockall gives all homes: behind what was ever used nothing is locked.
  char* const used_end = HomeOfUnit(used_end_.load(std::memory_order_relaxed));
  for (char *at = static_cast<char*>(begin), *const end = std::min(at + bytes, used_end), *next; at < end; at = next) {
    if (locks_.AreNone64(PageOf(at))) {
      next = std::min(end, Behind64(at));
      continue;
    }
    const LockedAt one(this, at);
    next = std::min(end, one.end());
    if (!one.block->is_locked.load(std::memory_order_relaxed)) continue;
    locks_.Set(PageOf(at), PageOf(next - 1) + 1, false);
    one.block->is_locked = locks_.Any(PageOf(one.home), PageOf(one.end() - 1) + 1);
    CountHeld(one);
  }
}

void PageSpace::SetInherited(const void* begin, size_t bytes, bool is_inherited) const {
  char* const first = At(begin).home;
  syscall(SYS_madvise, first, At(static_cast<const char*>(begin) + bytes - 1).end() - first, is_inherited ? MADV_DOFORK : MADV_DONTFORK);
}

int PageSpace::Protect(void* begin, size_t bytes, int protection) {
  auto* const first = static_cast<char*>(begin);
  if ((protection & ~(PROT_READ | PROT_WRITE | PROT_EXEC)) != 0) return EINVAL;
  if (protection != (PROT_READ | PROT_WRITE)) SplitEdges(first, first + bytes);
  if (protection != (PROT_READ | PROT_WRITE) && !MayHold(first, bytes, ComesWithRights())) return ENOMEM;
  for (char *at = first, *const end = first + bytes, *next; at < end; at = next) {
    if (protection == (PROT_READ | PROT_WRITE) && rights_.AreNone64(PageOf(at))) {  // they are so already, and perhaps never touched
      next = std::min(end, Behind64(at));
      continue;
    }
    if (!ChargeBlock(&BlockAt(at)).ok()) return ENOMEM;
    if (const int error = ProtectIn(at, end, protection, &next); error != 0) return error;
  }
  return 0;
}

// Pages of one block, from `at` to `*next`, `end` at most; all of it in one step for who brings it, or takes it away. What has never been touched keeps the mapping of its home, and with it its rights, but
// where it comes as another mapping.
int PageSpace::ProtectIn(char* at, char* end, int protection, char** next) {
  const bool is_plain = protection == (PROT_READ | PROT_WRITE);
  for (;;) {
    bool is_read = false;
    {
      const LockedAt one(this, at);
      Block* const block = one.block;
      *next = std::min(end, one.end());
      const auto bytes = static_cast<size_t>(*next - at);
      is_read = block->is_copied;  // for a child, which may need other rights for a moment
      const bool needs_home = !is_plain && (ComesWithRights() || block->chunk.load(std::memory_order_relaxed) != nullptr);
      if (!is_read && (block->home || !needs_home)) {
        if ((block->home || !ComesWithRights()) && syscall(SYS_mprotect, at, bytes, protection) != 0) return errno;
        rights_.Set(PageOf(at), PageOf(at) + bytes / kPageBytes, !is_plain);
        block->is_protected = rights_.Any(PageOf(one.home), PageOf(one.home) + one.bytes / kPageBytes);
        CountHeld(one);
        return 0;
      }
    }
    if (is_read) {
      std::this_thread::sleep_for(kNap);
    } else if (!Bring(at).ok()) {
      return ENOMEM;
    }
  }
}

bool PageSpace::IsRefusedByProgram(const void* address) const {
  const LockedAt one(this, address);
  return one.block->home && rights_[PageOf(address)];
}

// Mapping by mapping. Of one that has gone meanwhile the kernel says the same as of too much; and another one may be there by the time of the next look.
int PageSpace::LockOthers() const {
  FILE* const maps = fopen("/proc/self/maps", "re");
  if (maps == nullptr) return errno;
  constexpr int kTriesMost = 50;
  int error = 0;
  char line[512];
  for (bool is_begin = true; fgets(line, sizeof(line), maps) != nullptr; is_begin = strchr(line, '\n') != nullptr) {
    uintptr_t begin = 0, end = 0;
    if (!is_begin || sscanf(line, "%lx-%lx", &begin, &end) != 2 || strstr(line, " [v") != nullptr) continue;  // [vdso] and the like are the kernel's
    const auto is_in = [&](const AddressRange& range) { return begin < reinterpret_cast<uintptr_t>(range.begin) + range.bytes && end > reinterpret_cast<uintptr_t>(range.begin); };
    if (is_in(homes_) || is_in(frames_)) continue;
    int failed = ENOMEM;
    for (int tries = 0; failed == ENOMEM && tries < kTriesMost; ++tries) {
      failed = syscall(SYS_mlock2, begin, end - begin, MLOCK_ONFAULT) == 0 ? 0 : errno;
      if (failed == ENOMEM && syscall(SYS_msync, begin, end - begin, MS_ASYNC) != 0) failed = 0;
    }
    if (failed != 0) error = failed;
  }
  fclose(maps);
  return error;
}

}  // namespace ramspan
