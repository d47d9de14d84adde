// Pins by threads that did not make the adhereTo which they pull. Private to Ramspan although installed (resident.h).
//
// Such a pin is noted in the adhereTo, by one thread at a time: under a lock, because as an atomic member it would have its address taken, and compilers then
// keep all of an adhereTo in memory, also in the loops that make and end one each time around: a pin would take half as long again (docs/architecture.md).
// A lock is held for a few instructions, and is inlined so that a program's own ThreadSanitizer sees it. Who does not get it within some seconds is a signal handler
// that has interrupted who holds it, or a child of _Fork: false.
#pragma once

#include <atomic>
#include <cstdint>

#include "ramspan/detail/resident.h"

namespace ramspan::detail {

struct ForeignPin {
  void* frame;
  uintptr_t word;  // HeldPin::word()
};
// Blocks and throws as a pull. The pin ends with UnpinForeign.
RAMSPAN_API ForeignPin PinForeign(ChunkHead* chunk, bool write);
RAMSPAN_API void UnpinForeign(ChunkHead* chunk, uintptr_t pin) noexcept;
[[noreturn]] RAMSPAN_API void ThrowCannotNote(ChunkHead* chunk, uintptr_t pin);  // ends it before
// Both steps for programs that were compiled when the adhereTo's member was atomic.
RAMSPAN_API void* PinForeign(ChunkHead* chunk, std::atomic<uintptr_t>* pin, bool write);

struct alignas(64) ForeignLock {
  std::atomic<bool> taken{false};
};
inline constexpr unsigned kForeignLocks = 64;
extern RAMSPAN_API ForeignLock g_foreign_locks[kForeignLocks];
RAMSPAN_API bool WaitForForeign(std::atomic<bool>* taken) noexcept;  // takes it, if it is let go within some seconds

inline bool LockForeign(const ChunkHead* chunk) noexcept {
  std::atomic<bool>& taken = g_foreign_locks[chunk->id % kForeignLocks].taken;
  return !taken.exchange(true, std::memory_order_acquire) || WaitForForeign(&taken);
}
inline void UnlockForeign(const ChunkHead* chunk) noexcept { g_foreign_locks[chunk->id % kForeignLocks].taken.store(false, std::memory_order_release); }

}  // namespace ramspan::detail
