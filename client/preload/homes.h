// What the parts of libramspan-pages share: whether an address is of memory that is swapped by pages, and how the process stands to it.
// Thread-safety: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client/runtime/pages_door.h"
#include "common/public_call.h"

namespace ramspan::preload {

extern detail::PageAddresses homes;  // published by its `bytes`
extern std::atomic<bool> is_forked;  // this process has none of that memory
extern std::atomic<bool> in_signals;  // pages are brought by a handler of SIGBUS, and system calls do not find those that are away

inline bool IsHome(const void* address) {
  return reinterpret_cast<uintptr_t>(address) - homes.begin < homes.bytes;  // before the start: false
}
// Whether a system call needs its memory at home before.
inline bool NeedsPins(const void* address) {
  return __builtin_expect(in_signals.load(std::memory_order_relaxed), 0) && IsHome(address) && detail::t_inside_ramspan == 0 && !is_forked.load(std::memory_order_relaxed);
}

// A stack beside the thread's own for the handler of SIGBUS, unless the program has given it one. (threads.cc)
void MakeStackOfThisThread();

}  // namespace ramspan::preload
