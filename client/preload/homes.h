// What the parts of libramspan-pages share: whether an address is of memory that is swapped by pages, and how the process stands to it.
// Thread-safety: any thread.
#pragma once

#include <dlfcn.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "client/runtime/pages_door.h"
#include "common/descriptor.h"
#include "common/public_call.h"

namespace ramspan::preload {

extern detail::PageAddresses homes;  // published by its `bytes`
extern std::atomic<bool> is_forked;  // this process has none of that memory
extern std::atomic<int> page_signal;  // by a handler of which pages are brought, and system calls do not find those that are away; 0: by none
extern std::atomic<size_t> taken_from;  // bytes; what is as large, or larger, is taken. SIZE_MAX: nothing is
extern std::atomic<bool> pins_calls;  // so libc's calls bring them before. And where a page that a device writes to must not leave

inline bool IsHome(const void* address) {
  return reinterpret_cast<uintptr_t>(address) - homes.begin < homes.bytes;  // before the start: false
}
// Whether this is a forked child. If so, it gets its copy of that memory: the kernel would find nothing.
inline bool IsChildWithCopy() {
  if (__builtin_expect(!is_forked.load(std::memory_order_relaxed), 1)) return false;
  if (detail::DescriptorOfCopy() >= 0) detail::CopyOfParentsPages();
  return true;
}
// Whether a system call needs its memory at home before.
inline bool NeedsPins(const void* address) {
  return __builtin_expect(pins_calls.load(std::memory_order_relaxed), 0) && IsHome(address) && detail::t_inside_ramspan == 0 && !IsChildWithCopy();
}

// Whether this is a child of vfork (or clone), which has its parent's memory until it starts another program. (programs.cc)
bool HasMemoryOfParent();

// Whether an allocation of that size is to come from Take, which starts the page mode where that has not been done. Null: it is libc's turn. (preload.cc)
inline bool MayTake(size_t bytes) { return __builtin_expect(bytes >= taken_from.load(std::memory_order_relaxed), 0); }
void* Take(size_t bytes, size_t alignment);
void AwaitStart();  // if another thread makes it just now (preload.cc)
inline void* OutOfMemory() {
  errno = ENOMEM;
  return nullptr;
}

// Whether a handler of SIGBUS or SIGSEGV brings pages, as in each forked child, or, before the start, may be to.
inline bool MayComeBySignal() { return homes.bytes == 0 || page_signal.load(std::memory_order_relaxed) != 0 || is_forked.load(std::memory_order_relaxed); }

// `set` without SIGBUS and SIGSEGV, where they must not be blocked; `own` is for that. Before the start, too: threads that begin then inherit it. (signals.cc)
const sigset_t* Unblockable(const sigset_t* set, sigset_t* own);

// The function that this library stands before. Found when the library is loaded, because dlsym takes the dynamic linker's lock; before that, at its first call.
template <typename Function>
class Libc;
template <typename Result, typename... Arguments>
class Libc<Result (*)(Arguments...)> {
  using Function = Result (*)(Arguments...);

 public:
  constexpr explicit Libc(const char* name) : name_(name) {}
  Function Find() {
    Function found = found_.load(std::memory_order_relaxed);
    if (__builtin_expect(found == nullptr, 0)) {
      found = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name_));
      found_.store(found, std::memory_order_relaxed);
    }
    return found;
  }
  Result operator()(Arguments... arguments) { return Find()(arguments...); }

 private:
  const char* const name_;
  std::atomic<Function> found_{nullptr};
};

// libc's function NAME is real_NAME from here on.
#define RS_LIBC(NAME, ...)                                            \
  namespace {                                                         \
  constinit ramspan::preload::Libc<__VA_ARGS__> real_##NAME(#NAME);   \
  [[gnu::constructor]] void Find_##NAME() { real_##NAME.Find(); }     \
  }

// What Ramspan makes, and a network library in its calls, does not get a number that the program may take for one of its own, and stays when the program
// closes all that it does not know. (descriptors.cc)
void KeepOurs(int fd);
inline int BeyondProgramsIfOurs(int fd) { return __builtin_expect(detail::t_inside_ramspan == 0, 1) ? fd : BeyondPrograms(fd); }
inline void BeyondProgramsIfOurs(int* ends) { ends[0] = BeyondProgramsIfOurs(ends[0]), ends[1] = BeyondProgramsIfOurs(ends[1]); }

// Of the homes all that the program has locked; not the tops of threads' stacks that are held there. (threads.cc)
void UnlockAllButStacks();
// Before memory of the homes is given back: what was a stack's is something else from then on. kEmptied: it is mapped still, and only what it covers whole is no stack any more. (threads.cc)
enum class Given { kBack, kEmptied };
void ForgetTops(const void* begin, size_t bytes, Given given);
extern std::atomic<bool> holds_tops;  // or did once: else there is nothing to forget

// A stack beside the thread's own for the handler of SIGBUS, which is not blocked from then on, unless the program has given it one that is large enough. (threads.cc)
void MakeStackOfThisThread();

}  // namespace ramspan::preload
