// What the preloaded library (client/preload) needs of the page mode beyond <ramspan/pages.h>. Exported, but not installed.
// Thread-safety: any thread. All but AddressesOfPages, LeaveAddressesToProgram and PagesAbove need a start by AllocatePages, and addresses of its.
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "ramspan/detail/resident.h"

namespace ramspan::detail {

// Where all memory of AllocatePages is; {0, 0} before the start.
struct PageAddresses {
  uintptr_t begin = 0;
  size_t bytes = 0;
};
RAMSPAN_API PageAddresses AddressesOfPages() noexcept;
// Before the start, for a program that knows nothing of it: LeaveHalfOfAddresses.
RAMSPAN_API void LeaveAddressesToProgram() noexcept;
RAMSPAN_API size_t PagesAbove() noexcept;  // the key pagesAbove, after the start
uint64_t PagesCramped() noexcept;  // PageSpace::Counters::cramped
RAMSPAN_API size_t PagesAboveOfUnmodified() noexcept;  // 0: not in a program that has called LeaveAddressesToProgram
// Before it, as far as the environment says it: for who starts with the first allocation that is as large. Does not use the heap.
RAMSPAN_API size_t PagesAboveOfEnvironment() noexcept;
// At the end of a program that had no such allocation. Says so where it had more memory than the environment's limit.
RAMSPAN_API void TellOfNoPages() noexcept;
// Now and then; one thread at a time. Says once that an unmodified program has much memory that the limit does not hold for.
// `far_servers`: how many there are, whose network has buffers of its own here.
void TellOfMemoryBeside(uint64_t limit, uint64_t pages_above, const std::function<size_t()>& far_servers);
RAMSPAN_API int SignalOfPages() noexcept;  // by which they come, after the start; 0: by none
// The descriptor without which memory that has left is zeros.
RAMSPAN_API int DescriptorOfPages() noexcept;
// For a library that is loaded before others: their handlers of forks may use such memory. Else they are registered at the start.
RAMSPAN_API void RegisterForkHandlers() noexcept;
// In a forked child: gets the copy of the parent's memory, if it has none yet; false: there is none.
RAMSPAN_API bool CopyOfParentsPages() noexcept;
RAMSPAN_API int DescriptorOfCopy() noexcept;  // without which there will be none; -1: none is needed
RAMSPAN_API void DropPagesInChild(void* begin, size_t bytes) noexcept;  // gives memory of the copy back
// As PageSpace's.
RAMSPAN_API void* ReallocatePages(void* begin, size_t bytes) noexcept;
RAMSPAN_API void ReleasePages(void* begin, size_t bytes) noexcept;
RAMSPAN_API bool TakePagesAgain(void* begin, size_t bytes) noexcept;
RAMSPAN_API bool PagesAreUsed(const void* begin, size_t bytes) noexcept;  // REQUIRES: no Free beside it
RAMSPAN_API size_t UsedPages(void* begin, size_t bytes, bool* are_protected) noexcept;
RAMSPAN_API size_t PinPagesForCall(void* begin, size_t bytes) noexcept;
RAMSPAN_API void UnpinPagesForCall(const void* begin, size_t bytes) noexcept;
// Whether this is a child, with a copy of its memory, of a process in which Ramspan had begun.
RAMSPAN_API bool IsForkedChild() noexcept;
// Whether this is a child of _Fork or clone, of which no handlers of forks were told, with a copy of its parent's memory.
RAMSPAN_API bool IsUnknownChild() noexcept;
// As sigaction(SignalOfPages()), for what is not Ramspan's of it; in a forked child that has or gets a copy, as sigaction(SIGSEGV).
RAMSPAN_API void ExchangeHandlerOfOthers(const struct sigaction* action, struct sigaction* before) noexcept;
RAMSPAN_API bool LockPages(void* begin, size_t bytes, bool untouched_too) noexcept;
RAMSPAN_API void UnlockPages(void* begin, size_t bytes) noexcept;
RAMSPAN_API size_t UnitOfPages() noexcept;  // a power of two, in bytes
RAMSPAN_API void SetPagesInherited(const void* begin, size_t bytes, bool are_inherited) noexcept;
RAMSPAN_API int LockOthers() noexcept;  // errno
RAMSPAN_API int ProtectPages(void* begin, size_t bytes, int protection) noexcept;  // errno

}  // namespace ramspan::detail
